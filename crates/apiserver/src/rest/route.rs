//! Which verb a request means, and which requests lead nowhere.
//!
//! Built-in kinds have a table of paths and refuse with the router's words; custom kinds are served by one handler
//! behind every path of their group, which refuses in its own words and overlooks what it does not read.

use http::Method;

use super::Refusal;
use super::path::{Place, Target, check_name};
use crate::kinds::Kind;
use crate::status::{About, Failure};

/// What is asked of objects. `List` becomes a watch when the query says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

/// Which part of an object is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Whole,
    Status,
    Scale,
    /// Finalizers of a namespace.
    Finalize,
}

/// The refusal for objects of a kind that is not served: `builtin` tells whether the group is one of Kubernetes' own.
pub fn unknown(builtin: bool) -> Refusal {
    if builtin { Failure::no_such_path().into() } else { Refusal::page_not_found() }
}

/// Checks the method of discovery, version and health paths. `builtin` is about the group of `Resources`.
pub fn read_only(target: &Target, method: &Method, builtin: bool) -> Result<(), Refusal> {
    let routed = match target {
        Target::Version | Target::CoreVersions => true,
        Target::Resources { .. } => builtin,
        Target::Root
        | Target::Health { .. }
        | Target::Groups
        | Target::Group(_)
        | Target::OpenApiIndex
        | Target::OpenApiDocument(_)
        | Target::OpenApiV2
        | Target::Objects(_)
        | Target::Nowhere => false,
    };
    if routed && method != Method::GET { Err(Failure::method_not_allowed().into()) } else { Ok(()) }
}

/// Finds the verb for a place of a kind that is served.
pub fn admit(kind: &Kind, place: &Place, method: &Method) -> Result<(Verb, Part), Refusal> {
    let admitted = if kind.custom { custom(kind, place, method)? } else { builtin(kind, place, method)? };
    if let Some(namespace) = place.namespace.as_deref().filter(|namespace| matches!(*namespace, "." | "..")) {
        return Err(Failure::bad_request(format!("Namespace parameter invalid: {namespace:?}")).into());
    }
    match place.name.as_deref() {
        Some("") => Err(Failure::bad_request("name must be provided").into()),
        Some(name) => Ok(check_name(name).map(|()| admitted)?),
        None => Ok(admitted),
    }
}

fn builtin(kind: &Kind, place: &Place, method: &Method) -> Result<(Verb, Part), Refusal> {
    let nowhere = || Err(Failure::no_such_path().into());
    let outside = kind.namespaced != place.namespace.is_some();
    // Collections of a namespaced kind are also readable across namespaces.
    if place.surplus || (outside && (place.namespace.is_some() || place.name.is_some())) {
        return nowhere();
    }
    let namespaces = kind.group.is_empty() && kind.plural == "namespaces";
    let part = match place.subresource.as_deref() {
        None => Part::Whole,
        Some(_) if place.watch => return nowhere(),
        Some("status") if kind.status => Part::Status,
        Some("scale") if kind.scale.is_some() => Part::Scale,
        Some("finalize") if namespaces => Part::Finalize,
        Some(_) => return nowhere(),
    };
    let verb = match (method.as_str(), place.name.is_some(), part) {
        ("GET", ..) if place.watch => Some(Verb::Watch),
        _ if place.watch => None,
        ("GET", false, _) => Some(Verb::List),
        ("POST", false, _) if !outside => Some(Verb::Create),
        ("DELETE", false, _) if !outside && !namespaces => Some(Verb::DeleteCollection),
        ("PUT", true, _) => Some(Verb::Update),
        (_, true, Part::Finalize) => None,
        ("GET", true, _) => Some(Verb::Get),
        ("PATCH", true, _) => Some(Verb::Patch),
        ("DELETE", true, Part::Whole) => Some(Verb::Delete),
        _ => None,
    };
    verb.map(|verb| (verb, part)).ok_or_else(|| Failure::method_not_allowed().into())
}

