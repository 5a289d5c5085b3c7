//! The grammar of paths: from a path to what it names, without knowing which kinds are served.
//!
//! The path is decoded first and split after, as Kubernetes does it: `%2F` is a slash.

use super::text::{quote, unescape_path};
use crate::status::Failure;

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `/`
    Root,
    /// `/version`
    Version,
    /// `/livez`, `/readyz` and `/healthz`, and one check of them.
    Health { endpoint: &'static str, check: Option<String> },
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/G`
    Group(String),
    /// `/api/v1` (the empty group) and `/apis/G/V`
    Resources { group: String, version: String },
    /// `/openapi/v3`
    OpenApiIndex,
    /// `/openapi/v3/apis/G/V`: the rest of the path, such as `api/v1`
    OpenApiDocument(String),
    /// `/openapi/v2`
    OpenApiV2,
    /// Objects of a kind.
    Objects(Place),
    /// Nothing that any server has.
    Nowhere,
}

/// Where objects are: a kind, and perhaps a namespace, a name and a subresource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    /// The plural, such as `pods`; unknown names are for the caller to refuse.
    pub resource: String,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub subresource: Option<String>,
    /// Segments behind the subresource.
    pub surplus: bool,
    /// The old `/watch/` prefix.
    pub watch: bool,
}

/// Reads a path, without its query.
pub fn parse(path: &str) -> Result<Target, Failure> {
    let Some(path) = unescape_path(path) else {
        return Err(Failure::bad_request(format!("invalid URL escape in path {}", quote(path))));
    };
    let Some(rest) = path.strip_prefix('/') else { return Ok(Target::Nowhere) };
    if let Some(target) = fixed(rest) {
        return Ok(target);
    }
    let segments: Vec<&str> = rest.trim_end_matches('/').split('/').collect();
    Ok(match segments.as_slice() {
        ["version"] => Target::Version,
        ["api"] => Target::CoreVersions,
        ["api", version] => Target::Resources { group: String::new(), version: (*version).to_owned() },
        ["api", version, rest @ ..] => Target::Objects(place("", version, rest)),
        ["apis"] => Target::Groups,
        ["apis", group] => Target::Group((*group).to_owned()),
        ["apis", group, version] => Target::Resources { group: (*group).to_owned(), version: (*version).to_owned() },
        ["apis", group, version, rest @ ..] => Target::Objects(place(group, version, rest)),
        _ => Target::Nowhere,
    })
}

/// Refuses names that could not be a segment of a path.
pub fn check_name(name: &str) -> Result<(), Failure> {
    let fault = match name {
        "." => "may not be '.'".to_owned(),
        ".." => "may not be '..'".to_owned(),
        other => {
            let found: Vec<&str> = [("/", "may not contain '/'"), ("%", "may not contain '%'")]
                .into_iter()
                .filter_map(|(part, fault)| other.contains(part).then_some(fault))
                .collect();
            found.join(";")
        }
    };
    if fault.is_empty() {
        return Ok(());
    }
    Err(Failure::bad_request(format!("Name parameter invalid: {}: {fault}", quote(name))))
}

/// Paths that are matched as they are, with no slash added behind.
fn fixed(rest: &str) -> Option<Target> {
    for endpoint in ["livez", "readyz", "healthz"] {
        match rest.strip_prefix(endpoint) {
            Some("") => return Some(Target::Health { endpoint, check: None }),
            Some(check) if check.len() > 1 && check.starts_with('/') => {
                return Some(Target::Health { endpoint, check: Some(check[1..].to_owned()) });
            }
            _ => {}
        }
    }
    match rest {
        "" => Some(Target::Root),
        "openapi/v2" => Some(Target::OpenApiV2),
        "openapi/v3" => Some(Target::OpenApiIndex),
        _ => rest.strip_prefix("openapi/v3/").map(|document| Target::OpenApiDocument(document.to_owned())),
    }
}

fn place(group: &str, version: &str, segments: &[&str]) -> Place {
    let (watch, segments) = match segments {
        ["watch", rest @ ..] => (true, rest),
        all => (false, all),
    };
    let (namespace, segments) = match segments {
        ["namespaces", _, "status" | "finalize", ..] => (None, segments),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
        all => (None, all),
    };
    let owned = |text: &&str| (*text).to_owned();
    Place {
        group: group.to_owned(),
        version: version.to_owned(),
        resource: segments.first().map(owned).unwrap_or_default(),
        // An empty segment means all namespaces.
        namespace: namespace.filter(|namespace| !namespace.is_empty()).map(str::to_owned),
        name: segments.get(1).map(owned),
        subresource: segments.get(2).map(owned),
        surplus: segments.len() > 3,
        watch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(path: &str) -> Place {
        let Ok(Target::Objects(place)) = parse(path) else { panic!("{path} names no objects") };
        place
    }

    fn core(resource: &str, namespace: Option<&str>, name: Option<&str>, subresource: Option<&str>) -> Place {
        Place {
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            subresource: subresource.map(str::to_owned),
            ..Place::default()
        }
    }

    #[test]
    fn paths_of_objects_are_taken_apart() {
        assert_eq!(objects("/api/v1/pods"), core("pods", None, None, None));
        assert_eq!(objects("/api/v1/namespaces/a/pods/"), core("pods", Some("a"), None, None));
        assert_eq!(objects("/api/v1/namespaces/a/pods/x/status"), core("pods", Some("a"), Some("x"), Some("status")));
        assert_eq!(objects("/api/v1/nodes/x"), core("nodes", None, Some("x"), None));
        let custom = objects("/apis/d.portolan.dev/v1/namespaces/a/widgets/w/status/more");
        assert_eq!(
            (custom.group.as_str(), custom.resource.as_str(), custom.surplus),
            ("d.portolan.dev", "widgets", true)
        );
    }

    #[test]
    fn namespaces_are_objects_themselves() {
        assert_eq!(objects("/api/v1/namespaces"), core("namespaces", None, None, None));
        assert_eq!(objects("/api/v1/namespaces/a"), core("namespaces", None, Some("a"), None));
        assert_eq!(objects("/api/v1/namespaces/a/status"), core("namespaces", None, Some("a"), Some("status")));
        assert_eq!(objects("/api/v1/namespaces/a/finalize"), core("namespaces", None, Some("a"), Some("finalize")));
    }

    #[test]
    fn an_empty_namespace_means_all_and_an_empty_name_stays_empty() {
        assert_eq!(objects("/api/v1/namespaces//pods"), core("pods", None, None, None));
        assert_eq!(objects("/api/v1//pods"), core("", None, Some("pods"), None));
        assert_eq!(objects("/api/v1/namespaces/a/pods//status").name.as_deref(), Some(""));
        assert_eq!(parse("//api/v1/pods"), Ok(Target::Nowhere));
    }

    #[test]
    fn the_old_watch_prefix_is_known() {
        let place = objects("/apis/apps/v1/watch/namespaces/a/deployments/x");
        assert!(place.watch);
        assert_eq!((place.namespace.as_deref(), place.name.as_deref()), (Some("a"), Some("x")));
        assert_eq!(objects("/api/v1/watch").resource, "");
    }

    #[test]
    fn paths_are_decoded_before_they_are_split() {
        assert_eq!(objects("/api/v1/namespaces/a/pods/x%2Fstatus").subresource.as_deref(), Some("status"));
        assert_eq!(objects("/api/v1/namespaces/a/pods/%2e%2e").name.as_deref(), Some(".."));
        assert_eq!(parse("/api/v1/%zz").unwrap_err().code, 400);
    }

    #[test]
    fn fixed_paths_take_no_slash_but_discovery_does() {
        assert_eq!(parse("/livez"), Ok(Target::Health { endpoint: "livez", check: None }));
        assert_eq!(parse("/livez/ping"), Ok(Target::Health { endpoint: "livez", check: Some("ping".to_owned()) }));
        assert_eq!(parse("/livez/"), Ok(Target::Nowhere));
        assert_eq!(parse("/version/"), Ok(Target::Version));
        assert_eq!(parse("/apis/"), Ok(Target::Groups));
        assert_eq!(parse("/apis/apps/"), Ok(Target::Group("apps".to_owned())));
        assert_eq!(parse("/api/v1/"), Ok(Target::Resources { group: String::new(), version: "v1".to_owned() }));
        assert_eq!(parse("/openapi/v3"), Ok(Target::OpenApiIndex));
        assert_eq!(parse("/openapi/v3/api/v1"), Ok(Target::OpenApiDocument("api/v1".to_owned())));
        assert_eq!(parse("/openapi/v2/x"), Ok(Target::Nowhere));
        assert_eq!(parse("/"), Ok(Target::Root));
        assert_eq!(parse(""), Ok(Target::Nowhere));
    }

    #[test]
    fn names_that_are_tricks_get_the_text_of_the_real_server() {
        let text = |name: &str| check_name(name).unwrap_err().message;
        assert_eq!(text(".."), r#"Name parameter invalid: "..": may not be '..'"#);
        assert_eq!(text("."), r#"Name parameter invalid: ".": may not be '.'"#);
        assert_eq!(text("% "), r#"Name parameter invalid: "% ": may not contain '%'"#);
        assert_eq!(check_name(&"a".repeat(300)), Ok(()));
    }
}
