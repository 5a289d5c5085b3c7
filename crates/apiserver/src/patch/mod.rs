//! Patches: JSON patch, JSON merge patch, strategic merge patch and server-side apply, with the field management of
//! every write.
//!
//! ```text
//! content type -> PatchType -> json | merge | strategic -> apply::track_update (managedFields)
//!                           -> apply::apply (merges and updates managedFields itself)
//! ```
//! All are pure functions over `serde_json::Value`: no clock, no store.

pub mod apply;
pub mod json;
pub mod merge;
mod node;
pub mod strategic;

use std::fmt::Display;

use http::StatusCode;
use serde_json::Value;

use self::node::Node;
use crate::kinds::Kind;
use crate::schema::Type;
use crate::status::{About, Cause, Failure};

/// The four ways to patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchType {
    /// The patch type of a `Content-Type` header; custom kinds do not support strategic merge patches.
    pub fn of(content_type: &str, custom: bool) -> Result<Self, Failure> {
        match content_type.split(';').next().unwrap_or_default() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if !custom => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            other => {
                let message = format!("patches with content type {other:?} are not supported for this kind");
                let refuse = if custom { Failure::new } else { Failure::generic };
                Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message))
            }
        }
    }
}

/// The failure of a patch whose result is no object of its kind, or fails strict validation.
pub fn invalid(shown: &Value, why: &str) -> Failure {
    let message = format!("Invalid value: {:?}: {why}", shown.to_string());
    let cause = Cause { reason: "FieldValueInvalid", message, field: "patch".to_owned() };
    Failure::invalid(About { group: "", resource: "", name: "" }, &[cause])
}

/// The message of a failed strict validation.
pub fn strict_fault(faults: &[String]) -> String {
    format!("strict decoding error: {}", faults.join(", "))
}

/// Removes the nulls of an object: a null field is not set, a null string in a map is empty. For custom kinds
/// only in metadata; other nulls are left to validation.
pub fn remove_nulls(kind: &Kind, object: &mut Value) {
    let node = Node::of(kind);
    if !kind.custom {
        settle(node, object);
    } else if let (Some(node), Some(meta)) = (node.named("metadata"), object.get_mut("metadata")) {
        settle(node, meta);
    }
}

fn settle(node: Node<'_>, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, value| !(value.is_null() && node.named(key).is_some()));
            for (key, value) in fields {
                match node.member(key) {
                    Some(member) if value.is_null() && member.schema.type_ == Some(Type::String) => *value = "".into(),
                    Some(member) => settle(member, value),
                    None => {}
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| settle(node.item(), item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Parses a patch document.
fn read(document: &[u8]) -> Result<Value, Failure> {
    let value = serde_json::from_slice(document);
    value.map(normalize_integers).map_err(|why| Failure::bad_request(format!("error decoding patch: {why}")))
}

/// Numbers without a fraction are integers, however they are written: Kubernetes stores `2.0` as `2`.
fn normalize_integers(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(normalize_integers).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (key, normalize_integers(value))).collect(),
        Value::Number(number) => {
            let integer = number.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < 1e15 && number.is_f64());
            integer.and_then(|n| format!("{n:.0}").parse::<i64>().ok()).map_or(Value::Number(number), Value::from)
        }
        other @ (Value::Null | Value::Bool(_) | Value::String(_)) => other,
    }
}

/// The failure of a patch that does not fit the object.
fn rejected(why: impl Display) -> Failure {
    let message = format!("the patch cannot be applied: {why}");
    Failure::generic(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
}

#[cfg(test)]
mod recorded;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_type_names_the_patch() {
        let of = |header| PatchType::of(header, false);
        assert_eq!(of("application/json-patch+json"), Ok(PatchType::Json));
        assert_eq!(of("application/merge-patch+json; charset=utf-8"), Ok(PatchType::Merge));
        assert_eq!(of("application/strategic-merge-patch+json"), Ok(PatchType::Strategic));
        assert_eq!(of("application/apply-patch+yaml"), Ok(PatchType::Apply));
        for header in ["application/json", "", ";x", "application/Merge-Patch+json"] {
            assert_eq!(of(header).unwrap_err().code.as_u16(), 415, "{header}");
        }
        assert!(PatchType::of("application/strategic-merge-patch+json", true).is_err());
    }
}
