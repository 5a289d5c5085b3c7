//! Metadata of every kind: names, labels, annotations, owners, finalizers, and what an update may not change.

use serde_json::Value;

use super::super::Kind;
use super::super::json::{entries, list, number, text};
use super::names::{self, NameRule};
use super::{Faults, quoted};
use crate::status::Cause;

/// Annotations of one object, keys and values together.
const ANNOTATION_BYTES: usize = 256 * 1024;

/// Faults in the metadata of a custom object about to be created (`old` is none) or updated.
pub fn validate_metadata(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut faults = Faults::default();
    match old {
        None => {
            full(rule(kind), kind.namespaced, new, &mut faults);
            if faults.is_empty() {
                full(NameRule::PathSegment, kind.namespaced, new, &mut faults);
            }
        }
        Some(old) => {
            full(NameRule::PathSegment, kind.namespaced, new, &mut faults);
            update(new, old, &mut faults);
            update(new, old, &mut faults);
        }
    }
    faults.0
}

/// What names of a kind look like.
pub(super) fn rule(kind: &Kind) -> NameRule {
    match kind.kind.as_str() {
        _ if kind.custom => NameRule::DnsSubdomain,
        _ if kind.group == "rbac.authorization.k8s.io" => NameRule::PathSegment,
        "Namespace" | "Service" | "StatefulSet" => NameRule::DnsLabel,
        _ => NameRule::DnsSubdomain,
    }
}

/// Rules for metadata as it is.
pub(super) fn full(rule: NameRule, namespaced: bool, new: &Value, faults: &mut Faults) {
    let generate = text(new, "/metadata/generateName");
    if !generate.is_empty() {
        faults.invalid_text("metadata.generateName", generate, rule.check(generate, true));
    }
    let name = text(new, "/metadata/name");
    if name.is_empty() {
        faults.required("metadata.name", "name or generateName is required");
    } else {
        faults.invalid_text("metadata.name", name, rule.check(name, false));
    }
    let namespace = text(new, "/metadata/namespace");
    match (namespaced, namespace.is_empty()) {
        (true, true) => faults.required("metadata.namespace", ""),
        (true, false) => faults.invalid_text("metadata.namespace", namespace, names::dns_label(namespace)),
        (false, false) => faults.forbidden("metadata.namespace", "not allowed on this type"),
        (false, true) => {}
    }
    if let Some(generation) = new.pointer("/metadata/generation") {
        faults.not_negative("metadata.generation", generation);
    }
    maps_and_owners(new, faults);
    finalizers(new, faults);
}

/// Rules for a change of metadata.
pub(super) fn update(new: &Value, old: &Value, faults: &mut Faults) {
    let strings = |object: &Value, key: &str| -> Vec<String> {
        list(object, key).iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    if old.pointer("/metadata/deletionTimestamp").is_some() {
        let before = strings(old, "/metadata/finalizers");
        let mut added = strings(new, "/metadata/finalizers");
        added.retain(|finalizer| !before.contains(finalizer));
        added.sort();
        if !added.is_empty() {
            let names: Vec<String> = added.iter().map(|name| quoted(name)).collect();
            let why = "no new finalizers can be added if the object is being deleted, found new finalizers";
            faults.forbidden("metadata.finalizers", &format!("{why} []string{{{}}}", names.join(", ")));
        }
    }
    if text(new, "/metadata/resourceVersion").is_empty() {
        faults.invalid("metadata.resourceVersion", "\"\"", "must be specified for an update");
    }
    let (before, after) = (number(old, "/metadata/generation"), number(new, "/metadata/generation"));
    if after < before {
        faults.invalid("metadata.generation", &after.to_string(), "must not be decremented");
    }
    for key in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let pointer = format!("/metadata/{key}");
        faults.immutable(&format!("metadata.{key}"), new.pointer(&pointer), old.pointer(&pointer));
    }
    maps_and_owners(new, faults);
}

/// The same, and finalizers are Kubernetes' own or qualified.
pub(super) fn kubernetes_full(rule: NameRule, namespaced: bool, new: &Value, faults: &mut Faults) {
    full(rule, namespaced, new, faults);
    kubernetes_finalizers(new, faults);
}

pub(super) fn kubernetes_update(new: &Value, old: &Value, faults: &mut Faults) {
    update(new, old, faults);
    kubernetes_finalizers(new, faults);
}

/// Labels, at any path.
pub(super) fn labels(object: &Value, pointer: &str, field: &str, faults: &mut Faults) {
    for (key, value) in entries(object, pointer) {
        faults.invalid_text(field, key, names::qualified(key));
        let value = value.as_str().unwrap_or_default();
        faults.invalid_text(field, value, names::label_value(value));
    }
}

/// Whether a finalizer without a domain is one of Kubernetes' own.
pub(super) fn is_standard_finalizer(name: &str) -> bool {
    name.contains('/') || matches!(name, "kubernetes" | "orphan" | "foregroundDeletion")
}

