//! Services.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::super::defaults::externally_accessible;
use super::super::json::{items, list, number, put, remove, text};
use super::{Faults, metadata, names, network, quoted};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

pub(super) fn service(new: &Value, old: Option<&Value>, faults: &mut Faults) {
    if let Some(old) = old {
        changes(new, old, faults);
    }
    let kind = text(new, "/spec/type");
    let ports = list(new, "/spec/ports");
    let headless = is_headless(new);
    if ports.is_empty() && !headless && kind != "ExternalName" {
        faults.required("spec.ports", "");
    }
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            let message = format!("may not be set to 'None' for {kind} services");
            faults.invalid("spec.clusterIPs[0]", "\"None\"", &message);
        }
        "ExternalName" => external_name(new, faults),
        _ => {}
    }
    for (at, port) in ports.iter().enumerate() {
        service_port(&format!("spec.ports[{at}]"), port, &ports[..at], ports.len() > 1, faults);
    }
    metadata::labels(new, "/spec/selector", "spec.selector", faults);
    session_affinity(new, faults);
    cluster_ips(new, old, faults);
    let before = old.map_or(&[][..], |old| list(old, "/spec/externalIPs"));
    for (at, address) in list(new, "/spec/externalIPs").iter().enumerate() {
        let (path, text) = (format!("spec.externalIPs[{at}]"), address.as_str().unwrap_or_default());
        if before.contains(address) || network::ip(&path, text, faults) {
            network::endpoint_ip(&path, text, faults);
        }
    }
    faults.one_of("spec.type", kind, &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    duplicate_ports(kind, ports, faults);
    load_balancer(new, kind, faults);
    traffic(new, kind, faults);
}

/// The status of a load balancer.
pub(super) fn status(new: &Value, faults: &mut Faults) {
    let ingress = list(new, "/status/loadBalancer/ingress");
    if text(new, "/spec/type") != "LoadBalancer" && !ingress.is_empty() {
        faults.forbidden("status.loadBalancer.ingress", "may only be used when `spec.type` is 'LoadBalancer'");
        return;
    }
    for (at, ingress) in ingress.iter().enumerate() {
        let path = format!("status.loadBalancer.ingress[{at}]");
        let (ip, hostname, mode) = (text(ingress, "/ip"), text(ingress, "/hostname"), text(ingress, "/ipMode"));
        if !ip.is_empty() {
            network::ip(&format!("{path}.ip"), ip, faults);
        }
        if !ip.is_empty() && mode.is_empty() {
            faults.required(&format!("{path}.ipMode"), "must be specified when `ip` is set");
        } else if ip.is_empty() && !mode.is_empty() {
            faults.forbidden(&format!("{path}.ipMode"), "may not be specified when `ip` is not set");
        } else if !mode.is_empty() && !["Proxy", "VIP"].contains(&mode) {
            faults.not_supported(&format!("{path}.ipMode"), &quoted(mode), &["Proxy", "VIP"]);
        }
        if !hostname.is_empty() {
            faults.invalid_text(&format!("{path}.hostname"), hostname, names::dns_subdomain(hostname));
            if hostname.parse::<IpAddr>().is_ok() {
                faults.invalid(&format!("{path}.hostname"), &quoted(hostname), "must be a DNS name, not an IP address");
            }
        }
    }
}

/// What the client left out of an update but was assigned before.
pub(in super::super) fn keep_assigned(new: &mut Value, old: &Value) {
    let needs_ip = |service: &Value| text(service, "/spec/type") != "ExternalName";
    if needs_ip(old) && needs_ip(new) {
        for key in ["clusterIP", "clusterIPs"] {
            if new["spec"].get(key).is_none_or(Value::is_null)
                && let Some(kept) = old.pointer(&format!("/spec/{key}"))
            {
                new["spec"][key] = kept.clone();
            }
        }
    }
    let has_ports = |service: &Value| matches!(text(service, "/spec/type"), "NodePort" | "LoadBalancer");
    if has_ports(old) && has_ports(new) {
        let nodes = |service: &Value| -> Vec<i64> {
            list(service, "/spec/ports")
                .iter()
                .map(|port| number(port, "/nodePort"))
                .filter(|port| *port != 0)
                .collect()
        };
        let (before, mine) = (nodes(old), nodes(new));
        for port in items(&mut new["spec"], "ports") {
            let same = list(old, "/spec/ports").iter().rfind(|other| text(other, "/name") == text(port, "/name"));
            let node = same.map_or(0, |other| number(other, "/nodePort"));
            if number(port, "/nodePort") == 0 && node != 0 && !(before.contains(&node) && mine.contains(&node)) {
                put(port, "nodePort", node);
            }
        }
    }
    if needs_health_check(old) && needs_health_check(new) && number(new, "/spec/healthCheckNodePort") == 0 {
        new["spec"]["healthCheckNodePort"] = old["spec"]["healthCheckNodePort"].clone();
    }
}

