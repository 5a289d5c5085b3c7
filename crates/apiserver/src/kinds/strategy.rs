//! What the real server's strategies do to an object between admission and validation: status apart from spec,
//! generation, fields that only the server sets.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::canonical::canonical;
use super::json::{fill, list, number, object, put, remove, restore, text};
use super::quantity::Quantity;
use super::{Kind, cluster_ip};
use crate::status::{About, Failure};

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Which part of an object a request may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Everything but the status, when that is a subresource.
    Main,
    /// The status alone.
    Status,
}

/// Whether a PUT without resourceVersion overwrites whatever is there.
pub fn allows_unconditional_update(kind: &Kind) -> bool {
    let strict = matches!(
        kind.group.as_str(),
        "coordination.k8s.io" | "admissionregistration.k8s.io" | "apiextensions.k8s.io" | "policy"
    );
    !kind.custom && !strict
}

/// Whether a PUT to a name that does not exist creates it.
pub fn allows_create_on_update(kind: &Kind) -> bool {
    !kind.custom
        && (kind.group == "rbac.authorization.k8s.io"
            || matches!(kind.kind.as_str(), "Service" | "Endpoints" | "Event" | "Lease"))
}

/// Readies a new object: the user's status goes where it is a subresource, generation starts at 1 where there is one.
pub fn prepare_for_create(kind: &Kind, new: &mut Value) {
    prepare_for_books(kind, new);
    if let Some(metadata) = new.get_mut("metadata")
        && has_generation(kind)
        && metadata.is_object()
    {
        metadata["generation"] = 1.into();
    }
    match kind.kind.as_str() {
        _ if kind.custom => {
            if kind.status {
                remove(new, "status");
            }
            return;
        }
        "Pod" => new_pod(new),
        "Namespace" => new_namespace(new),
        "Service" => {
            remove(new, "status");
            no_traffic_policy(new);
        }
        // A node may come with its status.
        "Node" => {}
        "CustomResourceDefinition" => {
            let stored = new.pointer("/status/storedVersions").cloned();
            put(new, "status", json!({ "storedVersions": stored }));
        }
        "DaemonSet" => {
            remove(new, "status");
        }
        _ if kind.status => remove(new, "status"),
        _ => {}
    }
    canonical(&kind.schema, new);
}

/// Readies the books of a new object: what is taken out of every new object is nobody's, and what Kubernetes keeps in
/// an annotation belongs to who made the object.
pub fn prepare_for_books(kind: &Kind, new: &mut Value) {
    if let Some(metadata) = new.get_mut("metadata") {
        for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            remove(metadata, key);
        }
    }
    if kind.kind == "DaemonSet" && !kind.custom {
        template_generation(new, 1);
    }
}

/// The annotation that stands for a field inside of Kubernetes: a DaemonSet without it has the field at zero.
pub fn restore_generation(kind: &Kind, new: &mut Value) {
    let pointer = format!("/metadata/annotations/{TEMPLATE_GENERATION}");
    if kind.kind == "DaemonSet" && !kind.custom && new.pointer(&pointer).is_none() {
        template_generation(new, 0);
    }
}

/// What whoever writes an object is told besides.
pub fn warnings(kind: &Kind, new: &Value) -> Option<String> {
    if kind.custom || kind.kind != "Secret" || text(new, "/type") != "kubernetes.io/tls" {
        return None;
    }
    let holds_pem = |name: &str| {
        let encoded = new.get("data").and_then(|data| data.get(name)).and_then(Value::as_str).unwrap_or_default();
        STANDARD.decode(encoded).is_ok_and(|bytes| bytes.windows(11).any(|window| window == b"-----BEGIN "))
    };
    let names = [("tls.crt", "certificate"), ("tls.key", "key")];
    let (_, missing) = names.into_iter().find(|(name, _)| !holds_pem(name))?;
    Some(format!("tls: failed to find any PEM data in {missing} input"))
}

