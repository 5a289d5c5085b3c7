//! Authorization: full access for `system:masters`, the default public roles for everyone else.

use http::StatusCode;

use super::user::{AUTHENTICATED, MASTERS, User};
use crate::status::{About, Failure};

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
        Access::Resource { verb: "create", resource, .. } => {
            known && matches!(resource, "selfsubjectaccessreviews" | "selfsubjectrulesreviews" | "selfsubjectreviews")
        }
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let user = User::new("x", &[]).authenticated();
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
            assert_eq!(Authorizer.allows(&User::new("x", &[]).authenticated(), get(path)), known, "{path}");
        }
    }
}
