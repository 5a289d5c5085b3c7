//! The three-way merge of `kubectl apply`: what the file says, what it said when it was last applied, and what is there.
//!
//! Fields of the file win; fields that were applied before and are no longer in the file go; all others stay. Lists are
//! replaced as a whole, but for those of built-in kinds that Kubernetes merges by a key.

use serde_json::{Map, Value};

/// How a list is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    /// This field identifies an item.
    Keyed(&'static str),
    /// Items are plain values.
    Set,
}

/// How the lists of a kind are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lists {
    /// Some by a key, as Kubernetes' own kinds say.
    BuiltIn,
    /// Not at all: they are replaced.
    Custom,
}

impl Lists {
    /// Groups of custom kinds have domains of their own.
    pub(super) fn of_group(group: &str) -> Self {
        if !group.contains('.') || group.ends_with(".k8s.io") { Self::BuiltIn } else { Self::Custom }
    }
}

/// What applying the file makes of the object.
pub(super) fn three_way(lists: Lists, last: &Value, file: &Value, live: &Value) -> Value {
    let mut result = live.clone();
    merge(lists, &mut Vec::new(), last, file, &mut result);
    result
}

fn merge<'a>(lists: Lists, path: &mut Vec<&'a str>, last: &'a Value, file: &'a Value, target: &mut Value) {
    let Value::Object(fields) = file else {
        *target = file.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(object) = target else { return };
    for gone in last.as_object().into_iter().flat_map(Map::keys).filter(|key| !fields.contains_key(*key)) {
        object.remove(gone);
    }
    for (key, value) in fields {
        path.push(key);
        let before = &last[key];
        match value {
            Value::Null => drop(object.remove(key)),
            Value::Object(_) => merge(lists, path, before, value, object.entry(key.clone()).or_insert(Value::Null)),
            Value::Array(items) => match (marked(lists, path), object.get_mut(key)) {
                (Some(how), Some(Value::Array(there))) => merge_list(lists, how, path, (before, items), there),
                _ => drop(object.insert(key.clone(), value.clone())),
            },
            Value::Bool(_) | Value::Number(_) | Value::String(_) => drop(object.insert(key.clone(), value.clone())),
        }
        path.pop();
    }
}

fn merge_list<'a>(
    lists: Lists,
    how: List,
    path: &mut Vec<&'a str>,
    (last, file): (&'a Value, &'a [Value]),
    target: &mut Vec<Value>,
) {
    let same = |one: &Value, other: &Value| match how {
        List::Keyed(key) => one.get(key).is_some() && one.get(key) == other.get(key),
        List::Set => one == other,
    };
    let gone = last.as_array().into_iter().flatten().filter(|item| !file.iter().any(|kept| same(kept, item)));
    for item in gone {
        target.retain(|there| !same(there, item));
    }
    for item in file {
        let before = last.as_array().into_iter().flatten().find(|one| same(one, item)).unwrap_or(&Value::Null);
        match target.iter_mut().find(|there| same(there, item)) {
            Some(there) => merge(lists, path, before, item, there),
            None => target.push(item.clone()),
        }
    }
}

/// The lists of the built-in kinds that can be planned, as Kubernetes' API marks them for strategic merges.
fn marked(lists: Lists, path: &[&str]) -> Option<List> {
    if lists == Lists::Custom {
        return None;
    }
    let [.., parent, field] = path else { return None };
    match (*parent, *field) {
        ("metadata", "finalizers") | ("spec", "podCIDRs") => Some(List::Set),
        ("metadata", "ownerReferences") => Some(List::Keyed("uid")),
        ("spec", "ports") => Some(List::Keyed("port")),
        ("spec", "containers" | "initContainers" | "ephemeralContainers" | "volumes" | "imagePullSecrets")
        | (_, "env") => Some(List::Keyed("name")),
        ("spec", "hostAliases") => Some(List::Keyed("ip")),
        (_, "ports") if path.len() > 2 => Some(List::Keyed("containerPort")),
        (_, "volumeMounts") => Some(List::Keyed("mountPath")),
        (_, "volumeDevices") => Some(List::Keyed("devicePath")),
        _ => None,
    }
}

