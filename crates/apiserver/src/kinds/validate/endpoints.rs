//! Endpoints and EndpointSlices.

use serde_json::Value;

use super::super::json::{list, number, text};
use super::{Faults, names, network, quoted};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

pub(super) fn endpoints(new: &Value, old: Option<&Value>, faults: &mut Faults) {
    // What older servers let pass stays as it is.
    if old.is_some_and(|old| old.get("subsets") == new.get("subsets")) {
        return;
    }
    for (at, subset) in list(new, "/subsets").iter().enumerate() {
        let path = format!("subsets[{at}]");
        let (ready, not_ready) = (list(subset, "/addresses"), list(subset, "/notReadyAddresses"));
        if ready.is_empty() && not_ready.is_empty() {
            faults.required(&path, "must specify `addresses` or `notReadyAddresses`");
        }
        for (key, addresses) in [("addresses", ready), ("notReadyAddresses", not_ready)] {
            for (at, address) in addresses.iter().enumerate() {
                endpoint_address(&format!("{path}.{key}[{at}]"), address, faults);
            }
        }
        let ports = list(subset, "/ports");
        for (at, port) in ports.iter().enumerate() {
            endpoint_port(&format!("{path}.ports[{at}]"), port, ports.len() > 1, faults);
        }
    }
}

pub(super) fn endpoint_slice(new: &Value, old: Option<&Value>, faults: &mut Faults) {
    let kind = text(new, "/addressType");
    faults.one_of("addressType", kind, &["FQDN", "IPv4", "IPv6"]);
    slice_ports(list(new, "/ports"), faults);
    if old.is_none_or(|old| old.get("endpoints") != new.get("endpoints")) {
        let endpoints = list(new, "/endpoints");
        if endpoints.len() > 1000 {
            faults.too_many("endpoints", endpoints.len(), 1000);
        } else {
            for (at, endpoint) in endpoints.iter().enumerate() {
                slice_endpoint(&format!("endpoints[{at}]"), kind, endpoint, faults);
            }
        }
    }
    if let Some(old) = old {
        faults.immutable("addressType", new.get("addressType"), old.get("addressType"));
    }
}

fn endpoint_address(path: &str, address: &Value, faults: &mut Faults) {
    let ip = text(address, "/ip");
    network::ip(&format!("{path}.ip"), ip, faults);
    if let Some(hostname) = address.get("hostname").and_then(Value::as_str) {
        faults.invalid_text(&format!("{path}.hostname"), hostname, names::dns_label(hostname));
    }
    if let Some(node) = address.get("nodeName").and_then(Value::as_str) {
        faults.invalid_text(&format!("{path}.nodeName"), node, names::dns_subdomain(node));
    }
    network::endpoint_ip(&format!("{path}.ip"), ip, faults);
}

fn endpoint_port(path: &str, port: &Value, needs_name: bool, faults: &mut Faults) {
    let name = text(port, "/name");
    if !name.is_empty() {
        faults.invalid_text(&format!("{path}.name"), name, names::dns_label(name));
    } else if needs_name {
        faults.required(&format!("{path}.name"), "");
    }
    faults.port(&format!("{path}.port"), number(port, "/port"));
    faults.one_of(&format!("{path}.protocol"), text(port, "/protocol"), &PROTOCOLS);
    app_protocol(path, port, faults);
}

fn slice_ports(ports: &[Value], faults: &mut Faults) {
    if ports.len() > 20000 {
        faults.too_many("ports", ports.len(), 20000);
        return;
    }
    for (at, port) in ports.iter().enumerate() {
        let path = format!("ports[{at}]");
        let name = text(port, "/name");
        if !name.is_empty() {
            faults.invalid_text(&format!("{path}.name"), name, names::dns_label(name));
        }
        if ports[..at].iter().any(|other| text(other, "/name") == name) {
            faults.duplicate(&format!("{path}.name"), &quoted(name));
        }
        faults.one_of(&format!("{path}.protocol"), text(port, "/protocol"), &PROTOCOLS);
        app_protocol(&path, port, faults);
    }
}

fn app_protocol(path: &str, port: &Value, faults: &mut Faults) {
    if let Some(protocol) = port.get("appProtocol").and_then(Value::as_str) {
        faults.invalid_text(&format!("{path}.appProtocol"), protocol, names::qualified(protocol));
    }
}

fn slice_endpoint(path: &str, kind: &str, endpoint: &Value, faults: &mut Faults) {
    let addresses = list(endpoint, "/addresses");
    let all = format!("{path}.addresses");
    if addresses.is_empty() {
        faults.required(&all, "must contain at least 1 address");
    } else if addresses.len() > 100 {
        faults.too_many(&all, addresses.len(), 100);
    }
    for (at, address) in addresses.iter().enumerate() {
        slice_address(&all, &format!("{all}[{at}]"), kind, address.as_str().unwrap_or_default(), faults);
    }
    if let Some(node) = endpoint.get("nodeName").and_then(Value::as_str) {
        faults.invalid_text(&format!("{path}.nodeName"), node, names::dns_subdomain(node));
    }
    if let Some(hostname) = endpoint.get("hostname").and_then(Value::as_str) {
        faults.invalid_text(&format!("{path}.hostname"), hostname, names::dns_label(hostname));
    }
    let zones = list(endpoint, "/hints/forZones");
    for (at, zone) in zones.iter().enumerate() {
        let path = format!("{path}.hints.forZones[{at}].name");
        let name = text(zone, "/name");
        if zones[..at].iter().any(|other| text(other, "/name") == name) {
            faults.duplicate(&path, &quoted(name));
        }
        faults.invalid_text(&path, name, names::label_value(name));
    }
}

fn slice_address(all: &str, path: &str, kind: &str, address: &str, faults: &mut Faults) {
    match kind {
        "IPv4" if network::ip(path, address, faults) => {
            if address.contains(':') {
                faults.invalid(all, &quoted(address), "must be an IPv4 address");
            }
            network::endpoint_ip(path, address, faults);
        }
        "IPv6" if network::canonical_ip(path, address, faults) => {
            if !address.contains(':') {
                faults.invalid(all, &quoted(address), "must be an IPv6 address");
            }
            network::endpoint_ip(path, address, faults);
        }
        "FQDN" => {
            let name = address.strip_suffix('.').unwrap_or(address);
            let wrong = names::dns_subdomain(name);
            if address.is_empty() {
                faults.required(path, "");
            } else if !wrong.is_empty() {
                faults.invalid_text(path, address, wrong);
            } else if !name.contains('.') {
                let message = "should be a domain with at least two segments separated by dots";
                faults.invalid(path, &quoted(address), message);
            }
        }
        _ => {}
    }
}
