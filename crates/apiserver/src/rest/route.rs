//! The verb of a request, and which requests have none.

use http::{Method, StatusCode};

use super::path::{ResourcePath, check_name};
use crate::kinds::Kind;
use crate::status::{About, Failure};

/// The verb of a request for objects. `List` becomes a watch with `watch=true`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Get,
    List,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

/// The subresource of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subresource {
    /// The object itself.
    Main,
    Status,
    Scale,
    /// Finalizers of a namespace.
    Finalize,
    /// The node of a pod.
    Binding,
}

/// The verb and subresource of a request to a path of a served kind.
pub fn resolve(kind: &Kind, place: &ResourcePath, method: &Method) -> Result<(Verb, Subresource), Failure> {
    // Collections of a namespaced kind can be read across namespaces.
    let outside = kind.namespaced != place.namespace.is_some();
    if outside && (place.namespace.is_some() || place.name.is_some()) {
        return Err(Failure::no_such_path());
    }
    let subresource = subresource(kind, place)?;
    let namespaces = is_namespaces(kind);
    let bound = (subresource == Subresource::Binding && *method == Method::POST).then_some(Verb::Create);
    let verb = Verb::of(method, place.name.is_some()).filter(|verb| match verb {
        _ if subresource == Subresource::Binding => false,
        Verb::Get | Verb::Patch => subresource != Subresource::Finalize,
        Verb::List | Verb::Update => true,
        Verb::Create => !outside,
        Verb::Delete => subresource == Subresource::Main,
        Verb::DeleteCollection => !outside && !namespaces,
    });
    let verb = verb.or(bound).ok_or_else(Failure::method_not_allowed)?;
    for name in [place.namespace.as_deref(), place.name.as_deref()].into_iter().flatten() {
        check_name(name)?;
    }
    Ok((verb, subresource))
}

/// Whether objects of this kind are namespaces.
pub fn is_namespaces(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.plural == "namespaces"
}

fn subresource(kind: &Kind, place: &ResourcePath) -> Result<Subresource, Failure> {
    match place.subresource.as_deref() {
        None => Ok(Subresource::Main),
        Some("status") if kind.status => Ok(Subresource::Status),
        Some("scale") if kind.scale.is_some() => Ok(Subresource::Scale),
        Some("finalize") if is_namespaces(kind) => Ok(Subresource::Finalize),
        Some("binding") if kind.group.is_empty() && kind.plural == "pods" => Ok(Subresource::Binding),
        Some(_) if kind.custom => {
            let name = place.name.as_deref().unwrap_or_default();
            Err(Failure::not_found(About { group: &kind.group, resource: &kind.plural, name }))
        }
        Some(part) if kind.group.is_empty() && kind.plural == "pods" => Err(left_out(part)),
        Some(_) => Err(Failure::no_such_path()),
    }
}

/// What pods of a real cluster have and those of this server lack, with what to do instead.
fn left_out(part: &str) -> Failure {
    let why = match part.split('/').next().unwrap_or_default() {
        "exec" | "attach" | "portforward" | "proxy" | "ephemeralcontainers" => {
            "no container runs here, pods of simulated nodes are only marked as running: use a cluster with kubelets"
        }
        "log" => "no container runs here, so pods of simulated nodes have no logs: see their status and their events",
        "eviction" => "pods are not evicted here: delete the pod",
        _ => return Failure::no_such_path(),
    };
    Failure::generic(StatusCode::NOT_IMPLEMENTED, "NotImplemented", format!("pods/{part} is not served: {why}"))
}

impl Verb {
    /// The verb of a method on one object (`named`) or on a collection.
    pub fn of(method: &Method, named: bool) -> Option<Self> {
        Some(match (method.as_str(), named) {
            ("GET", true) => Self::Get,
            ("GET", false) => Self::List,
            ("POST", false) => Self::Create,
            ("PUT", true) => Self::Update,
            ("PATCH", true) => Self::Patch,
            ("DELETE", true) => Self::Delete,
            ("DELETE", false) => Self::DeleteCollection,
            _ => return None,
        })
    }

    /// The verb in RBAC rules.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{builtin_kind, planet, widget};
    use super::super::path::{Target, parse};
    use super::*;

