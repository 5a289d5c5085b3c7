//! Authentication, authorization, and a record of requests.
//!
//! Bearer tokens and client certificates; full access for `system:masters`, the default public roles for everyone
//! else: role-based access control is not enforced here. A [`Recorder`] records what each user
//! requested, so that a test can compare a role with it.

pub mod authority;
mod certificate;
pub mod kubeconfig;
mod recorder;
mod review;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, StatusCode, header};
use serde_json::{Value, json};

use crate::status::{About, Failure};
pub use certificate::Identity;
pub use recorder::{Record, Recorder};
pub use review::review;

/// The group with all rights.
pub const MASTERS: &str = "system:masters";
const AUTHENTICATED: &str = "system:authenticated";
const ANONYMOUS: &str = "system:anonymous";

/// The user of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub groups: Vec<String>,
}

impl User {
    pub fn new(name: impl Into<String>, groups: &[&str]) -> Self {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        Self { name: name.into(), groups }
    }

    fn anonymous() -> Self {
        Self::new(ANONYMOUS, &["system:unauthenticated"])
    }

    fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|mine| mine == group)
    }

    /// The `UserInfo` object.
    pub fn to_json(&self) -> Value {
        json!({ "username": self.name, "groups": self.groups })
    }
}

/// Identifies the user of a request.
#[derive(Debug, Default)]
pub struct Authenticator {
    tokens: Vec<(String, User)>,
}

impl Authenticator {
    /// Accepts client certificates only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a bearer token.
    #[must_use]
    pub fn with_token(mut self, token: impl Into<String>, user: User) -> Self {
        self.tokens.push((token.into(), user));
        self
    }

    /// The user behind a request: by client certificate, else by token, else anonymous; 401 for a wrong token.
    pub fn authenticate(&self, headers: &HeaderMap, peer: Option<&Identity>) -> Result<User, Failure> {
        let user = match (peer, headers.get(header::AUTHORIZATION)) {
            (Some(peer), _) => authenticated(peer.user()),
            (None, Some(value)) => {
                let token = bearer(value.to_str().unwrap_or_default());
                // Another scheme, or an empty token, counts as no header.
                match token {
                    Some(token) => authenticated(self.user_of(token).ok_or_else(unauthorized)?),
                    None => User::anonymous(),
                }
            }
            (None, None) => User::anonymous(),
        };
        if let Some(name) = headers.keys().find(|name| name.as_str().starts_with("impersonate-")) {
            let why = format!("header {name}: this API server does not impersonate: use credentials of that user");
            return Err(Failure::new(StatusCode::FORBIDDEN, "Forbidden", why));
        }
        Ok(user)
    }

    /// The user of a token; a wrong one takes as long as a right one.
    fn user_of(&self, token: &str) -> Option<User> {
        let mut found = None;
        for (known, user) in &self.tokens {
            if equal(known.as_bytes(), token.as_bytes()) {
                found = Some(user.clone());
            }
        }
        found
    }
}

/// A random bearer token.
pub(crate) fn token() -> String {
    let mut bytes = [0; 32];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).expect("the kernel gives random bytes");
    URL_SAFE_NO_PAD.encode(bytes)
}

/// What a request wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access<'a> {
    /// A verb on a resource.
    Resource {
        /// get, list, watch, create, update, patch, delete, deletecollection.
        verb: &'a str,
        group: &'a str,
        /// The plural.
        resource: &'a str,
        subresource: &'a str,
        /// Empty for cluster scope; for a Namespace its own name.
        namespace: &'a str,
        name: &'a str,
    },
    /// A non-resource path; the verb is the method in lower case.
    Path { verb: &'a str, path: &'a str },
}

/// Decides whether a user may: `system:masters` may do everything, others what the default public roles grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Authorizer;

impl Authorizer {
    pub fn authorize(self, user: &User, access: Access<'_>) -> Result<(), Failure> {
        if self.allows(user, access) { Ok(()) } else { Err(forbidden(user, access)) }
    }

    pub fn allows(self, user: &User, access: Access<'_>) -> bool {
        user.is_in(MASTERS) || granted_to_all(user.is_in(AUTHENTICATED), access)
    }
}

