//! From JSON to protobuf.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::table::{self, Field, Form, Message, Shape, Type};
use super::wire::{MAGIC, put_bytes, put_double, put_number};

/// Encodes an object by its `apiVersion` and `kind`; none if no message is known for them.
pub fn encode(object: &Value) -> Option<Vec<u8>> {
    let named = |name: &str| object[name].as_str().unwrap_or_default();
    let message = table::of_kind(named("apiVersion"), named("kind"))?;
    let (mut types, mut raw) = (Vec::new(), Vec::new());
    put_bytes(&mut types, 1, named("apiVersion").as_bytes());
    put_bytes(&mut types, 2, named("kind").as_bytes());
    fields(message, object.as_object()?, &mut raw);
    let mut encoded = MAGIC.to_vec();
    put_bytes(&mut encoded, 1, &types);
    put_bytes(&mut encoded, 2, &raw);
    put_bytes(&mut encoded, 3, b"");
    put_bytes(&mut encoded, 4, b"");
    Some(encoded)
}

/// Encodes a document of OpenAPI v2, as the Go package gnostic has it.
pub fn encode_openapi(document: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    if let (Some(message), Value::Object(document)) = (table::named("openapi.v2.Document"), document) {
        fields(message, document, &mut out);
    }
    out
}

/// An event of a watch, with its length before it; `object` is encoded.
pub fn watch_event(type_: &str, object: &[u8]) -> Vec<u8> {
    let (mut held, mut event) = (Vec::new(), Vec::new());
    put_bytes(&mut held, 1, object);
    put_bytes(&mut event, 1, type_.as_bytes());
    put_bytes(&mut event, 2, &held);
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), event.as_slice()].concat()
}

/// Appends what an object has of the fields of a message.
fn fields(message: &Message, object: &Map<String, Value>, out: &mut Vec<u8>) {
    for field in &message.fields {
        if field.name == "+" {
            if let Type::Message(place) = field.type_ {
                let mut inner = Vec::new();
                fields(table::at(place), object, &mut inner);
                put_bytes(out, field.number, &inner);
            }
            continue;
        }
        if field.name == "x-" {
            let extensions = object.iter().filter(|(name, _)| name.starts_with("x-"));
            put_entries(field, extensions, out);
        } else if let Some(value) = object.get(field.name) {
            put_whole(field, value, out);
        }
    }
}

/// Appends a field with all its elements.
fn put_whole(field: &Field, value: &Value, out: &mut Vec<u8>) {
    match (field.shape, value) {
        (Shape::One, value) => put(field, value, field.number, out),
        (Shape::List, Value::Array(items)) => {
            for item in items {
                put_element(field, item, field.number, out);
            }
        }
        (Shape::Map, Value::Object(entries)) => put_entries(field, entries, out),
        (Shape::List | Shape::Map, _) => {}
    }
}

fn put_entries<'a>(field: &Field, entries: impl IntoIterator<Item = (&'a String, &'a Value)>, out: &mut Vec<u8>) {
    for (key, value) in entries {
        let mut entry = Vec::new();
        put_bytes(&mut entry, 1, key.as_bytes());
        put_element(field, value, 2, &mut entry);
        put_bytes(out, field.number, &entry);
    }
}

/// Appends an element of a list or map, which may be the JSON null where any JSON may stand.
fn put_element(field: &Field, value: &Value, number: u32, out: &mut Vec<u8>) {
    let any_json = |place| table::at(place).form == Form::Json;
    if value.is_null() && matches!(field.type_, Type::Message(place) if any_json(place)) {
        let mut inner = Vec::new();
        put_bytes(&mut inner, 1, b"null");
        put_bytes(out, number, &inner);
    } else {
        put(field, value, number, out);
    }
}

/// Appends a value as field `number`; one of another type is left out.
fn put(field: &Field, value: &Value, number: u32, out: &mut Vec<u8>) {
    match (field.type_, value) {
        (_, Value::Null) => {}
        (Type::Text, Value::String(text)) => put_bytes(out, number, text.as_bytes()),
        (Type::Bytes, Value::String(text)) => {
            if let Ok(bytes) = STANDARD.decode(text) {
                put_bytes(out, number, &bytes);
            }
        }
        (Type::Bool, Value::Bool(yes)) => put_number(out, number, u64::from(*yes)),
        (Type::Int32 | Type::Int64, Value::Number(_)) => put_number(out, number, integer(value)),
        (Type::Double, Value::Number(double)) => {
            put_double(out, number, double.as_f64().unwrap_or_default());
        }
        (Type::Message(place), value) => {
            if let Some(inner) = message(table::at(place), value) {
                put_bytes(out, number, &inner);
            }
        }
        (Type::Text | Type::Bytes | Type::Bool | Type::Int32 | Type::Int64 | Type::Double, _) => {}
    }
}

/// A message from what it is in JSON.
fn message(message: &Message, value: &Value) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match (message.form, value) {
        (Form::Object, Value::Object(object)) => fields(message, object, &mut out),
        (Form::Json, value) => put_bytes(&mut out, 1, value.to_string().as_bytes()),
        (Form::Quantity, Value::String(text)) => put_bytes(&mut out, 1, text.as_bytes()),
        (Form::Quantity, Value::Number(number)) => put_bytes(&mut out, 1, number.to_string().as_bytes()),
        (Form::Time | Form::MicroTime, Value::String(text)) => {
            let time: Timestamp = text.parse().ok()?;
            let nanos = if message.form == Form::Time { 0 } else { time.subsec_nanosecond() };
            put_number(&mut out, 1, time.as_second().cast_unsigned());
            put_number(&mut out, 2, i64::from(nanos).cast_unsigned());
        }
        (Form::IntOrString, Value::String(text)) => {
            put_number(&mut out, 1, 1);
            put_number(&mut out, 2, 0);
            put_bytes(&mut out, 3, text.as_bytes());
        }
        (Form::IntOrString, number @ Value::Number(_)) => {
            put_number(&mut out, 1, 0);
            put_number(&mut out, 2, integer(number));
            put_bytes(&mut out, 3, b"");
        }
        (Form::Text, value) => put_bytes(&mut out, 2, value.to_string().as_bytes()),
        (Form::Field, value) => put_whole(message.fields.first()?, value, &mut out),
        (Form::SchemaOrList, Value::Array(_)) => by_name(message, "jSONSchemas", value, &mut out),
        (Form::SchemaOrStrings, Value::Array(_)) => by_name(message, "property", value, &mut out),
        (Form::SchemaOrBool, Value::Bool(_)) => by_name(message, "allows", value, &mut out),
        (Form::SchemaOrBool, Value::Object(_)) => {
            by_name(message, "allows", &true.into(), &mut out);
            by_name(message, "schema", value, &mut out);
        }
        (Form::SchemaOrList | Form::SchemaOrStrings, Value::Object(_)) => by_name(message, "schema", value, &mut out),
        _ => return None,
    }
    Some(out)
}

/// Appends one field of a message.
fn by_name(message: &Message, name: &str, value: &Value, out: &mut Vec<u8>) {
    fields(message, &Map::from_iter([(name.to_owned(), value.clone())]), out);
}

#[expect(clippy::cast_possible_truncation, reason = "a number out of range is no integer of Kubernetes")]
fn integer(number: &Value) -> u64 {
    number.as_i64().unwrap_or_else(|| number.as_f64().unwrap_or_default() as i64).cast_unsigned()
}
