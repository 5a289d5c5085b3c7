//! Defaults of pods and pod templates.

use serde_json::{Value, json};

use super::super::quantity::Quantity;
use super::{fill, in_step, items, number, object, put, remove, text};

/// Octal 0644, in decimal as JSON has it.
const FILE_MODE: i64 = 420;

pub(super) fn pod(new: &mut Value) {
    if object(new, "spec").is_none() {
        return;
    }
    spec(&mut new["spec"]);
    let spec = &mut new["spec"];
    fill(spec, "enableServiceLinks", true);
    let host_network = spec["hostNetwork"] == true;
    for key in ["containers", "initContainers"] {
        for container in items(spec, key) {
            requests_from_limits(container);
            if host_network {
                for port in items(container, "ports") {
                    let inner = number(port, "/containerPort");
                    fill(port, "hostPort", inner);
                }
            }
        }
    }
    if let Some(status) = new.get_mut("status") {
        plural_ip(status, "podIP", "podIPs");
    }
}

/// What pods and templates share.
pub(super) fn spec(spec: &mut Value) {
    fill(spec, "dnsPolicy", "ClusterFirst");
    fill(spec, "restartPolicy", "Always");
    fill(spec, "securityContext", json!({}));
    fill(spec, "terminationGracePeriodSeconds", 30);
    fill(spec, "schedulerName", "default-scheduler");
    let names = [text(spec, "/serviceAccountName"), text(spec, "/serviceAccount")];
    let account = names.into_iter().find(|name| !name.is_empty()).map(str::to_owned);
    if let Some(account) = account {
        spec["serviceAccountName"] = account.as_str().into();
        spec["serviceAccount"] = account.into();
    }
    for key in ["containers", "initContainers", "ephemeralContainers"] {
        items(spec, key).for_each(container);
    }
    items(spec, "volumes").for_each(volume);
}

fn container(container: &mut Value) {
    let policy = if is_latest(text(container, "/image")) { "Always" } else { "IfNotPresent" };
    fill(container, "imagePullPolicy", policy);
    fill(container, "terminationMessagePath", "/dev/termination-log");
    fill(container, "terminationMessagePolicy", "File");
    items(container, "ports").for_each(|port| fill(port, "protocol", "TCP"));
    for variable in items(container, "env") {
        if let Some(field) = variable.pointer_mut("/valueFrom/fieldRef") {
            fill(field, "apiVersion", "v1");
        }
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(key) {
            self::probe(probe);
        }
    }
    for moment in ["postStart", "preStop"] {
        if let Some(get) = container.pointer_mut(&format!("/lifecycle/{moment}/httpGet")) {
            http_get(get);
        }
    }
    for key in ["limits", "requests"] {
        if let Some(resources) = container.pointer_mut(&format!("/resources/{key}")).and_then(Value::as_object_mut) {
            for amount in resources.values_mut() {
                if let Some(quantity) = Quantity::read(amount) {
                    *amount = quantity.rounded_to_milli().to_string().into();
                }
            }
        }
    }
}

fn probe(probe: &mut Value) {
    for (key, value) in [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        fill(probe, key, value);
    }
    if let Some(get) = probe.get_mut("httpGet") {
        http_get(get);
    }
    if let Some(grpc) = probe.get_mut("grpc") {
        fill(grpc, "service", "");
    }
}

fn http_get(get: &mut Value) {
    fill(get, "path", "/");
    fill(get, "scheme", "HTTP");
}

fn volume(volume: &mut Value) {
    if volume.as_object().is_some_and(|map| map.keys().all(|key| key == "name")) {
        volume["emptyDir"] = json!({});
    }
    for key in ["configMap", "secret", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(key) {
            fill(source, "defaultMode", FILE_MODE);
            items(source, "items").for_each(field_reference);
            for projection in items(source, "sources") {
                if let Some(token) = projection.get_mut("serviceAccountToken") {
                    fill(token, "expirationSeconds", 3600);
                }
                if let Some(downward) = projection.get_mut("downwardAPI") {
                    items(downward, "items").for_each(field_reference);
                }
            }
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        fill(path, "type", "");
    }
}

fn field_reference(item: &mut Value) {
    if let Some(field) = item.get_mut("fieldRef") {
        fill(field, "apiVersion", "v1");
    }
}

/// Only pods, not templates: what is limited but not requested is requested in full.
fn requests_from_limits(container: &mut Value) {
    let Some(limits) = container.pointer("/resources/limits").and_then(Value::as_object).cloned() else { return };
    let Some(resources) = container.get_mut("resources") else { return };
    if let Some(requests) = object(resources, "requests") {
        for (name, amount) in limits {
            requests.entry(name).or_insert(amount);
        }
    }
}

/// `podIP` and `podIPs`: each follows the other.
fn plural_ip(status: &mut Value, singular: &str, plural: &str) {
    let ips: Vec<Value> = items(status, plural).filter_map(|each| each.get("ip").cloned()).collect();
    let mut pair = json!({});
    if let Some(ip) = status.get(singular) {
        pair[singular] = ip.clone();
    }
    if !ips.is_empty() {
        pair[plural] = ips.into();
    }
    in_step(&mut pair, singular, plural);
    if let Some(ips) = pair.get(plural).and_then(Value::as_array) {
        put(status, singular, pair[singular].clone());
        put(status, plural, ips.iter().map(|ip| json!({ "ip": ip })).collect::<Vec<_>>());
    } else {
        remove(status, plural);
    }
}

/// Whether an image has the tag `latest`, by name or because it names neither tag nor digest.
fn is_latest(image: &str) -> bool {
    let (name, digest) = image.split_once('@').map_or((image, false), |(name, _)| (name, true));
    let last = name.rsplit('/').next().unwrap_or(name);
    match last.rsplit_once(':') {
        Some((_, tag)) => tag == "latest",
        None => !digest && !image.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_without_tag_or_digest_are_latest() {
        for (image, latest) in [
            ("nginx", true),
            ("nginx:latest", true),
            ("host:5000/nginx", true),
            ("nginx:1.2", false),
            ("nginx@sha256:abc", false),
            ("nginx:latest@sha256:abc", true),
        ] {
            assert_eq!(is_latest(image), latest, "{image}");
        }
    }
}
