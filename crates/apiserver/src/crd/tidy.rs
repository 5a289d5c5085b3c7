//! What the server fills in and drops when it reads a definition.

use serde_json::{Map, Value, json};

use crate::json::text;

/// Kept even when empty, in versions and schemas.
const KEPT: &str =
    "additionalProperties default enum example items not rule status x-kubernetes-preserve-unknown-fields";

/// Fills in `singular`, `listKind`, `conversion` and the flags of versions, and drops what is empty, as the server
/// stores it.
pub fn defaulted(crd: &mut Value) {
    let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let names = spec.entry("names").or_insert_with(|| json!({}));
    let kind = text(names, "/kind").to_owned();
    if let Some(names) = names.as_object_mut() {
        names.retain(|_, value| !is_empty(value));
        if !kind.is_empty() {
            names.entry("singular").or_insert_with(|| kind.to_lowercase().into());
            names.entry("listKind").or_insert_with(|| format!("{kind}List").into());
        }
        for needed in ["kind", "plural"] {
            names.entry(needed).or_insert_with(|| "".into());
        }
    }
    if spec.get("conversion").is_none_or(Value::is_null) {
        spec.insert("conversion".to_owned(), json!({ "strategy": "None" }));
    }
    if spec.get("preserveUnknownFields") == Some(&json!(false)) {
        spec.remove("preserveUnknownFields");
    }
    for version in spec.get_mut("versions").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(version) = version.as_object_mut() else { continue };
        tidy(version);
        for flag in ["served", "storage"] {
            version.entry(flag).or_insert(Value::Bool(false));
        }
    }
}

fn tidy(fields: &mut Map<String, Value>) {
    fields.retain(|name, value| {
        match value {
            _ if name == "default" || name == "example" => {}
            // names of fields, not of keywords
            Value::Object(properties) if name == "properties" => {
                properties.values_mut().filter_map(Value::as_object_mut).for_each(tidy);
            }
            Value::Object(inner) => tidy(inner),
            Value::Array(items) => items.iter_mut().filter_map(Value::as_object_mut).for_each(tidy),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        !value.is_null() && (KEPT.split(' ').any(|kept| kept == name) || !is_empty(value))
    });
}

fn is_empty(value: &Value) -> bool {
    [json!(null), json!(false), json!(""), json!([]), json!({})].contains(value)
}