/// `clusterIP` and `clusterIPs` say the same, whichever of the two the client knows.
pub(in super::super) fn sync_cluster_ips(new: &mut Value, old: Option<&Value>) {
    let first = text(new, "/spec/clusterIP").to_owned();
    let all = list(new, "/spec/clusterIPs").to_vec();
    let Some(old) = old else {
        if !first.is_empty() && all.is_empty() {
            new["spec"]["clusterIPs"] = json!([first]);
        }
        return;
    };
    let (before, before_all) = (text(old, "/spec/clusterIP"), list(old, "/spec/clusterIPs"));
    if before != first && before_all == all {
        if first.is_empty() {
            remove(&mut new["spec"], "clusterIPs");
        } else {
            new["spec"]["clusterIPs"] = json!([first]);
        }
    }
}

/// Rules that bind cluster addresses and families to one another.
pub(in super::super) fn cluster_ips(new: &Value, old: Option<&Value>, faults: &mut Faults) {
    if text(new, "/spec/type") == "ExternalName" {
        return;
    }
    let first = text(new, "/spec/clusterIP");
    let all = list(new, "/spec/clusterIPs");
    let shown = Value::from(all).to_string();
    if first.is_empty() {
        if !all.is_empty() {
            faults.invalid("spec.clusterIPs", &shown, "must be empty when `clusterIP` is not specified");
        }
    } else if all.is_empty() {
        faults.required("spec.clusterIPs", "");
    } else if all[0] != first {
        faults.invalid("spec.clusterIPs", &shown, "first value must match `clusterIP`");
    }
    let families = list(new, "/spec/ipFamilies");
    for (at, family) in families.iter().enumerate() {
        let (path, name) = (format!("spec.ipFamilies[{at}]"), family.as_str().unwrap_or_default());
        if !["IPv4", "IPv6"].contains(&name) {
            faults.not_supported(&path, &quoted(name), &["IPv4", "IPv6"]);
        }
        if families[..at].contains(family) {
            faults.duplicate(&path, &quoted(name));
        }
    }
    let policy = text(new, "/spec/ipFamilyPolicy");
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    if !policy.is_empty() && !policies.contains(&policy) {
        faults.not_supported("spec.ipFamilyPolicy", &quoted(policy), &policies);
    }
    let before = old.map_or(&[][..], |old| list(old, "/spec/clusterIPs"));
    let mut sound = true;
    for (at, address) in all.iter().enumerate() {
        let text = address.as_str().unwrap_or_default();
        if at == 0 && text == "None" {
            if all.len() > 1 {
                sound = false;
                faults.invalid("spec.clusterIPs", &shown, "'None' must be the first and only value");
            }
        } else if !before.contains(address) {
            sound &= network::ip(&format!("spec.clusterIPs[{at}]"), text, faults);
        }
    }
    if all.len() > 2 {
        faults.invalid("spec.clusterIPs", &shown, "may only hold up to 2 values");
    }
    if !sound {
        return;
    }
    let is_v6 = |address: &Value| address.as_str().is_some_and(|address| address.contains(':'));
    let one_family = all.iter().all(is_v6) || !all.iter().any(is_v6);
    if all.len() > 1 && one_family {
        faults.invalid("spec.clusterIPs", &shown, "may specify no more than one IP for each IP family");
    }
    if !is_headless(new) {
        for (at, (address, family)) in all.iter().zip(families).enumerate() {
            let wanted = family.as_str().unwrap_or_default();
            if (wanted == "IPv6") != is_v6(address) {
                let message = format!("expected an {wanted} value as indicated by `ipFamilies[{at}]`");
                faults.invalid(&format!("spec.clusterIPs[{at}]"), &address.to_string(), &message);
            }
        }
    }
}

