//! What the real server's strategies do to an object between admission and validation: status apart from spec,
//! generation, fields that only the server sets.

use serde_json::{Map, Value, json};

use super::canonical::canonical;
use super::{Kind, cluster_ip};
use crate::json::{entries, fill, list, number, put, remove, restore};
use crate::object::get_meta;

/// The label of a Job's pods that holds the Job's uid.
const JOB_UID: &str = "batch.kubernetes.io/controller-uid";

/// Which fields of an object a request may write, as the main and the status strategy in kube-apiserver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Everything but the status, when that is a subresource.
    Main,
    /// The status alone.
    Status,
}

/// Whether a PUT without resourceVersion overwrites whatever is there.
pub fn allows_unconditional_update(kind: &Kind) -> bool {
    let strict = [
        "coordination.k8s.io",
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "node.k8s.io",
        "policy",
    ];
    !kind.custom && !strict.contains(&kind.group.as_str()) && !matches!(kind.kind.as_str(), "CSIDriver" | "CSINode")
}

/// Whether a PUT to a name that does not exist creates it.
pub fn allows_create_on_update(kind: &Kind) -> bool {
    !kind.custom
        && (kind.group == "rbac.authorization.k8s.io"
            || matches!(
                kind.kind.as_str(),
                "Service" | "Endpoints" | "Event" | "Lease" | "LimitRange" | "RuntimeClass"
            ))
}

/// Prepares a new object: removes the status where it is a subresource, sets generation to 1 where there is one.
pub fn prepare_for_create(kind: &Kind, new: &mut Value) {
    prepare_for_field_management(new);
    if let Some(metadata) = new.get_mut("metadata").filter(|_| has_generation(kind)) {
        put(metadata, "generation", 1);
    }
    let stored = new.pointer("/status/storedVersions").cloned();
    // A node may come with its status.
    if kind.status && (kind.custom || kind.kind != "Node") {
        remove(new, "status");
    }
    if kind.custom {
        return;
    }
    match kind.kind.as_str() {
        "Pod" => put(new, "status", pod_status(new)),
        "PersistentVolume" | "PersistentVolumeClaim" => put(new, "status", json!({ "phase": "Pending" })),
        "Namespace" => {
            put(new, "status", json!({ "phase": "Active" }));
            put(new, "spec", json!({ "finalizers": ["kubernetes"] }));
        }
        "CustomResourceDefinition" => put(new, "status", json!({ "storedVersions": stored })),
        "Job" => select_own_pods(new),
        _ => {}
    }
    canonical(&kind.schema, new);
}

/// Gives a Job labels that no other has, and the selector that finds its pods by them.
fn select_own_pods(job: &mut Value) {
    if job.pointer("/spec/manualSelector") == Some(&Value::Bool(true)) {
        return;
    }
    let [name, uid] = ["name", "uid"].map(|field| get_meta(job, field));
    let has_own_labels = job.pointer("/metadata/labels").is_some_and(|own| {
        entries(own, "").next().is_some() && job.pointer("/spec/template/metadata/labels") != Some(own)
    });
    let Some(spec) = job.get_mut("spec").filter(|spec| spec["template"].is_object()) else { return };
    let template = &mut spec["template"];
    fill(template, "metadata", json!({}));
    fill(&mut template["metadata"], "labels", json!({}));
    for (label, value) in
        [("job-name", &name), ("batch.kubernetes.io/job-name", &name), ("controller-uid", &uid), (JOB_UID, &uid)]
    {
        fill(&mut template["metadata"]["labels"], label, value.clone());
    }
    let labels = template["metadata"]["labels"].clone();
    fill(spec, "selector", json!({}));
    fill(&mut spec["selector"], "matchLabels", json!({}));
    fill(&mut spec["selector"]["matchLabels"], JOB_UID, uid);
    if !has_own_labels {
        put(&mut job["metadata"], "labels", labels);
    }
}