fn custom(kind: &Kind, place: &Place, method: &Method) -> Result<(Verb, Part), Refusal> {
    let verb = if place.watch { Some(Verb::Watch) } else { custom_verb(method, place.name.is_some()) };
    let across = matches!(verb, Some(Verb::List | Verb::Watch)) && place.name.is_none();
    if kind.namespaced != place.namespace.is_some() && !(kind.namespaced && across) {
        return Err(Refusal::page_not_found());
    }
    let about = About { group: &kind.group, resource: &kind.plural, name: "" };
    let part = match place.subresource.as_deref() {
        None => Part::Whole,
        Some("status") if kind.status => Part::Status,
        Some("scale") if kind.scale.is_some() => Part::Scale,
        Some(_) => {
            let name = place.name.as_deref().unwrap_or_default();
            return Err(Failure::not_found(About { name, ..about }).into());
        }
    };
    let word = verb.map_or("", Verb::word);
    match verb {
        Some(verb @ (Verb::Get | Verb::Update | Verb::Patch)) => {
            if place.name.is_none() {
                return Err(Failure::bad_request("name must be provided").into());
            }
            Ok((verb, part))
        }
        Some(verb) if part == Part::Whole => Ok((verb, part)),
        _ => Err(Failure::verb_not_supported(about, word).into()),
    }
}

fn custom_verb(method: &Method, named: bool) -> Option<Verb> {
    Some(match method.as_str() {
        "GET" | "HEAD" if named => Verb::Get,
        "GET" | "HEAD" => Verb::List,
        "POST" => Verb::Create,
        "PUT" => Verb::Update,
        "PATCH" => Verb::Patch,
        "DELETE" if named => Verb::Delete,
        "DELETE" => Verb::DeleteCollection,
        _ => return None,
    })
}

impl Verb {
    /// The word that rules of access and webhooks use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
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
    use http::StatusCode;

    use super::super::fixtures::{builtin_kind, planet, widget};
    use super::super::path::parse;
    use super::*;

    fn ask(kind: &Kind, method: &str, path: &str) -> Result<(Verb, Part), Refusal> {
        let Ok(Target::Objects(place)) = parse(path) else { panic!("{path} names no objects") };
        let method = Method::from_bytes(method.as_bytes()).unwrap_or_default();
        admit(kind, &place, &method)
    }

    fn code_and_text(kind: &Kind, method: &str, path: &str) -> (u16, String) {
        match ask(kind, method, path).unwrap_err() {
            Refusal::Status(failure) => (failure.code.as_u16(), failure.message),
            Refusal::Page { code, body } => (code.as_u16(), body),
        }
    }