fn is_headless(service: &Value) -> bool {
    list(service, "/spec/clusterIPs") == [Value::from("None")]
}

fn needs_health_check(service: &Value) -> bool {
    text(service, "/spec/type") == "LoadBalancer" && text(service, "/spec/externalTrafficPolicy") == "Local"
}

fn changes(new: &Value, old: &Value, faults: &mut Faults) {
    let external = |service: &Value| text(service, "/spec/type") == "ExternalName";
    let both_headless = is_headless(new) && is_headless(old);
    if !external(new) && !external(old) && !both_headless {
        cluster_ip_changes(new, old, faults);
        let (before, after) = (list(old, "/spec/ipFamilies"), list(new, "/spec/ipFamilies"));
        let first_differs = !before.is_empty() && !after.is_empty() && before[0] != after[0];
        if is_headless(new) == is_headless(old) && first_differs {
            let shown = if before.len() == after.len() { after } else { list(new, "/spec/clusterIPs") };
            faults.invalid("spec.ipFamilies[0]", &Value::from(shown).to_string(), "may not change once set");
        }
    }
    let balanced = |service: &Value| text(service, "/spec/type") == "LoadBalancer";
    let class = |service: &Value| service.pointer("/spec/loadBalancerClass").cloned();
    if balanced(new) && balanced(old) && class(new) != class(old) {
        let shown = class(new).unwrap_or_default().to_string();
        faults.invalid("spec.loadBalancerClass", &shown, "may not change once set");
    }
    let port = |service: &Value| number(service, "/spec/healthCheckNodePort");
    if needs_health_check(new) && needs_health_check(old) && port(new) != port(old) {
        faults.forbidden("spec.healthCheckNodePort", "field is immutable");
    }
}

fn cluster_ip_changes(new: &Value, old: &Value, faults: &mut Faults) {
    let (before, after) = (list(old, "/spec/clusterIPs"), list(new, "/spec/clusterIPs"));
    let shown = Value::from(after).to_string();
    if after.is_empty() && !before.is_empty() {
        faults.invalid("spec.clusterIPs[0]", &shown, "primary clusterIP can not be unset");
    }
    let compared = if before.len() == after.len() { before.len() } else { 1 };
    for (at, (before, after)) in before.iter().zip(after).enumerate().take(compared) {
        if before != after {
            faults.invalid(&format!("spec.clusterIPs[{at}]"), &shown, "may not change once set");
        }
    }
    if before.len() > after.len() && after.len() == 1 && text(new, "/spec/ipFamilyPolicy") != "SingleStack" {
        let policy = new.pointer("/spec/ipFamilyPolicy").unwrap_or(&Value::Null).to_string();
        let message = "must be set to 'SingleStack' when releasing the secondary clusterIP";
        faults.invalid("spec.ipFamilyPolicy", &policy, message);
    }
}

fn external_name(new: &Value, faults: &mut Faults) {
    for key in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if new["spec"].get(key).is_some() {
            faults.forbidden(&format!("spec.{key}"), "may not be set for ExternalName services");
        }
    }
    let name = text(new, "/spec/externalName");
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() {
        faults.required("spec.externalName", "");
    } else {
        faults.invalid_text("spec.externalName", name, names::dns_subdomain(name));
    }
}

fn service_port(path: &str, port: &Value, earlier: &[Value], needs_name: bool, faults: &mut Faults) {
    let name = text(port, "/name");
    let field = format!("{path}.name");
    if !name.is_empty() {
        faults.invalid_text(&field, name, names::dns_label(name));
        if earlier.iter().any(|other| text(other, "/name") == name) {
            faults.duplicate(&field, &quoted(name));
        }
    } else if needs_name {
        faults.required(&field, "");
    }
    faults.port(&format!("{path}.port"), number(port, "/port"));
    faults.one_of(&format!("{path}.protocol"), text(port, "/protocol"), &PROTOCOLS);
    faults.port_or_name(&format!("{path}.targetPort"), &port["targetPort"]);
    if let Some(protocol) = port.get("appProtocol").and_then(Value::as_str) {
        faults.invalid_text(&format!("{path}.appProtocol"), protocol, names::qualified(protocol));
    }
}

