//! The rules for a CustomResourceDefinition.
//!
//! What all versions have in common is judged once and named as Kubernetes' internal type has it, such as
//! `spec.validation.openAPIV3Schema`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{internal, list, openapi, text};
use crate::schema::cel;
use crate::schema::fault::{duplicate, forbidden, invalid, invalid_as, not_supported, required, too_many};
use crate::schema::names::{dns_1035_label, dns_subdomain};
use crate::schema::{Schema, Type};
use crate::status::Cause;

const MAX_SELECTABLE: usize = 8;
const HOISTED: [&str; 4] = ["schema", "subresources", "additionalPrinterColumns", "selectableFields"];

/// What breaks the rules in a definition that was `defaulted` and `prepare`d. Of `metadata`, only the name is judged.
pub fn validate_definition(crd: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut found = Vec::new();
    if old.is_none() {
        name(crd, &mut found);
    }
    let spec = crd.get("spec").unwrap_or(&Value::Null);
    group_and_scope(spec, &mut found);
    versions(spec, &mut found);
    names(spec, &mut found);
    let hoisted = hoisted(spec);
    if let Some(first) = list(spec, "/versions").first() {
        let common: Vec<&str> = hoisted.iter().copied().filter(|part| !is_empty(first.get(*part))).collect();
        parts(first, "spec", "spec.validation", &common, &mut found);
    }
    conversion(spec, &mut found);
    if let Some(old) = old {
        immutable(crd, old, &mut found);
    }
    stored_versions(crd, &mut found);
    approval(crd, old, &mut found);
    let kept = old.is_some_and(|old| old.pointer("/spec/preserveUnknownFields") == Some(&json!(true)));
    if !kept && spec.get("preserveUnknownFields") == Some(&json!(true)) {
        let detail =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        found.push(invalid("spec.preserveUnknownFields", &json!(true), detail));
    }
    found
}

/// The parts that all versions have alike.
fn hoisted(spec: &Value) -> Vec<&'static str> {
    let versions = list(spec, "/versions");
    let alike = |part: &&str| {
        versions.windows(2).all(|pair| match (pair[0].get(*part), pair[1].get(*part)) {
            (one, other) if is_empty(one) && is_empty(other) => true,
            (one, other) => one == other,
        })
    };
    HOISTED.into_iter().filter(alike).collect()
}

fn is_empty(value: Option<&Value>) -> bool {
    value.is_none_or(|value| value.is_null() || value.as_array().is_some_and(Vec::is_empty))
}

fn name(crd: &Value, found: &mut Vec<Cause>) {
    let name = text(crd, "/metadata/name");
    if name.is_empty() {
        found.push(required("metadata.name", "name or generateName is required"));
        return;
    }
    let mut faults = dns_subdomain(name);
    if name != format!("{}.{}", text(crd, "/spec/names/plural"), text(crd, "/spec/group")) {
        faults.push("must be spec.names.plural+\".\"+spec.group".to_owned());
    }
    found.extend(faults.iter().map(|fault| invalid("metadata.name", &name.into(), fault)));
}

fn group_and_scope(spec: &Value, found: &mut Vec<Cause>) {
    let group = text(spec, "/group");
    let faults = dns_subdomain(group).join(",");
    if group.is_empty() {
        found.push(required("spec.group", ""));
    } else if !faults.is_empty() {
        found.push(invalid("spec.group", &group.into(), &faults));
    } else if !group.contains('.') {
        found.push(invalid("spec.group", &group.into(), "should be a domain with at least one dot"));
    }
    one_of("spec.scope", text(spec, "/scope"), &["Cluster", "Namespaced"], found);
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
    let hoisted = hoisted(spec);
    for (index, version) in versions.iter().enumerate() {
        if version.pointer("/schema/openAPIV3Schema").is_none_or(Value::is_null) {
            found.push(required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
        }
    }
    let (mut storage, mut unique) = (0, BTreeSet::new());
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        let name = text(version, "/name");
        storage += usize::from(version["storage"] == json!(true));
        unique.insert(name);
        label(&format!("{path}.name"), name, "", found);
        deprecation(version, &path, found);
        let own: Vec<&str> = HOISTED.into_iter().filter(|part| !hoisted.contains(part)).collect();
        parts(version, &path, &format!("{path}.schema"), &own, found);
    }
    let shown = || match spec.get("versions") {
        None | Some(Value::Null) => "null".to_owned(),
        Some(_) => internal::versions(versions, &hoisted),
    };
    if unique.len() < versions.len() {
        found.push(invalid_as("spec.versions", &shown(), "must contain unique version names"));
    }
    if storage != 1 {
        found.push(invalid_as("spec.versions", &shown(), "must have exactly one version marked as storage version"));
    }
    if let Some(first) = versions.first() {
        let name = text(first, "/name");
        if !name.is_empty() {
            label("spec.version", name, "", found);
        }
    }
}

