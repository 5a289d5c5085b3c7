//! Structural defaulting: missing fields get their defaults, and nulls that may not be go away.

use serde_json::Value;

use super::Schema;

/// Fills in defaults, also inside of what was filled in.
///
/// A null where none may be takes the default, or goes away when there is none.
pub fn default(schema: &Schema, value: &mut Value) {
    drop_nulls(schema, value);
    fill(schema, value);
}

fn drop_nulls(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| {
                let Some(child) = schema.field(name) else { return true };
                if value.is_null() && !child.nullable && child.default.is_none() {
                    return false;
                }
                drop_nulls(child, value);
                true
            });
        }
        Value::Array(items) => {
            let Some(child) = &schema.items else { return };
            for item in items {
                drop_nulls(child, item);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn fill(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, child) in &schema.properties {
                let Some(default) = &child.default else { continue };
                match fields.get_mut(name) {
                    None => drop(fields.insert(name.clone(), default.clone())),
                    Some(null @ Value::Null) if !child.nullable => *null = default.clone(),
                    Some(_) => {}
                }
            }
            for (name, value) in fields {
                if let Some(child) = schema.field(name) {
                    fill_null(child, value);
                    fill(child, value);
                }
            }
        }
        Value::Array(items) => {
            let Some(child) = &schema.items else { return };
            for item in items {
                fill_null(child, item);
                fill(child, item);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn fill_null(schema: &Schema, value: &mut Value) {
    if let (Value::Null, false, Some(default)) = (&*value, schema.nullable, &schema.default) {
        *value = default.clone();
    }
}

impl Schema {
    /// The schema of a field: declared, or that of a map's values.
    pub fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(self.additional.as_deref())
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