/// The status of a new pod; one with scheduling gates says that it waits for them.
fn pod_status(pod: &Value) -> Value {
    if list(pod, "/spec/schedulingGates").is_empty() {
        return json!({ "phase": "Pending" });
    }
    let gated = json!({
        "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
        "lastProbeTime": null, "lastTransitionTime": get_meta(pod, "creationTimestamp"),
    });
    json!({ "phase": "Pending", "conditions": [gated] })
}

/// Removes the fields that no new object has, before its field owners are recorded.
pub fn prepare_for_field_management(new: &mut Value) {
    if let Some(metadata) = new.get_mut("metadata") {
        for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            remove(metadata, key);
        }
    }
}

/// Prepares an update: what the request may not write is taken from `old`; generation is incremented if the spec changed.
pub fn prepare_for_update(kind: &Kind, new: &mut Value, old: &Value, strategy: Strategy) {
    let Some(before) = old.get("metadata") else { return };
    if let Some(metadata) = new.get_mut("metadata") {
        restore(metadata, before, "generation");
        restore(metadata, before, "creationTimestamp");
        if before.get("deletionTimestamp").is_some() {
            restore(metadata, before, "deletionTimestamp");
        }
        for key in ["uid", "deletionGracePeriodSeconds"] {
            if let Some(value) = before.get(key) {
                fill(metadata, key, value.clone());
            }
        }
    }
    match strategy {
        Strategy::Status => only_status(kind, new, old),
        Strategy::Main => {
            if kind.status {
                restore(new, old, "status");
            }
            match kind.kind.as_str() {
                "Service" if !kind.custom => cluster_ip::drop_useless(new, old),
                "Namespace" | "CertificateSigningRequest" if !kind.custom => restore(new, old, "spec"),
                _ => {}
            }
        }
    }
    if !kind.custom {
        canonical(&kind.schema, new);
    }
    let counts = has_generation(kind) && (kind.custom || kind.kind != "PriorityClass");
    let grows = strategy == Strategy::Main && counts && spec_changed(kind, new, old);
    if let Some(metadata) = new.get_mut("metadata").filter(|_| grows) {
        put(metadata, "generation", number(old, "/metadata/generation") + 1);
    }
}

/// Kinds that count the versions of their spec.
fn has_generation(kind: &Kind) -> bool {
    let groups = [
        "apps",
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "batch",
        "discovery.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "networking.k8s.io",
        "policy",
        "scheduling.k8s.io",
    ];
    let core = ["Pod", "PodTemplate", "ReplicationController"];
    let (group, name) = (kind.group.as_str(), kind.kind.as_str());
    kind.custom
        || (groups.contains(&group) && name != "ControllerRevision")
        || (group.is_empty() && core.contains(&name))
}

/// Whether a change is one of the spec: of all but metadata and status.
fn spec_changed(kind: &Kind, new: &Value, old: &Value) -> bool {
    let body = |object: &Value| -> Map<String, Value> {
        let mut body = object.as_object().cloned().unwrap_or_default();
        body.retain(|key, _| key != "metadata" && !(kind.status && key == "status"));
        body
    };
    body(new) != body(old)
}

/// A status update writes metadata and status; some kinds protect more.
fn only_status(kind: &Kind, new: &mut Value, old: &Value) {
    let mut whole = old.clone();
    for key in ["apiVersion", "kind", "metadata", "status"] {
        restore(&mut whole, new, key);
    }
    *new = whole;
    let (Some(metadata), Some(before)) = (new.get_mut("metadata"), old.get("metadata")) else { return };
    match kind.kind.as_str() {
        _ if kind.custom => {
            // Of metadata only managedFields are taken.
            let mut kept = before.clone();
            if let Some(managed_fields) = metadata.get("managedFields") {
                put(&mut kept, "managedFields", managed_fields.clone());
            }
            *metadata = kept;
        }
        "Deployment" => restore(metadata, before, "labels"),
        "Pod" => restore(metadata, before, "ownerReferences"),
        _ => {}
    }
}
