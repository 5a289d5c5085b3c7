//! What field management needs to know about kinds: fields that a request cannot set, and what an empty object is.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::fields::FieldSet;
use crate::kinds::Kind;

/// Fields that a write to the (sub)resource resets, so that it never makes its manager their owner.
pub(super) fn reset_fields(kind: &Kind, subresource: &str) -> FieldSet {
    match (subresource, kind.kind.as_str()) {
        ("status", _) if kind.custom => FieldSet::of_fields(&["metadata", "spec"]),
        ("status", "Deployment") => FieldSet::of_fields(&["spec", "metadata.labels"]),
        ("status", "Pod") => FieldSet::of_fields(&["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"]),
        ("status", _) => FieldSet::of_fields(&["spec"]),
        _ if kind.status => FieldSet::of_fields(&["status"]),
        _ => FieldSet::default(),
    }
}

/// Fields of every object that have no owner.
pub(super) static UNOWNED: LazyLock<FieldSet> = LazyLock::new(|| {
    FieldSet::of_fields(&[
        "apiVersion",
        "kind",
        "metadata",
        "metadata.name",
        "metadata.namespace",
        "metadata.creationTimestamp",
        "metadata.selfLink",
        "metadata.uid",
        "metadata.generation",
        "metadata.managedFields",
        "metadata.resourceVersion",
    ])
});

/// An object of the kind with nothing set. Built-in kinds have parts that are always present, even if empty
/// (`empty.json`); creating the object does not make its manager their owner.
pub(super) fn empty_object(kind: &Kind) -> Value {
    static EMPTY: LazyLock<BTreeMap<String, Value>> =
        LazyLock::new(|| serde_json::from_str(include_str!("empty.json")).expect("empty.json is checked by tests"));
    let mut object = if kind.custom {
        json!({})
    } else {
        EMPTY.get(&format!("{}/{}", kind.group, kind.kind)).cloned().unwrap_or_else(|| json!({ "metadata": {} }))
    };
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = kind.kind.as_str().into();
    object
}
