//! Resources inside of resources: `x-kubernetes-embedded-resource`.

use serde_json::Value;

use super::fault::{child, invalid, required};
use super::prune::{OBJECT_META, walk};
use super::{Schema, Type, names};
use crate::status::Cause;

/// What keeps embedded resources from being read at all; such a body is a bad request.
pub fn malformed(schema: &Schema, value: &Value) -> Option<Cause> {
    let mut first = None;
    visit(schema, value, "", &mut |resource, path| {
        if first.is_none() {
            first = unreadable(resource, path);
        }
    });
    first
}

/// What keeps `metadata` from being read, in the words of Go's JSON; such a body is a bad request.
pub fn metadata_fault(metadata: &Value) -> Option<String> {
    let mismatch = |value: &Value, field: &str, type_: &str| {
        Some(format!("json: cannot unmarshal {} into Go {field} of type {type_}", json_kind(value)))
    };
    let Value::Object(fields) = metadata else {
        return if metadata.is_null() { None } else { mismatch(metadata, "value", "v1.ObjectMeta") };
    };
    fields.iter().filter(|(_, value)| !value.is_null()).find_map(|(name, value)| {
        let schema = OBJECT_META.properties.get(name)?;
        let field = format!("struct field ObjectMeta.{name}");
        match (schema.type_?, value) {
            (Type::Array, Value::Array(items)) if name == "finalizers" => {
                items.iter().find(|item| !item.is_string()).and_then(|item| mismatch(item, &field, "string"))
            }
            (Type::String, Value::String(_)) | (Type::Integer, Value::Number(_)) | (Type::Array, Value::Array(_)) => {
                None
            }
            (Type::Object, Value::Object(map)) => map
                .values()
                .find(|value| !value.is_string() && !value.is_null())
                .and_then(|value| mismatch(value, &field, "string")),
            (type_, value) => mismatch(
                value,
                &field,
                match (type_, name.as_str()) {
                    (Type::Integer, _) => "int64",
                    (Type::Object, _) => "map[string]string",
                    (_, "finalizers") => "[]string",
                    (_, "ownerReferences") => "[]v1.OwnerReference",
                    (_, "managedFields") => "[]v1.ManagedFieldsEntry",
                    (_, "uid") => "types.UID",
                    _ => "string",
                },
            ),
        }
    })
}

/// What breaks the rules for `apiVersion`, `kind` and `metadata` of embedded resources.
pub(crate) fn faults(schema: &Schema, value: &Value) -> Vec<Cause> {
    let mut found = Vec::new();
    visit(schema, value, "", &mut |resource, path| resource_faults(resource, path, &mut found));
    found
}

/// Removes unknown fields from the metadata of embedded resources.
pub(super) fn prune_metadata(schema: &Schema, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if schema.embedded_resource && name == "metadata" {
                    walk(Some(&OBJECT_META), value, &child(path, name), unknown);
                }
                if let Some(schema) = schema.field(name) {
                    prune_metadata(schema, value, &child(path, name), unknown);
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            for (index, item) in items.iter_mut().enumerate() {
                prune_metadata(schema, item, &format!("{path}[{index}]"), unknown);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn visit<'v>(schema: &Schema, value: &'v Value, path: &str, act: &mut dyn FnMut(&'v Value, &str)) {
    match value {
        Value::Object(fields) => {
            if schema.embedded_resource {
                act(value, path);
            }
            for (name, value) in fields {
                if let Some(property) = schema.properties.get(name) {
                    visit(property, value, &child(path, name), act);
                } else if let Some(additional) = &schema.additional {
                    visit(additional, value, &format!("{path}[{name}]"), act);
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                visit(schema, item, &format!("{path}[{index}]"), act);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn unreadable(resource: &Value, path: &str) -> Option<Cause> {
    for name in ["apiVersion", "kind"] {
        if let Some(value) = resource.get(name).filter(|value| !value.is_string()) {
            return Some(invalid(child(path, name), value, "must be a string"));
        }
    }
    let metadata = resource.get("metadata")?;
    Some(invalid(child(path, "metadata"), metadata, &metadata_fault(metadata)?))
}

fn resource_faults(resource: &Value, path: &str, found: &mut Vec<Cause>) {
    for name in ["apiVersion", "kind"] {
        if resource.get(name).is_none() {
            found.push(required(child(path, name), ""));
        }
    }
    for name in ["apiVersion", "kind"] {
        let Some(value) = resource.get(name) else { continue };
        let fault = match value.as_str() {
            None => "must be a string".to_owned(),
            Some("") => "must not be empty".to_owned(),
            Some(text) if name == "apiVersion" && text.matches('/').count() > 1 => {
                format!("unexpected GroupVersion string: {text}")
            }
            Some(text) if name == "kind" => match names::dns_1035_label(&text.to_lowercase()).join(",") {
                fault if fault.is_empty() => continue,
                fault => format!("may have mixed case, but should otherwise match: {fault}"),
            },
            Some(_) => continue,
        };
        found.push(invalid(child(path, name), value, &fault));
    }
    let Some(metadata) = resource.get("metadata") else { return };
    let path = child(path, "metadata");
    for (key, value) in metadata.get("labels").and_then(Value::as_object).into_iter().flatten() {
        let at = child(&path, "labels");
        found.extend(names::label_key(key).iter().map(|fault| invalid(at.clone(), &key.as_str().into(), fault)));
        let faults = names::label_value(value.as_str().unwrap_or_default());
        found.extend(faults.iter().map(|fault| invalid(at.clone(), value, fault)));
    }
    for key in metadata.get("annotations").and_then(Value::as_object).into_iter().flatten().map(|(key, _)| key) {
        let faults = names::label_key(&key.to_lowercase());
        found.extend(faults.iter().map(|fault| invalid(child(&path, "annotations"), &key.as_str().into(), fault)));
    }
}

fn json_kind(value: &Value) -> &'static str {
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
    use serde_json::json;

    use super::*;

    #[test]
    fn resources_that_cannot_be_read_are_told_as_recorded() {
        let schema = Schema::parse(
            &json!({ "type": "object", "properties": { "emb": { "type": "object", "x-kubernetes-embedded-resource": true } } }),
        );
        let told = |emb: Value| {
            malformed(&schema, &json!({ "emb": emb })).map(|cause| format!("{}: {}", cause.field, cause.message))
        };
        assert_eq!(
            told(json!({ "apiVersion": 5, "kind": "P" })),
            Some("emb.apiVersion: Invalid value: 5: must be a string".to_owned())
        );
        assert_eq!(
            told(json!({ "apiVersion": "v1", "kind": "A", "metadata": { "name": 5, "labels": { "a": 1 } } })),
            Some("emb.metadata: Invalid value: {\"labels\":{\"a\":1},\"name\":5}: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string".to_owned()),
        );
        assert_eq!(
            told(json!({ "metadata": "x" })),
            Some(
                "emb.metadata: Invalid value: \"x\": json: cannot unmarshal string into Go value of type v1.ObjectMeta"
                    .to_owned()
            ),
        );
        assert_eq!(told(json!({ "apiVersion": "v1", "kind": "A", "metadata": { "name": "x" } })), None);
    }
}