/// Removes what was applied before, is not in the file and belongs to nobody else.
pub(super) fn remove_unlisted(last: &Value, file: &Value, others: &[&Value], target: &mut Value) {
    let (Value::Object(applied), Value::Object(object)) = (last, target) else { return };
    for (key, before) in applied {
        let field = format!("f:{key}");
        let owners: Vec<&Value> = others.iter().filter_map(|owned| owned.get(&field)).collect();
        let listed = file.get(key);
        let Some(value) = object.get_mut(key) else { continue };
        if before.is_object() && value.is_object() {
            remove_unlisted(before, listed.unwrap_or(&Value::Null), &owners, value);
            if listed.is_none() && value.as_object().is_some_and(Map::is_empty) {
                object.remove(key);
            }
        } else if listed.is_none() && owners.is_empty() {
            object.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn custom(last: &Value, file: &Value, live: &Value) -> Value {
        three_way(Lists::Custom, last, file, live)
    }

    #[test]
    fn a_field_that_was_applied_before_and_is_left_out_goes() {
        let last = json!({ "spec": { "ippools": { "ipv4": ["10.6.1.55"] }, "nodeSelector": { "a": "b" } } });
        let live = json!({ "spec": { "ippools": { "ipv4": ["10.6.1.55"], "ipv4DefaultEIP": "10.6.1.55" },
            "nodeSelector": { "a": "b" }, "policyLimit": 3 }, "status": { "x": 1 } });
        let file = json!({ "spec": { "nodeSelector": { "a": "c" } } });
        let result = custom(&last, &file, &live);
        assert_eq!(result, json!({ "spec": { "nodeSelector": { "a": "c" }, "policyLimit": 3 }, "status": { "x": 1 } }));
        assert_eq!(
            custom(&Value::Null, &file, &live)["spec"]["ippools"],
            live["spec"]["ippools"],
            "what kubectl never applied stays"
        );
    }

    #[test]
    fn null_removes_a_field_and_lists_of_custom_kinds_are_replaced() {
        let live = json!({ "a": [1, 2], "b": 3, "ports": [{ "port": 1 }] });
        let file = json!({ "a": [2], "b": null, "c": { "d": null, "e": 1 }, "ports": [{ "port": 2 }] });
        let expected = json!({ "a": [2], "c": { "e": 1 }, "ports": [{ "port": 2 }] });
        assert_eq!(custom(&Value::Null, &file, &live), expected);
    }

    #[test]
    fn lists_of_built_in_kinds_merge_by_their_keys() {
        let last = json!({ "spec": { "ports": [{ "port": 80 }, { "port": 443 }] } });
        let live = json!({ "metadata": { "finalizers": ["x"] },
            "spec": { "ports": [{ "port": 80, "nodePort": 30000 }, { "port": 443 }, { "port": 9 }] } });
        let file = json!({ "metadata": { "finalizers": ["y"] }, "spec": { "ports": [{ "port": 80, "name": "web" }] } });
        let expected = json!({ "metadata": { "finalizers": ["x", "y"] },
            "spec": { "ports": [{ "port": 80, "nodePort": 30000, "name": "web" }, { "port": 9 }] } });
        assert_eq!(three_way(Lists::BuiltIn, &last, &file, &live), expected);
    }

    #[test]
    fn what_another_manager_owns_stays_when_fields_change_hands() {
        let last = json!({ "spec": { "a": 1, "b": { "c": 1, "d": 2 }, "e": [1] }, "metadata": { "name": "x" } });
        let file = json!({ "spec": { "a": 1 }, "metadata": { "name": "x" } });
        let mut live = json!({ "spec": { "a": 1, "b": { "c": 1, "d": 2 }, "e": [1] }, "metadata": { "name": "x" } });
        let other = json!({ "f:spec": { "f:b": { "f:d": {} } } });
        remove_unlisted(&last, &file, &[&other], &mut live);
        assert_eq!(live, json!({ "spec": { "a": 1, "b": { "d": 2 } }, "metadata": { "name": "x" } }));
    }
}
