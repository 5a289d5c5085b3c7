//! Rules of built-in kinds that involve several fields.

use serde_json::Value;

use super::super::Kind;
use super::super::error_list::ErrorList;
use super::metadata;
use crate::json::{entries, items, list, restore, text};

/// Of a ConfigMap or a Secret: all values together.
const DATA_BYTES: usize = 1024 * 1024;

pub(super) fn body(kind: &Kind, new: &Value, old: Option<&Value>, errors: &mut ErrorList) {
    match kind.kind.as_str() {
        "Pod" => old.into_iter().for_each(|old| pod_update(&new["spec"], &old["spec"], errors)),
        "Service" => service(new, errors),
        "ConfigMap" | "Secret" => data(kind, new, old, errors),
        "Deployment" | "ReplicaSet" | "DaemonSet" => selector(new, errors),
        "StatefulSet" => {
            selector(new, errors);
            if let Some(old) = old {
                stateful_set_update(&new["spec"], &old["spec"], errors);
            }
        }
        "ReplicationController" => replication_controller(new, errors),
        "Job" => job(&new["spec"], old.map(|old| &old["spec"]), "spec", errors),
        "CronJob" => job(&new["spec"]["jobTemplate"]["spec"], None, "spec.jobTemplate.spec", errors),
        "PodDisruptionBudget" => disruption_budget(&new["spec"], errors),
        "Ingress" => ingress(&new["spec"], errors),
        "HorizontalPodAutoscaler" if new["spec"]["maxReplicas"] == 0 => {
            errors.required("spec.maxReplicas", "must be set and greater than 0");
        }
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => webhooks(new, errors),
        _ => {}
    }
}

/// Of the spec of a pod only images, the deadline and tolerations can change.
fn pod_update(new: &Value, old: &Value, errors: &mut ErrorList) {
    let mut kept = new.clone();
    for key in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        restore(&mut kept, old, key);
    }
    for key in ["containers", "initContainers"] {
        for (container, before) in items(&mut kept, key).zip(list(old, &format!("/{key}"))) {
            restore(container, before, "image");
        }
    }
    if kept != *old {
        errors.forbidden("spec", "only images, activeDeadlineSeconds, tolerations and schedulingGates can change");
    }
}

fn service(new: &Value, errors: &mut ErrorList) {
    let (kind, ports) = (text(new, "/spec/type"), list(new, "/spec/ports"));
    let headless = text(new, "/spec/clusterIP") == "None";
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.required("spec.ports", "a Service with an address has ports");
    }
    if kind == "ExternalName" && text(new, "/spec/externalName").is_empty() {
        errors.required("spec.externalName", "must not be empty");
    }
    metadata::labels(new, "/spec/selector", "spec.selector", errors);
    for (at, port) in ports.iter().enumerate() {
        let (path, earlier) = (format!("spec.ports[{at}]"), &ports[..at]);
        let same = |keys: &[&str]| earlier.iter().any(|other| keys.iter().all(|key| other[key] == port[key]));
        if ports.len() > 1 && text(port, "/name").is_empty() {
            errors.required(&format!("{path}.name"), "one port of several has a name");
        } else if same(&["name"]) {
            errors.duplicate(&format!("{path}.name"), &port["name"]);
        }
        if same(&["port", "protocol"]) {
            errors.duplicate(&path, port);
        }
    }
}

fn data(kind: &Kind, new: &Value, old: Option<&Value>, errors: &mut ErrorList) {
    let mut size = 0;
    for part in ["data", "binaryData"] {
        for (key, value) in entries(new, &format!("/{part}")) {
            errors.form(&format!("{part}[{key}]"), key, "config key");
            let letters = value.as_str().map_or(0, str::len);
            // Four letters of base64 are three bytes.
            size += if kind.kind == "ConfigMap" && part == "data" { letters } else { letters / 4 * 3 };
        }
    }
    if size > DATA_BYTES {
        errors.too_long(if kind.kind == "ConfigMap" { "[]" } else { "data" }, DATA_BYTES);
    }
    for key in ["tls.crt", "tls.key"] {
        if text(new, "/type") == "kubernetes.io/tls" && new["data"].get(key).is_none() {
            errors.required(&format!("data[{key}]"), "a TLS secret has a certificate and a key");
        }
    }
    let Some(old) = old.filter(|old| old["immutable"] == true) else { return };
    for key in ["immutable", "data", "binaryData"] {
        if new.get(key) != old.get(key) {
            errors.forbidden(key, "field is immutable when `immutable` is set");
        }
    }
}

/// A selector picks the pods of its own template.
fn selector(new: &Value, errors: &mut ErrorList) {
    let labels = &new["spec"]["template"]["metadata"]["labels"];
    let misses = entries(new, "/spec/selector/matchLabels").any(|(key, value)| labels.get(key) != Some(value));
    if misses || new["spec"]["selector"].is_null() {
        errors.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`");
    }
}

/// Of the spec of a StatefulSet these fields can change.
fn stateful_set_update(new: &Value, old: &Value, errors: &mut ErrorList) {
    let mut kept = new.clone();
    for key in [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ] {
        restore(&mut kept, old, key);
    }
    if kept != *old {
        errors.forbidden("spec", "only replicas, template, updateStrategy and how long to keep things can change");
    }
}

fn replication_controller(new: &Value, errors: &mut ErrorList) {
    let labels = &new["spec"]["template"]["metadata"]["labels"];
    if entries(new, "/spec/selector").next().is_none() {
        errors.required("spec.selector", "must not be empty");
    } else if entries(new, "/spec/selector").any(|(key, value)| labels.get(key) != Some(value)) {
        errors.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`");
    }
}

/// The pods of a Job end, so they are not restarted for ever; and its template does not change.
fn job(new: &Value, old: Option<&Value>, path: &str, errors: &mut ErrorList) {
    if new["template"]["spec"]["restartPolicy"] == "Always" {
        errors.required(&format!("{path}.template.spec.restartPolicy"), "valid values: OnFailure, Never");
    }
    if old.is_some_and(|old| old["template"] != new["template"]) {
        errors.invalid(&format!("{path}.template"), &new["template"], "field is immutable");
    }
}

fn disruption_budget(spec: &Value, errors: &mut ErrorList) {
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        errors.invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set");
    }
}

fn ingress(spec: &Value, errors: &mut ErrorList) {
    if list(spec, "/rules").is_empty() && spec["defaultBackend"].is_null() {
        errors.invalid("spec", spec, "either `defaultBackend` or `rules` must be specified");
    }
}

fn webhooks(new: &Value, errors: &mut ErrorList) {
    let hooks = list(new, "/webhooks");
    for (at, hook) in hooks.iter().enumerate() {
        let path = format!("webhooks[{at}]");
        let (name, config) = (&hook["name"], &hook["clientConfig"]);
        if hooks[..at].iter().any(|other| other["name"] == *name) {
            errors.duplicate(&format!("{path}.name"), name);
        } else if name.as_str().is_some_and(|name| !name.is_empty() && name.split('.').count() < 3) {
            errors.invalid(&format!("{path}.name"), name, "must be a domain of at least three segments");
        }
        if !list(hook, "/matchConditions").is_empty() {
            errors.forbidden(&format!("{path}.matchConditions"), "this API server does not evaluate them");
        }
        if config["url"].is_null() == config["service"].is_null() {
            errors.required(&format!("{path}.clientConfig"), "exactly one of url or service is required");
        }
    }
}
