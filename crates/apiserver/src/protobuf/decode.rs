//! From protobuf to JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::table::{self, Field, Form, Message, Shape, Type};
use super::wire::{Fault, MAGIC, Reader, Wire};

/// How deep messages may be nested: deeper than any object needs, and shallow enough for the stack.
const DEPTH: usize = 40;
/// How deep the decoded object may be nested, so that it can be read as JSON again.
const JSON_DEPTH: usize = 100;

/// Decodes an object; one without a type is of the type `otherwise`, `apiVersion` and `kind`.
pub fn decode(bytes: &[u8], otherwise: (&str, &str)) -> Result<Value, Fault> {
    let envelope = bytes.strip_prefix(MAGIC).ok_or(Fault::NoMagic)?;
    let (mut types, mut raw): (&[u8], &[u8]) = (&[], &[]);
    let mut reader = Reader::new(envelope);
    while let Some((number, value)) = reader.field()? {
        match (number, value) {
            (1, Wire::Bytes(bytes)) => types = bytes,
            (2, Wire::Bytes(bytes)) => raw = bytes,
            // The encoding and the type of what is in it: neither is used.
            _ => {}
        }
    }
    let (mut api_version, mut kind) = (String::new(), String::new());
    let mut reader = Reader::new(types);
    while let Some((number, value)) = reader.field()? {
        match (number, value) {
            (1, Wire::Bytes(bytes)) => api_version = text(bytes),
            (2, Wire::Bytes(bytes)) => kind = text(bytes),
            _ => {}
        }
    }
    for (named, otherwise) in [(&mut api_version, otherwise.0), (&mut kind, otherwise.1)] {
        if named.is_empty() {
            otherwise.clone_into(named);
        }
    }
    let Some(message) = table::of_kind(&api_version, &kind) else {
        return Err(Fault::UnknownKind { api_version, kind });
    };
    let mut object = Map::from_iter([("apiVersion".to_owned(), api_version.into()), ("kind".to_owned(), kind.into())]);
    fields(message, raw, &mut object, DEPTH)?;
    let object = Value::Object(object);
    if is_deeper(&object, JSON_DEPTH) { Err(Fault::Deep) } else { Ok(object) }
}

/// Reads the fields of a message into an object; unknown ones are skipped.
fn fields(message: &Message, bytes: &[u8], object: &mut Map<String, Value>, depth: usize) -> Result<(), Fault> {
    let depth = depth.checked_sub(1).ok_or(Fault::Deep)?;
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.field()? {
        let Some(field) = message.fields.iter().find(|field| field.number == number) else { continue };
        match (field.shape, field.type_, wire) {
            (Shape::One, Type::Message(place), Wire::Bytes(bytes)) if field.name == "+" => {
                fields(table::at(place), bytes, object, depth)?;
            }
            (Shape::One, Type::Message(place), Wire::Bytes(bytes)) if table::at(place).form == Form::Object => {
                // A message may come in parts.
                let entry = object.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(inner) = entry {
                    fields(table::at(place), bytes, inner, depth)?;
                }
            }
            (Shape::One, ..) => {
                object.insert(field.name.to_owned(), value(field, wire, depth)?);
            }
            (Shape::List, ..) => {
                let entry = object.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(items) = entry {
                    append(items, field, wire, depth)?;
                }
            }
            (Shape::Map, _, Wire::Bytes(bytes)) => {
                let (key, value) = map_entry(field, bytes, depth)?;
                let entry = object.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(map) = entry {
                    map.insert(key, value);
                }
            }
            (Shape::Map, ..) => return Err(Fault::Type(number)),
        }
    }
    Ok(())
}

/// Appends an element of a list, or several numbers that are packed into one field.
fn append(items: &mut Vec<Value>, field: &Field, wire: Wire<'_>, depth: usize) -> Result<(), Fault> {
    match (field.type_, wire) {
        (Type::Int32 | Type::Int64 | Type::Bool, Wire::Bytes(packed)) => {
            let mut reader = Reader::new(packed);
            while !reader.is_empty() {
                items.push(value(field, Wire::Number(reader.number()?), depth)?);
            }
        }
        _ => items.push(value(field, wire, depth)?),
    }
    Ok(())
}

