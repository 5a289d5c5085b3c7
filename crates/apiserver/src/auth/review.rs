//! Reviews: kinds that are answered and never stored, behind `kubectl auth whoami` and `can-i`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{AUTHENTICATED, Access, Authenticator, Authorizer, User, authenticated};
use crate::status::{About, Cause, Failure};

const AUTHORIZATION: &str = "authorization.k8s.io";

/// Answers the creation of a review: the body with its `status`. None if the resource is no review.
pub fn review(
    authenticator: &Authenticator,
    authorizer: Authorizer,
    user: &User,
    (group, resource): (&str, &str),
    body: &Value,
) -> Option<Result<Value, Failure>> {
    let answer = match (group, resource) {
        ("authentication.k8s.io", "selfsubjectreviews") => Ok(whoami(user, body)),
        ("authentication.k8s.io", "tokenreviews") => token(authenticator, body),
        (AUTHORIZATION, "selfsubjectaccessreviews") => access(authorizer, user, body),
        (AUTHORIZATION, "subjectaccessreviews" | "localsubjectaccessreviews") => subject(authorizer, body),
        (AUTHORIZATION, "selfsubjectrulesreviews") => rules(authorizer, user, body),
        _ => return None,
    };
    Some(answer)
}

fn whoami(user: &User, body: &Value) -> Value {
    let mut answer = with_status(body, json!({ "userInfo": user.to_json() }));
    answer["metadata"]["creationTimestamp"] = json!(Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    answer
}

fn token(authenticator: &Authenticator, body: &Value) -> Result<Value, Failure> {
    let token = body["spec"]["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(Failure::bad_request("token is required for TokenReview in authentication"));
    }
    let status = match authenticator.user_of(token) {
        Some(user) => json!({ "authenticated": true, "user": authenticated(user).to_json() }),
        None => json!({ "user": {}, "error": "invalid bearer token" }),
    };
    Ok(with_status(body, status))
}

fn access(authorizer: Authorizer, user: &User, body: &Value) -> Result<Value, Failure> {
    let spec = &body["spec"];
    let text = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned();
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let allowed = match (resource.is_object(), path.is_object()) {
        (true, false) => {
            let field = |name: &str| text(&resource[name]);
            let (verb, group, plural) = (field("verb"), field("group"), field("resource"));
            let (subresource, namespace, name) = (field("subresource"), field("namespace"), field("name"));
            authorizer.allows(
                user,
                Access::Resource {
                    verb: &verb,
                    group: &group,
                    resource: &plural,
                    subresource: &subresource,
                    namespace: &namespace,
                    name: &name,
                },
            )
        }
        (false, true) => {
            let (verb, path) = (text(&path["verb"]), text(&path["path"]));
            authorizer.allows(user, Access::Path { verb: &verb, path: &path })
        }
        (false, false) => {
            let why =
                "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified";
            return Err(invalid("spec.resourceAttributes", why.to_owned()));
        }
        (true, true) => {
            let shown = json!({ "Path": path["path"], "Verb": path["verb"] });
            let why = format!("Invalid value: {shown}: cannot be specified in combination with resourceAttributes");
            return Err(invalid("spec.nonResourceAttributes", why));
        }
    };
    Ok(with_status(body, json!({ "allowed": allowed })))
}

fn subject(authorizer: Authorizer, body: &Value) -> Result<Value, Failure> {
    let spec = &body["spec"];
    let name = spec["user"].as_str().unwrap_or_default();
    let groups: Vec<&str> = spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if name.is_empty() && groups.is_empty() {
        return Err(invalid(
            "spec.user",
            "Invalid value: \"\": at least one of user or group must be specified".to_owned(),
        ));
    }
    access(authorizer, &User::new(name, &groups), body)
}

fn rules(authorizer: Authorizer, user: &User, body: &Value) -> Result<Value, Failure> {
    let namespace = body["spec"]["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(Failure::bad_request("no namespace on request"));
    }
    let all = Access::Resource { verb: "*", group: "*", resource: "*", subresource: "", namespace, name: "" };
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    if authorizer.allows(user, all) {
        resources.push(json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }));
        paths.push(json!({ "verbs": ["*"], "nonResourceURLs": ["*"] }));
    }
    if user.is_in(AUTHENTICATED) {
        let own = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"];
        resources.push(json!({ "verbs": ["create"], "apiGroups": [AUTHORIZATION], "resources": own }));
        resources.push(
            json!({ "verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"] }),
        );
        let discovery = [
            "/api",
            "/api/*",
            "/apis",
            "/apis/*",
            "/healthz",
            "/livez",
            "/openapi",
            "/openapi/*",
            "/readyz",
            "/version",
            "/version/",
        ];
        paths.push(json!({ "verbs": ["get"], "nonResourceURLs": discovery }));
    }
    let public = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
    paths.push(json!({ "verbs": ["get"], "nonResourceURLs": public }));
    let status = json!({ "resourceRules": resources, "nonResourceRules": paths, "incomplete": false });
    let mut answer = with_status(body, status);
    answer["spec"] = json!({});
    Ok(answer)
}