fn label(path: &str, value: &str, prefix: &str, found: &mut Vec<Cause>) {
    let checked = if prefix.is_empty() { value.to_owned() } else { value.to_lowercase() };
    let faults = dns_1035_label(&checked).join(",");
    if !faults.is_empty() {
        found.push(invalid(path, &value.into(), &format!("{prefix}{faults}")));
    }
}

fn deprecation(version: &Value, path: &str, found: &mut Vec<Cause>) {
    let Some(warning) = version.get("deprecationWarning").filter(|warning| !warning.is_null()) else { return };
    let text = warning.as_str().unwrap_or_default();
    let mut add = |detail: &str| found.push(invalid(format!("{path}.deprecationWarning"), warning, detail));
    if version.get("deprecated") != Some(&json!(true)) {
        return add("can only be set for deprecated versions");
    }
    if text.len() > 256 {
        add("must be <= 256 characters long");
    }
    if text.is_empty() {
        add("must not be an empty string");
    }
    if let Some((index, _)) = text.char_indices().find(|(_, ch)| ch.is_control()) {
        add(&format!("must only contain printable UTF-8 characters; non-printable character found at index {index}"));
    }
}

/// The given parts of a version, below `path`; the schema has a path of its own.
fn parts(version: &Value, path: &str, schema_path: &str, parts: &[&str], found: &mut Vec<Cause>) {
    if parts.contains(&"schema")
        && let Some(schema) = version.pointer("/schema/openAPIV3Schema").filter(|schema| schema.is_object())
    {
        let at = format!("{schema_path}.openAPIV3Schema");
        if version.pointer("/subresources/status").is_some_and(Value::is_object) {
            status_root(schema, &at, found);
        }
        if schema.get("nullable") == Some(&json!(true)) {
            found.push(forbidden(format!("{at}.nullable"), "nullable cannot be true at the root"));
        }
        found.extend(openapi::faults(schema, &at));
    }
    if parts.contains(&"subresources") {
        scale(version, path, found);
    }
    if parts.contains(&"additionalPrinterColumns") {
        for (index, column) in list(version, "/additionalPrinterColumns").iter().enumerate() {
            self::column(column, &format!("{path}.additionalPrinterColumns[{index}]"), found);
        }
    }
    if parts.contains(&"selectableFields") {
        selectable(version, &format!("{path}.selectableFields"), found);
    }
}

/// With the status subresource, the root may only say what can be told from `status` too.
fn status_root(schema: &Value, path: &str, found: &mut Vec<Cause>) {
    const ALLOWED: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength \
        Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields \
        XValidations]";
    const OTHERS: [&str; 21] = [
        "id",
        "$schema",
        "$ref",
        "nullable",
        "default",
        "enum",
        "maxProperties",
        "minProperties",
        "allOf",
        "oneOf",
        "anyOf",
        "not",
        "additionalProperties",
        "patternProperties",
        "dependencies",
        "additionalItems",
        "definitions",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
    ];
    let type_ = text(schema, "/type");
    if !type_.is_empty() && type_ != "object" {
        let detail =
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        found.push(invalid(format!("{path}.type"), &type_.into(), detail));
    } else if OTHERS.iter().any(|name| schema.get(*name).is_some()) {
        let detail =
            format!("only {ALLOWED} fields are allowed at the root of the schema if the status subresource is enabled");
        found.push(invalid_as(path, &internal::schema(schema), &detail));
    }
}

fn simple_path(path: &str, value: &str, found: &mut Vec<Cause>) -> bool {
    let simple = value.starts_with('.');
    if !simple {
        found.push(invalid(path, &value.into(), "must be a simple json path starting with ."));
    }
    simple
}

fn scale(version: &Value, path: &str, found: &mut Vec<Cause>) {
    let Some(scale) = version.pointer("/subresources/scale").filter(|scale| scale.is_object()) else { return };
    for (name, roots, told) in [
        ("specReplicasPath", &[".spec."][..], ".spec"),
        ("statusReplicasPath", &[".status."][..], ".status"),
        ("labelSelectorPath", &[".spec.", ".status."][..], "either .spec or .status"),
    ] {
        let at = format!("{path}.subresources.scale.{name}");
        let value = scale.get(name).and_then(Value::as_str).unwrap_or_default();
        if value.is_empty() {
            if name != "labelSelectorPath" {
                found.push(required(at, ""));
            }
        } else if simple_path(&at, value, found) && !roots.iter().any(|root| value.starts_with(root)) {
            found.push(invalid(at, &value.into(), &format!("should be a json path under {told}")));
        }
    }
}

