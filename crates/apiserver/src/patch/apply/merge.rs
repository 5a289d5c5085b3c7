//! Server-side apply: an applied configuration is merged into the object, what it no longer names goes, and who
//! changes what another owns gets a conflict.

use http::StatusCode;
use serde_json::{Value, json};

use super::super::decode::{document, json_type, whole};
use super::super::node::Node;
use super::super::{go, settle_nulls, unclassified};
use super::combine::{merge, remove};
use super::compare::compare;
use super::element::{Element, same};
use super::entries::{Held, Managed, Operation, Owner, load, store};
use super::fields::Set;
use super::managed::{self, bare, record};
use super::typed::{faults, field_set};
use super::{Write, rules};
use crate::status::{Cause, Failure};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The annotations of an object may have so many bytes together.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// A change to a field that another owns.
struct Conflict {
    owner: Owner,
    version: String,
    path: Vec<Element>,
}

/// Why an apply did not come to an end.
enum Stop {
    Refused(Failure),
    Conflicts(Vec<Conflict>),
}

/// Reads an apply document: YAML or JSON.
pub fn decode(bytes: &[u8]) -> Result<Value, Failure> {
    let refuse = |why: String| Failure::bad_request(format!("error decoding YAML: {why}"));
    let text = std::str::from_utf8(bytes).map_err(|e| refuse(format!("error converting YAML to JSON: yaml: {e}")))?;
    if text.trim().is_empty() {
        return Ok(json!({}));
    }
    let value = match document(bytes) {
        Ok(document) => document.value,
        Err(_) => serde_saphyr::from_str(text)
            .map(whole)
            .map_err(|e| refuse(format!("error converting YAML to JSON: yaml: {e}")))?,
    };
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(json!({})),
        other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            let what = json_type(&other);
            let why = format!("json: cannot unmarshal {what} into Go value of type map[string]interface {{}}");
            Err(refuse(format!("error unmarshaling JSON: while decoding JSON: {why}")))
        }
    }
}

/// Applies a configuration to an object, or makes the object when there is none. The result has its `managedFields`;
/// defaults, validation and the checks of name, namespace, uid and resource version are the caller's.
pub fn apply(write: &Write<'_>, live: Option<&Value>, config: &Value, force: bool) -> Result<Value, Failure> {
    let managed = load(live.map_or(&Value::Null, |live| &live["metadata"]["managedFields"]))
        .map_err(|why| unclassified(format!("failed to decode managed fields: {why}")))?;
    let config_type = object_type(config);
    if config_type != format!("{}, Kind={}", grouped(&write.kind.api_version()), write.kind.kind) {
        return Err(Failure::bad_request(format!("invalid object type: {config_type}")));
    }
    let live = live.map_or_else(|| rules::empty_object(write.kind), bare);
    let managed = if managed.is_empty() {
        record(write, &rules::empty_object(write.kind), &live, managed, "before-first-apply")
    } else {
        managed
    };
    let mut result = attempt(write, &live, config, managed.clone(), force);
    if let (Err(Stop::Conflicts(conflicts)), "kubectl") = (&mut result, write.manager)
        && let Some(allowed) = last_applied(write, &live)
    {
        conflicts.retain(|conflict| !allowed.contains(&conflict.path));
        if conflicts.is_empty() {
            result = attempt(write, &live, config, managed, true);
        }
    }
    let (mut object, managed) = result.map_err(|stop| match stop {
        Stop::Refused(failure) => failure,
        Stop::Conflicts(conflicts) => conflict_failure(&conflicts),
    })?;
    if write.manager == "kubectl" {
        renew_last_applied(&mut object, config);
    }
    settle_nulls(write.kind, &mut object);
    store(&mut object, &managed);
    Ok(object)
}

fn attempt(
    write: &Write<'_>,
    live: &Value,
    config: &Value,
    mut managed: Managed,
    force: bool,
) -> Result<(Value, Managed), Stop> {
    let node = Node::of(write.kind);
    check(node, config).map_err(Stop::Refused)?;
    let reset = rules::reset_fields(write.kind, write.subresource);
    let owner = managed::owner(write, Operation::Apply, write.manager);
    let merged = merge(node, Some(live), Some(config)).unwrap_or_else(|| json!({}));

    // the manager owns what it applies, and what it applied last and no longer does may go
    let last = managed.remove(&owner);
    let time = last.as_ref().and_then(|last| last.time.clone());
    let fields = field_set(node, config).without(&reset);
    managed.insert(owner.clone(), Held { fields, version: write.kind.api_version(), time });
    let object = match &last {
        Some(last) if !last.fields.is_empty() => prune(node, &merged, &managed, &last.fields),
        _ => merged,
    };

    // others keep what did not change; a change of theirs is a conflict
    let changes = compare(node, live, &object).without(&reset);
    let changed = changes.set();
    if !force {
        let conflicts: Vec<Conflict> = managed
            .iter()
            .filter(|(other, _)| **other != owner)
            .flat_map(|(other, held)| {
                let paths = held.fields.intersection(&changed).paths();
                paths.into_iter().map(|path| Conflict { owner: other.clone(), version: held.version.clone(), path })
            })
            .collect();
        if !conflicts.is_empty() {
            return Err(Stop::Conflicts(conflicts));
        }
    }
    managed::take(&mut managed, &changes, Some(&owner));
    let noop = same(live, &object);
    if let Some(held) = managed.get_mut(&owner) {
        held.fields = held.fields.difference(&rules::unowned());
        if !noop {
            held.time = Some(managed::time(write));
        }
        if held.fields.is_empty() {
            managed.remove(&owner);
        }
    }
    Ok((if noop { live.clone() } else { object }, managed))
}