/// Readies an update: what the request may not write is taken from `old`; generation grows when it should.
pub fn prepare_for_update(kind: &Kind, new: &mut Value, old: &Value, part: Part) {
    let Some(before) = old.get("metadata") else { return };
    if let Some(metadata) = new.get_mut("metadata").filter(|metadata| metadata.is_object()) {
        restore(metadata, before, "generation");
        restore(metadata, before, "creationTimestamp");
        if let Some(uid) = before.get("uid") {
            fill(metadata, "uid", uid.clone());
        }
        if before.get("deletionTimestamp").is_some() {
            restore(metadata, before, "deletionTimestamp");
        }
        if let Some(grace) = before.get("deletionGracePeriodSeconds") {
            fill(metadata, "deletionGracePeriodSeconds", grace.clone());
        }
    }
    match part {
        Part::Status => only_status(kind, new, old),
        Part::Main => {
            if kind.status {
                restore(new, old, "status");
            }
            main_part(kind, new, old);
        }
    }
    if !kind.custom {
        canonical(&kind.schema, new);
    }
    if part == Part::Main && has_generation(kind) && outgrew(kind, new, old) {
        let generation = number(old, "/metadata/generation") + 1;
        if let Some(metadata) = new.get_mut("metadata") {
            put(metadata, "generation", generation);
        }
    }
}

/// What the admission plugins of the real server, on by default, add to a pod or refuse in it.
pub fn admit_pod(new: &mut Value, old: Option<&Value>) -> Result<(), Failure> {
    if object(new, "spec").is_none() {
        return Ok(());
    }
    tolerate_briefly(new);
    if let Some(old) = old {
        for key in ["priority", "preemptionPolicy"] {
            if let Some(value) = old.pointer(&format!("/spec/{key}")) {
                fill(&mut new["spec"], key, value.clone());
            }
        }
        return Ok(());
    }
    let about = About { group: "", resource: "pods", name: text(new, "/metadata/name") };
    let class = text(new, "/spec/priorityClassName");
    let priority = match class {
        "" => 0,
        "system-node-critical" => 2_000_001_000,
        "system-cluster-critical" => 2_000_000_000,
        unknown => {
            return Err(Failure::forbidden(about, &format!("no PriorityClass with name {unknown} was found")));
        }
    };
    let given = new.pointer("/spec/priority").and_then(Value::as_i64);
    if let Some(given) = given.filter(|given| *given != priority) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
        );
        return Err(Failure::forbidden(about, &why));
    }
    fill(&mut new["spec"], "priority", priority);
    fill(&mut new["spec"], "preemptionPolicy", "PreemptLowerPriority");
    Ok(())
}

/// Kinds that count the versions of their spec.
fn has_generation(kind: &Kind) -> bool {
    kind.custom
        || matches!(
            kind.group.as_str(),
            "apps" | "admissionregistration.k8s.io" | "apiextensions.k8s.io" | "discovery.k8s.io" | "policy"
        )
        || (kind.kind == "Pod" && kind.group.is_empty())
}

fn outgrew(kind: &Kind, new: &Value, old: &Value) -> bool {
    let differs = |pointer: &str| new.pointer(pointer) != old.pointer(pointer);
    match kind.kind.as_str() {
        _ if kind.custom => {
            let body = |object: &Value| -> Map<String, Value> {
                let mut body = object.as_object().cloned().unwrap_or_default();
                body.retain(|key, _| key != "metadata" && !(kind.status && key == "status"));
                body
            };
            body(new) != body(old)
        }
        "EndpointSlice" => ["/addressType", "/endpoints", "/ports", "/metadata/labels"].into_iter().any(differs),
        "Deployment" => differs("/spec") || differs("/metadata/annotations"),
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => differs("/webhooks"),
        _ => differs("/spec"),
    }
}

fn main_part(kind: &Kind, new: &mut Value, old: &Value) {
    if kind.custom {
        return;
    }
    match kind.kind.as_str() {
        "Service" => {
            cluster_ip::drop_useless(new, old);
            no_traffic_policy(new);
        }
        "Namespace" => restore(new, old, "spec"),
        "DaemonSet" => {
            let changed = new.pointer("/spec/template") != old.pointer("/spec/template");
            template_generation(new, generation_of(old) + i64::from(changed));
        }
        _ => {}
    }
}

