//! Bodies of the REST API.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_core::gateway_client::{Endpoint, LbName, NodeEndpoints, Port, Protocol, Remote, Seen, TargetPort};
use serde_json::{Map, Value, json};

use super::error::GatewayError;

/// A load balancer of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// What was said about it.
    pub seen: Seen,
}

/// A load balancer to create, or to change.
pub(super) fn service(name: &LbName, ports: &[Port], address: Option<IpAddr>) -> Value {
    let ports: Vec<Value> = ports.iter().map(port).collect();
    let mut spec = json!({ "public-ports": ports });
    if let Some(address) = address {
        spec["public-address"] = address.to_string().into();
    }
    json!({ "service": { "metadata": { "name": name.as_str() }, "spec": spec } })
}

/// Endpoints of a node.
pub(super) fn node_endpoints(node: IpAddr, endpoints: &BTreeSet<Endpoint>) -> Value {
    let of = |one: &Endpoint| {
        let mut port = numbered(&one.name, one.port, one.protocol);
        port.remove("targetPort");
        json!({ "spec": { "address": one.address.to_string(), "node-address": node.to_string(), "port": port } })
    };
    json!({ "endpoints": endpoints.iter().map(of).collect::<Vec<_>>() })
}

fn port(port: &Port) -> Value {
    let mut body = numbered(&port.name, port.port, port.protocol);
    match &port.target {
        TargetPort::Same => {}
        TargetPort::Number(number) => drop(body.insert("targetPort".to_owned(), (*number).into())),
        TargetPort::Name(name) => drop(body.insert("targetPort".to_owned(), (**name).into())),
    }
    Value::Object(body)
}

fn numbered(name: &str, port: u16, protocol: Protocol) -> Map<String, Value> {
    let mut body = Map::new();
    if !name.is_empty() {
        body.insert("name".to_owned(), name.into());
    }
    body.insert("port".to_owned(), port.into());
    body.insert("protocol".to_owned(), protocol.as_str().into());
    body
}

/// Whether a body holds a load balancer.
pub(super) fn is_service(body: &Value) -> bool {
    view(body, "service")["spec"].is_object()
}

/// The resource version of a load balancer, as an entity tag.
pub(super) fn version(body: &Value) -> Option<String> {
    view(body, "service")["metadata"]["resourceVersion"].as_str().map(|version| format!("\"{version}\""))
}

/// What a body says about a load balancer.
pub(super) fn seen(body: &Value) -> Result<Seen, GatewayError> {
    let view = view(body, "service");
    if !view["spec"].is_object() {
        return Err(GatewayError::InvalidResponse("a service without `spec`".to_owned()));
    }
    if view["metadata"]["deletionTimestamp"].is_string() {
        return Ok(Seen::Leaving);
    }
    let text = |value: &Value| Arc::<str>::from(value.as_str().unwrap_or_default());
    let spec = &view["spec"];
    let ports = spec["public-ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(Seen::Present(Remote {
        id: text(&view["metadata"]["uid"]),
        group: text(&spec["service-group"]),
        address: spec["public-address"].as_str().and_then(|address| address.parse().ok()),
        ports: ports.iter().filter_map(read_port).collect(),
        endpoints: None,
    }))
}

/// A load balancer of a list.
pub(super) fn listed(item: &Value) -> Result<Listed, GatewayError> {
    let name = view(item, "service")["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Ok(Listed { name, seen: seen(item)? })
}

/// Endpoints of a list, by node.
pub(super) fn endpoints(items: &[Value]) -> Result<NodeEndpoints, GatewayError> {
    let bad = || GatewayError::InvalidResponse("an endpoint without address, node-address or port".to_owned());
    let mut nodes = NodeEndpoints::new();
    for item in items {
        let view = view(item, "endpoint");
        if view["metadata"]["deletionTimestamp"].is_string() {
            continue;
        }
        let spec = &view["spec"];
        let address = |key: &str| spec[key].as_str().and_then(|address| address.parse::<IpAddr>().ok());
        let port = read_port(&spec["port"]).ok_or_else(bad)?;
        let endpoint = Endpoint {
            address: address("address").ok_or_else(bad)?,
            port: port.port,
            protocol: port.protocol,
            name: port.name,
        };
        nodes.entry(address("node-address").ok_or_else(bad)?).or_default().insert(endpoint);
    }
    Ok(nodes)
}

/// An object, on its own or within the body of a GET.
fn view<'a>(body: &'a Value, key: &str) -> &'a Value {
    body.get(key).filter(|view| view.is_object()).unwrap_or(body)
}

fn read_port(port: &Value) -> Option<Port> {
    let number = |value: &Value| value.as_u64().and_then(|number| u16::try_from(number).ok());
    let target = &port["targetPort"];
    let target = match target.as_str() {
        Some(name) => TargetPort::Name(name.into()),
        None => number(target).filter(|number| *number > 0).map_or(TargetPort::Same, TargetPort::Number),
    };
    Some(Port {
        name: port["name"].as_str().unwrap_or_default().into(),
        port: number(&port["port"])?,
        protocol: Protocol::parse(port["protocol"].as_str().filter(|text| !text.is_empty()))?,
        target,
    })
}
