//! Who owns which fields: `metadata.managedFields`, and how creates, updates and patches change it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::node::Node;
use super::fields::{FieldPath, FieldSet, PathElement};
use super::typed::{Changes, compare, schema_errors};
use super::{FieldManager, rules};

/// The longest name of a manager, in bytes.
const MAX_MANAGER: usize = 128;
/// The operation of an entry of server-side apply; all others are `Update`.
const APPLY: &str = "Apply";

/// The identity of an entry of `managedFields`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FieldOwner {
    pub manager: String,
    pub applies: bool,
    /// Empty for server-side apply, whose entries have one owner in all versions.
    pub version: String,
    pub subresource: String,
}

/// The fields of an owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OwnedFields {
    pub fields: FieldSet,
    pub version: String,
    pub time: Option<String>,
}

/// The fields of all owners of an object.
pub(super) type ManagedFields = BTreeMap<FieldOwner, OwnedFields>;

/// Updates `managedFields` for a create (`old` is none), an update or a patch, and sets them in `new`. The manager
/// becomes the owner of what it changed, others lose it.
///
/// To be called with defaults filled in, but before admission and before the server sets fields of its own (the
/// cluster IP of a Service, the priority of a Pod, finalizers of a Namespace): those have no owner.
pub fn track_update(write: &FieldManager<'_>, old: Option<&Value>, new: &mut Value) {
    let given = new.get_mut("metadata").and_then(Value::as_object_mut).and_then(|meta| meta.remove("managedFields"));
    let held = old.map(|old| &old["metadata"]["managedFields"]);
    let managed = initial_managed_fields(held, given.as_ref(), write.subresource);
    // an object without managedFields gets them only by server-side apply
    let tracked = old.is_none() || !managed.is_empty();
    // those of a custom kind can be computed only for fields that its version has
    let fits = || schema_errors(Node::of(write.kind), new, true).is_empty();
    if !tracked || (write.kind.custom && !fits()) {
        return;
    }
    let old = old.map_or_else(|| Cow::Owned(rules::empty_object(write.kind)), Cow::Borrowed);
    let managed = record_update(write, &old, new, managed, write.manager);
    store(new, &managed);
}

/// Updates `managedFields` for a write of `scale`: the manager that changes the count owns its field, without a time.
pub fn track_scale(write: &FieldManager<'_>, replicas_path: &str, old: &Value, new: &mut Value) {
    let path: FieldPath = replicas_path.split('.').filter(|step| !step.is_empty()).map(PathElement::field).collect();
    let pointer = replicas_path.replace('.', "/");
    let mut managed = load(&old["metadata"]["managedFields"]).unwrap_or_default();
    if old.pointer(&pointer) != new.pointer(&pointer) {
        let mut count = FieldSet::default();
        count.insert(&path);
        take_from_others(&mut managed, &Changes { set: count.clone(), removed: FieldSet::default() }, None);
        managed
            .insert(write.owner(false), OwnedFields { fields: count, version: write.kind.api_version(), time: None });
    }
    store(new, &managed);
}

