//! Rules of built-in kinds in which one field says something about another.

use serde_json::Value;

use super::super::Kind;
use super::super::json::{entries, items, list, restore, text};
use super::{Faults, metadata};

/// Of a ConfigMap or a Secret: all values together.
const DATA_BYTES: usize = 1024 * 1024;

pub(super) fn body(kind: &Kind, new: &Value, old: Option<&Value>, faults: &mut Faults) {
    match kind.kind.as_str() {
        "Pod" => old.into_iter().for_each(|old| pod_update(&new["spec"], &old["spec"], faults)),
        "Service" => service(new, faults),
        "ConfigMap" | "Secret" => data(kind, new, old, faults),
        "Deployment" | "ReplicaSet" | "DaemonSet" => selector(new, faults),
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => webhooks(new, faults),
        _ => {}
    }
}

/// Of the spec of a pod only images, the deadline and tolerations can change.
fn pod_update(new: &Value, old: &Value, faults: &mut Faults) {
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
        faults.forbidden("spec", "only images, activeDeadlineSeconds, tolerations and schedulingGates can change");
    }
}

fn service(new: &Value, faults: &mut Faults) {
    let (kind, ports) = (text(new, "/spec/type"), list(new, "/spec/ports"));
    let headless = text(new, "/spec/clusterIP") == "None";
    if ports.is_empty() && !headless && kind != "ExternalName" {
        faults.required("spec.ports", "a Service with an address has ports");
    }
    if kind == "ExternalName" && text(new, "/spec/externalName").is_empty() {
        faults.required("spec.externalName", "must not be empty");
    }
    metadata::labels(new, "/spec/selector", "spec.selector", faults);
    for (at, port) in ports.iter().enumerate() {
        let (path, earlier) = (format!("spec.ports[{at}]"), &ports[..at]);
        let same = |keys: &[&str]| earlier.iter().any(|other| keys.iter().all(|key| other[key] == port[key]));
        if ports.len() > 1 && text(port, "/name").is_empty() {
            faults.required(&format!("{path}.name"), "one port of several has a name");
        } else if same(&["name"]) {
            faults.duplicate(&format!("{path}.name"), &port["name"]);
        }
        if same(&["port", "protocol"]) {
            faults.duplicate(&path, port);
        }
    }
}

fn data(kind: &Kind, new: &Value, old: Option<&Value>, faults: &mut Faults) {
    let mut size = 0;
    for part in ["data", "binaryData"] {
        for (key, value) in entries(new, &format!("/{part}")) {
            faults.form(&format!("{part}[{key}]"), key, "config key");
            let letters = value.as_str().map_or(0, str::len);
            // Four letters of base64 are three bytes.
            size += if kind.kind == "ConfigMap" && part == "data" { letters } else { letters / 4 * 3 };
        }
    }
    if size > DATA_BYTES {
        faults.too_long(if kind.kind == "ConfigMap" { "[]" } else { "data" }, DATA_BYTES);
    }
    for key in ["tls.crt", "tls.key"] {
        if text(new, "/type") == "kubernetes.io/tls" && new["data"].get(key).is_none() {
            faults.required(&format!("data[{key}]"), "a TLS secret has a certificate and a key");
        }
    }
    let Some(old) = old.filter(|old| old["immutable"] == true) else { return };
    for key in ["immutable", "data", "binaryData"] {
        if new.get(key) != old.get(key) {
            faults.forbidden(key, "field is immutable when `immutable` is set");
        }
    }
}

/// A selector picks the pods of its own template.
fn selector(new: &Value, faults: &mut Faults) {
    let labels = &new["spec"]["template"]["metadata"]["labels"];
    let misses = entries(new, "/spec/selector/matchLabels").any(|(key, value)| labels.get(key) != Some(value));
    if misses || new["spec"]["selector"].is_null() {
        faults.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`");
    }
}

fn webhooks(new: &Value, faults: &mut Faults) {
    let hooks = list(new, "/webhooks");
    for (at, hook) in hooks.iter().enumerate() {
        let path = format!("webhooks[{at}]");
        let (name, config) = (&hook["name"], &hook["clientConfig"]);
        if hooks[..at].iter().any(|other| other["name"] == *name) {
            faults.duplicate(&format!("{path}.name"), name);
        } else if name.as_str().is_some_and(|name| !name.is_empty() && name.split('.').count() < 3) {
            faults.invalid(&format!("{path}.name"), name, "must be a domain of at least three segments");
        }
        if !list(hook, "/matchConditions").is_empty() {
            faults.forbidden(&format!("{path}.matchConditions"), "this API server does not evaluate them");
        }
        if config["url"].is_null() == config["service"].is_null() {
            faults.required(&format!("{path}.clientConfig"), "exactly one of url or service is required");
        }
    }
}
