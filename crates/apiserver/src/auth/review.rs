//! Reviews: kinds that are answered and never stored, behind `kubectl auth whoami` and `can-i`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::authorizer::{Access, Authorizer};
use super::user::User;
use crate::status::Failure;

/// Answers the creation of a review: the body with its `status`. None if the resource is no review.
pub fn review(
    authorizer: Authorizer,
    user: &User,
    (group, resource): (&str, &str),
    body: &Value,
) -> Option<Result<Value, Failure>> {
    let status = match (group, resource) {
        ("authentication.k8s.io", "selfsubjectreviews") => Ok(json!({ "userInfo": user.to_json() })),
        ("authorization.k8s.io", "selfsubjectaccessreviews") => {
            allowed(authorizer, user, &body["spec"]).map(|allowed| json!({ "allowed": allowed }))
        }
        ("authorization.k8s.io", "selfsubjectrulesreviews") => Ok(rules(authorizer, user)),
        _ => return None,
    };
    Some(status.map(|status| {
        let mut answer = body.clone();
        answer["metadata"]["creationTimestamp"] = json!(Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        answer["status"] = status;
        answer
    }))
}

/// What a user may do, behind `kubectl auth can-i --list`.
fn rules(authorizer: Authorizer, user: &User) -> Value {
    let all = Access::Resource { verb: "*", group: "*", resource: "*", subresource: "", namespace: "", name: "" };
    let (resources, paths) = if authorizer.allows(user, all) {
        (json!([{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }]), json!(["*"]))
    } else {
        let reviews = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"];
        let resources = json!([
            { "verbs": ["create"], "apiGroups": ["authorization.k8s.io"], "resources": reviews },
            { "verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"] },
        ]);
        let roots = ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz"];
        (resources, json!([&roots[..], &["/version", "/version/"]].concat()))
    };
    let verbs = if paths == json!(["*"]) { "*" } else { "get" };
    json!({
        "resourceRules": resources, "nonResourceRules": [{ "verbs": [verbs], "nonResourceURLs": paths }],
        "incomplete": false,
    })
}

fn allowed(authorizer: Authorizer, user: &User, spec: &Value) -> Result<bool, Failure> {
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let attributes = if resource.is_object() { resource } else { path };
    let text = |name: &str| attributes[name].as_str().unwrap_or_default();
    let access = match (resource.is_object(), path.is_object()) {
        (true, false) => Access::Resource {
            verb: text("verb"),
            group: text("group"),
            resource: text("resource"),
            subresource: text("subresource"),
            namespace: text("namespace"),
            name: text("name"),
        },
        (false, true) => Access::Path { verb: text("verb"), path: text("path") },
        (true, true) | (false, false) => {
            let why = "exactly one of spec.resourceAttributes and spec.nonResourceAttributes must be specified";
            return Err(Failure::bad_request(why));
        }
    };
    Ok(authorizer.allows(user, access))
}

#[cfg(test)]
mod tests {
    use super::super::user::{AUTHENTICATED, MASTERS};
    use super::*;

    #[test]
    fn whoami_and_can_i_are_answered() {
        let ask = |user: &User, resource: (&str, &str), spec: &Value| {
            let body = json!({ "apiVersion": format!("{}/v1", resource.0), "kind": "X", "spec": spec });
            review(Authorizer, user, resource, &body).unwrap()
        };
        let admin = User::new("admin", &[MASTERS]).authenticated();
        let nobody = User::new("x", &[]).authenticated();
        let access = ("authorization.k8s.io", "selfsubjectaccessreviews");
        let pods = json!({ "resourceAttributes": { "verb": "list", "resource": "pods", "namespace": "y" } });

        let me = ask(&admin, ("authentication.k8s.io", "selfsubjectreviews"), &json!(null)).unwrap();
        assert_eq!(me["status"]["userInfo"], json!({ "username": "admin", "groups": [MASTERS, AUTHENTICATED] }));
        assert_eq!(ask(&admin, access, &pods).unwrap()["status"], json!({ "allowed": true }));
        assert_eq!(ask(&nobody, access, &pods).unwrap()["status"], json!({ "allowed": false }));
        assert_eq!(ask(&admin, access, &json!({})).unwrap_err().code.as_u16(), 400);
        let rules = ("authorization.k8s.io", "selfsubjectrulesreviews");
        let of = |user: &User| ask(user, rules, &json!({ "namespace": "x" })).unwrap()["status"].clone();
        assert_eq!(of(&admin)["resourceRules"][0]["verbs"], json!(["*"]));
        assert_eq!(of(&nobody)["resourceRules"][0]["verbs"], json!(["create"]));
        assert_eq!(review(Authorizer, &admin, ("authentication.k8s.io", "tokenreviews"), &json!({})), None);
    }
}
