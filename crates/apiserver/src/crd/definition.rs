//! Validation of CustomResourceDefinitions.
//!
//! What all versions have in common is validated once and named as in Kubernetes' internal type, such as
//! `spec.validation.openAPIV3Schema`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{status, structural};
use crate::json::{list, text};
use crate::names::{is_label, is_subdomain};
use crate::schema::fault::{invalid, not_supported, required};
use crate::status::Cause;

/// The errors of a definition that was `defaulted` and `prepare`d. Of `metadata`, only the name is validated.
pub fn validate_definition(crd: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut found = Vec::new();
    let spec = crd.get("spec").unwrap_or(&Value::Null);
    let name = text(crd, "/metadata/name");
    if old.is_none() && name != format!("{}.{}", text(spec, "/names/plural"), text(spec, "/group")) {
        found.push(invalid("metadata.name", &name.into(), "must be spec.names.plural+\".\"+spec.group"));
    }
    let group = text(spec, "/group");
    if group.is_empty() {
        found.push(required("spec.group", ""));
    } else if !is_subdomain(group) || !group.contains('.') {
        found.push(invalid("spec.group", &group.into(), "should be a domain with at least one dot"));
    }
    one_of("spec.scope", text(spec, "/scope"), &["Cluster", "Namespaced"], &mut found);
    if old.is_none_or(|old| old.pointer("/spec/versions") != spec.get("versions")) {
        versions(spec, &mut found);
    }
    names(spec, &mut found);
    // conversion webhooks are not called here
    one_of("spec.conversion.strategy", text(spec, "/conversion/strategy"), &["None"], &mut found);
    if let Some(old) = old {
        immutable(crd, old, &mut found);
    }
    stored_versions(crd, &mut found);
    if spec.get("preserveUnknownFields") == Some(&json!(true)) {
        let detail = "set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        found.push(invalid("spec.preserveUnknownFields", &json!(true), detail));
    }
    found
}

fn one_of(path: &str, value: &str, accepted: &[&str], found: &mut Vec<Cause>) {
    if value.is_empty() {
        found.push(required(path, ""));
    } else if !accepted.contains(&value) {
        found.push(not_supported(path, &value.into(), accepted));
    }
}

fn versions(spec: &Value, found: &mut Vec<Cause>) {
    let versions = list(spec, "/versions");
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        label(&format!("{path}.name"), text(version, "/name"), found);
        if !version.pointer("/schema/openAPIV3Schema").is_some_and(Value::is_object) {
            found.push(required(format!("{path}.schema.openAPIV3Schema"), ""));
        }
    }
    let shown = spec.get("versions").unwrap_or(&Value::Null);
    let unique: BTreeSet<&str> = versions.iter().map(|version| text(version, "/name")).collect();
    if unique.len() < versions.len() {
        found.push(invalid("spec.versions", shown, "must contain unique version names"));
    }
    if versions.iter().filter(|version| version["storage"] == json!(true)).count() != 1 {
        found.push(invalid("spec.versions", shown, "must have exactly one version marked as storage version"));
    }
    for part in ["schema", "subresources", "additionalPrinterColumns"] {
        let alike = versions.windows(2).all(|pair| pair[0].get(part) == pair[1].get(part));
        for (index, version) in versions.iter().enumerate().take(if alike { 1 } else { versions.len() }) {
            let path = if alike { "spec".to_owned() } else { format!("spec.versions[{index}]") };
            match part {
                "schema" => {
                    let schema = version.pointer("/schema/openAPIV3Schema").filter(|schema| schema.is_object());
                    let path = format!("{path}.{}.openAPIV3Schema", if alike { "validation" } else { "schema" });
                    found.extend(schema.into_iter().flat_map(|schema| structural::faults(schema, &path)));
                }
                "subresources" => scale(version, &path, found),
                _ => columns(version, &path, found),
            }
        }
    }
}

fn label(path: &str, value: &str, found: &mut Vec<Cause>) {
    if !is_label(value) || !value.starts_with(|first: char| first.is_ascii_lowercase()) {
        found.push(invalid(path, &value.into(), "must be a label of lower case letters, digits and '-'"));
    }
}

fn scale(version: &Value, path: &str, found: &mut Vec<Cause>) {
    let Some(scale) = version.pointer("/subresources/scale").filter(|scale| scale.is_object()) else { return };
    for (name, roots) in [
        ("specReplicasPath", &[".spec."][..]),
        ("statusReplicasPath", &[".status."]),
        ("labelSelectorPath", &[".spec.", ".status."]),
    ] {
        let at = format!("{path}.subresources.scale.{name}");
        let value = scale.get(name).and_then(Value::as_str).unwrap_or_default();
        if value.is_empty() && name != "labelSelectorPath" {
            found.push(required(at, ""));
        } else if !value.is_empty() && !roots.iter().any(|root| value.starts_with(root)) {
            found.push(invalid(at, &value.into(), &format!("should be a json path under {}", roots.join(" or "))));
        }
    }
}

