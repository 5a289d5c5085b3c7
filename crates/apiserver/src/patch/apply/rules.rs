//! What the bookkeeping has to know of kinds: fields that a request cannot set, and what an empty object is.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::fields::Set;
use crate::kinds::Kind;

/// Fields that a write to the (sub)resource resets anyway, so nobody comes to own them by it.
pub(super) fn reset_fields(kind: &Kind, subresource: &str) -> Set {
    match (subresource, kind.kind.as_str()) {
        ("status", _) if kind.custom => Set::of_fields(&["metadata", "spec"]),
        ("status", "Deployment") => Set::of_fields(&["spec", "metadata.labels"]),
        ("status", "Pod") => Set::of_fields(&["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"]),
        ("status", _) => Set::of_fields(&["spec"]),
        _ if kind.status => Set::of_fields(&["status"]),
        _ => Set::default(),
    }
}

/// Fields of every object that are nobody's.
pub(super) static UNOWNED: LazyLock<Set> = LazyLock::new(|| {
    Set::of_fields(&[
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

/// An object of the kind with nothing set. Built-in kinds have parts that are always there, though empty
/// (`empty.json`); nobody owns those for making the object.
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
