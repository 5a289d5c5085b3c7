//! Reviews: kinds that are answered and never stored, behind `kubectl auth whoami` and `can-i`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::authenticator::Authenticator;
use super::authorizer::{Access, Authorizer};
use super::user::User;
use crate::status::Failure;

/// A kind that is created, answered and never stored, in version v1 of its group.
#[derive(Debug)]
pub struct ReviewKind {
    pub group: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
}

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// All of them, by group and plural.
pub const REVIEWS: [ReviewKind; 6] = [
    review_kind(AUTHENTICATION, "SelfSubjectReview", "selfsubjectreviews"),
    review_kind(AUTHENTICATION, "TokenReview", "tokenreviews"),
    ReviewKind {
        namespaced: true,
        ..review_kind(AUTHORIZATION, "LocalSubjectAccessReview", "localsubjectaccessreviews")
    },
    review_kind(AUTHORIZATION, "SelfSubjectAccessReview", "selfsubjectaccessreviews"),
    review_kind(AUTHORIZATION, "SelfSubjectRulesReview", "selfsubjectrulesreviews"),
    review_kind(AUTHORIZATION, "SubjectAccessReview", "subjectaccessreviews"),
];

const fn review_kind(group: &'static str, kind: &'static str, plural: &'static str) -> ReviewKind {
    ReviewKind { group, kind, plural, namespaced: false }
}

/// What answers reviews, and who asks.
#[derive(Debug, Clone, Copy)]
pub struct Reviewer<'a> {
    pub authenticator: &'a Authenticator,
    pub authorizer: Authorizer,
    pub user: &'a User,
}

impl Reviewer<'_> {
    /// Answers the creation of a review: the body with its `status`. None if the resource is no review.
    pub fn review(self, (group, resource): (&str, &str), body: &Value) -> Option<Result<Value, Failure>> {
        let known = REVIEWS.iter().find(|known| known.group == group && known.plural == resource)?;
        let Self { authenticator, authorizer, user } = self;
        let spec = &body["spec"];
        let allowed = |user: &User| allowed(authorizer, user, spec).map(|allowed| json!({ "allowed": allowed }));
        let status = match known.kind {
            "SelfSubjectReview" => Ok(json!({ "userInfo": user.to_json() })),
            "TokenReview" => token_status(authenticator, spec),
            "SelfSubjectAccessReview" => allowed(user),
            "SelfSubjectRulesReview" => Ok(rules(authorizer, user)),
            _ => subject(spec).and_then(|subject| allowed(&subject)),
        };
        Some(status.map(|status| {
            let mut answer = body.clone();
            let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            answer["metadata"]["creationTimestamp"] = json!(now);
            answer["status"] = status;
            answer
        }))
    }
}

fn token_status(authenticator: &Authenticator, spec: &Value) -> Result<Value, Failure> {
    let token = spec["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(Failure::bad_request("token is required for TokenReview in authentication"));
    }
    Ok(match authenticator.user_of(token) {
        Some(user) => json!({ "authenticated": true, "user": user.authenticated().to_json() }),
        None => json!({ "user": {}, "error": "this token was not given out by this API server" }),
    })
}

/// The user that a review asks about, in the groups that it names and no other.
fn subject(spec: &Value) -> Result<User, Failure> {
    let groups: Vec<&str> = spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let name = spec["user"].as_str().unwrap_or_default();
    if name.is_empty() && groups.is_empty() {
        return Err(Failure::bad_request("at least one of spec.user and spec.groups must be specified"));
    }
    Ok(User::new(name, &groups))
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
        let authenticator = Authenticator::new().with_token("secret", User::new("holder", &[]));
        let ask = |user: &User, resource: (&str, &str), spec: &Value| {
            let body = json!({ "apiVersion": format!("{}/v1", resource.0), "kind": "X", "spec": spec });
            let reviewer = Reviewer { authenticator: &authenticator, authorizer: Authorizer, user };
            reviewer.review(resource, &body).unwrap()
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
        let token = |token: &str| {
            ask(&admin, ("authentication.k8s.io", "tokenreviews"), &json!({ "token": token })).unwrap()["status"]
                .clone()
        };
        assert_eq!(token("secret")["user"], json!({ "username": "holder", "groups": [AUTHENTICATED] }));
        assert_eq!(token("other").get("authenticated"), None);
        let subject = |groups: &[&str]| {
            let spec = json!({ "user": "x", "groups": groups, "resourceAttributes": pods["resourceAttributes"] });
            ask(&nobody, ("authorization.k8s.io", "subjectaccessreviews"), &spec).unwrap()["status"].clone()
        };
        assert_eq!(subject(&[MASTERS]), json!({ "allowed": true }));
        assert_eq!(subject(&["guests"]), json!({ "allowed": false }));
        let reviewer = Reviewer { authenticator: &authenticator, authorizer: Authorizer, user: &admin };
        assert_eq!(reviewer.review(("authentication.k8s.io", "pods"), &json!({})), None);
    }
}
