//! Defaults of a Service that need no allocation.

use serde_json::{Value, json};

use super::{fill, has, items, list, object, put, remove, text};

pub(super) fn service(new: &mut Value) {
    if object(new, "spec").is_none() {
        return;
    }
    let spec = &mut new["spec"];
    fill(spec, "sessionAffinity", "None");
    match text(spec, "/sessionAffinity") {
        "None" => remove(spec, "sessionAffinityConfig"),
        "ClientIP" if !has(spec, "/sessionAffinityConfig/clientIP/timeoutSeconds") => {
            // Three hours.
            spec["sessionAffinityConfig"] = json!({ "clientIP": { "timeoutSeconds": 10800 } });
        }
        _ => {}
    }
    fill(spec, "type", "ClusterIP");
    for port in items(spec, "ports") {
        fill(port, "protocol", "TCP");
        let number = port.get("port").cloned().unwrap_or_default();
        if port.get("targetPort").is_none_or(|target| *target == 0 || *target == "" || target.is_null()) {
            put(port, "targetPort", number);
        }
    }
    let kind = text(spec, "/type").to_owned();
    if externally_accessible(spec) {
        fill(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        fill(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        fill(spec, "allocateLoadBalancerNodePorts", true);
        if let Some(balancer) = new.pointer_mut("/status/loadBalancer") {
            for ingress in items(balancer, "ingress") {
                if !text(ingress, "/ip").is_empty() {
                    fill(ingress, "ipMode", "VIP");
                }
            }
        }
    }
}

/// Reachable from outside the cluster: by node port, load balancer or external address.
pub(in super::super) fn externally_accessible(spec: &Value) -> bool {
    match text(spec, "/type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !list(spec, "/externalIPs").is_empty(),
        _ => false,
    }
}
