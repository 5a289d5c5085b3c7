//! Cells of services, nodes and endpoints.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::json::{entries, list, number, text};
use super::{Cell, first_three, labels, or_none};

pub(super) fn cell(kind: &str, column: &str) -> Cell {
    match (kind, column) {
        ("Service", "Type") => |service, _| text(service, "/spec/type").into(),
        ("Service", "Cluster-IP") => |service, _| or_none(text(service, "/spec/clusterIPs/0")),
        ("Service", "External-IP") => |service, _| external_ip(service),
        ("Service", "Port(s)") => |service, _| ports(service),
        ("Service", "Selector") => |service, _| labels(service, "/spec/selector"),
        ("Node", "Status") => |node, _| node_status(node),
        ("Node", "Roles") => |node, _| roles(node),
        ("Node", "Version") => |node, _| text(node, "/status/nodeInfo/kubeletVersion").into(),
        ("Node", "Internal-IP") => |node, _| node_address(node, "InternalIP"),
        ("Node", "External-IP") => |node, _| node_address(node, "ExternalIP"),
        ("Node", "OS-Image") => |node, _| or_unknown(text(node, "/status/nodeInfo/osImage")),
        ("Node", "Kernel-Version") => |node, _| kernel(node),
        ("Node", "Container-Runtime") => |node, _| or_unknown(text(node, "/status/nodeInfo/containerRuntimeVersion")),
        ("Endpoints", "Endpoints") => |endpoints, _| endpoint_addresses(endpoints),
        ("EndpointSlice", "AddressType") => |slice, _| text(slice, "/addressType").into(),
        ("EndpointSlice", "Ports") => |slice, _| slice_ports(slice),
        ("EndpointSlice", "Endpoints") => |slice, _| slice_addresses(slice),
        _ => |_, _| json!(""),
    }
}

fn or_unknown(text: &str) -> Value {
    if text.is_empty() { "<unknown>".into() } else { text.into() }
}

fn kernel(node: &Value) -> Value {
    let (version, architecture) =
        (text(node, "/status/nodeInfo/kernelVersion"), text(node, "/status/nodeInfo/architecture"));
    match (version, architecture) {
        ("", _) => "<unknown>".into(),
        (version, "") => version.into(),
        (version, architecture) => format!("{version} ({architecture})").into(),
    }
}

fn external_ip(service: &Value) -> Value {
    let mut addresses: Vec<&str> = Vec::new();
    match text(service, "/spec/type") {
        "ExternalName" => return text(service, "/spec/externalName").into(),
        "LoadBalancer" => {
            let ingress = list(service, "/status/loadBalancer/ingress").iter();
            let ingress = ingress.map(|each| [text(each, "/ip"), text(each, "/hostname")]);
            let ingress = ingress.filter_map(|each| each.into_iter().find(|address| !address.is_empty()));
            addresses.extend(ingress.collect::<BTreeSet<_>>());
        }
        _ => {}
    }
    addresses.extend(list(service, "/spec/externalIPs").iter().filter_map(Value::as_str));
    match (addresses.is_empty(), text(service, "/spec/type")) {
        (true, "LoadBalancer") => "<pending>".into(),
        (true, _) => "<none>".into(),
        (false, _) => addresses.join(",").into(),
    }
}

fn ports(service: &Value) -> Value {
    let ports = list(service, "/spec/ports").iter().map(|port| {
        let (number_, protocol) = (number(port, "/port"), text(port, "/protocol"));
        match number(port, "/nodePort") {
            0 => format!("{number_}/{protocol}"),
            node => format!("{number_}:{node}/{protocol}"),
        }
    });
    or_none(&ports.collect::<Vec<_>>().join(","))
}

fn node_status(node: &Value) -> Value {
    let ready = list(node, "/status/conditions").iter().find(|each| text(each, "/type") == "Ready");
    let mut status = match ready.map(|each| text(each, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if node.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    status.into()
}

fn roles(node: &Value) -> Value {
    let roles: BTreeSet<&str> = entries(node, "/metadata/labels")
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    or_none(&roles.into_iter().collect::<Vec<_>>().join(","))
}

fn node_address(node: &Value, kind: &str) -> Value {
    let address = list(node, "/status/addresses").iter().find(|each| text(each, "/type") == kind);
    or_none(address.map_or("", |each| text(each, "/address")))
}

fn endpoint_addresses(endpoints: &Value) -> Value {
    let mut all: Vec<String> = Vec::new();
    for subset in list(endpoints, "/subsets") {
        let addresses = list(subset, "/addresses").iter().map(|each| text(each, "/ip"));
        let ports = list(subset, "/ports");
        if ports.is_empty() {
            all.extend(addresses.map(str::to_owned));
            continue;
        }
        for port in ports {
            all.extend(addresses.clone().map(|ip| {
                let port = number(port, "/port");
                if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
            }));
        }
    }
    first_three(&all, "<none>")
}

fn slice_ports(slice: &Value) -> Value {
    let ports = list(slice, "/ports").iter().map(|port| match number(port, "/port") {
        0 if text(port, "/name").is_empty() => "*".to_owned(),
        0 => text(port, "/name").to_owned(),
        number => number.to_string(),
    });
    first_three(&ports.collect::<Vec<_>>(), "<unset>")
}

fn slice_addresses(slice: &Value) -> Value {
    let addresses = list(slice, "/endpoints").iter().flat_map(|endpoint| list(endpoint, "/addresses"));
    let addresses: Vec<String> = addresses.filter_map(Value::as_str).map(str::to_owned).collect();
    first_three(&addresses, "<unset>")
}