/// A status update writes metadata and status; some kinds protect more.
fn only_status(kind: &Kind, new: &mut Value, old: &Value) {
    let Some(map) = new.as_object_mut() else { return };
    map.retain(|key, _| matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
    for (key, value) in old.as_object().into_iter().flatten() {
        if !matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "status") {
            map.insert(key.clone(), value.clone());
        }
    }
    if kind.custom {
        // Of metadata only the books are taken.
        let books = new.pointer("/metadata/managedFields").cloned();
        restore(new, old, "metadata");
        if let (Some(books), Some(metadata)) = (books, new.get_mut("metadata")) {
            put(metadata, "managedFields", books);
        }
        return;
    }
    let kept: &[&str] = match kind.kind.as_str() {
        "DaemonSet" => {
            template_generation(new, generation_of(old));
            return;
        }
        "Deployment" => &["labels"],
        "Pod" => &["ownerReferences"],
        _ => return,
    };
    if let (Some(metadata), Some(before)) = (new.get_mut("metadata"), old.get("metadata")) {
        for key in kept {
            restore(metadata, before, key);
        }
    }
    if kind.kind == "Pod"
        && let Some(status) = new.get_mut("status")
        && let Some(class) = old.pointer("/status/qosClass")
    {
        put(status, "qosClass", class.clone());
    }
}

fn new_pod(new: &mut Value) {
    let mut status = json!({ "phase": "Pending", "qosClass": qos_class(new) });
    if !list(new, "/spec/schedulingGates").is_empty() {
        status["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastTransitionTime": new.pointer("/metadata/creationTimestamp"),
        }]);
    }
    put(new, "status", status);
}

fn new_namespace(new: &mut Value) {
    put(new, "status", json!({ "phase": "Active" }));
    if let Some(spec) = object(new, "spec") {
        let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
        if let Some(finalizers) = finalizers.as_array_mut()
            && !finalizers.iter().any(|finalizer| finalizer == "kubernetes")
        {
            finalizers.push("kubernetes".into());
        }
    }
}

/// A name outside has no traffic inside.
fn no_traffic_policy(service: &mut Value) {
    if text(service, "/spec/type") == "ExternalName"
        && let Some(spec) = service.get_mut("spec")
    {
        remove(spec, "internalTrafficPolicy");
    }
}

fn generation_of(old: &Value) -> i64 {
    let at = old.pointer("/metadata/annotations").and_then(|all| all.get(TEMPLATE_GENERATION));
    at.and_then(Value::as_str).and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn template_generation(new: &mut Value, generation: i64) {
    if let Some(metadata) = new.get_mut("metadata")
        && let Some(annotations) = object(metadata, "annotations")
    {
        annotations.insert(TEMPLATE_GENERATION.to_owned(), generation.to_string().into());
    }
}

/// Pods leave a node that is not ready or not reachable after five minutes, unless they say otherwise.
fn tolerate_briefly(new: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = list(new, "/spec/tolerations").iter().any(|each| {
            (text(each, "/key") == key || text(each, "/key").is_empty())
                && matches!(text(each, "/effect"), "NoExecute" | "")
        });
        if !tolerated && let Some(spec) = object(new, "spec") {
            let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
            if let Some(tolerations) = tolerations.as_array_mut() {
                tolerations
                    .push(json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }));
            }
        }
    }
}

/// `Guaranteed`, `Burstable` or `BestEffort`, from what containers request and are limited to.
fn qos_class(pod: &Value) -> &'static str {
    let amount = |container: &Value, list: &str, name: &str| {
        let amount = container.pointer(&format!("/resources/{list}/{name}")).and_then(Quantity::read);
        amount.filter(|amount| !amount.is_zero())
    };
    let mut containers = list(pod, "/spec/containers").iter().chain(list(pod, "/spec/initContainers")).peekable();
    if containers.peek().is_none() {
        return "BestEffort";
    }
    let (mut none, mut all) = (true, true);
    for container in containers {
        for name in ["cpu", "memory"] {
            let (request, limit) = (amount(container, "requests", name), amount(container, "limits", name));
            none &= request.is_none() && limit.is_none();
            all &= limit.is_some() && request.is_none_or(|request| Some(request) == limit);
        }
    }
    match (none, all) {
        (true, _) => "BestEffort",
        (_, true) => "Guaranteed",
        _ => "Burstable",
    }
}