fn with_status(body: &Value, status: Value) -> Value {
    let mut answer = body.clone();
    if !answer["metadata"].is_object() {
        answer["metadata"] = json!({});
    }
    answer["status"] = status;
    answer
}

/// The real server names neither kind nor object here.
fn invalid(field: &str, message: String) -> Failure {
    let about = About { group: AUTHORIZATION, resource: "", name: "" };
    Failure::invalid(about, &[Cause { reason: "FieldValueInvalid", message, field: field.to_owned() }])
}

#[cfg(test)]
mod tests {
    use super::super::MASTERS;
    use super::*;

    fn ask(user: &User, resource: (&str, &str), spec: &Value) -> Result<Value, Failure> {
        let auth = Authenticator::new().with_token("good", User::new("bob", &[]));
        let body = json!({ "apiVersion": format!("{}/v1", resource.0), "kind": "X", "spec": spec });
        review(&auth, Authorizer::Masters, user, resource, &body).unwrap()
    }

    #[test]
    fn whoami_and_can_i_are_answered() {
        let admin = authenticated(User::new("admin", &[MASTERS]));
        let nobody = authenticated(User::new("x", &[]));
        let access = (AUTHORIZATION, "selfsubjectaccessreviews");
        let pods = json!({ "resourceAttributes": { "verb": "list", "resource": "pods", "namespace": "y" } });

        let me = ask(&admin, ("authentication.k8s.io", "selfsubjectreviews"), &json!(null)).unwrap();
        assert_eq!(me["status"]["userInfo"], json!({ "username": "admin", "groups": [MASTERS, AUTHENTICATED] }));
        assert_eq!(ask(&admin, access, &pods).unwrap()["status"], json!({ "allowed": true }));
        assert_eq!(ask(&nobody, access, &pods).unwrap()["status"], json!({ "allowed": false }));
        assert_eq!(
            ask(&admin, access, &json!({})).unwrap_err().message,
            ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of \
             nonResourceAttributes or resourceAttributes must be specified"
        );
        let subjects = (AUTHORIZATION, "subjectaccessreviews");
        let mut bob = pods.clone();
        bob["user"] = json!("bob");
        assert_eq!(ask(&admin, subjects, &bob).unwrap()["status"], json!({ "allowed": false }));
        bob["groups"] = json!([MASTERS]);
        assert_eq!(ask(&admin, subjects, &bob).unwrap()["status"], json!({ "allowed": true }));
    }

    #[test]
    fn a_token_is_reviewed() {
        let admin = User::new("admin", &[MASTERS]);
        let tokens = ("authentication.k8s.io", "tokenreviews");

        let bad = ask(&admin, tokens, &json!({ "token": "bad" })).unwrap();
        let good = ask(&admin, tokens, &json!({ "token": "good" })).unwrap();

        assert_eq!(bad["status"], json!({ "user": {}, "error": "invalid bearer token" }));
        assert_eq!(good["status"]["user"], json!({ "username": "bob", "groups": [AUTHENTICATED] }));
        assert!(ask(&admin, tokens, &json!({})).is_err());
    }
}