/// The configuration must fit the schema, have no twins in lists and bring no books of its own.
fn check(node: Node<'_>, config: &Value) -> Result<(), Failure> {
    let meta = &config["metadata"];
    if meta.get("managedFields").is_some_and(Value::is_array) {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    let faults = faults(node, config, false);
    let why = match faults.as_slice() {
        [] => return Ok(()),
        [one] => one.clone(),
        many => format!("errors:\n  {}", many.join("\n  ")),
    };
    let name = |field: &str| meta.get(field).and_then(Value::as_str).unwrap_or_default();
    let object = format!("{}/{}; {}", name("namespace"), name("name"), object_type(config));
    Err(unclassified(format!("failed to create typed patch object ({object}): {why}")))
}

/// Takes out what the manager applied last, does not apply any more, and nobody else owns.
fn prune(node: Node<'_>, merged: &Value, managed: &Managed, last: &Set) -> Value {
    let named = |set: &Set| {
        set.with_members(Some(node), &|at: Option<Node<'_>>, element: &Element| match (at, element) {
            (Some(at), Element::Field(key)) => (at.named(key).is_some(), at.member(key)),
            (Some(at), Element::Key(_)) => (false, Some(at.item())),
            _ => (false, None),
        })
    };
    let last = named(last);
    let all = named(&field_set(node, merged));
    let owned = managed.values().fold(Set::default(), |owned, held| owned.union(&held.fields));
    let pruned = remove(node, merged, &last);
    let kept = named(&field_set(node, &pruned)).union(&named(&owned));
    let pruned = remove(node, merged, &all.difference(&kept));
    let kept = named(&field_set(node, &pruned));
    remove(node, merged, &all.difference(&kept).intersection(&last))
}

/// `apps/v1, Kind=Deployment`, and `/v1, Kind=Pod` for the core group.
fn object_type(object: &Value) -> String {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    format!("{}, Kind={}", grouped(text("apiVersion")), text("kind"))
}

fn grouped(api_version: &str) -> String {
    if api_version.contains('/') { api_version.to_owned() } else { format!("/{api_version}") }
}

fn conflict_failure(conflicts: &[Conflict]) -> Failure {
    let shown = |path: &[Element]| path.iter().map(ToString::to_string).collect::<String>();
    let causes = conflicts.iter().map(|conflict| {
        let message = format!("conflict with {}", conflict.with());
        Cause { reason: "FieldManagerConflict", message, field: shown(&conflict.path) }.to_json()
    });
    let message = if let [only] = conflicts {
        format!("Apply failed with 1 conflict: conflict with {}: {}", only.with(), shown(&only.path))
    } else {
        let mut lines: Vec<String> = Vec::new();
        let mut at = None;
        for conflict in conflicts {
            if at.replace(&conflict.owner) != Some(&conflict.owner) {
                lines.push(format!("conflicts with {}:", conflict.with()));
            }
            lines.push(format!("- {}", shown(&conflict.path)));
        }
        format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
    };
    let mut failure = Failure::new(StatusCode::CONFLICT, "Conflict", message);
    failure.details.insert("causes".to_owned(), causes.collect());
    failure
}

impl Conflict {
    /// `"kubectl" with subresource "status" using v1`.
    fn with(&self) -> String {
        let Owner { manager, operation, subresource, .. } = &self.owner;
        let mut with = format!("{manager:?}");
        if !subresource.is_empty() {
            with = format!("{with} with subresource {subresource:?}");
        }
        match operation {
            Operation::Apply => with,
            Operation::Update => format!("{with} using {}", self.version),
        }
    }
}

/// The fields that `kubectl apply` of old set and that are still as it set them: `kubectl apply --server-side` may
/// take them over.
fn last_applied(write: &Write<'_>, live: &Value) -> Option<Set> {
    let node = Node::of(write.kind);
    let last = live["metadata"]["annotations"].get(LAST_APPLIED)?.as_str().filter(|last| !last.is_empty())?;
    let last: Value = serde_json::from_str(last).ok()?;
    if last["apiVersion"] != write.kind.api_version() || !faults(node, &last, false).is_empty() {
        return None;
    }
    let changes = compare(node, &last, live);
    Some(field_set(node, &last).difference(&changes.set()).difference(&changes.removed))
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
    annotations.insert(LAST_APPLIED.to_owned(), format!("{}\n", go::json(&config)).into());
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(LAST_APPLIED);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::super::super::recorded::kind;
    use super::super::updated;
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
        let by = |manager| Write { kind: &kind, manager, subresource: "", now: Timestamp::UNIX_EPOCH };
        proptest!(|(first in widgets(), second in widgets(), third in widgets())| {
            let mut live = first.clone();
            updated(&by("maker"), None, &mut live);
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
        let failure = decode(b"[]").unwrap_err();
        assert_eq!(
            failure.message,
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go \
             value of type map[string]interface {}"
        );
        assert!(decode(b"{").is_err() && decode(&[0xff]).is_err());
    }
}