fn column(column: &Value, path: &str, found: &mut Vec<Cause>) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    let (type_, format, json_path) = (text(column, "/type"), text(column, "/format"), text(column, "/jsonPath"));
    if text(column, "/name").is_empty() {
        found.push(required(format!("{path}.name"), ""));
    }
    let detail = format!("must be one of {}", TYPES.join(","));
    if type_.is_empty() {
        found.push(required(format!("{path}.type"), &detail));
    } else if !TYPES.contains(&type_) {
        found.push(invalid(format!("{path}.type"), &type_.into(), &detail));
    }
    if !format.is_empty() && !FORMATS.contains(&format) {
        found.push(invalid(format!("{path}.format"), &format.into(), &format!("must be one of {}", FORMATS.join(","))));
    }
    if json_path.is_empty() {
        found.push(required(format!("{path}.JSONPath"), ""));
    } else {
        simple_path(&format!("{path}.JSONPath"), json_path, found);
    }
}

fn selectable(version: &Value, path: &str, found: &mut Vec<Cause>) {
    let schema = version.pointer("/schema/openAPIV3Schema").map(Schema::parse).unwrap_or_default();
    let mut unique = BTreeSet::new();
    for (index, field) in list(version, "/selectableFields").iter().enumerate() {
        let at = format!("{path}[{index}].jsonPath");
        let json_path = text(field, "/jsonPath");
        if json_path.is_empty() {
            found.push(required(at, ""));
            continue;
        }
        let shown = json_path.into();
        match cel::field_path(json_path, &schema, false) {
            Err(why) => found.push(invalid(at, &shown, &format!("is an invalid path: {why}"))),
            Ok((normal, target)) => {
                if normal == "metadata" || normal.starts_with("metadata.") {
                    found.push(invalid(at.clone(), &shown, "must not point to fields in metadata"));
                }
                if !matches!(target.type_, Some(Type::String | Type::Boolean | Type::Integer)) {
                    let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
                    found.push(invalid(at.clone(), &shown, detail));
                }
                if !unique.insert(normal) {
                    found.push(duplicate(at, &shown));
                }
            }
        }
    }
    if unique.len() > MAX_SELECTABLE {
        found.push(too_many(path, unique.len(), 8));
    }
}

fn names(spec: &Value, found: &mut Vec<Cause>) {
    const MIXED: &str = "may have mixed case, but should otherwise match: ";
    let names = spec.get("names").unwrap_or(&Value::Null);
    let name = |field: &str| names.get(field).and_then(Value::as_str).unwrap_or_default();
    for field in ["plural", "singular", "kind", "listKind"] {
        if name(field).is_empty() {
            found.push(required(format!("spec.names.{field}"), ""));
        }
    }
    for (field, prefix) in [("plural", ""), ("singular", ""), ("kind", MIXED), ("listKind", MIXED)] {
        if !name(field).is_empty() {
            label(&format!("spec.names.{field}"), name(field), prefix, found);
        }
    }
    let labels = |field: &str, found: &mut Vec<Cause>| {
        for (index, value) in names.get(field).and_then(Value::as_array).into_iter().flatten().enumerate() {
            label(&format!("spec.names.{field}[{index}]"), value.as_str().unwrap_or_default(), "", found);
        }
    };
    labels("shortNames", found);
    if !name("kind").is_empty() && name("kind") == name("listKind") {
        found.push(invalid("spec.names.listKind", &name("listKind").into(), "kind and listKind may not be the same"));
    }
    labels("categories", found);
}

