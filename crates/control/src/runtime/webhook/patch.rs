//! The JSON patch that defaulting answers with.
//!
//! Defaults are set on a typed object, which may know less than the user wrote. So the patch holds what changed
//! between the typed object before and after, and applies it to the object as it came: fields that the type does
//! not know survive. Only a list whose length changed is replaced whole.

use serde_json::{Map, Value, json};

/// The operations that turn `raw` into itself with the change from `before` to `after` applied.
pub(super) fn between(raw: &Value, before: &Value, after: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    walk("", Some(raw), Some(before), Some(after), &mut operations);
    operations
}

fn walk(at: &str, raw: Option<&Value>, before: Option<&Value>, after: Option<&Value>, operations: &mut Vec<Value>) {
    if before == after || raw == after {
        return;
    }
    match (raw, before, after) {
        (Some(Value::Object(raw)), Some(Value::Object(before)), Some(Value::Object(after))) => {
            for key in keys(before, after) {
                walk(&member(at, key), raw.get(key), before.get(key), after.get(key), operations);
            }
        }
        (Some(Value::Array(raw)), Some(Value::Array(before)), Some(Value::Array(after)))
            if raw.len() == before.len() && before.len() == after.len() =>
        {
            for (index, ((raw, before), after)) in raw.iter().zip(before).zip(after).enumerate() {
                walk(&format!("{at}/{index}"), Some(raw), Some(before), Some(after), operations);
            }
        }
        (Some(_), _, Some(after)) => operations.push(json!({"op": "replace", "path": at, "value": after})),
        (None, _, Some(after)) => operations.push(json!({"op": "add", "path": at, "value": after})),
        (Some(_), _, None) => operations.push(json!({"op": "remove", "path": at})),
        (None, _, None) => {}
    }
}

/// All keys of two objects, each once.
fn keys<'a>(before: &'a Map<String, Value>, after: &'a Map<String, Value>) -> impl Iterator<Item = &'a String> {
    before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)))
}

/// The pointer to a member, escaped as RFC 6901 says.
fn member(at: &str, key: &str) -> String {
    format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_hold_what_changed_and_nothing_else() {
        let same = json!({"spec": {"a": 1}});
        for (case, raw, before, after, expected) in [
            ("no change", same.clone(), same.clone(), same, json!([])),
            (
                "unknown fields survive",
                json!({"spec": {"a": 1, "unknown": true}, "more": []}),
                json!({"spec": {"a": 1}}),
                json!({"spec": {"a": 2, "b": 3}}),
                json!([
                    {"op": "replace", "path": "/spec/a", "value": 2},
                    {"op": "add", "path": "/spec/b", "value": 3},
                ]),
            ),
            (
                "a parent that only the type knows is added whole",
                json!({}),
                json!({"spec": {}}),
                json!({"spec": {"a": 1}}),
                json!([{"op": "add", "path": "/spec", "value": {"a": 1}}]),
            ),
            (
                "what the type always writes is no change",
                json!({"spec": {}}),
                json!({"spec": {"list": []}}),
                json!({"spec": {"list": []}}),
                json!([]),
            ),
            (
                "what the user wrote already is no change",
                json!({"size": "1"}),
                json!({}),
                json!({"size": "1"}),
                json!([]),
            ),
            (
                "removal, and names that need escaping",
                json!({"metadata": {"annotations": {"a.io/x~y": "1", "keep": "2"}}}),
                json!({"metadata": {"annotations": {"a.io/x~y": "1", "keep": "2"}}}),
                json!({"metadata": {"annotations": {"keep": "2"}}}),
                json!([{"op": "remove", "path": "/metadata/annotations/a.io~1x~0y"}]),
            ),
            (
                "an element of a list, its unknown fields untouched",
                json!({"ports": [{"port": 1, "unknown": 0}, {"port": 2}]}),
                json!({"ports": [{"port": 1}, {"port": 2}]}),
                json!({"ports": [{"port": 1, "protocol": "TCP"}, {"port": 2}]}),
                json!([{"op": "add", "path": "/ports/0/protocol", "value": "TCP"}]),
            ),
            (
                "a longer list is replaced",
                json!({"ports": [1]}),
                json!({"ports": [1]}),
                json!({"ports": [1, 2]}),
                json!([{"op": "replace", "path": "/ports", "value": [1, 2]}]),
            ),
            (
                "null is a value",
                json!({"a": null}),
                json!({"a": null}),
                json!({"a": {}}),
                json!([{"op": "replace", "path": "/a", "value": {}}]),
            ),
        ] {
            assert_eq!(Value::Array(between(&raw, &before, &after)), expected, "{case}");
        }
    }
}