/// The default roles system:public-info-viewer, system:discovery and system:basic-user.
fn granted_to_all(known: bool, access: Access<'_>) -> bool {
    match access {
        Access::Path { verb: "get", path } => {
            let public = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
            let trees = ["/api", "/apis", "/openapi"];
            let within =
                |tree: &&str| path == *tree || path.strip_prefix(*tree).is_some_and(|rest| rest.starts_with('/'));
            public.contains(&path) || (known && trees.iter().any(within))
        }
        Access::Resource { verb: "create", resource: "selfsubjectaccessreviews" | "selfsubjectreviews", .. } => known,
        Access::Path { .. } | Access::Resource { .. } => false,
    }
}

fn forbidden(user: &User, access: Access<'_>) -> Failure {
    match access {
        Access::Path { verb, path } => {
            let why = format!("forbidden: User {:?} cannot {verb} path {path:?}", user.name);
            Failure::generic(StatusCode::FORBIDDEN, "Forbidden", why)
        }
        Access::Resource { verb, group, resource, subresource, namespace, name } => {
            let what = format!("{resource}/{subresource}");
            let (user, what) = (&user.name, what.trim_end_matches('/'));
            let place =
                if namespace.is_empty() { "the cluster".to_owned() } else { format!("namespace {namespace:?}") };
            let why = format!("User {user:?} cannot {verb} resource {what:?} in API group {group:?} in {place}");
            Failure::forbidden(About { group, resource, name }, &why)
        }
    }
}

fn unauthorized() -> Failure {
    Failure::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
}

fn authenticated(mut user: User) -> User {
    if !user.is_in(AUTHENTICATED) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.trim().split_once(' ')?;
    let token = token.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Compares in time that depends on the lengths only.
fn equal(left: &[u8], right: &[u8]) -> bool {
    let difference = left.iter().zip(right).fold(0, |difference, (left, right)| difference | (left ^ right));
    std::hint::black_box(difference) == 0 && left.len() == right.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(http::HeaderName::from_static(name), value.parse().unwrap())])
    }

    #[test]
    fn a_token_names_its_user_and_a_wrong_one_is_401() {
        let auth = Authenticator::new().with_token("secret", User::new("admin", &[MASTERS]));

        let user = auth.authenticate(&headers("authorization", "Bearer secret"), None).unwrap();
        assert_eq!(user.groups, [MASTERS, AUTHENTICATED]);
        for wrong in ["Bearer secre", "Bearer secrets", "bearer x"] {
            let failure = auth.authenticate(&headers("authorization", wrong), None).unwrap_err();
            assert_eq!((failure.code.as_u16(), failure.message.as_str()), (401, "Unauthorized"), "{wrong}");
        }
        assert_eq!(auth.authenticate(&HeaderMap::new(), None).unwrap().name, ANONYMOUS);
        assert_eq!(auth.authenticate(&headers("impersonate-user", "x"), None).unwrap_err().code.as_u16(), 403);
    }

    #[test]
    fn who_is_no_master_is_refused() {
        let access = Access::Resource {
            verb: "get",
            group: "apps",
            resource: "deployments",
            subresource: "scale",
            namespace: "y",
            name: "z",
        };
        let user = authenticated(User::new("x", &[]));
        for access in [access, Access::Path { verb: "get", path: "/foo" }] {
            assert_eq!(Authorizer.authorize(&user, access).unwrap_err().code.as_u16(), 403);
            assert_eq!(Authorizer.authorize(&User::new("m", &[MASTERS]), access), Ok(()));
        }
        let told = Authorizer.authorize(&user, access).unwrap_err().message;
        assert!(told.contains(r#"User "x" cannot get resource "deployments/scale" in API group "apps""#), "{told}");
    }

    #[test]
    fn anonymous_users_see_health_and_version_and_authenticated_ones_discovery() {
        let get = |path| Access::Path { verb: "get", path };
        for (path, anonymous, known) in [
            ("/livez", true, true),
            ("/readyz", true, true),
            ("/healthz", true, true),
            ("/version", true, true),
            ("/livez/ping", false, false),
            ("/", false, false),
            ("/api", false, true),
            ("/apis/apps/v1", false, true),
            ("/apix", false, false),
            ("/openapi/v3", false, true),
        ] {
            assert_eq!(Authorizer.allows(&User::anonymous(), get(path)), anonymous, "{path}");
            assert_eq!(Authorizer.allows(&authenticated(User::new("x", &[])), get(path)), known, "{path}");
        }
    }
}
