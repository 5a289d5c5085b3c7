//! Pruning: what a schema does not know is removed and reported.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::{Schema, embedded};

const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// `metadata` as every object has it.
pub static OBJECT_META: LazyLock<Schema> = LazyLock::new(|| {
    let text = || json!({ "type": "string" });
    let texts = || json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let object = |properties: Value| json!({ "type": "object", "properties": properties });
    let owner = object(json!({
        "apiVersion": text(), "kind": text(), "name": text(), "uid": text(),
        "controller": { "type": "boolean" }, "blockOwnerDeletion": { "type": "boolean" },
    }));
    let managed = object(json!({
        "manager": text(), "operation": text(), "apiVersion": text(), "time": text(), "fieldsType": text(),
        "fieldsV1": { "type": "object", "x-kubernetes-preserve-unknown-fields": true }, "subresource": text(),
    }));
    Schema::parse(&object(json!({
        "name": text(), "generateName": text(), "namespace": text(), "selfLink": text(), "uid": text(),
        "resourceVersion": text(), "generation": { "type": "integer" }, "creationTimestamp": text(),
        "deletionTimestamp": text(), "deletionGracePeriodSeconds": { "type": "integer" },
        "labels": texts(), "annotations": texts(), "finalizers": { "type": "array", "items": text() },
        "ownerReferences": { "type": "array", "items": owner },
        "managedFields": { "type": "array", "items": managed },
    })))
});

/// Removes what `schema` does not know and returns its paths, in the order in which Kubernetes reports them for
/// custom resources: those in `metadata`, all others, those in the metadata of embedded resources.
pub fn prune(schema: &Schema, value: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    if let Some(metadata) = value.get_mut("metadata") {
        walk(Some(&OBJECT_META), metadata, "metadata", &mut unknown);
    }
    let mut others = Vec::new();
    let root = value.is_object();
    below(schema, value, "", root, &mut others);
    others.sort();
    unknown.append(&mut others);
    embedded::prune_metadata(schema, value, "", &mut others);
    others.sort();
    unknown.append(&mut others);
    unknown
}

/// Prunes a value that stands at `schema`, such as a default.
pub(crate) fn prune_below(schema: &Schema, value: &mut Value) {
    walk(Some(schema), value, "", &mut Vec::new());
}

pub(super) fn walk(schema: Option<&Schema>, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    static NOTHING: LazyLock<Schema> = LazyLock::new(Schema::default);
    let schema = schema.unwrap_or(&NOTHING);
    below(schema, value, path, schema.embedded_resource, unknown);
}

/// `resource` is set where `apiVersion`, `kind` and `metadata` need no schema.
fn below(schema: &Schema, value: &mut Value, path: &str, resource: bool, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            if resource && META_FIELDS.contains(&name.as_str()) {
                return true;
            }
            if schema.properties.contains_key(name) || schema.additional.is_some() {
                walk(schema.field(name), value, &join(path, name), unknown);
                return true;
            }
            if !schema.preserve_unknown_fields {
                unknown.push(join(path, name));
            }
            schema.preserve_unknown_fields
        }),
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                if schema.preserve_unknown_fields && schema.items.is_none() {
                    break;
                }
                let path = format!("{path}[{index}]");
                walk(schema.items.as_deref(), item, &path, unknown);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_go_and_are_named_as_the_real_server_names_them() {
        let schema = Schema::parse(
            &json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": {
            "desk": { "type": "string" },
            "kv": { "type": "object", "additionalProperties": { "type": "string" } },
            "list": { "type": "array", "items": { "type": "object", "properties": { "num": { "type": "integer" } } } },
            "emb": { "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true },
        } } } }),
        );
        let mut value = json!({
            "apiVersion": "b/v1", "kind": "Boat", "metadata": { "name": "x", "zz": 1, "ab": {} }, "zoo": 1,
            "spec": { "desk": "d", "foo": 1, "kv": { "a.b/c": { "q": 1 } }, "list": [{ "num": { "z": 1 } }],
                      "emb": { "apiVersion": "v1", "kind": "A", "metadata": { "q": 1, "b": 2 }, "spec": { "any": 1 } } },
        });
        let unknown = prune(&schema, &mut value);
        assert_eq!(
            unknown,
            [
                "metadata.ab",
                "metadata.zz",
                "spec.foo",
                "spec.kv.a.b/c.q",
                "spec.list[0].num.z",
                "zoo",
                "spec.emb.metadata.b",
                "spec.emb.metadata.q",
            ]
        );
        assert_eq!(
            value,
            json!({
                "apiVersion": "b/v1", "kind": "Boat", "metadata": { "name": "x" },
                "spec": { "desk": "d", "kv": { "a.b/c": {} }, "list": [{ "num": {} }],
                          "emb": { "apiVersion": "v1", "kind": "A", "metadata": {}, "spec": { "any": 1 } } },
            })
        );
    }
}
