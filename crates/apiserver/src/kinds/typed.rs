//! Whether the values of an object have the types of its kind; the first that does not is reported.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::Kind;
use crate::schema::prune::OBJECT_META;
use crate::schema::{Schema, Type};

/// Why a built-in object cannot be read, or the metadata of a custom one.
pub fn fault(kind: &Kind, object: &Value) -> Option<String> {
    if kind.custom {
        return object.get("metadata").and_then(|metadata| misfit(&OBJECT_META, metadata, "metadata"));
    }
    misfit(&kind.schema, object, "")
}

fn misfit(schema: &Schema, value: &Value, path: &str) -> Option<String> {
    let is_format = |name: &str| schema.raw.get("format").is_some_and(|format| format == name);
    let fits = match (schema.type_, value) {
        (_, Value::Null) => true,
        (None, value) => !schema.int_or_string || value.is_number() || value.is_string(),
        (Some(Type::Object), Value::Object(fields)) => {
            return fields.iter().find_map(|(name, value)| {
                let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                misfit(schema.field(name)?, value, &below)
            });
        }
        (Some(Type::Array), Value::Array(items)) => {
            let inner = schema.items.as_deref()?;
            return items.iter().enumerate().find_map(|(at, item)| misfit(inner, item, &format!("{path}[{at}]")));
        }
        (Some(Type::String), Value::String(text)) if is_format("byte") => {
            STANDARD.decode(text.replace(['\r', '\n'], "")).is_ok()
        }
        (Some(Type::Integer), Value::Number(number)) => {
            number.as_i64().is_some_and(|number| !is_format("int32") || i32::try_from(number).is_ok())
        }
        (Some(type_), value) => matches!(
            (type_, value),
            (Type::String, Value::String(_)) | (Type::Boolean, Value::Bool(_)) | (Type::Number, Value::Number(_))
        ),
    };
    let wanted = match schema.type_ {
        Some(Type::String) if is_format("byte") => "base64",
        Some(type_) => type_.name(),
        None => "integer or string",
    };
    (!fits).then(|| format!("{path}: the value is no {wanted}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::builtin;
    use super::*;

    #[test]
    fn the_first_value_of_a_wrong_type_is_named() {
        for (kind, object, told) in [
            ("ConfigMap", json!({ "data": { "k": 1 } }), "data.k: the value is no string"),
            ("ConfigMap", json!({ "metadata": { "labels": 5 } }), "metadata.labels: the value is no object"),
            (
                "Pod",
                json!({ "spec": { "containers": [{ "name": 5 }] } }),
                "spec.containers[0].name: the value is no string",
            ),
            (
                "Service",
                json!({ "spec": { "ports": [{ "port": 1e10 }] } }),
                "spec.ports[0].port: the value is no integer",
            ),
            (
                "Service",
                json!({ "spec": { "ports": [{ "targetPort": [] }] } }),
                "spec.ports[0].targetPort: the value is no integer or string",
            ),
            ("Secret", json!({ "data": { "c": "not base64!" } }), "data.c: the value is no base64"),
            ("Secret", json!({ "data": { "c": "YQ==", "d": null } }), ""),
        ] {
            let kind = builtin::all().into_iter().find(|other| other.kind == kind).unwrap();
            assert_eq!(fault(&kind, &object).unwrap_or_default(), told, "{object}");
        }
    }
}
