//! The status of a definition: accepted names, stored versions, NamesAccepted and Established.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::json::{list, text};

/// Names that the other definitions of a group hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl Names {
    /// What `others` hold in the group of `crd`; `crd` itself is left out.
    pub fn held<'v>(crd: &Value, others: impl IntoIterator<Item = &'v Value>) -> Self {
        let mut held = Self::default();
        for other in others {
            let same = text(other, "/metadata/name") == text(crd, "/metadata/name");
            if same || text(other, "/spec/group") != text(crd, "/spec/group") {
                continue;
            }
            let Some(names) = other.pointer("/status/acceptedNames") else { continue };
            let all =
                |fields: &[&str]| fields.iter().flat_map(|field| words(names, field)).map(str::to_owned).collect();
            held.resources.append(&mut all(&["plural", "singular", "shortNames"]));
            held.kinds.append(&mut all(&["kind", "listKind"]));
        }
        held
    }
}

/// Whether the definition is served.
pub fn is_established(crd: &Value) -> bool {
    condition(crd, "Established").is_some_and(|condition| condition["status"] == json!("True"))
}

/// The finalizer of a definition whose objects are still there.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Marks a definition as being deleted: its objects are deleted first.
pub fn terminate(crd: &mut Value, now: &str) {
    crate::object::set_meta(crd, "deletionTimestamp", now);
    let mut finalizers = list(crd, "/metadata/finalizers").to_vec();
    if !finalizers.iter().any(|finalizer| finalizer == CLEANUP) {
        finalizers.push(CLEANUP.into());
    }
    crate::object::set_meta(crd, "finalizers", finalizers);
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    if let Some(status) = crd.get_mut("status") {
        set(status, "Terminating", true, ("InstanceDeletionPending", message), now);
    }
}

/// Sets the status that a written definition starts with: that of `old`, or an empty one, with the storage version
/// among the stored ones. To be called after `defaulted`, before `validate_definition`.
pub fn prepare(crd: &mut Value, old: Option<&Value>) {
    let empty = || json!({ "conditions": null, "acceptedNames": { "plural": "", "kind": "" }, "storedVersions": null });
    let mut status = old.and_then(|old| old.get("status")).cloned().unwrap_or_else(empty);
    let storage = list(crd, "/spec/versions").iter().find(|version| version["storage"] == json!(true));
    if let Some(name) = storage.and_then(|version| version.get("name")) {
        match status.get_mut("storedVersions").and_then(Value::as_array_mut) {
            Some(stored) if stored.contains(name) => {}
            Some(stored) => stored.push(name.clone()),
            None => status["storedVersions"] = json!([name]),
        }
    }
    if let Some(fields) = crd.as_object_mut() {
        fields.insert("status".to_owned(), status);
    }
}

/// The status that the server's controllers give a definition; `now` is a time such as `2026-01-01T00:00:00Z`.
///
/// It equals the one that is there when there is nothing to do. Freed names may let others be accepted: whenever a
/// definition of a group changes or is deleted, compute the rest of the group again.
pub fn conditions(crd: &Value, held: &Names, now: &str) -> Value {
    let mut status = crd.get("status").cloned().unwrap_or_else(|| json!({}));
    let wanted = crd.pointer("/spec/names").unwrap_or(&Value::Null);
    let accepted = status.get("acceptedNames").cloned().unwrap_or_else(|| json!({}));
    let (names, conflict) = accept(wanted, &accepted, held);
    let (reason, message) = conflict.clone().unwrap_or(("NoConflicts", "no conflicts found".to_owned()));
    if *wanted != accepted || condition(crd, "NamesAccepted").is_none() {
        status["acceptedNames"] = names;
        set(&mut status, "NamesAccepted", conflict.is_none(), (reason, &message), now);
    }
    if !is_established(crd) {
        let accepted = conflict.is_none();
        let told = if accepted {
            ("InitialNamesAccepted", "the initial names have been accepted")
        } else {
            ("NotAccepted", "not all names are accepted")
        };
        set(&mut status, "Established", accepted, told, now);
    }
    status
}

