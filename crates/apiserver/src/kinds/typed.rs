//! Whether an object has the types of its kind, as Kubernetes finds out by reading it into its own structures: the
//! first value that does not fit, in the words of its decoder.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::Kind;
use super::openapi::GO_TYPE;
use crate::rest::body::json_type;
use crate::schema::prune::OBJECT_META;
use crate::schema::{Schema, Type};

/// Why a built-in object cannot be read, or the metadata of a custom one.
pub fn fault(kind: &Kind, object: &Value) -> Option<String> {
    if !kind.custom {
        return Place { structure: &kind.kind, path: "" }.fault(&kind.schema, object);
    }
    let metadata = object.get("metadata")?;
    Place { structure: "ObjectMeta", path: "" }.fault(&OBJECT_META, metadata)
}

/// The same as a whole sentence.
pub fn refusal(kind: &Kind, why: &str) -> String {
    format!("{0} in version \"{1}\" cannot be handled as a {0}: {why}", kind.kind, kind.version)
}

/// Where a value stands: the structure around it, and its path from the root.
#[derive(Clone, Copy)]
struct Place<'a> {
    structure: &'a str,
    path: &'a str,
}

impl Place<'_> {
    fn fault(self, schema: &Schema, value: &Value) -> Option<String> {
        if value.is_null() {
            return None;
        }
        if schema.int_or_string {
            let fits = value.is_number() || value.is_string();
            return (!fits).then(|| format!("json: cannot unmarshal {} into Go value of type int32", json_type(value)));
        }
        match (schema.type_?, value) {
            (Type::Object, Value::Object(fields)) => fields.iter().find_map(|(name, value)| {
                let Some(inner) = schema.properties.get(name) else {
                    return schema.additional.as_ref().and_then(|inner| self.fault(inner, value));
                };
                let structure = schema
                    .raw
                    .get(GO_TYPE)
                    .and_then(Value::as_str)
                    .map_or(self.structure, |name| name.rsplit('.').next().unwrap_or_default());
                let path = if self.path.is_empty() { name.clone() } else { format!("{}.{name}", self.path) };
                Place { structure, path: &path }.fault(inner, value)
            }),
            (Type::Array, Value::Array(items)) => {
                let inner = schema.items.as_deref()?;
                items.iter().find_map(|item| self.fault(inner, item))
            }
            (Type::String, Value::String(text)) if is_bytes(schema) => base64_fault(text),
            (Type::String, Value::String(_)) | (Type::Boolean, Value::Bool(_)) | (Type::Number, Value::Number(_)) => {
                None
            }
            (Type::Integer, Value::Number(number)) => {
                let fits = number.as_i64().is_some_and(|int| go_type(schema) == "int64" || i32::try_from(int).is_ok());
                (!fits).then(|| self.misfit(&format!("number {number}"), schema))
            }
            _ => Some(self.misfit(json_type(value), schema)),
        }
    }

    fn misfit(self, found: &str, schema: &Schema) -> String {
        let type_ = go_type(schema);
        format!("json: cannot unmarshal {found} into Go struct field {}.{} of type {type_}", self.structure, self.path)
    }
}

fn is_bytes(schema: &Schema) -> bool {
    schema.raw.get("format").is_some_and(|format| format == "byte")
}

/// The type of a value in Kubernetes' own language.
fn go_type(schema: &Schema) -> String {
    let named = schema.raw.get(GO_TYPE).and_then(Value::as_str);
    let inner =
        |schema: &Option<Box<Schema>>| schema.as_ref().map_or_else(|| "interface {}".to_owned(), |s| go_type(s));
    match (named, schema.type_) {
        (Some(named), _) => named.to_owned(),
        (None, Some(Type::Object)) => format!("map[string]{}", inner(&schema.additional)),
        (None, Some(Type::Array)) => format!("[]{}", inner(&schema.items)),
        (None, Some(Type::String)) if is_bytes(schema) => "[]uint8".to_owned(),
        (None, Some(Type::String)) => "string".to_owned(),
        (None, Some(Type::Integer)) => {
            let narrow = schema.raw.get("format").is_some_and(|format| format == "int32");
            if narrow { "int32" } else { "int64" }.to_owned()
        }
        (None, Some(Type::Number)) => "float64".to_owned(),
        (None, Some(Type::Boolean)) => "bool".to_owned(),
        (None, None) => "interface {}".to_owned(),
    }
}

fn base64_fault(text: &str) -> Option<String> {
    let text: String = text.chars().filter(|letter| !matches!(letter, '\r' | '\n')).collect();
    STANDARD.decode(&text).err()?;
    let in_alphabet = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    // A text that is cut off is told where its last, incomplete group begins.
    let at = text.bytes().position(|byte| !in_alphabet(byte)).unwrap_or(text.len() / 4 * 4);
    Some(format!("illegal base64 data at input byte {at}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::builtin;
    use super::*;

    fn of(kind: &str, object: &Value) -> String {
        let kind = builtin::all().into_iter().find(|other| other.kind == kind).unwrap();
        fault(&kind, object).unwrap_or_default()
    }

    #[test]
    fn the_first_value_of_a_wrong_type_is_told_as_the_real_server_tells_it() {
        for (kind, object, told) in [
            ("ConfigMap", json!({ "data": { "k": 1 } }), "number into Go struct field ConfigMap.data of type string"),
            (
                "ConfigMap",
                json!({ "metadata": { "labels": 5 } }),
                "number into Go struct field ObjectMeta.metadata.labels of type map[string]string",
            ),
            ("Pod", json!({ "spec": [] }), "array into Go struct field Pod.spec of type v1.PodSpec"),
        ] {
            assert_eq!(of(kind, &object), format!("json: cannot unmarshal {told}"));
        }
        assert_eq!(of("Secret", &json!({ "data": { "c": "not base64!" } })), "illegal base64 data at input byte 3");
        assert_eq!(of("Secret", &json!({ "data": { "c": "YQ==", "d": null } })), "");
    }
}
