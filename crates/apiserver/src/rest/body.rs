//! Bodies of requests and responses: read up to a limit, decoded from JSON and YAML into values and objects of a kind.

use bytes::Bytes;
use http::StatusCode;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Limited};
use serde_json::{Map, Value};
use tower::BoxError;

use super::negotiate::Form;
use crate::kinds::{Kind, typed};
use crate::object::meta;
use crate::protobuf;
use crate::status::{About, Cause, Failure};

/// Bytes that a body may have: 3 MiB, as in Kubernetes.
pub const LIMIT: usize = 3 * 1024 * 1024;

/// The body of a request or a response.
pub type Body = UnsyncBoxBody<Bytes, BrokenBody>;

/// A body that broke off.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BrokenBody(String);

/// Converts any body into ours.
pub(crate) fn boxed<B>(body: B) -> Body
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(|broken| BrokenBody(broken.into().to_string())).boxed_unsync()
}

/// Reads a body, up to the limit.
pub(super) async fn collect(body: Body) -> Result<Bytes, Failure> {
    match Limited::new(body, LIMIT).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(too_large()),
        Err(error) => Err(Failure::bad_request(format!("reading the body failed: {error}"))),
    }
}

/// The failure of a body that is longer than [`LIMIT`].
pub fn too_large() -> Failure {
    let message = format!("Request entity too large: limit is {LIMIT}");
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
}

/// Decodes a value. Of duplicate fields the last one counts; nesting is bounded in all encodings. What names no type in
/// protobuf is read as `otherwise`, `apiVersion` and `kind`.
pub fn decode(form: Form, bytes: &[u8], otherwise: (&str, &str)) -> Result<Value, Failure> {
    // Broken UTF-8 is replaced, as Kubernetes does it.
    let text = String::from_utf8_lossy(bytes);
    let read = match form {
        Form::Json => serde_json::from_str(&text).map_err(|fault| fault.to_string()),
        Form::Protobuf => protobuf::decode(bytes, otherwise).map_err(|fault| fault.to_string()),
        Form::Yaml if text.trim().is_empty() => Ok(Value::Null),
        Form::Yaml => {
            let options = serde_saphyr::options! {
                duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
                with_snippet: false,
            };
            serde_saphyr::from_str_with_options(&text, options).map_err(|fault| fault.to_string())
        }
    };
    read.map_err(|fault| {
        let first = fault.lines().next().unwrap_or_default();
        Failure::bad_request(format!("the body is not {form:?}: {first}"))
    })
}

/// Reads an object of a kind: checks `kind` and `apiVersion`, and fills them in for built-in kinds.
pub fn object(form: Form, bytes: &[u8], kind: &Kind) -> Result<Value, Failure> {
    let mut body = decode(form, bytes, (&kind.api_version(), &kind.kind))?;
    if body.is_null() && !kind.custom {
        // For a built-in kind this is an empty object.
        body = Value::Object(Map::new());
    }
    let Value::Object(mut fields) = body else {
        return Err(unreadable(kind, &format!("the body is a {}", json_type(&body))));
    };
    if !kind.custom {
        for (name, value) in [("kind", kind.kind.clone()), ("apiVersion", kind.api_version())] {
            let field = fields.entry(name).or_insert(Value::Null);
            if field.is_null() || field == "" {
                *field = value.into();
            }
        }
    }
    let object = Value::Object(fields);
    check_type(kind, &object)?;
    if object.get("metadata").is_some_and(|metadata| !metadata.is_object() && !metadata.is_null()) {
        return Err(unreadable(kind, "metadata is no object"));
    }
    typed::fault(kind, &object).map_or(Ok(object), |why| Err(unreadable(kind, &why)))
}

