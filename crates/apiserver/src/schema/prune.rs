//! Pruning: what a schema does not know is removed and reported.

use std::sync::LazyLock;

use serde_json::Value;

use super::{Path, Schema};

/// `metadata` as every object has it.
pub static OBJECT_META: LazyLock<Schema> = LazyLock::new(|| {
    let text = include_str!("metadata.json");
    Schema::parse(&serde_json::from_str(text).expect("every test that writes an object reads it"))
});

/// Removes what `schema` does not know and returns its paths, those in `metadata` first.
pub fn prune(schema: &Schema, value: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    walk(schema, value, true, &Path::Root, &mut unknown);
    unknown.sort_by_cached_key(|path| (!path.starts_with("metadata."), path.clone()));
    unknown
}

/// Prunes a value that stands at `schema`, such as a default.
pub(crate) fn prune_below(schema: &Schema, value: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    walk(schema, value, schema.embedded_resource, &Path::Root, &mut unknown);
    unknown
}

/// `resource` is set where `apiVersion`, `kind` and `metadata` need no schema.
fn walk(schema: &Schema, value: &mut Value, resource: bool, path: &Path<'_>, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let path = Path::Field(path, name);
            let child = match name.as_str() {
                "apiVersion" | "kind" if resource => return true,
                "metadata" if resource => Some(&*OBJECT_META),
                _ => schema.field(name),
            };
            match child {
                Some(child) => walk(child, value, child.embedded_resource, &path, unknown),
                None if schema.preserve_unknown_fields => {}
                None => unknown.push(path.to_string()),
            }
            child.is_some() || schema.preserve_unknown_fields
        }),
        Value::Array(items) => {
            let Some(child) = &schema.items else { return };
            for (index, item) in items.iter_mut().enumerate() {
                walk(child, item, child.embedded_resource, &Path::Item(path, index), unknown);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
                "spec.emb.metadata.b",
                "spec.emb.metadata.q",
                "spec.foo",
                "spec.kv.a.b/c.q",
                "spec.list[0].num.z",
                "zoo",
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
