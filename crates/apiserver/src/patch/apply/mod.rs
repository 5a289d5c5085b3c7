//! Server-side apply: an applied configuration is merged into the object, fields it no longer has are removed, and a
//! change to a field of another owner is a conflict. After structured-merge-diff.
//!
//! ```text
//! fields            sets of field paths, and their JSON (FieldsV1)
//! typed             objects under their schema: field sets, comparison, merge, removal
//! field_management  managedFields: who owns which fields, and how creates, updates and patches change that
//! rules             what differs by kind: fields that a request cannot set, the empty object
//! ```

mod field_management;
mod fields;
mod rules;
mod typed;

pub use self::field_management::{keep_timestamps, manager_name, track_scale, track_update};

use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use self::field_management::{FieldOwner, ManagedFields, OwnedFields, load, record_update, store, take_from_others};
use self::fields::{FieldPath, FieldSet, PathElement, display_path};
use self::typed::{compare, field_set, merge, remove, schema_errors};
use super::node::Node;
use super::{normalize_integers, remove_nulls};
use crate::kinds::Kind;
use crate::status::{Cause, Failure};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The limit for the annotations of an object, in bytes.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The field manager of a request: who writes which subresource of which kind, and when.
#[derive(Debug, Clone, Copy)]
pub struct FieldManager<'a> {
    pub kind: &'a Kind,
    /// The query parameter `fieldManager`, or `manager_name` of the user agent.
    pub manager: &'a str,
    /// `status`, `scale`; empty for the object itself.
    pub subresource: &'a str,
    pub now: Timestamp,
}

/// A change to a field of another owner.
struct Conflict {
    owner: FieldOwner,
    version: String,
    path: FieldPath,
}

/// Reads an apply document: YAML or JSON.
pub fn decode(bytes: &[u8]) -> Result<Value, Failure> {
    let refuse = |why: String| Failure::bad_request(format!("error decoding YAML: {why}"));
    let text = std::str::from_utf8(bytes).map_err(|why| refuse(why.to_string()))?;
    if text.trim().is_empty() {
        return Ok(json!({}));
    }
    let value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(_) => serde_saphyr::from_str(text).map_err(|fault| refuse(why_no_yaml(&fault)))?,
    };
    match normalize_integers(value) {
        value @ Value::Object(_) => Ok(value),
        Value::Null => Ok(json!({})),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(refuse("an applied configuration is an object".to_owned()))
        }
    }
}

/// A fault of YAML; what clients look for in it is said as the real server says it.
fn why_no_yaml(fault: &serde_saphyr::Error) -> String {
    if let serde_saphyr::Error::DuplicateMappingKey { key: Some(key), location } = fault.without_snippet() {
        return format!("line {}: key {key:?} already set in map", location.line());
    }
    fault.to_string()
}

/// Applies a configuration to an object, or creates the object when there is none. The result has its `managedFields`;
/// the caller defaults, validates, and checks name, namespace, uid and resource version.
pub fn apply(write: &FieldManager<'_>, live: Option<&Value>, config: &Value, force: bool) -> Result<Value, Failure> {
    let node = Node::of(write.kind);
    let managed = load(live.map_or(&Value::Null, |live| &live["metadata"]["managedFields"]))
        .ok_or_else(|| Failure::unclassified("the managedFields of the object cannot be read"))?;
    if config["apiVersion"] != write.kind.api_version() || config["kind"] != write.kind.kind {
        let (version, kind) = (&config["apiVersion"], &config["kind"]);
        return Err(Failure::bad_request(format!("invalid object type: apiVersion {version}, kind {kind}")));
    }
    check(node, config)?;
    let live = live.map_or_else(|| rules::empty_object(write.kind), without_managed_fields);
    let managed = if managed.is_empty() {
        record_update(write, &rules::empty_object(write.kind), &live, managed, "before-first-apply")
    } else {
        managed
    };
    let mut result = attempt(write, &live, config, managed.clone(), force);
    if let (Err(conflicts), "kubectl") = (&mut result, write.manager)
        && let Some(allowed) = last_applied(write, &live)
    {
        conflicts.retain(|conflict| !allowed.contains(&conflict.path));
        if conflicts.is_empty() {
            result = attempt(write, &live, config, managed, true);
        }
    }
    let (mut object, managed) = result.map_err(|conflicts| conflict_error(&conflicts))?;
    if write.manager == "kubectl" {
        renew_last_applied(&mut object, config);
    }
    remove_nulls(write.kind, &mut object);
    store(&mut object, &managed);
    Ok(object)
}

