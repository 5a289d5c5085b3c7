//! What the server fills in and drops when it reads a definition.

use serde_json::{Map, Value, json};

use super::text;

/// Fills in `singular`, `listKind`, `conversion` and webhook ports, and drops what is empty, as the server stores it.
pub fn defaulted(crd: &mut Value) {
    let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let names = spec.entry("names").or_insert_with(|| json!({}));
    let kind = text(names, "/kind").to_owned();
    if let Some(names) = names.as_object_mut() {
        drop_empty(names);
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
    if let Some(service) =
        spec.get_mut("conversion").and_then(|conversion| conversion.pointer_mut("/webhook/clientConfig/service"))
        && let Some(service) = service.as_object_mut()
    {
        service.entry("port").or_insert_with(|| 443.into());
    }
    if spec.get("preserveUnknownFields") == Some(&json!(false)) {
        spec.remove("preserveUnknownFields");
    }
    for version in spec.get_mut("versions").and_then(Value::as_array_mut).into_iter().flatten() {
        tidy_version(version);
    }
}

fn tidy_version(version: &mut Value) {
    if let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema") {
        tidy_schema(schema);
    }
    let Some(version) = version.as_object_mut() else { return };
    for flag in ["served", "storage"] {
        version.entry(flag).or_insert(Value::Bool(false));
    }
    if version.get("deprecated") == Some(&json!(false)) {
        version.remove("deprecated");
    }
    for list in ["additionalPrinterColumns", "selectableFields"] {
        if version.get(list).and_then(Value::as_array).is_some_and(Vec::is_empty) {
            version.remove(list);
        }
    }
    for column in version.get_mut("additionalPrinterColumns").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(column) = column.as_object_mut() else { continue };
        column.retain(|name, value| {
            let optional = ["format", "description", "priority"].contains(&name.as_str());
            !(optional && (*value == json!("") || *value == json!(0) || value.is_null()))
        });
    }
}

fn tidy_schema(schema: &mut Value) {
    let Some(node) = schema.as_object_mut() else { return };
    node.retain(|name, value| {
        // these are told apart from missing even when empty
        let kept = [
            "default",
            "example",
            "not",
            "items",
            "additionalProperties",
            "additionalItems",
            "x-kubernetes-preserve-unknown-fields",
        ];
        !value.is_null() && (kept.contains(&name.as_str()) || !is_empty(value))
    });
    for name in ["items", "additionalProperties", "not", "additionalItems"] {
        if let Some(child) = node.get_mut(name) {
            tidy_schema(child);
        }
    }
    for name in ["properties", "patternProperties", "definitions"] {
        let children = node.get_mut(name).and_then(Value::as_object_mut);
        children.into_iter().flat_map(Map::values_mut).for_each(tidy_schema);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        node.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten().for_each(tidy_schema);
    }
    for rule in node.get_mut("x-kubernetes-validations").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(rule) = rule.as_object_mut() else { continue };
        rule.retain(|name, value| name == "rule" || name == "optionalOldSelf" || !is_empty(value));
    }
}

fn drop_empty(fields: &mut Map<String, Value>) {
    fields.retain(|_, value| !is_empty(value));
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Number(_) => false,
    }
}
