//! Short ways to read and write fields of JSON objects; a wrong type reads as absent.

use serde_json::Value;

/// The string at `pointer` (`/spec/type`), or empty.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The number at `pointer`, or 0.
pub(crate) fn number(value: &Value, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// The list at `pointer`, or an empty one.
pub(crate) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The entries of the object at `pointer`.
pub(crate) fn entries<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    value.pointer(pointer).and_then(Value::as_object).into_iter().flatten()
}

/// The items of the list under `key`.
pub(crate) fn items<'a>(value: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> + use<'a> {
    value.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Sets `key` unless it has a value.
pub(crate) fn fill(value: &mut Value, key: &str, default: impl Into<Value>) {
    if let Some(map) = value.as_object_mut()
        && map.get(key).is_none_or(Value::is_null)
    {
        map.insert(key.to_owned(), default.into());
    }
}

/// Copies `key` from `old`, or removes it when `old` has none.
pub(crate) fn restore(value: &mut Value, old: &Value, key: &str) {
    if let Some(map) = value.as_object_mut() {
        match old.get(key) {
            Some(kept) => map.insert(key.to_owned(), kept.clone()),
            None => map.remove(key),
        };
    }
}

/// Sets `key` of an object; nothing else has keys.
pub(crate) fn put(value: &mut Value, key: &str, new: impl Into<Value>) {
    if let Some(map) = value.as_object_mut() {
        map.insert(key.to_owned(), new.into());
    }
}

pub(crate) fn remove(value: &mut Value, key: &str) {
    if let Some(map) = value.as_object_mut() {
        map.remove(key);
    }
}
