//! Who comes to own which field: the bookkeeping of creates, updates and patches.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::node::Node;
use super::compare::{Changes, compare};
use super::element::Element;
use super::entries::{Held, Managed, Operation, Owner, load, store};
use super::fields::Set;
use super::{Write, rules, typed};
use crate::kinds::Kind;

/// The longest name of a manager, in bytes.
const MAX_MANAGER: usize = 128;
/// So many owners by update an object may have; the oldest are put together beyond.
const MAX_UPDATERS: usize = 10;

/// Keeps the books for a create (`old` is none), an update or a patch, and gives `new` its `managedFields`. The manager
/// comes to own what it changed, others lose it.
///
/// To be called with defaults filled in, but before admission and before the server sets fields of its own (the
/// cluster IP of a Service, the priority of a Pod, finalizers of a Namespace): those are nobody's.
pub fn updated(write: &Write<'_>, old: Option<&Value>, new: &mut Value) {
    let given = new.get_mut("metadata").and_then(Value::as_object_mut).and_then(|meta| meta.remove("managedFields"));
    let held = old.map(|old| &old["metadata"]["managedFields"]);
    let managed = starting_point(held, given.as_ref(), write.subresource);
    // an object whose books are empty has none until someone applies
    let tracked = old.is_none() || !managed.is_empty();
    let custom_faults = || write.kind.custom && !typed::faults(Node::of(write.kind), new, true).is_empty();
    if !tracked || custom_faults() {
        return;
    }
    let old = old.map_or_else(|| Cow::Owned(rules::empty_object(write.kind)), Cow::Borrowed);
    let managed = record(write, &old, new, managed, write.manager);
    store(new, &managed);
}

/// Whether books of a version can be kept for the object: it must have the fields of that version only.
pub fn fits(kind: &Kind, object: &Value) -> bool {
    typed::faults(Node::of(kind), object, true).is_empty()
}

/// Keeps the books for a write of `scale`: whoever changes the count owns its field, without a time.
pub fn scaled(write: &Write<'_>, replicas_path: &str, old: &Value, new: &mut Value) {
    let path: Vec<Element> =
        replicas_path.split('.').filter(|step| !step.is_empty()).map(|step| Element::Field(step.to_owned())).collect();
    let pointer = replicas_path.replace('.', "/");
    let mut managed = load(&old["metadata"]["managedFields"]).unwrap_or_default();
    if old.pointer(&pointer) != new.pointer(&pointer) {
        let mut count = Set::default();
        count.insert(&path);
        managed.retain(|_, held| {
            held.fields = held.fields.difference(&count);
            !held.fields.is_empty()
        });
        let owner = owner(write, Operation::Update, write.manager);
        managed.insert(owner, Held { fields: count, version: write.kind.api_version(), time: None });
    }
    store(new, &managed);
}

/// Takes the times of the entries back if nothing else changed, so that writing the same again changes nothing. To be
/// called last, with the object as it would be stored.
pub fn keep_times(old: &Value, new: &mut Value) {
    let timeless = |object: &Value| {
        let mut object = object.clone();
        let entries = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
        for entry in entries.into_iter().flatten() {
            entry.as_object_mut().map(|entry| entry.remove("time"));
        }
        object
    };
    let (held, given) = (&old["metadata"]["managedFields"], &new["metadata"]["managedFields"]);
    if held != given && given.is_array() && timeless(old) == timeless(new) {
        new["metadata"]["managedFields"] = held.clone();
    }
}

/// The manager of a request that names none: the user agent up to the first `/`.
pub fn manager_name(user_agent: &str) -> String {
    let mut name = String::new();
    for letter in user_agent.split('/').next().unwrap_or_default().chars().filter(|letter| !letter.is_control()) {
        if name.len() + letter.len_utf8() > MAX_MANAGER {
            break;
        }
        name.push(letter);
    }
    name
}