fn columns(version: &Value, path: &str, found: &mut Vec<Cause>) {
    for (index, column) in list(version, "/additionalPrinterColumns").iter().enumerate() {
        let path = format!("{path}.additionalPrinterColumns[{index}]");
        for (name, field) in [("name", "name"), ("type", "type"), ("jsonPath", "JSONPath")] {
            if column.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
                found.push(required(format!("{path}.{field}"), ""));
            }
        }
        let (type_, json_path) = (text(column, "/type"), text(column, "/jsonPath"));
        if !["", "boolean", "date", "integer", "number", "string"].contains(&type_) {
            found.push(invalid(format!("{path}.type"), &type_.into(), "must be boolean,date,integer,number,string"));
        }
        if !json_path.is_empty() && !json_path.starts_with('.') {
            found.push(invalid(format!("{path}.JSONPath"), &json_path.into(), "must start with ."));
        }
    }
}

fn names(spec: &Value, found: &mut Vec<Cause>) {
    let names = spec.get("names").unwrap_or(&Value::Null);
    let name = |field: &str| names.get(field).and_then(Value::as_str).unwrap_or_default();
    for field in ["plural", "singular", "kind", "listKind"] {
        let path = format!("spec.names.{field}");
        match name(field) {
            "" => found.push(required(path, "")),
            kind if field.ends_with("ind") => label(&path, &kind.to_lowercase(), found),
            other => label(&path, other, found),
        }
    }
    if !name("kind").is_empty() && name("kind") == name("listKind") {
        found.push(invalid("spec.names.listKind", &name("listKind").into(), "kind and listKind may not be the same"));
    }
    for field in ["shortNames", "categories"] {
        for (index, value) in list(names, &format!("/{field}")).iter().enumerate() {
            label(&format!("spec.names.{field}[{index}]"), value.as_str().unwrap_or_default(), found);
        }
    }
}

fn immutable(crd: &Value, old: &Value, found: &mut Vec<Cause>) {
    let frozen = status::is_established(old);
    for (pointer, path, always) in [
        ("/spec/scope", "spec.scope", false),
        ("/spec/names/kind", "spec.names.kind", false),
        ("/spec/group", "spec.group", true),
        ("/spec/names/plural", "spec.names.plural", true),
    ] {
        if (always || frozen) && crd.pointer(pointer) != old.pointer(pointer) {
            found.push(invalid(path, &text(crd, pointer).into(), "field is immutable"));
        }
    }
}

fn stored_versions(crd: &Value, found: &mut Vec<Cause>) {
    let path = "status.storedVersions";
    let stored = list(crd, "/status/storedVersions");
    if stored.is_empty() {
        found.push(invalid(path, &Value::Null, "must have at least one stored version"));
    }
    for (index, name) in stored.iter().enumerate() {
        if !list(crd, "/spec/versions").iter().any(|version| version["name"] == *name) {
            let detail = "missing from spec.versions: it was a storage version, and must remain until no data is left in it \
                          and it is removed from status.storedVersions";
            found.push(invalid(format!("{path}[{index}]"), name, detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oars() -> Value {
        json!({
            "metadata": { "name": "oars.d.portolan.dev" },
            "spec": { "group": "d.portolan.dev", "scope": "Cluster", "conversion": { "strategy": "None" },
                      "names": { "kind": "Oar", "listKind": "OarList", "plural": "oars", "singular": "oar" },
                      "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": { "type": "object" } } }] },
            "status": { "storedVersions": ["v1"], "conditions": [{ "type": "Established", "status": "True" }] },
        })
    }

    fn told(new: &Value, old: Option<&Value>) -> Vec<(String, String)> {
        validate_definition(new, old).into_iter().map(|cause| (cause.field, cause.message)).collect()
    }

    #[test]
    fn what_storage_hangs_on_is_immutable_as_recorded() {
        let (old, mut new) = (oars(), oars());
        assert_eq!(told(&new, Some(&old)), []);
        new["spec"]["scope"] = json!("Namespaced");
        new["spec"]["names"] = json!({ "kind": "Z", "listKind": "OarList", "plural": "z", "singular": "oar" });
        new["spec"]["group"] = json!("z.z");
        let found = told(&new, Some(&old));
        let expected =
            [("spec.scope", "Namespaced"), ("spec.names.kind", "Z"), ("spec.group", "z.z"), ("spec.names.plural", "z")];
        assert_eq!(
            found,
            expected.map(|(path, value)| (path.to_owned(), format!("Invalid value: \"{value}\": field is immutable")))
        );
    }

    #[test]
    fn a_stored_version_stays() {
        let (old, mut new) = (oars(), oars());
        new["spec"]["versions"][0]["name"] = json!("v2");
        new["status"]["storedVersions"] = json!(["v1", "v2"]);
        let found = told(&new, Some(&old));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, "status.storedVersions[0]");
    }
}