fn map_entry(field: &Field, bytes: &[u8], depth: usize) -> Result<(String, Value), Fault> {
    let (mut key, mut held) = (String::new(), Wire::Bytes(&[]));
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.field()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => key = text(bytes),
            (2, wire) => held = wire,
            _ => {}
        }
    }
    Ok((key, value(field, held, depth)?))
}

fn value(field: &Field, wire: Wire<'_>, depth: usize) -> Result<Value, Fault> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "negative numbers are sent so")]
    Ok(match (field.type_, wire) {
        (Type::Text, Wire::Bytes(bytes)) => text(bytes).into(),
        (Type::Bytes, Wire::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        (Type::Bool, Wire::Number(number)) => (number != 0).into(),
        (Type::Int32, Wire::Number(number)) => (number as i32).into(),
        (Type::Int64, Wire::Number(number)) => (number as i64).into(),
        (Type::Double, Wire::Fixed(bits)) => f64::from_bits(bits).into(),
        (Type::Message(place), Wire::Bytes(bytes)) => message(table::at(place), bytes, depth)?,
        _ => return Err(Fault::Type(field.number)),
    })
}

/// A message as what it is in JSON.
fn message(message: &Message, bytes: &[u8], depth: usize) -> Result<Value, Fault> {
    let mut object = Map::new();
    if message.form == Form::Json {
        return json(bytes);
    }
    fields(message, bytes, &mut object, depth)?;
    let mut take = |name: &str| object.remove(name);
    let number = |value: Option<Value>| value.and_then(|value| value.as_i64()).unwrap_or_default();
    Ok(match message.form {
        Form::Object => Value::Object(object),
        Form::Json | Form::Text => Value::Null,
        Form::Quantity => take("string").filter(|text| text != "").unwrap_or_else(|| "0".into()),
        Form::Time | Form::MicroTime if bytes.is_empty() => Value::Null,
        Form::Time => time(number(take("seconds")), 0)?.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into(),
        Form::MicroTime => {
            time(number(take("seconds")), number(take("nanos")))?.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string().into()
        }
        Form::IntOrString if number(take("type")) == 1 => take("strVal").unwrap_or_else(|| "".into()),
        Form::IntOrString => number(take("intVal")).into(),
        Form::Field => {
            message.fields.first().and_then(|field| take(field.name)).unwrap_or_else(|| Vec::<Value>::new().into())
        }
        Form::SchemaOrList => take("jSONSchemas").or_else(|| take("schema")).unwrap_or_default(),
        Form::SchemaOrStrings => take("property").or_else(|| take("schema")).unwrap_or_default(),
        Form::SchemaOrBool => take("schema").or_else(|| take("allows")).unwrap_or_else(|| false.into()),
    })
}

/// JSON that a message holds as text, in its only field.
fn json(bytes: &[u8]) -> Result<Value, Fault> {
    let mut held = Value::Null;
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.field()? {
        match wire {
            Wire::Bytes([]) => {}
            Wire::Bytes(text) if number == 1 => held = serde_json::from_slice(text).map_err(|_| Fault::Json)?,
            Wire::Bytes(_) | Wire::Number(_) | Wire::Fixed(_) | Wire::Fixed32 => {}
        }
    }
    Ok(held)
}

fn time(seconds: i64, nanos: i64) -> Result<Timestamp, Fault> {
    let nanos = i32::try_from(nanos).map_err(|_| Fault::Time)?;
    Timestamp::new(seconds, nanos).map_err(|_| Fault::Time)
}

/// Bytes as text; broken UTF-8 is replaced, as in JSON.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_deeper(value: &Value, limit: usize) -> bool {
    let Some(limit) = limit.checked_sub(1) else { return true };
    match value {
        Value::Array(items) => items.iter().any(|item| is_deeper(item, limit)),
        Value::Object(fields) => fields.values().any(|field| is_deeper(field, limit)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