/// The books to begin with: those of the request if it brings valid ones (a subresource cannot), else those of the
/// object as it is. An empty list, or one with an empty entry, wipes them.
fn starting_point(held: Option<&Value>, given: Option<&Value>, subresource: &str) -> Managed {
    let held = || held.and_then(|held| load(held).ok()).unwrap_or_default();
    match given.and_then(Value::as_array) {
        None => held(),
        Some(_) if !subresource.is_empty() => held(),
        Some(list) if list.is_empty() || *list == [json!({})] => Managed::new(),
        Some(list) => load(&Value::Array(list.clone())).ok().filter(|given| !given.is_empty()).unwrap_or_else(held),
    }
}

/// The books after `manager` turned the one object into the other.
pub(super) fn record(write: &Write<'_>, old: &Value, new: &Value, mut managed: Managed, manager: &str) -> Managed {
    let changes = compare(Node::of(write.kind), old, new);
    let reset = rules::reset_fields(write.kind, write.subresource);
    take(&mut managed, &changes.without(&reset), None);
    let taken = changes.set().without(&reset).difference(&rules::unowned());
    if !taken.is_empty() {
        let held = managed.entry(owner(write, Operation::Update, manager)).or_insert_with(|| Held {
            fields: Set::default(),
            version: String::new(),
            time: None,
        });
        held.fields = held.fields.union(&taken);
        held.version = write.kind.api_version();
        held.time = Some(time(write));
    }
    cap(&mut managed);
    managed
}

/// Takes what changed away from all owners but one; those who have nothing left go.
pub(super) fn take(managed: &mut Managed, changes: &Changes, except: Option<&Owner>) {
    let changed = changes.set();
    managed.retain(|owner, held| {
        if except != Some(owner) {
            held.fields = held.fields.difference(&held.fields.intersection(&changed)).difference(&changes.removed);
        }
        !held.fields.is_empty()
    });
}

pub(super) fn owner(write: &Write<'_>, operation: Operation, manager: &str) -> Owner {
    let manager = if manager.is_empty() { "unknown" } else { manager };
    let version = match operation {
        Operation::Apply => String::new(),
        Operation::Update => write.kind.api_version(),
    };
    Owner { manager: manager.to_owned(), operation, version, subresource: write.subresource.to_owned() }
}

/// The second of the write, as entries show it.
pub(super) fn time(write: &Write<'_>) -> String {
    write.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// An object without its books: they are no part of what is owned.
pub(super) fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.remove("managedFields");
    }
    object
}

