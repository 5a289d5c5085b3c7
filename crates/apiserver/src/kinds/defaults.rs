//! Defaults of built-in kinds, as the real server fills them in on every write.

mod pod;
mod service;

pub(super) use service::externally_accessible;

use serde_json::{Map, Value, json};

use super::canonical::decoded;
use super::json::{fill, has, items, list, number, object, put, remove, text};
use super::{Kind, events};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Brings the object into canonical form and fills in defaults; for a custom kind nothing is done here.
pub fn default(kind: &Kind, new: &mut Value) {
    if kind.custom || !new.is_object() {
        return;
    }
    decoded(&kind.schema, new);
    match kind.kind.as_str() {
        "Pod" => pod::pod(new),
        "Service" => service::service(new),
        "Namespace" => namespace(new),
        "Node" => node(new),
        "Secret" => secret(new),
        "Endpoints" => endpoints(new),
        "EndpointSlice" => endpoint_slice(new),
        "Deployment" => deployment(new),
        "ReplicaSet" => replica_set(new),
        "DaemonSet" => daemon_set(new),
        "StatefulSet" => stateful_set(new),
        "RoleBinding" | "ClusterRoleBinding" => binding(new),
        "ValidatingWebhookConfiguration" => items(new, "webhooks").for_each(webhook),
        "MutatingWebhookConfiguration" => items(new, "webhooks").for_each(|hook| {
            webhook(hook);
            fill(hook, "reinvocationPolicy", "Never");
        }),
        "ValidatingAdmissionPolicy" => admission_policy(new),
        "ValidatingAdmissionPolicyBinding" => {
            if let Some(matching) = new.pointer_mut("/spec/matchResources") {
                match_resources(matching);
            }
        }
        "CustomResourceDefinition" => custom_resource_definition(new),
        _ => {}
    }
    decoded(&kind.schema, new);
    if events::is_view(kind) {
        remove(new, "involvedObject");
    }
}

fn namespace(new: &mut Value) {
    let name = text(new, "/metadata/name").to_owned();
    if !name.is_empty()
        && let Some(metadata) = new.get_mut("metadata")
        && let Some(labels) = object(metadata, "labels")
    {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
    }
    if object(new, "status").is_some() {
        fill(&mut new["status"], "phase", "Active");
    }
}

fn node(new: &mut Value) {
    if let Some(spec) = new.get_mut("spec") {
        in_step(spec, "podCIDR", "podCIDRs");
    }
    if let Some(status) = new.get_mut("status")
        && let Some(capacity) = status.get("capacity").cloned()
    {
        fill(status, "allocatable", capacity);
    }
}

/// A singular field and its plural: the singular one is the first of the plural.
fn in_step(value: &mut Value, singular: &str, plural: &str) {
    let Some(map) = value.as_object_mut() else { return };
    match (map.get(singular).cloned(), map.get_mut(plural).and_then(Value::as_array_mut)) {
        (Some(first), Some(all)) if all.first() != Some(&first) => *all = vec![first],
        (Some(first), None) => {
            map.insert(plural.to_owned(), json!([first]));
        }
        (None, Some(all)) => {
            if let Some(first) = all.first().cloned() {
                map.insert(singular.to_owned(), first);
            }
        }
        _ => {}
    }
}

fn secret(new: &mut Value) {
    use base64::Engine as _;
    fill(new, "type", "Opaque");
    let Some(map) = new.as_object_mut() else { return };
    let Some(Value::Object(plain)) = map.remove("stringData") else { return };
    let data = map.entry("data").or_insert_with(|| Value::Object(Map::new()));
    if let Some(data) = data.as_object_mut() {
        for (key, value) in plain {
            let encoded = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
            data.insert(key, encoded.into());
        }
    }
}

fn endpoints(new: &mut Value) {
    for subset in items(new, "subsets") {
        items(subset, "ports").for_each(|port| fill(port, "protocol", "TCP"));
    }
}

fn endpoint_slice(new: &mut Value) {
    for port in items(new, "ports") {
        fill(port, "name", "");
        fill(port, "protocol", "TCP");
    }
}

/// Fills the pod template and gives the spec back.
fn workload(new: &mut Value) -> Option<&mut Value> {
    object(new, "spec")?;
    let spec = &mut new["spec"];
    if let Some(template) = object(spec, "template") {
        template.entry("spec").or_insert_with(|| json!({}));
        pod::spec(&mut spec["template"]["spec"]);
    }
    Some(spec)
}