fn attempt(
    write: &FieldManager<'_>,
    live: &Value,
    config: &Value,
    mut managed: ManagedFields,
    force: bool,
) -> Result<(Value, ManagedFields), Vec<Conflict>> {
    let node = Node::of(write.kind);
    let reset = rules::reset_fields(write.kind, write.subresource);
    let owner = write.owner(true);
    let merged = merge(node, Some(live), Some(config)).unwrap_or_else(|| json!({}));

    // the manager owns what it applies; what it applied last and no longer applies may be removed
    let last = managed.remove(&owner).unwrap_or_default();
    let fields = field_set(node, config).without(&reset);
    managed.insert(owner.clone(), OwnedFields { fields, version: write.kind.api_version(), time: last.time });
    let object = if last.fields.is_empty() { merged } else { prune(node, &merged, &managed, &last.fields) };

    // others keep what did not change; a change to their fields is a conflict
    let changes = compare(node, live, &object).without(&reset);
    if !force {
        let others = managed.iter().filter(|(other, _)| **other != owner);
        let conflicts = others.flat_map(|(other, held)| {
            let paths = held.fields.intersection(&changes.set).paths().into_iter();
            paths.map(|path| Conflict { owner: other.clone(), version: held.version.clone(), path })
        });
        let conflicts: Vec<Conflict> = conflicts.collect();
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
    }
    take_from_others(&mut managed, &changes, Some(&owner));
    if let Some(held) = managed.get_mut(&owner) {
        held.fields = held.fields.difference(&rules::UNOWNED);
        if *live != object {
            held.time = Some(write.time());
        }
        if held.fields.is_empty() {
            managed.remove(&owner);
        }
    }
    Ok((object, managed))
}

/// The configuration must fit the schema, have no duplicate list items and no managedFields.
fn check(node: Node<'_>, config: &Value) -> Result<(), Failure> {
    if config["metadata"].get("managedFields").is_some_and(Value::is_array) {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    let faults = schema_errors(node, config, false);
    if faults.is_empty() {
        return Ok(());
    }
    Err(Failure::unclassified(format!("the applied configuration does not fit the schema: {}", faults.join(", "))))
}

/// Removes what the manager applied last, applies no longer, and nobody else owns.
fn prune(node: Node<'_>, merged: &Value, managed: &ManagedFields, last: &FieldSet) -> Value {
    let named = |set: &FieldSet| {
        set.with_members(Some(node), &|at: Option<Node<'_>>, step: &PathElement| match (at, step.name()) {
            (Some(at), Some(key)) => (at.named(key).is_some(), at.member(key)),
            (Some(at), None) if step.is_key() => (false, Some(at.item())),
            _ => (false, None),
        })
    };
    let last = named(last);
    let all = named(&field_set(node, merged));
    let owned = managed.values().fold(FieldSet::default(), |owned, held| owned.union(&held.fields));
    let pruned = remove(node, merged, &last);
    let kept = named(&field_set(node, &pruned)).union(&named(&owned));
    let pruned = remove(node, merged, &all.difference(&kept));
    let kept = named(&field_set(node, &pruned));
    remove(node, merged, &all.difference(&kept).intersection(&last))
}

/// An object without its managedFields, which have no owner.
fn without_managed_fields(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.remove("managedFields");
    }
    object
}

fn conflict_error(conflicts: &[Conflict]) -> Failure {
    let causes: Vec<Cause> = conflicts.iter().map(Conflict::cause).collect();
    let lines: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.message, cause.field)).collect();
    let plural = if conflicts.len() == 1 { "conflict" } else { "conflicts" };
    let message = format!("Apply failed with {} {plural}: {}", conflicts.len(), lines.join("\n"));
    let mut failure = Failure::new(StatusCode::CONFLICT, "Conflict", message);
    failure.details.insert("causes".to_owned(), causes.iter().map(Cause::to_json).collect());
    failure
}

impl Conflict {
    /// `conflict with "kubectl" with subresource "status" using v1`.
    fn cause(&self) -> Cause {
        let FieldOwner { manager, applies, subresource, .. } = &self.owner;
        let mut message = format!("conflict with {manager:?}");
        if !subresource.is_empty() {
            message = format!("{message} with subresource {subresource:?}");
        }
        if !applies {
            message = format!("{message} using {}", self.version);
        }
        Cause { reason: "FieldManagerConflict", message, field: display_path(&self.path) }
    }
}

