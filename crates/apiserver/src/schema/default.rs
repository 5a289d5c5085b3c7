//! Structural defaulting: missing fields get their defaults, and nulls that may not be go away.

use serde_json::Value;

use super::Schema;

/// Fills in defaults, also inside of what was filled in.
///
/// A null where none may be takes the default, or goes away when there is none.
pub fn default(schema: &Schema, value: &mut Value) {
    if let (Value::Null, false, Some(default)) = (&*value, schema.nullable, &schema.default) {
        *value = default.clone();
    }
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| {
                let Some(child) = schema.field(name) else { return true };
                default(child, value);
                !value.is_null() || child.nullable
            });
            for (name, child) in &schema.properties {
                let Some(missing) = &child.default else { continue };
                if !fields.contains_key(name) {
                    let mut missing = missing.clone();
                    default(child, &mut missing);
                    fields.insert(name.clone(), missing);
                }
            }
        }
        Value::Array(items) => {
            let Some(child) = &schema.items else { return };
            for item in items {
                default(child, item);
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
    fn defaults_fill_what_is_missing_down_into_defaults() {
        let schema = Schema::parse(&json!({ "type": "object", "properties": {
            "a": { "type": "object", "default": {}, "properties": { "x": { "type": "integer", "default": 5 } } },
            "l": { "type": "array", "items": { "type": "object", "properties": { "y": { "type": "string", "default": "z" } } } },
            "m": { "type": "object", "additionalProperties": { "type": "object", "properties": { "y": { "type": "string", "default": "z" } } } },
            "n": { "type": "string", "nullable": true, "default": "kept null" },
        } }));
        let mut value = json!({ "l": [{}], "m": { "k": {} }, "n": null });
        default(&schema, &mut value);
        assert_eq!(value, json!({ "a": { "x": 5 }, "l": [{ "y": "z" }], "m": { "k": { "y": "z" } }, "n": null }));
    }
}
