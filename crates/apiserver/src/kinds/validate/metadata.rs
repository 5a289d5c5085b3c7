//! Metadata of every kind: names, labels, annotations, owners, finalizers, and what an update may not change.

use serde_json::Value;

use super::super::Kind;
use super::super::error_list::ErrorList;
use super::super::formats;
use crate::json::{entries, list, text};

/// Annotations of one object, keys and values together.
const ANNOTATION_BYTES: usize = 256 * 1024;

/// Errors in the metadata of an object about to be created (`old` is none) or updated.
pub(super) fn metadata(kind: &Kind, new: &Value, old: Option<&Value>, errors: &mut ErrorList) {
    match old {
        None => name(kind, new, errors),
        Some(old) => changes(new, old, errors),
    }
    labels(new, "/metadata/labels", "metadata.labels", errors);
    let mut size = 0;
    for (key, value) in entries(new, "/metadata/annotations") {
        size += key.len() + value.as_str().map_or(0, str::len);
        errors.form("metadata.annotations", &key.to_lowercase(), "qualified");
    }
    if size > ANNOTATION_BYTES {
        errors.too_long("metadata.annotations", ANNOTATION_BYTES);
    }
    owners(list(new, "/metadata/ownerReferences"), errors);
    finalizers(kind, list(new, "/metadata/finalizers"), errors);
}

/// Labels, at any path.
pub(super) fn labels(object: &Value, pointer: &str, field: &str, errors: &mut ErrorList) {
    for (key, value) in entries(object, pointer) {
        errors.form(field, key, "qualified");
        errors.form(field, value.as_str().unwrap_or_default(), "label value");
    }
}

fn name(kind: &Kind, new: &Value, errors: &mut ErrorList) {
    let (name, prefix) = (text(new, "/metadata/name"), text(new, "/metadata/generateName"));
    if !prefix.is_empty() {
        errors.form("metadata.generateName", prefix.trim_end_matches('-'), formats::of_names(kind));
    }
    if name.is_empty() {
        errors.required("metadata.name", "name or generateName is required");
    } else {
        errors.form("metadata.name", name, formats::of_names(kind));
    }
}

fn changes(new: &Value, old: &Value, errors: &mut ErrorList) {
    for key in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (before, after) = (&old["metadata"][key], &new["metadata"][key]);
        if before != after {
            errors.invalid(&format!("metadata.{key}"), after, "field is immutable");
        }
    }
    let before = list(old, "/metadata/finalizers");
    let adds = list(new, "/metadata/finalizers").iter().any(|finalizer| !before.contains(finalizer));
    if adds && old.pointer("/metadata/deletionTimestamp").is_some() {
        errors.forbidden("metadata.finalizers", "no finalizer can be added to an object that is being deleted");
    }
}

fn owners(references: &[Value], errors: &mut ErrorList) {
    let path = "metadata.ownerReferences";
    for owner in references {
        for key in ["apiVersion", "kind", "name", "uid"] {
            if text(owner, &format!("/{key}")).is_empty() {
                errors.invalid(&format!("{path}.{key}"), &"".into(), "must not be empty");
            }
        }
    }
    if references.iter().filter(|owner| owner["controller"] == true).count() > 1 {
        errors.invalid(path, &references.into(), "only one owner can be the controller");
    }
}

/// Kubernetes' own kinds take its own finalizers and those with a domain; the others take any name.
fn finalizers(kind: &Kind, all: &[Value], errors: &mut ErrorList) {
    let path = "metadata.finalizers";
    let own = ["kubernetes", "orphan", "foregroundDeletion"];
    let generic = ["coordination.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io"];
    let takes_any = kind.custom || generic.contains(&kind.group.as_str());
    for (at, finalizer) in all.iter().filter_map(Value::as_str).enumerate() {
        errors.form(path, finalizer, "qualified");
        if !takes_any && !finalizer.contains('/') && !own.contains(&finalizer) {
            errors.invalid(&format!("{path}[{at}]"), &finalizer.into(), "must have a domain, such as example.com/name");
        }
    }
}