fn deployment(new: &mut Value) {
    let Some(spec) = workload(new) else { return };
    fill(spec, "replicas", 1);
    fill(spec, "revisionHistoryLimit", 10);
    fill(spec, "progressDeadlineSeconds", 600);
    rolling(spec, "strategy", &[("maxUnavailable", "25%".into()), ("maxSurge", "25%".into())]);
}

fn replica_set(new: &mut Value) {
    if let Some(spec) = workload(new) {
        fill(spec, "replicas", 1);
    }
}

fn daemon_set(new: &mut Value) {
    let Some(spec) = workload(new) else { return };
    fill(spec, "revisionHistoryLimit", 10);
    rolling(spec, "updateStrategy", &[("maxUnavailable", 1.into()), ("maxSurge", 0.into())]);
}

fn stateful_set(new: &mut Value) {
    let Some(spec) = workload(new) else { return };
    fill(spec, "replicas", 1);
    fill(spec, "revisionHistoryLimit", 10);
    fill(spec, "podManagementPolicy", "OrderedReady");
    let explicit = text(spec, "/updateStrategy/type") == "RollingUpdate" && !has(spec, "/updateStrategy/rollingUpdate");
    if !explicit {
        rolling(spec, "updateStrategy", &[("partition", 0.into())]);
    }
    if object(spec, "persistentVolumeClaimRetentionPolicy").is_some() {
        fill(&mut spec["persistentVolumeClaimRetentionPolicy"], "whenDeleted", "Retain");
        fill(&mut spec["persistentVolumeClaimRetentionPolicy"], "whenScaled", "Retain");
    }
}

fn rolling(spec: &mut Value, key: &str, defaults: &[(&str, Value)]) {
    if object(spec, key).is_none() {
        return;
    }
    let strategy = &mut spec[key];
    fill(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" && object(strategy, "rollingUpdate").is_some() {
        for (field, value) in defaults {
            fill(&mut strategy["rollingUpdate"], field, value.clone());
        }
    }
}

fn binding(new: &mut Value) {
    if let Some(role) = new.get_mut("roleRef")
        && text(role, "/apiGroup").is_empty()
        && role.is_object()
    {
        role["apiGroup"] = RBAC.into();
    }
    for subject in items(new, "subjects") {
        if matches!(text(subject, "/kind"), "User" | "Group") {
            fill(subject, "apiGroup", RBAC);
        }
    }
}

fn webhook(hook: &mut Value) {
    fill(hook, "failurePolicy", "Fail");
    fill(hook, "matchPolicy", "Equivalent");
    fill(hook, "namespaceSelector", json!({}));
    fill(hook, "objectSelector", json!({}));
    fill(hook, "timeoutSeconds", 10);
    items(hook, "rules").for_each(|rule| fill(rule, "scope", "*"));
    if let Some(service) = hook.pointer_mut("/clientConfig/service") {
        fill(service, "port", 443);
    }
}

fn admission_policy(new: &mut Value) {
    if object(new, "spec").is_some() {
        fill(&mut new["spec"], "failurePolicy", "Fail");
    }
    if let Some(matching) = new.pointer_mut("/spec/matchConstraints") {
        match_resources(matching);
    }
}

fn match_resources(matching: &mut Value) {
    fill(matching, "matchPolicy", "Equivalent");
    fill(matching, "namespaceSelector", json!({}));
    fill(matching, "objectSelector", json!({}));
    for key in ["resourceRules", "excludeResourceRules"] {
        items(matching, key).for_each(|rule| fill(rule, "scope", "*"));
    }
}

fn custom_resource_definition(new: &mut Value) {
    let kind = text(new, "/spec/names/kind").to_owned();
    if let Some(names) = new.pointer_mut("/spec/names") {
        fill(names, "singular", kind.to_lowercase());
        if !kind.is_empty() {
            fill(names, "listKind", format!("{kind}List"));
        }
    }
    if object(new, "spec").is_some() {
        fill(&mut new["spec"], "conversion", json!({ "strategy": "None" }));
    }
    if let Some(service) = new.pointer_mut("/spec/conversion/webhook/clientConfig/service") {
        fill(service, "port", 443);
    }
    let stored = list(new, "/spec/versions").iter().find(|version| version["storage"] == true);
    let stored = stored.map(|version| text(version, "/name").to_owned());
    if let Some(stored) = stored
        && list(new, "/status/storedVersions").is_empty()
        && let Some(status) = object(new, "status")
    {
        status.insert("storedVersions".to_owned(), json!([stored]));
    }
}
