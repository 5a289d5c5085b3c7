//! Lists that are sets or maps: no item twice.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::fault::{child, duplicate, invalid};
use super::{ListType, Schema};
use crate::status::Cause;

/// Items that come twice, in lists of type set and map anywhere in `value`.
pub(crate) fn duplicates(schema: &Schema, value: &Value) -> Vec<Cause> {
    let mut found = Vec::new();
    walk(schema, value, "", &mut found);
    found
}

/// The item of a list of type map that has the keys of `item`.
pub(crate) fn correlated<'a>(schema: &Schema, old: &'a [Value], item: &Value) -> Option<&'a Value> {
    let ListType::Map(keys) = &schema.list_type else { return None };
    let own = key_of(keys, item);
    item.is_object()
        .then(|| old.iter().find(|candidate| candidate.is_object() && key_of(keys, candidate) == own))
        .flatten()
}

fn walk(schema: &Schema, value: &Value, path: &str, found: &mut Vec<Cause>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(property) = schema.properties.get(name) {
                    walk(property, value, &child(path, name), found);
                } else if let Some(additional) = &schema.additional {
                    walk(additional, value, &format!("{path}[{name}]"), found);
                }
            }
        }
        Value::Array(items) => {
            list(schema, items, path, found);
            if let Some(schema) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    walk(schema, item, &format!("{path}[{index}]"), found);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn list(schema: &Schema, items: &[Value], path: &str, found: &mut Vec<Cause>) {
    let keys: Vec<Value> = match &schema.list_type {
        ListType::Atomic => return,
        ListType::Set => items.to_vec(),
        ListType::Map(keys) => {
            let odd = items.iter().position(|item| !item.is_object() && !item.is_null());
            if let Some(index) = odd {
                let detail = "must be an object for an array of list-type map";
                found.push(invalid(format!("{path}[{index}]"), &items[index], detail));
                return;
            }
            items.iter().map(|item| Value::Object(key_of(keys, item))).collect()
        }
    };
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (index, key) in keys.iter().enumerate() {
        let times = seen.entry(key.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            found.push(duplicate(format!("{path}[{index}]"), key));
        }
    }
}

fn key_of(keys: &[String], item: &Value) -> Map<String, Value> {
    keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone()))).collect()
}