/// The accepted names, and the last conflict.
fn accept(wanted: &Value, accepted: &Value, held: &Names) -> (Value, Option<(&'static str, String)>) {
    let mut names = json!({ "plural": "", "kind": "" });
    let mut conflict = None;
    for (field, used, reason) in [
        ("plural", &held.resources, "PluralConflict"),
        ("singular", &held.resources, "SingularConflict"),
        ("shortNames", &held.resources, "ShortNamesConflict"),
        ("kind", &held.kinds, "KindConflict"),
        ("listKind", &held.kinds, "ListKindConflict"),
        ("categories", &BTreeSet::new(), ""),
    ] {
        let own = words(accepted, field);
        let taken = words(wanted, field).into_iter().find(|word| !own.contains(word) && used.contains(*word));
        let from = if taken.is_some() { accepted } else { wanted };
        if let Some(value) = from.get(field).filter(|value| !value.is_null()) {
            names[field] = value.clone();
        }
        conflict = taken.map(|word| (reason, format!("{word:?} is already in use"))).or(conflict);
    }
    (names, conflict)
}

/// A name, or the names of a list.
fn words<'v>(names: &'v Value, field: &str) -> Vec<&'v str> {
    match names.get(field) {
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        one => one.and_then(Value::as_str).into_iter().collect(),
    }
}

fn condition<'v>(crd: &'v Value, type_: &str) -> Option<&'v Value> {
    list(crd, "/status/conditions").iter().find(|condition| condition["type"] == json!(type_))
}

fn set(status: &mut Value, type_: &str, holds: bool, (reason, message): (&str, &str), now: &str) {
    let mut wanted = json!({
        "type": type_, "status": if holds { "True" } else { "False" }, "lastTransitionTime": now, "reason": reason, "message": message,
    });
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(all) = status["conditions"].as_array_mut() else { return };
    match all.iter_mut().find(|condition| condition["type"] == wanted["type"]) {
        Some(there) => {
            if there["status"] == wanted["status"] {
                wanted["lastTransitionTime"] = there["lastTransitionTime"].clone();
            }
            *there = wanted;
        }
        None => all.push(wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-11-15T04:42:04Z";

    fn crd(name: &str, names: &Value) -> Value {
        let mut crd = json!({
            "metadata": { "name": format!("{name}.d.portolan.dev") },
            "spec": { "group": "d.portolan.dev", "names": names, "versions": [{ "name": "v1", "storage": true, "served": true }] },
        });
        super::super::defaulted(&mut crd);
        prepare(&mut crd, None);
        crd
    }

    fn oars() -> Value {
        let mut oars =
            crd("oars", &json!({ "kind": "Oar", "plural": "oars", "shortNames": ["o", "oo"], "categories": ["all"] }));
        oars["status"] = conditions(&oars, &Names::default(), NOW);
        oars
    }

    #[test]
    fn free_names_are_accepted_and_the_definition_established_as_recorded() {
        assert_eq!(
            oars()["status"],
            json!({
                "conditions": [
                    { "type": "NamesAccepted", "status": "True", "lastTransitionTime": NOW, "reason": "NoConflicts", "message": "no conflicts found" },
                    { "type": "Established", "status": "True", "lastTransitionTime": NOW, "reason": "InitialNamesAccepted", "message": "the initial names have been accepted" },
                ],
                "acceptedNames": { "plural": "oars", "singular": "oar", "shortNames": ["o", "oo"], "kind": "Oar", "listKind": "OarList", "categories": ["all"] },
                "storedVersions": ["v1"],
            })
        );
        assert_eq!(conditions(&oars(), &Names::default(), "later"), oars()["status"], "nothing to do");
    }

    #[test]
    fn names_of_others_are_refused_as_recorded() {
        let poles = crd(
            "poles",
            &json!({ "kind": "Oar", "plural": "poles", "singular": "oar", "shortNames": ["o", "oo", "p"], "categories": ["all"] }),
        );
        let oars = oars();
        assert_eq!(
            conditions(&poles, &Names::held(&poles, [&oars, &poles]), NOW),
            json!({
                "conditions": [
                    { "type": "NamesAccepted", "status": "False", "lastTransitionTime": NOW, "reason": "ListKindConflict", "message": "\"OarList\" is already in use" },
                    { "type": "Established", "status": "False", "lastTransitionTime": NOW, "reason": "NotAccepted", "message": "not all names are accepted" },
                ],
                "acceptedNames": { "plural": "poles", "kind": "", "categories": ["all"] },
                "storedVersions": ["v1"],
            })
        );
    }

    #[test]
    fn an_established_definition_keeps_its_conditions_when_a_short_name_changes() {
        let old = oars();
        let mut new = old.clone();
        new["spec"]["names"]["shortNames"] = json!(["x"]);
        new["spec"]["versions"] = json!([{ "name": "v1", "storage": false }, { "name": "v2", "storage": true }]);
        prepare(&mut new, Some(&old));
        assert_eq!(new["status"]["storedVersions"], json!(["v1", "v2"]));
        let status = conditions(&new, &Names::default(), "later");
        assert_eq!(status["acceptedNames"]["shortNames"], json!(["x"]));
        assert_eq!(status["conditions"], old["status"]["conditions"]);
    }
}