/// Puts the oldest owners by update together, by version, until there are few enough.
fn cap(managed: &mut Managed) {
    let mut updaters: Vec<(Option<String>, Owner)> = managed
        .iter()
        .filter(|(owner, _)| owner.operation == Operation::Update)
        .map(|(owner, held)| (held.time.clone(), owner.clone()))
        .collect();
    updaters.sort();
    let mut count = updaters.len();
    let mut first: BTreeMap<String, Owner> = BTreeMap::new();
    for (time, updater) in updaters {
        if count <= MAX_UPDATERS {
            return;
        }
        let Some(held) = managed.get(&updater).cloned() else { continue };
        let Some(oldest) = first.get(&held.version) else {
            first.insert(held.version, updater);
            continue;
        };
        let bucket = Owner {
            manager: "ancient-changes".to_owned(),
            operation: Operation::Update,
            version: held.version.clone(),
            subresource: String::new(),
        };
        if !managed.contains_key(&bucket) {
            let moved = managed.remove(oldest);
            managed.extend(moved.map(|moved| (bucket.clone(), moved)));
        }
        managed.remove(&updater);
        if let Some(ancient) = managed.get_mut(&bucket) {
            ancient.fields = ancient.fields.union(&held.fields);
            // the more recent of the two
            ancient.time = time;
        }
        count -= 1;
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::super::recorded::kind;
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn write(
        kind: &crate::kinds::Kind,
        manager: &'static str,
        second: i64,
        old: Option<&Value>,
        data: &Value,
    ) -> Value {
        let mut new = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c" }, "data": data });
        if new["data"].is_null() {
            new.as_object_mut().unwrap().remove("data");
        }
        updated(&Write { kind, manager, subresource: "", now: at(second) }, old, &mut new);
        new
    }

    fn owners(object: &Value) -> Vec<(String, String, Value)> {
        let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        entries.iter().map(|e| (text(&e["manager"]), text(&e["time"]), e["fieldsV1"].clone())).collect()
    }

    #[test]
    fn the_manager_of_a_request_is_the_first_part_of_its_user_agent() {
        for (agent, manager) in
            [("kubectl/v1.36.4 (linux/amd64)", "kubectl"), ("curl", "curl"), ("", ""), ("a\u{7}b/1", "ab")]
        {
            assert_eq!(manager_name(agent), manager);
        }
        assert_eq!(manager_name(&"ä".repeat(100)).len(), 128);
    }

    #[test]
    fn a_write_without_a_change_keeps_owners_and_times() {
        let kind = kind("ConfigMap");
        let first = write(&kind, "a", 0, None, &json!({ "k": "v" }));
        let second = write(&kind, "b", 5, Some(&first), &json!({ "k": "v" }));
        assert_eq!(second, first);
    }

    #[test]
    fn who_changes_a_field_owns_it_and_who_has_nothing_left_goes() {
        let kind = kind("ConfigMap");
        let first = write(&kind, "a", 0, None, &json!({ "k": "v" }));
        let second = write(&kind, "b", 5, Some(&first), &json!({ "k": "w" }));
        let (early, late) = ("2027-01-15T08:00:00Z".to_owned(), "2027-01-15T08:00:05Z".to_owned());
        let expected = [
            ("a".to_owned(), early, json!({ "f:data": {} })),
            ("b".to_owned(), late.clone(), json!({ "f:data": { "f:k": {} } })),
        ];
        assert_eq!(owners(&second), expected);
        let third = write(&kind, "b", 9, Some(&second), &Value::Null);
        assert_eq!(third["metadata"], json!({ "name": "c" }));
    }

    #[test]
    fn a_request_without_a_manager_is_unknown() {
        let kind = kind("ConfigMap");
        assert_eq!(owners(&write(&kind, "", 0, None, &json!({ "k": "v" })))[0].0, "unknown");
    }

    #[test]
    fn times_move_only_with_something_else() {
        let kind = kind("ConfigMap");
        let old = write(&kind, "a", 0, None, &json!({ "k": "v" }));
        let mut same = write(&kind, "a", 7, None, &json!({ "k": "v" }));
        keep_times(&old, &mut same);
        assert_eq!(same, old);
        let mut other = write(&kind, "a", 7, None, &json!({ "k": "w" }));
        keep_times(&old, &mut other);
        assert_eq!(owners(&other)[0].1, "2027-01-15T08:00:07Z");
    }

    #[test]
    fn the_status_of_a_custom_object_is_owned_apart() {
        let kind = kind("Widget");
        let old = json!({ "metadata": { "name": "w", "uid": "u", "managedFields": [{
            "manager": "a", "operation": "Update", "apiVersion": "c.portolan.dev/v1", "fieldsType": "FieldsV1",
            "fieldsV1": { "f:spec": { ".": {}, "f:size": {} } },
        }] }, "spec": { "size": "L" } });
        let mut new = old.clone();
        new["spec"]["size"] = "M".into();
        new["status"] = json!({ "phase": "P" });
        updated(&Write { kind: &kind, manager: "s", subresource: "status", now: at(0) }, Some(&old), &mut new);
        let fields: Vec<Value> = owners(&new).into_iter().map(|(.., fields)| fields).collect();
        let status = json!({ "f:status": { ".": {}, "f:phase": {} } });
        assert_eq!(fields, [json!({ "f:spec": { ".": {}, "f:size": {} } }), status]);
    }
}
