//! Patches: JSON patch, JSON merge patch, strategic merge patch and server-side apply, with the field bookkeeping of
//! every write.
//!
//! ```text
//! content type -> PatchType -> json | merge | strategic -> Patched -> apply::updated (managedFields)
//!                           -> apply::apply (merges and does the bookkeeping itself)
//! ```
//! All are pure functions over `serde_json::Value`: no clock, no store.

pub mod apply;
mod decode;
pub(crate) mod go;
pub mod json;
pub mod merge;
mod node;
pub mod strategic;

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

/// The query parameter `fieldValidation`: what to do with faults of a document that do not stop it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// A patched object, with the faults of the patch document: warnings, or the end of it when validation is strict
/// (then `invalid` makes the answer).
#[derive(Debug, Clone, PartialEq)]
pub struct Patched {
    pub object: Value,
    /// Such as `json patch unknown field "[0].foo"`; always empty under `FieldValidation::Ignore`.
    pub faults: Vec<String>,
}

impl PatchType {
    /// The patch type of a `Content-Type` header; custom kinds know no strategic merge, and both say no in their own
    /// words.
    pub fn of(content_type: &str, custom: bool) -> Result<Self, Failure> {
        let essence = match content_type.find(';') {
            Some(end) if end > 0 => &content_type[..end],
            _ => content_type,
        };
        match essence {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if !custom => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ => Err(unsupported(custom)),
        }
    }
}

/// The answer to a patch whose result is no object of its kind, or breaks strict validation: `why` is the decoder's
/// sentence.
pub fn invalid(patch_type: PatchType, shown: &Value, why: &str) -> Failure {
    let shown = match patch_type {
        PatchType::Strategic => go::plain(shown),
        PatchType::Json | PatchType::Merge | PatchType::Apply => go::json(shown),
    };
    let message = format!("Invalid value: {shown:?}: {why}");
    let cause = Cause { reason: "FieldValueInvalid", message, field: "patch".to_owned() };
    Failure::invalid(About { group: "", resource: "", name: "" }, &[cause])
}

/// The sentence for strict validation, as `invalid` wants it.
pub fn strict_fault(faults: &[String]) -> String {
    format!("strict decoding error: {}", faults.join(", "))
}

/// Settles the nulls of an object: a null field is one that is not set, a null text in a map is empty. For custom kinds
/// that goes for their metadata; what else is null there is for validation to judge.
pub fn settle_nulls(kind: &Kind, object: &mut Value) {
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

fn unsupported(custom: bool) -> Failure {
    const KNOWN: &str = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
    let code = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    if custom {
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {KNOWN}");
        Failure::new(code, "UnsupportedMediaType", message)
    } else {
        Failure::generic(code, "UnsupportedMediaType", "415: Unsupported Media Type")
    }
}

/// A patch that does not fit the object: the real server tells no more than this.
fn rejected() -> Failure {
    let message = "the server rejected our request due to an error in our request";
    Failure::generic(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
}

/// An error the real server does not classify.
fn unclassified(message: impl Into<String>) -> Failure {
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
}

#[cfg(test)]
mod recorded;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_content_type_names_the_patch() {
        let of = |header| PatchType::of(header, false);
        assert_eq!(of("application/json-patch+json"), Ok(PatchType::Json));
        assert_eq!(of("application/merge-patch+json; charset=utf-8"), Ok(PatchType::Merge));
        assert_eq!(of("application/strategic-merge-patch+json"), Ok(PatchType::Strategic));
        assert_eq!(of("application/apply-patch+yaml"), Ok(PatchType::Apply));
    }

    #[test]
    fn other_content_types_are_refused_in_the_words_of_the_kind() {
        for header in ["application/json", "", ";x", "application/Merge-Patch+json", "application/apply-patch+cbor"] {
            let failure = PatchType::of(header, false).unwrap_err();
            assert_eq!(failure.to_json()["message"], "415: Unsupported Media Type", "{header}");
            assert_eq!(failure.to_json()["details"], json!({}), "{header}");
        }
        let failure = PatchType::of("application/strategic-merge-patch+json", true).unwrap_err();
        assert_eq!(
            failure.to_json(),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 415,
                "reason": "UnsupportedMediaType",
                "message": "the body of the request was in an unknown format - accepted media types include: \
                    application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            })
        );
    }

    #[test]
    fn a_patch_to_something_else_shows_what_it_made() {
        let failure = invalid(PatchType::Strategic, &json!({ "data": 5 }), "cannot restore map from int64");
        let sentence = "Invalid value: \"map[data:5]\": cannot restore map from int64";
        assert_eq!(failure.message, format!(" \"\" is invalid: patch: {sentence}"));
        let causes = json!([{ "reason": "FieldValueInvalid", "message": sentence, "field": "patch" }]);
        assert_eq!(failure.to_json()["details"], json!({ "causes": causes }));
    }
}