/// Restores the timestamps of the entries if nothing else changed, so that writing the same again changes nothing. To be
/// called last, with the object as it would be stored.
pub fn keep_timestamps(old: &Value, new: &mut Value) {
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

/// The manager of a request without `fieldManager`: the user agent up to the first `/`.
pub fn manager_name(user_agent: &str) -> String {
    let letters = user_agent.split('/').next().unwrap_or_default().chars().filter(|letter| !letter.is_control());
    let mut length = 0;
    letters
        .take_while(|letter| {
            length += letter.len_utf8();
            length <= MAX_MANAGER
        })
        .collect()
}

/// The managedFields before the write: those of the request if they are valid (not for subresources), else those of the
/// stored object. An empty list, or one with an empty entry, clears them.
fn initial_managed_fields(held: Option<&Value>, given: Option<&Value>, subresource: &str) -> ManagedFields {
    let held = || held.and_then(load).unwrap_or_default();
    match given.filter(|given| given.is_array() && subresource.is_empty()) {
        None => held(),
        Some(list) if *list == json!([]) || *list == json!([{}]) => ManagedFields::new(),
        Some(list) => load(list).unwrap_or_else(held),
    }
}

/// The managedFields after `manager` changed one object into the other.
pub(super) fn record_update(
    write: &FieldManager<'_>,
    old: &Value,
    new: &Value,
    mut managed: ManagedFields,
    manager: &str,
) -> ManagedFields {
    let reset = rules::reset_fields(write.kind, write.subresource);
    let changes = compare(Node::of(write.kind), old, new).without(&reset);
    take_from_others(&mut managed, &changes, None);
    let taken = changes.set.difference(&rules::UNOWNED);
    if !taken.is_empty() {
        let held = managed.entry(FieldManager { manager, ..*write }.owner(false)).or_default();
        held.fields = held.fields.union(&taken);
        held.version = write.kind.api_version();
        held.time = Some(write.time());
    }
    managed
}

/// Removes changed fields from all owners but one, and owners without fields.
pub(super) fn take_from_others(managed: &mut ManagedFields, changes: &Changes, except: Option<&FieldOwner>) {
    managed.retain(|owner, held| {
        if except != Some(owner) {
            held.fields = held.fields.difference(&changes.set).difference(&changes.removed);
        }
        !held.fields.is_empty()
    });
}

impl FieldManager<'_> {
    pub(super) fn owner(&self, applies: bool) -> FieldOwner {
        let manager = if self.manager.is_empty() { "unknown" } else { self.manager };
        let version = if applies { String::new() } else { self.kind.api_version() };
        FieldOwner { manager: manager.to_owned(), applies, version, subresource: self.subresource.to_owned() }
    }

    /// The second of the write, as entries show it.
    pub(super) fn time(&self) -> String {
        self.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}

/// Reads `managedFields`; none if they are not valid.
pub(super) fn load(entries: &Value) -> Option<ManagedFields> {
    let mut managed = ManagedFields::new();
    for entry in entries.as_array().into_iter().flatten() {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (operation, version) = (text("operation"), text("apiVersion"));
        let applies = operation == APPLY;
        if !(applies || operation == "Update") || version.is_empty() || text("fieldsType") != "FieldsV1" {
            return None;
        }
        let none = json!({});
        let fields = FieldSet::from_json(entry.get("fieldsV1").filter(|fields| !fields.is_null()).unwrap_or(&none))?;
        let own_version = if applies { String::new() } else { version.clone() };
        let owner =
            FieldOwner { manager: text("manager"), applies, version: own_version, subresource: text("subresource") };
        let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
        managed.insert(owner, OwnedFields { fields, version, time });
    }
    Some(managed)
}

/// Writes `managedFields`: entries of server-side apply first, then by time and name; nothing without owners.
pub(super) fn store(object: &mut Value, managed: &ManagedFields) {
    let Some(fields) = object.as_object_mut() else { return };
    let Some(meta) = fields.entry("metadata").or_insert_with(|| json!({})).as_object_mut() else { return };
    if managed.is_empty() {
        meta.remove("managedFields");
        return;
    }
    let mut entries: Vec<(&FieldOwner, &OwnedFields)> = managed.iter().collect();
    entries
        .sort_by_key(|(owner, held)| (!owner.applies, &held.time, &owner.manager, &held.version, &owner.subresource));
    meta.insert("managedFields".to_owned(), entries.into_iter().map(|(owner, held)| entry(owner, held)).collect());
}

fn entry(owner: &FieldOwner, held: &OwnedFields) -> Value {
    let mut entry = Map::new();
    for (name, value) in [
        ("manager", owner.manager.as_str()),
        ("operation", if owner.applies { APPLY } else { "Update" }),
        ("apiVersion", &held.version),
        ("time", held.time.as_deref().unwrap_or_default()),
        ("fieldsType", "FieldsV1"),
        ("subresource", &owner.subresource),
    ] {
        if !value.is_empty() {
            entry.insert(name.to_owned(), value.into());
        }
    }
    entry.insert("fieldsV1".to_owned(), held.fields.to_json());
    Value::Object(entry)
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
        track_update(&FieldManager { kind, manager, subresource: "", now: at(second) }, old, &mut new);
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
        keep_timestamps(&old, &mut same);
        assert_eq!(same, old);
        let mut other = write(&kind, "a", 7, None, &json!({ "k": "w" }));
        keep_timestamps(&old, &mut other);
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
        track_update(
            &FieldManager { kind: &kind, manager: "s", subresource: "status", now: at(0) },
            Some(&old),
            &mut new,
        );
        let fields: Vec<Value> = owners(&new).into_iter().map(|(.., fields)| fields).collect();
        let status = json!({ "f:status": { ".": {}, "f:phase": {} } });
        assert_eq!(fields, [json!({ "f:spec": { ".": {}, "f:size": {} } }), status]);
    }
}