fn conversion(spec: &Value, found: &mut Vec<Cause>) {
    let Some(conversion) = spec.get("conversion") else { return };
    let strategy = text(conversion, "/strategy");
    one_of("spec.conversion.strategy", strategy, &["None", "Webhook"], found);
    let client = conversion.pointer("/webhook/clientConfig");
    let reviews = list(conversion, "/webhook/conversionReviewVersions");
    let (client_path, reviews_path) =
        ("spec.conversion.webhookClientConfig", "spec.conversion.conversionReviewVersions");
    if strategy == "Webhook" {
        match client {
            None => found.push(required(client_path, "required when strategy is set to Webhook")),
            Some(client) if client.get("url").is_some() == client.get("service").is_some() => {
                found.push(required(client_path, "exactly one of url or service is required"));
            }
            Some(_) => {}
        }
        if reviews.is_empty() {
            found.push(required(reviews_path, ""));
        } else if !reviews.iter().any(|version| version == "v1" || version == "v1beta1") {
            found.push(invalid(reviews_path, &reviews.to_vec().into(), "must include at least one of v1, v1beta1"));
        }
        return;
    }
    let detail = "should not be set when strategy is not set to Webhook";
    if client.is_some() {
        found.push(forbidden(client_path, detail));
    }
    if !reviews.is_empty() {
        found.push(forbidden(reviews_path, detail));
    }
}

fn immutable(crd: &Value, old: &Value, found: &mut Vec<Cause>) {
    let frozen = super::is_established(old);
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
    let shown = crd.pointer(&format!("/{}", path.replace('.', "/"))).unwrap_or(&Value::Null);
    if stored.is_empty() {
        found.push(invalid(path, &Value::Null, "must have at least one stored version"));
        return;
    }
    let versions = list(crd, "/spec/versions");
    for version in versions.iter().filter(|version| version["storage"] == json!(true)) {
        if !stored.contains(&version["name"]) {
            found.push(invalid(path, shown, &format!("must have the storage version {}", text(version, "/name"))));
        }
    }
    for (index, name) in stored.iter().enumerate() {
        if !versions.iter().any(|version| version["name"] == *name) {
            let name_text = name.as_str().unwrap_or_default();
            let detail = format!(
                "missing from spec.versions; {name_text} was previously a storage version, and must remain in spec.versions until a \
                 storage migration ensures no data remains persisted in {name_text} and removes {name_text} from status.storedVersions"
            );
            found.push(invalid(format!("{path}[{index}]"), name, &detail));
        }
    }
}

/// Groups of the Kubernetes community need a reference to their approval.
fn approval(crd: &Value, old: Option<&Value>, found: &mut Vec<Cause>) {
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    const WHERE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let group = text(crd, "/spec/group");
    let protected =
        ["k8s.io", "kubernetes.io"].iter().any(|zone| group == *zone || group.ends_with(&format!(".{zone}")));
    let of = |crd: &Value| {
        crd.pointer("/metadata/annotations")
            .and_then(|all| all.get(ANNOTATION)?.as_str().map(str::to_owned))
            .unwrap_or_default()
    };
    let approved = |value: &str| {
        value.starts_with("unapproved")
            || value.split_once("://").is_some_and(|(scheme, host)| !scheme.is_empty() && !host.is_empty())
    };
    let value = of(crd);
    let unchanged =
        old.map(of).is_some_and(|old| old.is_empty() == value.is_empty() && approved(&old) == approved(&value));
    if !protected || unchanged || approved(&value) {
        return;
    }
    let path = format!("metadata.annotations[{ANNOTATION}]");
    found.push(if value.is_empty() {
        required(path, &format!("protected groups must have approval annotation \"{ANNOTATION}\", {WHERE}"))
    } else {
        let detail = format!("protected groups must have approval annotation \"{ANNOTATION}\" with either a URL or a reason starting with \"unapproved\", {WHERE}");
        invalid(path, &value.into(), &detail)
    });
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
    fn a_stored_version_stays_as_recorded() {
        let (old, mut new) = (oars(), oars());
        new["spec"]["versions"][0]["name"] = json!("v2");
        new["status"]["storedVersions"] = json!(["v1", "v2"]);
        let detail = "Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions \
            until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions";
        assert_eq!(told(&new, Some(&old)), [("status.storedVersions[0]".to_owned(), detail.to_owned())]);
    }

    #[test]
    fn community_groups_need_approval_as_recorded() {
        let mut crd = oars();
        crd["spec"]["group"] = json!("x.k8s.io");
        crd["metadata"]["name"] = json!("oars.x.k8s.io");
        let path = "metadata.annotations[api-approved.kubernetes.io]".to_owned();
        let missing = "Required value: protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111";
        assert_eq!(told(&crd, None), [(path.clone(), missing.to_owned())]);
        crd["metadata"]["annotations"] = json!({ "api-approved.kubernetes.io": "foo" });
        let wrong = "Invalid value: \"foo\": protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111";
        assert_eq!(told(&crd, None), [(path, wrong.to_owned())]);
        crd["metadata"]["annotations"] =
            json!({ "api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1" });
        assert_eq!(told(&crd, None), []);
    }
}