    fn ask(kind: &Kind, method: &str, path: &str) -> Result<(Verb, Subresource), Failure> {
        let Target::Objects(place) = parse(path) else { panic!("{path} names no objects") };
        let method = Method::from_bytes(method.as_bytes()).unwrap_or_default();
        resolve(kind, &place, &method)
    }

    fn code(kind: &Kind, method: &str, path: &str) -> u16 {
        ask(kind, method, path).unwrap_err().code.as_u16()
    }

    #[test]
    fn methods_become_verbs() {
        let (widget, pods) = (widget(), builtin_kind("", "pods", "Pod", true));
        for (kind, base) in
            [(&widget, "/apis/d.portolan.dev/v1/namespaces/a/widgets"), (&pods, "/api/v1/namespaces/a/pods")]
        {
            for (method, tail, verb) in [
                ("GET", "", Verb::List),
                ("POST", "", Verb::Create),
                ("DELETE", "", Verb::DeleteCollection),
                ("GET", "/x", Verb::Get),
                ("PUT", "/x", Verb::Update),
                ("PATCH", "/x", Verb::Patch),
                ("DELETE", "/x", Verb::Delete),
            ] {
                assert_eq!(
                    ask(kind, method, &format!("{base}{tail}")),
                    Ok((verb, Subresource::Main)),
                    "{method} {base}{tail}"
                );
            }
            assert_eq!(ask(kind, "PUT", &format!("{base}/x/status")), Ok((Verb::Update, Subresource::Status)));
        }
        assert_eq!(ask(&pods, "GET", "/api/v1/pods"), Ok((Verb::List, Subresource::Main)));
    }

    #[test]
    fn what_pods_lack_here_is_said() {
        let pods = builtin_kind("", "pods", "Pod", true);
        for part in ["exec", "attach", "portforward", "log", "eviction", "proxy/metrics"] {
            let failure = ask(&pods, "POST", &format!("/api/v1/namespaces/a/pods/x/{part}")).unwrap_err();
            assert_eq!((failure.code.as_u16(), &*failure.reason), (501, "NotImplemented"), "{part}");
            assert!(failure.message.starts_with(&format!("pods/{part} is not served: ")), "{}", failure.message);
        }
        assert_eq!(code(&pods, "GET", "/api/v1/namespaces/a/pods/x/nope"), 404);
    }

    #[test]
    fn unknown_paths_and_methods_are_refused() {
        let (pods, nodes) = (builtin_kind("", "pods", "Pod", true), builtin_kind("", "nodes", "Node", false));
        let (namespaces, widget, planet) = (builtin_kind("", "namespaces", "Namespace", false), widget(), planet());
        for (kind, method, path, expected) in [
            (&pods, "GET", "/api/v1/pods/x", 404),
            (&nodes, "GET", "/api/v1/namespaces/a/nodes", 404),
            (&nodes, "GET", "/api/v1/nodes/x/nope", 404),
            (&nodes, "GET", "/api/v1/nodes/x/status/more", 404),
            (&widget, "POST", "/apis/d.portolan.dev/v1/widgets", 405),
            (&planet, "GET", "/apis/d.portolan.dev/v1/namespaces/a/planets", 404),
            (&planet, "GET", "/apis/d.portolan.dev/v1/planets/x/status", 404),
            (&pods, "PUT", "/api/v1/namespaces/a/pods", 405),
            (&pods, "POST", "/api/v1/pods", 405),
            (&pods, "DELETE", "/api/v1/pods", 405),
            (&pods, "POST", "/api/v1/namespaces/a/pods/x", 405),
            (&pods, "DELETE", "/api/v1/namespaces/a/pods/x/status", 405),
            (&pods, "OPTIONS", "/api/v1/namespaces/a/pods/x", 405),
            (&namespaces, "GET", "/api/v1/namespaces/a/finalize", 405),
            (&namespaces, "DELETE", "/api/v1/namespaces", 405),
            (&pods, "GET", "/api/v1/namespaces/a/pods/..", 400),
            (&pods, "GET", "/api/v1/namespaces/%2e%2e/pods", 400),
            (&pods, "GET", "/api/v1/namespaces/a/pods//status", 400),
        ] {
            assert_eq!(code(kind, method, path), expected, "{method} {path}");
        }
        assert_eq!(ask(&namespaces, "PUT", "/api/v1/namespaces/a/finalize"), Ok((Verb::Update, Subresource::Finalize)));
    }
}