/// Refuses an object of another kind or version than that of its path.
pub fn check_type(kind: &Kind, object: &Value) -> Result<(), Failure> {
    let expected = kind.api_version();
    if object["apiVersion"] != expected.as_str() {
        return Err(unreadable(kind, &format!("its apiVersion is not {expected}")));
    }
    if object["kind"] == kind.kind.as_str() {
        return Ok(());
    }
    match object["kind"].as_str().filter(|name| kind.custom && !name.is_empty()) {
        None => Err(unreadable(kind, "its kind is another, or missing")),
        Some(name) => {
            let message = format!("Invalid value: {name:?}: must be {}", kind.kind);
            let cause = Cause { reason: "FieldValueInvalid", message, field: "kind".to_owned() };
            Err(Failure::invalid(About { group: &kind.group, resource: name, name: meta(object, "name") }, &[cause]))
        }
    }
}

/// The refusal of a body that is no object of the kind.
pub fn unreadable(kind: &Kind, why: &str) -> Failure {
    Failure::bad_request(format!("{} in version {:?} cannot be read: {why}", kind.kind, kind.version))
}

/// What a value is called in messages.
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

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use serde_json::json;

    use super::super::fixtures::{builtin_kind, widget};
    use super::*;

    #[test]
    fn what_is_no_object_of_the_kind_is_refused() {
        let map = builtin_kind("", "configmaps", "ConfigMap", true);
        for body in ["", "x", r#"{"kind":1}"#, "[]", "{}{}", r#"{"kind":"Foo"}"#, r#"{"apiVersion":"apps/v1"}"#] {
            for kind in [&map, &widget()] {
                assert_eq!(object(Form::Json, body.as_bytes(), kind).unwrap_err().code, 400, "{body}");
            }
        }
        let other = br#"{"kind":"Foo","apiVersion":"d.portolan.dev/v1"}"#;
        let failure = object(Form::Json, other, &widget()).unwrap_err().to_json();
        assert_eq!((&failure["code"], &failure["details"]["causes"][0]["field"]), (&json!(422), &json!("kind")));
        let metadata = br#"{"kind":"Widget","apiVersion":"d.portolan.dev/v1","metadata":1}"#;
        assert_eq!(object(Form::Json, metadata, &widget()).unwrap_err().code, 400);
    }

    #[test]
    fn built_in_kinds_get_their_type_filled_in() {
        let expected = json!({ "kind": "ConfigMap", "apiVersion": "v1" });
        let map = builtin_kind("", "configmaps", "ConfigMap", true);
        for body in ["{}", "null", r#"{"kind":"ConfigMap"}"#, r#"{"apiVersion":""}"#] {
            assert_eq!(object(Form::Json, body.as_bytes(), &map), Ok(expected.clone()), "{body}");
        }
        assert_eq!(object(Form::Yaml, b"", &map), Ok(expected));
    }

    #[test]
    fn yaml_becomes_the_same_value() {
        let yaml = b"kind: ConfigMap\ndata: &d\n  a: 'true'\n  n: 1.50\nmore: {x: *d, t: true, f: 1.5, i: -3}\nnone:\n";
        let data = json!({ "a": "true", "n": 1.5 });
        let expected = json!({ "kind": "ConfigMap", "data": data, "none": null,
            "more": { "x": data, "t": true, "f": 1.5, "i": -3 } });
        assert_eq!(decode(Form::Yaml, yaml, ("", "")), Ok(expected));
        for bad in ["a: [", "a: b: c", "kind: *x"] {
            assert!(!decode(Form::Yaml, bad.as_bytes(), ("", "")).unwrap_err().message.contains('\n'), "{bad}");
        }
    }

    #[test]
    fn hostile_bodies_are_errors_not_crashes() {
        assert!(decode(Form::Json, "{\"a\":".repeat(100_000).as_bytes(), ("", "")).is_err());
        assert!(decode(Form::Yaml, "[".repeat(100_000).as_bytes(), ("", "")).is_err());
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let before = format!("*a{}", level - 1);
            writeln!(bomb, "a{level}: &a{level} [{}]", vec![before; 9].join(", ")).unwrap();
        }
        assert!(decode(Form::Yaml, bomb.as_bytes(), ("", "")).is_err());
    }
}
