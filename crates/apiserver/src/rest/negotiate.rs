//! Which form an answer takes and which form a body has: `Accept` and `Content-Type`.

use http::StatusCode;
use serde_json::Value;

use crate::status::Failure;

/// Encodings that are spoken here. Protobuf is not: clients that offer JSON beside it get JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Json,
    Yaml,
}

/// What an answer is turned into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The object or list itself.
    Plain,
    /// A table, of `meta.k8s.io/` this version.
    Table(&'static str),
    /// Only metadata of one object.
    Partial(&'static str),
    /// Only metadata of the items of a list.
    PartialList(&'static str),
    /// All groups with their resources, `apidiscovery.k8s.io/v2`.
    Discovery,
}

/// What was agreed on for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    pub form: Form,
    pub shape: Shape,
    pub pretty: bool,
}

/// Who answers: refusals and choices differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// Objects of a built-in kind; `list` for collections, which can also be watched.
    Builtin { list: bool },
    /// Objects of a custom kind.
    Custom,
    /// `/api`, which also knows the aggregated form.
    CoreVersions,
    /// `/apis`, which also knows the aggregated form.
    Groups,
    /// `/api/v1` and `/apis/G/V` of built-in groups.
    Resources,
    /// `/apis/G`, and `/apis/G/V` of custom groups.
    CustomResources,
    /// `/version`: JSON only.
    Version,
}

/// How a patch is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchForm {
    Json,
    Merge,
    Strategic,
    Apply,
}

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const DISCOVERY_TYPE: &str = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Chooses the form of an answer from the `Accept` header.
pub fn accept(header: Option<&str>, endpoint: Endpoint) -> Result<Accepted, Failure> {
    let header = header.unwrap_or_default();
    let restful =
        matches!(endpoint, Endpoint::Builtin { .. } | Endpoint::CoreVersions | Endpoint::Resources | Endpoint::Version);
    if restful && !header.is_empty() && !routable(header, endpoint) {
        return Err(not_routable(header, endpoint));
    }
    let plain = Accepted { form: Form::Json, shape: Shape::Plain, pretty: false };
    if header.is_empty() {
        return Ok(plain);
    }
    let forms: &[(Form, &str)] =
        if endpoint == Endpoint::Version { &[(Form::Json, JSON)] } else { &[(Form::Json, JSON), (Form::Yaml, YAML)] };
    for clause in clauses(header) {
        for &(form, media) in forms {
            if !clause.covers(media) {
                continue;
            }
            let Some(shape) = clause.shape(endpoint) else { continue };
            let watchable = clause.parameter("stream").is_none_or(|stream| stream == "watch" && form == Form::Json);
            if watchable && clause.parameter("sv").is_none() {
                return Ok(Accepted { form, shape, pretty: clause.parameter("pretty") == Some("1") });
            }
        }
    }
    let list = media_types(header).join(", ");
    Err(not_acceptable(format!("only the following media types are accepted: {list}")))
}

/// Refuses forms that cannot be streamed; watches speak JSON.
pub fn accept_watch(accepted: Accepted, header: Option<&str>) -> Result<Accepted, Failure> {
    if accepted.form == Form::Json {
        return Ok(accepted);
    }
    let list = streams(header.unwrap_or_default()).join(", ");
    Err(not_acceptable(format!("only the following media types are accepted: {list}")))
}

/// Whether an answer is indented: asked for by the form, the `pretty` parameter or a browser or curl at the other end.
pub fn pretty(accepted: Accepted, parameter: Option<&str>, user_agent: Option<&str>) -> bool {
    let asked = match parameter.unwrap_or_default() {
        "" => {
            user_agent.is_some_and(|agent| ["curl", "Wget", "Mozilla/5.0"].iter().any(|name| agent.starts_with(name)))
        }
        text => matches!(text, "1" | "t" | "T" | "TRUE" | "true" | "True"),
    };
    accepted.pretty || asked
}

/// The form of a body that is an object.
pub fn content(header: Option<&str>) -> Result<Form, Failure> {
    let header = header.unwrap_or_default();
    match media_type(header).as_deref() {
        Some("") if header.is_empty() => Ok(Form::Json),
        Some(JSON) => Ok(Form::Json),
        Some(YAML) => Ok(Form::Yaml),
        _ => Err(unsupported(&media_types(header).join(", "))),
    }
}

/// The form of a body that is a patch.
pub fn patch_content(header: Option<&str>, custom: bool) -> Result<PatchForm, Failure> {
    let media = header.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    match media {
        "application/json-patch+json" => Ok(PatchForm::Json),
        "application/merge-patch+json" => Ok(PatchForm::Merge),
        "application/strategic-merge-patch+json" if !custom => Ok(PatchForm::Strategic),
        "application/apply-patch+yaml" => Ok(PatchForm::Apply),
        _ if custom => {
            Err(unsupported("application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"))
        }
        _ => Err(Failure::generic(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            "415: Unsupported Media Type",
        )),
    }
}

/// The `Content-Type` of an answer.
pub fn content_type(accepted: Accepted) -> String {
    let media = match accepted.form {
        Form::Json => JSON,
        Form::Yaml => YAML,
    };
    if accepted.shape == Shape::Discovery { format!("{media}{DISCOVERY_TYPE}") } else { media.to_owned() }
}

