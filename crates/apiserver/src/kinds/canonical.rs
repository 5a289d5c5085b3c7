//! The canonical form of built-in objects: what decoding into the real server's types and encoding again would give.

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::schema::{Schema, Type, Zero};

/// Brings `value` into canonical form: nulls and empty values go or stay as the types say, times are in UTC. Done twice
/// it changes nothing more.
pub(super) fn canonical(schema: &Schema, value: &mut Value) {
    match value {
        Value::Array(items) => {
            for item in items {
                schema.items.iter().for_each(|schema| canonical(schema, item));
            }
        }
        Value::Object(map) => {
            for (name, schema) in &schema.properties {
                property(map, name, schema);
            }
            if let Some(schema) = &schema.additional {
                map.values_mut().for_each(|value| canonical(schema, value));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => reformat(format(schema), value),
    }
}

fn property(map: &mut Map<String, Value>, name: &str, schema: &Schema) {
    let mut value = map.remove(name).unwrap_or(Value::Null);
    if schema.zero == Zero::Always && schema.raw.contains_key("default") && is_zero(&value) {
        return;
    }
    if value.is_null() && schema.zero == Zero::Always {
        value = empty(schema);
    }
    canonical(schema, &mut value);
    let gone = match schema.zero {
        Zero::Keep => value.is_null(),
        Zero::Drop => is_zero(&value),
        Zero::Always => false,
    };
    if schema.zero == Zero::Always && value.as_array().is_some_and(Vec::is_empty) {
        value = Value::Null;
    }
    if !gone {
        map.insert(name.to_owned(), value);
    }
}

/// The empty value of a type that is always written.
fn empty(schema: &Schema) -> Value {
    match schema.type_ {
        Some(Type::String) if !format(schema).ends_with("-time") => "".into(),
        Some(Type::Integer | Type::Number) => 0.into(),
        Some(Type::Boolean) => false.into(),
        Some(Type::Object) => Value::Object(Map::new()),
        None if schema.int_or_string => 0.into(),
        Some(Type::Array | Type::String) | None => Value::Null,
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(yes) => !yes,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

fn format(schema: &Schema) -> &str {
    schema.raw.get("format").and_then(Value::as_str).unwrap_or_default()
}

fn reformat(format: &str, value: &mut Value) {
    let time = || value.as_str()?.parse::<Timestamp>().ok();
    let text = match format {
        // Clients read quantities as texts, whatever they were written as.
        "quantity" => value.as_number().map(ToString::to_string),
        "date-time" => time().map(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        "micro-time" => time().map(|time| time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()),
        _ => None,
    };
    if let Some(text) = text {
        *value = text.into();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::builtin;
    use super::*;

    fn canonical_of(kind: &str, mut value: Value) -> Value {
        let kind = builtin::all().into_iter().find(|each| each.kind == kind).unwrap();
        canonical(&kind.schema, &mut value);
        let once = value.clone();
        canonical(&kind.schema, &mut value);
        assert_eq!(value, once, "not stable");
        value
    }

    #[test]
    fn empty_values_go_and_required_ones_come() {
        let value = json!({ "metadata": { "labels": {}, "name": "x" }, "rules": [] });
        assert_eq!(canonical_of("Role", value), json!({ "metadata": { "name": "x" }, "rules": null }));
        let value = json!({ "metadata": { "name": "x" }, "data": null, "immutable": false });
        assert_eq!(canonical_of("ConfigMap", value), json!({ "metadata": { "name": "x" }, "immutable": false }));
    }

    #[test]
    fn an_empty_value_that_has_a_default_leaves_room_for_it() {
        let value = json!({ "metadata": {}, "spec": { "matchingPrecedence": 0, "priorityLevelConfiguration": { "name": "p" } } });
        assert_eq!(canonical_of("FlowSchema", value)["spec"], json!({ "priorityLevelConfiguration": { "name": "p" } }));
    }

    #[test]
    fn times_are_in_utc_with_the_digits_of_their_type() {
        let value = json!({ "spec": { "renewTime": "2024-01-01T00:00:00.500000+02:00" } });
        assert_eq!(canonical_of("Lease", value)["spec"]["renewTime"], "2023-12-31T22:00:00.500000Z");
    }

    #[test]
    fn quantities_are_texts() {
        let value = json!({ "status": { "capacity": { "cpu": "2", "pods": 110 } } });
        assert_eq!(canonical_of("Node", value)["status"]["capacity"], json!({ "cpu": "2", "pods": "110" }));
    }

    #[test]
    fn values_of_a_wrong_type_pass_through() {
        let value = json!({ "metadata": 5, "spec": [1], "status": "x" });
        assert_eq!(canonical_of("Pod", value.clone()), value);
    }
}