/// The fields that `kubectl apply` of old set and that are still as it set them: `kubectl apply --server-side` may
/// take them over.
fn last_applied(write: &FieldManager<'_>, live: &Value) -> Option<FieldSet> {
    let node = Node::of(write.kind);
    let last: Value = serde_json::from_str(live["metadata"]["annotations"].get(LAST_APPLIED)?.as_str()?).ok()?;
    if last["apiVersion"] != write.kind.api_version() || !schema_errors(node, &last, false).is_empty() {
        return None;
    }
    let changes = compare(node, &last, live);
    Some(field_set(node, &last).difference(&changes.set).difference(&changes.removed))
}

/// Keeps the annotation of the old `kubectl apply` up to date, if it is there.
fn renew_last_applied(object: &mut Value, config: &Value) {
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else { return };
    if annotations.get(LAST_APPLIED).and_then(Value::as_str).is_none_or(str::is_empty) {
        return;
    }
    let mut config = config.clone();
    if let Some(applied) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        applied.remove(LAST_APPLIED);
    }
    annotations.insert(LAST_APPLIED.to_owned(), format!("{config}\n").into());
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(LAST_APPLIED);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::super::recorded::kind;
    use super::*;

    /// Widgets with some of everything.
    fn widgets() -> impl Strategy<Value = Value> {
        let tags = Just(["a", "b", "c", "d"])
            .prop_shuffle()
            .prop_flat_map(|tags| (0..4_usize).prop_map(move |count| json!(tags[..count])));
        let ports = Just([1, 2, 3, 4]).prop_shuffle().prop_flat_map(|ports| {
            (0..4_usize, prop::option::of("[a-b]")).prop_map(move |(count, name)| {
                let ports = ports[..count].iter().map(|port| json!({ "port": port, "opts": { "k": name } }));
                Value::from(ports.collect::<Vec<_>>())
            })
        });
        let scalar = prop_oneof![Just(Value::Null), (0..3_i64).prop_map(Value::from), "[a-b]".prop_map(Value::from)];
        let free = scalar.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..3)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        });
        let map = || prop::collection::btree_map("[a-c]", "[x-y]", 0..3).prop_map(|map| json!(map));
        let sel = prop::collection::btree_map("[x-y]", "[x-y]", 0..3).prop_map(|map| json!(map));
        let field = prop_oneof![
            tags.prop_map(|value| ("tags", value)),
            ports.prop_map(|value| ("ports", value)),
            map().prop_map(|value| ("limits", value)),
            sel.prop_map(|value| ("sel", value)),
            map().prop_map(|value| ("deep", json!({ "k": { "a": value["a"] } }))),
            free.prop_map(|value| ("free", json!({ "f": value }))),
            "[L-M]".prop_map(|value| ("size", json!(value))),
        ];
        prop::collection::vec(field, 0..5).prop_map(|fields| {
            let spec: serde_json::Map<_, _> =
                fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            json!({ "apiVersion": "c.portolan.dev/v1", "kind": "Widget", "metadata": { "name": "w" }, "spec": spec })
        })
    }

    #[test]
    fn every_apply_keeps_every_law() {
        let kind = kind("Widget");
        let by = |manager| FieldManager { kind: &kind, manager, subresource: "", now: Timestamp::UNIX_EPOCH };
        proptest!(|(first in widgets(), second in widgets(), third in widgets())| {
            let mut live = first.clone();
            track_update(&by("maker"), None, &mut live);
            let Ok(once) = apply(&by("one"), Some(&live), &second, true) else { return Ok(()) };
            let again = apply(&by("one"), Some(&once), &second, false);
            prop_assert_eq!(again.as_ref(), Ok(&once), "applying the same again changes nothing");
            if let Ok(other) = apply(&by("two"), Some(&once), &third, true) {
                let again = apply(&by("two"), Some(&other), &third, false);
                prop_assert_eq!(again, Ok(other), "force leaves no conflict");
            }
        });
    }

    #[test]
    fn an_apply_document_may_be_yaml() {
        assert_eq!(decode(b"a: [1, x]\nb: {}").unwrap(), json!({ "a": [1, "x"], "b": {} }));
        assert_eq!(decode(b" ").unwrap(), json!({}));
        assert!(decode(b"{").is_err() && decode(&[0xff]).is_err() && decode(b"[]").is_err());
    }
}
