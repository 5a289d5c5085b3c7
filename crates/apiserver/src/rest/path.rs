//! The grammar of paths: from a path to what it names, without knowing which kinds are served.
//!
//! The path is decoded first and split after, as Kubernetes does it: `%2F` is a slash.

use percent_encoding::percent_decode_str;

use crate::status::Failure;

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `/version`
    Version,
    /// `/livez`, `/readyz` and `/healthz`
    Health,
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/G`
    Group(String),
    /// `/api/v1` (the empty group) and `/apis/G/V`
    Resources { group: String, version: String },
    /// `/openapi/v2`
    OpenApiV2,
    /// `/openapi/v3`
    OpenApiIndex,
    /// `/openapi/v3/apis/G/V`: the rest of the path, such as `api/v1`
    OpenApiDocument(String),
    /// Objects of a kind.
    Objects(ResourcePath),
    /// Nothing that is served.
    NotFound,
}

/// The path of objects: a resource, and perhaps a namespace, a name and a subresource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourcePath {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    /// The plural, such as `pods`; unknown names are for the caller to refuse.
    pub resource: String,
    pub namespace: Option<String>,
    pub name: Option<String>,
    /// With all that follows it.
    pub subresource: Option<String>,
}

/// Parses a path, without its query.
pub fn parse(path: &str) -> Target {
    let path = percent_decode_str(path).decode_utf8_lossy();
    let Some(rest) = path.strip_prefix('/') else { return Target::NotFound };
    let segments: Vec<&str> = rest.trim_end_matches('/').split('/').collect();
    match segments.as_slice() {
        ["version"] => Target::Version,
        ["livez" | "readyz" | "healthz"] => Target::Health,
        ["openapi", "v2"] => Target::OpenApiV2,
        ["openapi", "v3"] => Target::OpenApiIndex,
        ["openapi", "v3", document @ ..] => Target::OpenApiDocument(document.join("/")),
        ["api"] => Target::CoreVersions,
        ["api", version] => Target::Resources { group: String::new(), version: (*version).to_owned() },
        ["api", version, rest @ ..] => Target::Objects(place("", version, rest)),
        ["apis"] => Target::Groups,
        ["apis", group] => Target::Group((*group).to_owned()),
        ["apis", group, version] => Target::Resources { group: (*group).to_owned(), version: (*version).to_owned() },
        ["apis", group, version, rest @ ..] => Target::Objects(place(group, version, rest)),
        _ => Target::NotFound,
    }
}

/// Refuses names that could not be a segment of a path.
pub fn check_name(name: &str) -> Result<(), Failure> {
    if matches!(name, "" | "." | "..") || name.contains(['/', '%']) {
        return Err(Failure::bad_request(format!("{name:?} is not a valid name in a path")));
    }
    Ok(())
}

fn place(group: &str, version: &str, segments: &[&str]) -> ResourcePath {
    let (namespace, segments) = match segments {
        ["namespaces", _, "status" | "finalize", ..] => (None, segments),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
        all => (None, all),
    };
    let owned = |text: &&str| (*text).to_owned();
    ResourcePath {
        group: group.to_owned(),
        version: version.to_owned(),
        resource: segments.first().map(owned).unwrap_or_default(),
        // An empty segment means all namespaces.
        namespace: namespace.filter(|namespace| !namespace.is_empty()).map(str::to_owned),
        name: segments.get(1).map(owned),
        subresource: (segments.len() > 2).then(|| segments[2..].join("/")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(path: &str) -> ResourcePath {
        let Target::Objects(place) = parse(path) else { panic!("{path} names no objects") };
        place
    }

    fn core(resource: &str, namespace: Option<&str>, name: Option<&str>, subresource: Option<&str>) -> ResourcePath {
        ResourcePath {
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            subresource: subresource.map(str::to_owned),
            ..ResourcePath::default()
        }
    }

    #[test]
    fn paths_of_objects_are_taken_apart() {
        assert_eq!(objects("/api/v1/pods"), core("pods", None, None, None));
        assert_eq!(objects("/api/v1/namespaces/a/pods/"), core("pods", Some("a"), None, None));
        assert_eq!(objects("/api/v1/namespaces/a/pods/x/status"), core("pods", Some("a"), Some("x"), Some("status")));
        assert_eq!(objects("/api/v1/nodes/x"), core("nodes", None, Some("x"), None));
        let custom = objects("/apis/d.portolan.dev/v1/namespaces/a/widgets/w/status/more");
        assert_eq!((custom.group.as_str(), custom.resource.as_str()), ("d.portolan.dev", "widgets"));
        assert_eq!(custom.subresource.as_deref(), Some("status/more"));
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
        assert_eq!(parse("//api/v1/pods"), Target::NotFound);
    }

    #[test]
    fn paths_are_decoded_before_they_are_split() {
        assert_eq!(objects("/api/v1/namespaces/a/pods/x%2Fstatus").subresource.as_deref(), Some("status"));
        assert_eq!(objects("/api/v1/namespaces/a/pods/%2e%2e").name.as_deref(), Some(".."));
    }

    #[test]
    fn documents_have_their_paths() {
        assert_eq!(parse("/livez"), Target::Health);
        assert_eq!(parse("/version/"), Target::Version);
        assert_eq!(parse("/apis/"), Target::Groups);
        assert_eq!(parse("/apis/apps/"), Target::Group("apps".to_owned()));
        assert_eq!(parse("/api/v1/"), Target::Resources { group: String::new(), version: "v1".to_owned() });
        assert_eq!(parse("/openapi/v3/api/v1"), Target::OpenApiDocument("api/v1".to_owned()));
        assert_eq!(parse("/openapi/v2"), Target::OpenApiV2);
        for nowhere in ["/openapi/v1", "/", "", "/livez/ping"] {
            assert_eq!(parse(nowhere), Target::NotFound, "{nowhere}");
        }
    }

    #[test]
    fn names_that_could_change_the_path_are_refused() {
        for name in ["", ".", "..", "%zz", "a/b"] {
            assert_eq!(check_name(name).unwrap_err().code, 400, "{name}");
        }
        assert_eq!(check_name(&"a".repeat(300)), Ok(()));
    }
}