    const NOWHERE: &str = "the server could not find the requested resource";
    const NOT_ALLOWED: &str = "the server does not allow this method on the requested resource";

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
                    Ok((verb, Part::Whole)),
                    "{method} {base}{tail}"
                );
            }
            assert_eq!(ask(kind, "PUT", &format!("{base}/x/status")), Ok((Verb::Update, Part::Status)));
        }
        assert_eq!(ask(&pods, "GET", "/api/v1/pods"), Ok((Verb::List, Part::Whole)));
        assert_eq!(ask(&pods, "GET", "/api/v1/watch/pods"), Ok((Verb::Watch, Part::Whole)));
        assert_eq!(ask(&widget, "GET", "/apis/d.portolan.dev/v1/widgets"), Ok((Verb::List, Part::Whole)));
    }

    #[test]
    fn built_in_kinds_refuse_as_the_router_does() {
        let (pods, nodes) = (builtin_kind("", "pods", "Pod", true), builtin_kind("", "nodes", "Node", false));
        let namespaces = builtin_kind("", "namespaces", "Namespace", false);
        for (kind, method, path, code) in [
            (&pods, "GET", "/api/v1/pods/x", 404),
            (&nodes, "GET", "/api/v1/namespaces/a/nodes", 404),
            (&nodes, "GET", "/api/v1/nodes/x/nope", 404),
            (&nodes, "GET", "/api/v1/nodes/x/status/more", 404),
            (&namespaces, "GET", "/api/v1/watch/namespaces/a/status", 404),
            (&pods, "PUT", "/api/v1/namespaces/a/pods", 405),
            (&pods, "POST", "/api/v1/pods", 405),
            (&pods, "DELETE", "/api/v1/pods", 405),
            (&pods, "POST", "/api/v1/namespaces/a/pods/x", 405),
            (&pods, "DELETE", "/api/v1/namespaces/a/pods/x/status", 405),
            (&pods, "HEAD", "/api/v1/namespaces/a/pods/x", 405),
            (&namespaces, "GET", "/api/v1/namespaces/a/finalize", 405),
            (&namespaces, "POST", "/api/v1/watch/namespaces", 405),
            (&namespaces, "DELETE", "/api/v1/namespaces", 405),
        ] {
            let text = if code == 404 { NOWHERE } else { NOT_ALLOWED };
            assert_eq!(code_and_text(kind, method, path), (code, text.to_owned()), "{method} {path}");
        }
        assert_eq!(ask(&namespaces, "PUT", "/api/v1/namespaces/a/finalize"), Ok((Verb::Update, Part::Finalize)));
    }

    #[test]
    fn custom_kinds_refuse_in_their_own_words() {
        let (widget, planet) = (widget(), planet());
        let base = "/apis/d.portolan.dev/v1/namespaces/a/widgets";
        let page = (404, "404 page not found\n".to_owned());
        assert_eq!(code_and_text(&widget, "GET", "/apis/d.portolan.dev/v1/widgets/x"), page);
        assert_eq!(code_and_text(&widget, "POST", "/apis/d.portolan.dev/v1/widgets"), page);
        assert_eq!(code_and_text(&planet, "GET", "/apis/d.portolan.dev/v1/namespaces/a/planets"), page);
        let not_found = (404, r#"widgets.d.portolan.dev "w1" not found"#.to_owned());
        assert_eq!(code_and_text(&widget, "GET", &format!("{base}/w1/nope")), not_found);
        let unsupported =
            |verb: &str| (405, format!(r#"{verb} is not supported on resources of kind "widgets.d.portolan.dev""#));
        assert_eq!(code_and_text(&widget, "POST", &format!("{base}/w1/status")), unsupported("create"));
        assert_eq!(code_and_text(&widget, "DELETE", &format!("{base}/w1/scale")), unsupported("delete"));
        assert_eq!(code_and_text(&widget, "OPTIONS", base), unsupported(""));
        assert_eq!(code_and_text(&widget, "PUT", base), (400, "name must be provided".to_owned()));
        assert_eq!(ask(&widget, "GET", &format!("{base}/w1/status/more")), Ok((Verb::Get, Part::Status)));
        assert_eq!(ask(&widget, "POST", &format!("{base}/w1")), Ok((Verb::Create, Part::Whole)));
        assert_eq!(ask(&widget, "HEAD", &format!("{base}/w1")), Ok((Verb::Get, Part::Whole)));
    }

    #[test]
    fn path_tricks_are_bad_requests() {
        let pods = builtin_kind("", "pods", "Pod", true);
        assert_eq!(code_and_text(&pods, "GET", "/api/v1/namespaces/a/pods/..").0, 400);
        assert_eq!(code_and_text(&pods, "GET", "/api/v1/namespaces/%2e%2e/pods").0, 400);
        let empty = code_and_text(&pods, "GET", "/api/v1/namespaces/a/pods//status");
        assert_eq!(empty, (400, "name must be provided".to_owned()));
    }

    #[test]
    fn router_refusals_carry_empty_details() {
        let Refusal::Status(failure) = unknown(true) else { panic!() };
        assert_eq!(failure.to_json()["details"], serde_json::json!({}));
        assert_eq!(unknown(false), Refusal::page_not_found());
        assert_eq!(read_only(&Target::Version, &Method::POST, true), Err(Failure::method_not_allowed().into()));
        assert_eq!(read_only(&Target::Groups, &Method::POST, true), Ok(()));
        assert_eq!(failure.code, StatusCode::NOT_FOUND);
    }
}