fn maps_and_owners(new: &Value, faults: &mut Faults) {
    labels(new, "/metadata/labels", "metadata.labels", faults);
    let mut size = 0;
    for (key, value) in entries(new, "/metadata/annotations") {
        size += key.len() + value.as_str().map_or(0, str::len);
        faults.invalid_text("metadata.annotations", key, names::qualified(&key.to_lowercase()));
    }
    if size > ANNOTATION_BYTES {
        faults.too_long("metadata.annotations", ANNOTATION_BYTES);
    }
    owners(list(new, "/metadata/ownerReferences"), faults);
}

fn owners(references: &[Value], faults: &mut Faults) {
    let path = "metadata.ownerReferences";
    let mut controller = String::new();
    for owner in references {
        let (version, kind, name) = (text(owner, "/apiVersion"), text(owner, "/kind"), text(owner, "/name"));
        if version.is_empty() {
            faults.invalid(&format!("{path}.apiVersion"), "\"\"", "version must not be empty");
        }
        for (key, value) in [("kind", kind), ("name", name), ("uid", text(owner, "/uid"))] {
            if value.is_empty() {
                faults.invalid(&format!("{path}.{key}"), "\"\"", "must not be empty");
            }
        }
        if version == "v1" && kind == "Event" {
            faults.invalid(path, &owner_json(owner), "/v1, Kind=Event is disallowed from being an owner");
        }
        if owner["controller"] == true {
            let this = format!("{kind}/{name}");
            if controller.is_empty() {
                controller = this;
            } else {
                let all: Vec<String> = references.iter().map(owner_json).collect();
                let message = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {controller} and {this}"
                );
                faults.invalid(path, &format!("[{}]", all.join(",")), &message);
            }
        }
    }
}

/// A reference with its fields in the order of the type.
fn owner_json(owner: &Value) -> String {
    let keys = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let fields = keys.iter().filter_map(|key| owner.get(key).map(|value| format!("\"{key}\":{value}")));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

fn finalizers(new: &Value, faults: &mut Faults) {
    let path = "metadata.finalizers";
    let all = list(new, "/metadata/finalizers");
    for finalizer in all.iter().filter_map(Value::as_str) {
        faults.invalid_text(path, finalizer, names::qualified(finalizer));
    }
    let has = |name: &str| all.iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let message = "finalizer orphan and foregroundDeletion cannot be both set";
        faults.invalid(path, &Value::from(all).to_string(), message);
    }
}

fn kubernetes_finalizers(new: &Value, faults: &mut Faults) {
    for (at, finalizer) in list(new, "/metadata/finalizers").iter().enumerate() {
        let finalizer = finalizer.as_str().unwrap_or_default();
        if !is_standard_finalizer(finalizer) {
            let message = "name is neither a standard finalizer name nor is it fully qualified";
            faults.invalid(&format!("metadata.finalizers[{at}]"), &quoted(finalizer), message);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::builtin;
    use super::*;

    fn custom() -> Kind {
        let kind = builtin::all().into_iter().find(|kind| kind.kind == "ConfigMap").unwrap();
        Kind { custom: true, ..kind }
    }

    #[test]
    fn an_update_of_a_custom_object_must_name_its_version() {
        let old = json!({ "metadata": { "name": "x", "namespace": "n", "resourceVersion": "1" } });
        let new = json!({ "metadata": { "name": "x", "namespace": "n" } });
        let causes = validate_metadata(&custom(), &new, Some(&old));
        assert_eq!(causes[0].message, "Invalid value: \"\": must be specified for an update");
        assert_eq!(validate_metadata(&custom(), &old, Some(&old)), []);
    }

    #[test]
    fn annotations_have_a_size() {
        let fits =
            json!({ "metadata": { "name": "x", "namespace": "n", "annotations": { "a": "x".repeat(262_143) } } });
        assert_eq!(validate_metadata(&custom(), &fits, None), []);
        let over =
            json!({ "metadata": { "name": "x", "namespace": "n", "annotations": { "a": "x".repeat(262_144) } } });
        let causes = validate_metadata(&custom(), &over, None);
        assert_eq!(causes[0].message, "Too long: may not be more than 262144 bytes");
    }

    #[test]
    fn a_dying_object_takes_no_more_finalizers() {
        let mut old = json!({ "metadata": { "name": "x", "namespace": "n", "resourceVersion": "1" } });
        old["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z".into();
        old["metadata"]["finalizers"] = json!(["a.b/c"]);
        let mut new = old.clone();
        new["metadata"]["finalizers"] = json!(["a.b/c", "a.b/d"]);
        let causes = validate_metadata(&custom(), &new, Some(&old));
        assert_eq!(
            causes[0].message,
            "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"a.b/d\"}"
        );
    }
}