fn session_affinity(new: &Value, faults: &mut Faults) {
    let affinity = text(new, "/spec/sessionAffinity");
    faults.one_of("spec.sessionAffinity", affinity, &["ClientIP", "None"]);
    if affinity == "ClientIP" {
        let path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
        let seconds = number(new, "/spec/sessionAffinityConfig/clientIP/timeoutSeconds");
        if !(1..=86400).contains(&seconds) {
            faults.invalid(path, &seconds.to_string(), "must be greater than 0 and less than 86400");
        }
    }
}

fn duplicate_ports(kind: &str, ports: &[Value], faults: &mut Faults) {
    let same = |a: &Value, b: &Value, key: &str| {
        number(a, key) == number(b, key) && text(a, "/protocol") == text(b, "/protocol")
    };
    if kind == "ClusterIP" {
        for (at, _) in ports.iter().enumerate().filter(|(_, port)| number(port, "/nodePort") != 0) {
            faults.forbidden(&format!("spec.ports[{at}].nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
    }
    for (at, port) in ports.iter().enumerate() {
        let node = number(port, "/nodePort");
        if node != 0 && ports[..at].iter().any(|other| same(other, port, "/nodePort")) {
            faults.duplicate(&format!("spec.ports[{at}].nodePort"), &node.to_string());
        }
    }
    for (at, port) in ports.iter().enumerate() {
        if ports[..at].iter().any(|other| same(other, port, "/port")) {
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                quoted(text(port, "/protocol")),
                number(port, "/port")
            );
            faults.duplicate(&format!("spec.ports[{at}]"), &shown);
        }
    }
}

fn load_balancer(new: &Value, kind: &str, faults: &mut Faults) {
    let only = "may only be used when `type` is 'LoadBalancer'";
    let ranges = list(new, "/spec/loadBalancerSourceRanges");
    if !ranges.is_empty() && kind != "LoadBalancer" {
        faults.forbidden("spec.LoadBalancerSourceRanges", only);
    }
    for (at, range) in ranges.iter().enumerate() {
        let range = range.as_str().unwrap_or_default().trim();
        network::cidr(&format!("spec.LoadBalancerSourceRanges[{at}]"), range, faults);
    }
    if kind != "LoadBalancer" {
        for key in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if new["spec"].get(key).is_some() {
                faults.forbidden(&format!("spec.{key}"), only);
            }
        }
    } else if let Some(class) = new.pointer("/spec/loadBalancerClass").and_then(Value::as_str) {
        faults.invalid_text("spec.loadBalancerClass", class, names::qualified(class));
    }
}

fn traffic(new: &Value, kind: &str, faults: &mut Faults) {
    let policies = ["Cluster", "Local"];
    let external = text(new, "/spec/externalTrafficPolicy");
    if externally_accessible(&new["spec"]) {
        faults.one_of("spec.externalTrafficPolicy", external, &policies);
    } else if !external.is_empty() {
        let message = "may only be set for externally-accessible services";
        faults.invalid("spec.externalTrafficPolicy", &quoted(external), message);
    }
    let port = number(new, "/spec/healthCheckNodePort");
    if !needs_health_check(new) && port != 0 {
        let message = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        faults.invalid("spec.healthCheckNodePort", &port.to_string(), message);
    }
    let internal = text(new, "/spec/internalTrafficPolicy");
    if matches!(kind, "NodePort" | "LoadBalancer" | "ClusterIP") || !internal.is_empty() {
        faults.one_of("spec.internalTrafficPolicy", internal, &policies);
    }
    if let Some(spread) = new.pointer("/spec/trafficDistribution").and_then(Value::as_str) {
        let known = ["PreferClose", "PreferSameZone", "PreferSameNode"];
        if !known.contains(&spread) {
            faults.not_supported("spec.trafficDistribution", &quoted(spread), &known);
        }
    }
}
