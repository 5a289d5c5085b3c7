//! Metadata of every kind: names, labels, annotations, owners, finalizers, and what an update may not change.

use serde_json::Value;

use super::super::Kind;
use super::super::json::{entries, list, text};
use super::{Faults, names};

/// Annotations of one object, keys and values together.
const ANNOTATION_BYTES: usize = 256 * 1024;

/// Faults in the metadata of an object about to be created (`old` is none) or updated.
pub(super) fn metadata(kind: &Kind, new: &Value, old: Option<&Value>, faults: &mut Faults) {
    match old {
        None => name(kind, new, faults),
        Some(old) => changes(new, old, faults),
    }
    labels(new, "/metadata/labels", "metadata.labels", faults);
    let mut size = 0;
    for (key, value) in entries(new, "/metadata/annotations") {
        size += key.len() + value.as_str().map_or(0, str::len);
        faults.form("metadata.annotations", &key.to_lowercase(), "qualified");
    }
    if size > ANNOTATION_BYTES {
        faults.too_long("metadata.annotations", ANNOTATION_BYTES);
    }
    owners(list(new, "/metadata/ownerReferences"), faults);
    finalizers(kind, list(new, "/metadata/finalizers"), faults);
}

/// Labels, at any path.
pub(super) fn labels(object: &Value, pointer: &str, field: &str, faults: &mut Faults) {
    for (key, value) in entries(object, pointer) {
        faults.form(field, key, "qualified");
        faults.form(field, value.as_str().unwrap_or_default(), "label value");
    }
}

fn name(kind: &Kind, new: &Value, faults: &mut Faults) {
    let (name, prefix) = (text(new, "/metadata/name"), text(new, "/metadata/generateName"));
    if !prefix.is_empty() {
        faults.form("metadata.generateName", prefix.trim_end_matches('-'), names::of_objects(kind));
    }
    if name.is_empty() {
        faults.required("metadata.name", "name or generateName is required");
    } else {
        faults.form("metadata.name", name, names::of_objects(kind));
    }
}

fn changes(new: &Value, old: &Value, faults: &mut Faults) {
    for key in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (before, after) = (&old["metadata"][key], &new["metadata"][key]);
        if before != after {
            faults.invalid(&format!("metadata.{key}"), after, "field is immutable");
        }
    }
    let before = list(old, "/metadata/finalizers");
    let adds = list(new, "/metadata/finalizers").iter().any(|finalizer| !before.contains(finalizer));
    if adds && old.pointer("/metadata/deletionTimestamp").is_some() {
        faults.forbidden("metadata.finalizers", "no finalizer can be added to an object that is being deleted");
    }
}

fn owners(references: &[Value], faults: &mut Faults) {
    let path = "metadata.ownerReferences";
    for owner in references {
        for key in ["apiVersion", "kind", "name", "uid"] {
            if text(owner, &format!("/{key}")).is_empty() {
                faults.invalid(&format!("{path}.{key}"), &"".into(), "must not be empty");
            }
        }
    }
    if references.iter().filter(|owner| owner["controller"] == true).count() > 1 {
        faults.invalid(path, &references.into(), "only one owner can be the controller");
    }
}

/// Kubernetes' own kinds take its own finalizers and those with a domain; the others take any name.
fn finalizers(kind: &Kind, all: &[Value], faults: &mut Faults) {
    let path = "metadata.finalizers";
    let own = ["kubernetes", "orphan", "foregroundDeletion"];
    let generic = ["coordination.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io"];
    let takes_any = kind.custom || generic.contains(&kind.group.as_str());
    for (at, finalizer) in all.iter().filter_map(Value::as_str).enumerate() {
        faults.form(path, finalizer, "qualified");
        if !takes_any && !finalizer.contains('/') && !own.contains(&finalizer) {
            faults.invalid(&format!("{path}[{at}]"), &finalizer.into(), "must have a domain, such as example.com/name");
        }
    }
}