/// Writes an answer.
pub fn encode(value: &Value, form: Form, pretty: bool) -> Result<Vec<u8>, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::internal(format!("encoding the answer failed: {error}"));
    match form {
        Form::Json if pretty => serde_json::to_vec_pretty(value).map_err(|error| failed(&error)),
        Form::Json => {
            let mut bytes = serde_json::to_vec(value).map_err(|error| failed(&error))?;
            bytes.push(b'\n');
            Ok(bytes)
        }
        Form::Yaml => serde_saphyr::to_string(value).map(String::into_bytes).map_err(|error| failed(&error)),
    }
}

/// One choice of an `Accept` header.
struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    quality: f32,
    parameters: Vec<(&'a str, &'a str)>,
}

impl Clause<'_> {
    fn covers(&self, media: &str) -> bool {
        let (kind, subtype) = media.split_once('/').unwrap_or_default();
        (self.kind == "*" && self.subtype == "*")
            || (self.kind == kind && (self.subtype == subtype || self.subtype == "*"))
    }

    /// The value of a parameter that is not empty.
    fn parameter(&self, name: &str) -> Option<&str> {
        let last = self.parameters.iter().rev().find(|(key, _)| *key == name);
        last.map(|(_, value)| *value).filter(|value| !value.is_empty())
    }

    /// What the clause wants, if the endpoint can do it.
    fn shape(&self, endpoint: Endpoint) -> Option<Shape> {
        let [kind, group, version] = ["as", "g", "v"].map(|name| self.parameter(name).unwrap_or_default());
        if !self.parameters.iter().any(|(name, _)| matches!(*name, "as" | "g" | "v")) {
            return Some(Shape::Plain);
        }
        let objects = matches!(endpoint, Endpoint::Builtin { .. } | Endpoint::Custom);
        match (kind, group, version) {
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => {
                matches!(endpoint, Endpoint::CoreVersions | Endpoint::Groups).then_some(Shape::Discovery)
            }
            (kind, "meta.k8s.io", "v1" | "v1beta1") if objects => {
                let version = if version == "v1" { "v1" } else { "v1beta1" };
                match kind {
                    "Table" => Some(Shape::Table(version)),
                    "PartialObjectMetadata" => Some(Shape::Partial(version)),
                    "PartialObjectMetadataList" => Some(Shape::PartialList(version)),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

/// The choices of a header, best first.
fn clauses(header: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = header.split(',').filter_map(clause).collect();
    clauses.sort_by(|a, b| {
        let wild = |clause: &Clause<'_>| (clause.kind == "*", clause.subtype == "*");
        b.quality.total_cmp(&a.quality).then(wild(a).cmp(&wild(b)))
    });
    clauses
}

fn clause(text: &str) -> Option<Clause<'_>> {
    let mut parts = text.split(';');
    let media = parts.next()?.trim();
    let (kind, subtype) = if media == "*" { ("*", "*") } else { media.split_once('/')? };
    let mut clause = Clause { kind, subtype, quality: 1.0, parameters: Vec::new() };
    for part in parts {
        match part.split_once('=').map(|(name, value)| (name.trim(), value.trim())) {
            Some(("q", value)) => clause.quality = value.parse().unwrap_or(0.0),
            Some((name, value)) if !value.contains('=') => clause.parameters.push((name, value)),
            _ => {}
        }
    }
    Some(clause)
}

/// Whether the router finds a route: it compares media types as they are, without parameters.
fn routable(header: &str, endpoint: Endpoint) -> bool {
    header.split(',').any(|part| {
        let media = part.split(';').next().unwrap_or_default().trim();
        media == "*/*" || media == JSON || (endpoint != Endpoint::Version && (media == YAML || media == PROTOBUF))
    })
}

fn not_routable(header: &str, endpoint: Endpoint) -> Failure {
    let mut list = if endpoint == Endpoint::Version { vec![JSON.to_owned()] } else { media_types(header) };
    if endpoint == (Endpoint::Builtin { list: true }) {
        list.extend(streams(header));
    }
    let message = format!("406: Not Acceptable\n\nAvailable representations: {}", list.join(", "));
    Failure::generic(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
}

fn not_acceptable(message: String) -> Failure {
    Failure::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
}

fn unsupported(list: &str) -> Failure {
    let message = format!("the body of the request was in an unknown format - accepted media types include: {list}");
    Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
}

/// The media types that messages name. Protobuf stands there as in Kubernetes, but never to one who asked for it.
fn media_types(header: &str) -> Vec<String> {
    let mut list = vec![JSON.to_owned(), YAML.to_owned()];
    if !header.contains(PROTOBUF) {
        list.push(PROTOBUF.to_owned());
    }
    list
}

fn streams(header: &str) -> Vec<String> {
    let list = media_types(header).into_iter().filter(|media| media != YAML);
    list.map(|media| media + ";stream=watch").collect()
}

/// The media type in small letters; none when a parameter is broken.
fn media_type(header: &str) -> Option<String> {
    let mut parts = header.split(';');
    let media = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
    let mut rest = parts.map(str::trim).filter(|part| !part.is_empty());
    rest.all(|part| part.split_once('=').is_some_and(|(name, _)| !name.trim().is_empty())).then_some(media)
}

#[cfg(test)]
mod tests;
