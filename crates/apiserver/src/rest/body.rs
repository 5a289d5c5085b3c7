//! Bodies of requests: JSON and YAML into values, and what is said of those that are neither.

use std::cell::RefCell;
use std::fmt::{self, Write as _};

use http::StatusCode;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::negotiate::Form;
use super::syntax;
use crate::kinds::{Kind, builtin, typed};
use crate::status::{About, Cause, Failure};

/// Bytes that a body may have: 3 MiB, as in Kubernetes.
pub const LIMIT: usize = 3 * 1024 * 1024;

/// A body that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    pub value: Value,
    /// Paths of fields that stood there twice, such as `data.a`; the last one counts.
    pub duplicates: Vec<String>,
}

/// The refusal of a body that is longer than [`LIMIT`].
pub fn too_large() -> Failure {
    let message = format!("Request entity too large: limit is {LIMIT}");
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
}

/// Reads an object of a kind: checks `kind` and `apiVersion`, and fills them in for built-in kinds.
pub fn object(form: Form, bytes: &[u8], kind: &Kind) -> Result<Decoded, Failure> {
    let unrecognized = |fault: String| {
        let summary = summary(bytes);
        Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {fault} ({summary})",
            kind.kind
        ))
    };
    let mut decoded = decode(form, bytes).map_err(unrecognized)?;
    let (version, name) = type_of(&decoded.value).map_err(unrecognized)?;
    if kind.custom {
        check_custom(kind, &version, &name, bytes, &decoded.value, unrecognized)?;
    } else {
        check_builtin(kind, &version, &name).map_err(|fault| match fault {
            Mismatch::Version(fault) => unrecognized(fault),
            Mismatch::Kind(fault) => Failure::bad_request(fault),
        })?;
        // `null` is an empty object.
        let mut fields = if let Value::Object(fields) = decoded.value { fields } else { Map::new() };
        fields.insert("kind".to_owned(), kind.kind.clone().into());
        fields.insert("apiVersion".to_owned(), kind.api_version().into());
        decoded.value = Value::Object(fields);
        if let Some(why) = typed::fault(kind, &decoded.value) {
            return Err(Failure::bad_request(typed::refusal(kind, &why)));
        }
    }
    Ok(decoded)
}

/// Reads a value; the error is the text that follows `error decoding ...: `.
pub fn decode(form: Form, bytes: &[u8]) -> Result<Decoded, String> {
    match form {
        Form::Json => {
            decode_json(bytes).map_err(|fault| format!("couldn't get version/kind; json parse error: {fault}"))
        }
        Form::Yaml => decode_yaml(bytes).map_err(|fault| format!("yaml: {fault}")),
    }
}

/// Reads JSON; the error is Go's text for it.
pub fn decode_json(bytes: &[u8]) -> Result<Decoded, String> {
    // Broken UTF-8 is replaced, as Go does it.
    let text = String::from_utf8_lossy(bytes);
    let duplicates = RefCell::new(Vec::new());
    let mut json = serde_json::Deserializer::from_str(&text);
    let value = Node { path: None, duplicates: &duplicates }.deserialize(&mut json);
    match value.and_then(|value| json.end().map(|()| value)) {
        Ok(value) => Ok(Decoded { value, duplicates: duplicates.into_inner() }),
        Err(error) => Err(syntax::fault(bytes).unwrap_or_else(|| error.to_string())),
    }
}

/// Reads YAML; the error is one line.
pub fn decode_yaml(bytes: &[u8]) -> Result<Decoded, String> {
    let text = String::from_utf8_lossy(bytes);
    if text.trim_matches([' ', '\n', '\r']).is_empty() {
        return Ok(Decoded { value: Value::Null, duplicates: Vec::new() });
    }
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options(&text, options) {
        Ok(value) => Ok(Decoded { value, duplicates: Vec::new() }),
        Err(error) => Err(error.to_string().lines().next().unwrap_or_default().to_owned()),
    }
}

/// `apiVersion` and `kind` of a value, empty where missing.
pub(crate) fn type_of(value: &Value) -> Result<(String, String), String> {
    const TYPE: &str =
        r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    let fault = |what: &str| format!("couldn't get version/kind; json parse error: json: cannot unmarshal {what}");
    if value.is_null() {
        return Ok((String::new(), String::new()));
    }
    let Value::Object(fields) = value else {
        return Err(fault(&format!("{} into Go value of type {TYPE}", json_type(value))));
    };
    let text = |name: &str| match fields.get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        None | Some(Value::Null) => Ok(String::new()),
        Some(other) => Err(fault(&format!("{} into Go struct field .{name} of type string", json_type(other)))),
    };
    Ok((text("apiVersion")?, text("kind")?))
}

enum Mismatch {
    Version(String),
    Kind(String),
}

