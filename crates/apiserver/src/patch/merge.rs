//! JSON merge patch (RFC 7386), with the answers of the real server to bad documents.

use serde_json::{Map, Value};

use super::decode::{self, json_type};
use super::{FieldValidation, Patched};
use crate::status::Failure;

/// Applies the patch document to the object. A list as document replaces the object when nobody asks for validation;
/// the caller then finds that it is no object.
pub fn patch(object: &Value, document: &[u8], validation: FieldValidation) -> Result<Patched, Failure> {
    let lenient = validation == FieldValidation::Ignore;
    let bad = || Failure::bad_request("Invalid JSON Patch");
    let document = match decode::document(document) {
        Ok(document) => document,
        Err(_) if lenient => return Err(bad()),
        Err(why) => return Err(Failure::bad_request(format!("error decoding patch: {why}"))),
    };
    let patch = match document.value {
        Value::Object(patch) => patch,
        Value::Null => return Err(bad()),
        Value::Array(mut list) if lenient => {
            list.iter_mut().for_each(drop_nulls);
            return Ok(Patched { object: Value::Array(list), faults: Vec::new() });
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) if lenient => return Err(bad()),
        other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            let what = json_type(&other);
            let why = format!("json: cannot unmarshal {what} into Go value of type map[string]interface {{}}");
            return Err(Failure::bad_request(format!("error decoding patch: {why}")));
        }
    };
    let mut fields = object.as_object().cloned().unwrap_or_default();
    merge(&mut fields, patch);
    let object = Value::Object(fields);
    let faults = document.duplicates.iter().filter(|_| !lenient).map(|path| format!("duplicate field {path:?}"));
    Ok(Patched { object, faults: faults.collect() })
}

fn merge(object: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (key, value) in patch {
        match (object.get_mut(&key), value) {
            (_, Value::Null) => {
                object.remove(&key);
            }
            (Some(Value::Object(held)), Value::Object(patch)) => merge(held, patch),
            // an object that meets a list or a scalar is replaced as it stands, nulls and all
            (Some(Value::Object(_)), value) => {
                object.insert(key, value);
            }
            (_, mut value) => {
                drop_nulls(&mut value);
                object.insert(key, value);
            }
        }
    }
}

/// Nulls as members of objects mean nothing in what is new; in lists they stay.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => drop_null_fields(fields),
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn drop_null_fields(fields: &mut Map<String, Value>) {
    fields.retain(|_, value| !value.is_null());
    fields.values_mut().for_each(drop_nulls);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(object: &Value, document: &str, validation: FieldValidation) -> Result<Value, Failure> {
        patch(object, document.as_bytes(), validation).map(|patched| patched.object)
    }

    #[test]
    fn the_examples_of_the_rfc_hold_for_objects() {
        for (object, document, result) in [
            (json!({ "a": "b" }), r#"{"a":"c"}"#, json!({ "a": "c" })),
            (json!({ "a": "b" }), r#"{"b":"c"}"#, json!({ "a": "b", "b": "c" })),
            (json!({ "a": "b", "b": "c" }), r#"{"a":null}"#, json!({ "b": "c" })),
            (json!({ "a": ["b"] }), r#"{"a":"c"}"#, json!({ "a": "c" })),
            (json!({ "a": "c" }), r#"{"a":["b"]}"#, json!({ "a": ["b"] })),
            (json!({ "a": { "b": "c" } }), r#"{"a":{"b":"d","c":null}}"#, json!({ "a": { "b": "d" } })),
            (json!({ "a": [{ "b": "c" }] }), r#"{"a":[1]}"#, json!({ "a": [1] })),
            (json!({ "e": null }), r#"{"a":1}"#, json!({ "e": null, "a": 1 })),
            (json!({}), r#"{"a":{"bb":{"ccc":null}}}"#, json!({ "a": { "bb": {} } })),
        ] {
            assert_eq!(run(&object, document, FieldValidation::Warn).unwrap(), result, "{document}");
        }
    }

    #[test]
    fn bad_documents_are_told_as_the_real_server_tells_them() {
        let go = "into Go value of type map[string]interface {}";
        for (document, warned) in [
            ("", "error decoding patch: unexpected end of JSON input".to_owned()),
            (
                "{\"a\":1,}",
                "error decoding patch: invalid character '}' looking for beginning of object key string".into(),
            ),
            ("[]", format!("error decoding patch: json: cannot unmarshal array {go}")),
            ("\"x\"", format!("error decoding patch: json: cannot unmarshal string {go}")),
            ("5", format!("error decoding patch: json: cannot unmarshal number {go}")),
            ("null", "Invalid JSON Patch".to_owned()),
        ] {
            for validation in [FieldValidation::Warn, FieldValidation::Strict] {
                assert_eq!(run(&json!({}), document, validation), Err(Failure::bad_request(&warned)), "{document}");
            }
            if document != "[]" {
                let ignored = run(&json!({}), document, FieldValidation::Ignore);
                assert_eq!(ignored, Err(Failure::bad_request("Invalid JSON Patch")), "{document}");
            }
        }
        assert_eq!(run(&json!({ "a": 1 }), "[]", FieldValidation::Ignore), Ok(json!([])));
    }

    #[test]
    fn a_repeated_field_is_a_fault_and_the_last_counts() {
        let document = br#"{"data":{"k":"a","k":"b"}}"#;
        let patched = patch(&json!({}), document, FieldValidation::Warn).unwrap();
        assert_eq!(patched.object, json!({ "data": { "k": "b" } }));
        assert_eq!(patched.faults, ["duplicate field \"data.k\""]);
    }
}