fn check_builtin(kind: &Kind, version: &str, name: &str) -> Result<(), Mismatch> {
    let version = version.strip_prefix('/').unwrap_or(version);
    if version.matches('/').count() > 1 {
        return Err(Mismatch::Version(format!("unexpected GroupVersion string: {version}")));
    }
    let (expected, name) = (kind.api_version(), if name.is_empty() { &kind.kind } else { name });
    let version = if version.is_empty() { &expected } else { version };
    if version == expected && name == kind.kind {
        return Ok(());
    }
    let short = version.rsplit('/').next().unwrap_or_default();
    let (group, _) = version.rsplit_once('/').unwrap_or(("", version));
    if builtin::is_known(group, short, name) {
        let package = |group: &str| match group {
            "" | "events.k8s.io" => "core".to_owned(),
            group => group.split('.').next().unwrap_or_default().to_owned(),
        };
        return Err(Mismatch::Kind(format!(
            "{name} in version \"{short}\" cannot be handled as a {0}: converting ({short}.{name}) to ({1}.{0}): unknown \
             conversion",
            kind.kind,
            package(&kind.group),
        )));
    }
    Err(Mismatch::Kind(format!(
        "{name} in version \"{short}\" cannot be handled as a {}: no kind \"{name}\" is registered for version \
         \"{version}\" in scheme \"pkg/runtime/scheme.go:111\"",
        kind.kind
    )))
}

fn check_custom(
    kind: &Kind,
    version: &str,
    name: &str,
    bytes: &[u8],
    value: &Value,
    unrecognized: impl Fn(String) -> Failure,
) -> Result<(), Failure> {
    if version.matches('/').count() > 1 {
        return Err(unrecognized(format!("unexpected GroupVersion string: {version}")));
    }
    if name.is_empty() {
        return Err(unrecognized(format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(bytes))));
    }
    check_metadata(kind, version, name, value)?;
    check_type(kind, version, name, value)
}

/// Refuses a custom object of another kind or version than that of its path.
pub(super) fn check_type(kind: &Kind, version: &str, name: &str, value: &Value) -> Result<(), Failure> {
    let expected = kind.api_version();
    if version != expected {
        return Err(Failure::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    if name == kind.kind {
        return Ok(());
    }
    let about =
        About { group: &kind.group, resource: name, name: value["metadata"]["name"].as_str().unwrap_or_default() };
    let message = format!("Invalid value: {name:?}: must be {}", kind.kind);
    Err(Failure::invalid(about, &[Cause { reason: "FieldValueInvalid", message, field: "kind".to_owned() }]))
}

fn check_metadata(kind: &Kind, version: &str, name: &str, value: &Value) -> Result<(), Failure> {
    match value.get("metadata") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Object(_)) => match typed::fault(kind, value) {
            None => Ok(()),
            Some(why) => Err(Failure::bad_request(typed::refusal(kind, &why))),
        },
        Some(other) => Err(Failure::bad_request(format!(
            "{name} in version \"{}\" cannot be handled as a {}: json: cannot unmarshal {} into Go value of type \
             v1.ObjectMeta",
            version.rsplit('/').next().unwrap_or_default(),
            kind.kind,
            json_type(other),
        ))),
    }
}

/// What a value is called in Go's errors.
pub(crate) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The start of a body, for messages.
fn summary(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(30)];
    let dots = if bytes.len() > 30 { " ..." } else { "" };
    match bytes.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{dots}", String::from_utf8_lossy(start)),
        Some(_) => {
            let mut hex = String::with_capacity(64);
            for byte in start {
                // Writing to a string cannot fail.
                write!(hex, "{byte:02x}").unwrap_or_default();
            }
            hex + dots
        }
    }
}

/// Builds a value and notes fields that stand twice. Paths are written only when one does.
#[derive(Clone, Copy)]
struct Node<'a> {
    path: Option<&'a Step<'a>>,
    duplicates: &'a RefCell<Vec<String>>,
}

struct Step<'a> {
    parent: Option<&'a Step<'a>>,
    name: Name<'a>,
}

enum Name<'a> {
    Field(&'a str),
    Index(usize),
}

impl Step<'_> {
    fn write(&self, out: &mut String) {
        if let Some(parent) = self.parent {
            parent.write(out);
        }
        match self.name {
            Name::Field(name) if out.is_empty() => out.push_str(name),
            Name::Field(name) => {
                out.push('.');
                out.push_str(name);
            }
            Name::Index(index) => write!(out, "[{index}]").unwrap_or_default(),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let step = Step { parent: self.path, name: Name::Index(list.len()) };
            match items.next_element_seed(Node { path: Some(&step), duplicates: self.duplicates })? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let step = Step { parent: self.path, name: Name::Field(&name) };
            let value = fields.next_value_seed(Node { path: Some(&step), duplicates: self.duplicates })?;
            if map.contains_key(&name) {
                let mut path = String::new();
                step.write(&mut path);
                self.duplicates.borrow_mut().push(path);
            }
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests;
