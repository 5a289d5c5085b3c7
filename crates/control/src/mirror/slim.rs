//! EndpointSlices as the mirror reads and writes them: there are many, and with many endpoints each.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::{Endpoint as WireEndpoint, EndpointConditions as WireConditions};
use k8s_openapi::api::discovery::v1::{EndpointPort as WirePort, EndpointSlice};
use kube::api::ObjectMeta;
use portolan_core::mirror::{Endpoint, EndpointConditions, EndpointPort, NodeName, Protocol, SliceContent};
use portolan_core::net::Family;
use serde::{Deserialize, Serialize};

/// An EndpointSlice.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "EndpointSlice", into = "EndpointSlice")]
pub struct Slice {
    pub(super) metadata: ObjectMeta,
    /// None: its endpoints have names instead of addresses.
    pub(super) content: Option<Arc<SliceContent>>,
    /// The node of each endpoint.
    pub(super) nodes: Vec<Option<NodeName>>,
}

portolan_api::resource!(
    Slice,
    "discovery.k8s.io",
    "v1",
    "EndpointSlice",
    "endpointslices",
    k8s_openapi::NamespaceResourceScope
);

impl From<EndpointSlice> for Slice {
    fn from(slice: EndpointSlice) -> Self {
        let family = match slice.address_type.as_str() {
            "IPv4" => Some(Family::V4),
            "IPv6" => Some(Family::V6),
            _ => None,
        };
        let mut nodes = Vec::new();
        let content = family.map(|family| {
            let mut endpoints = Vec::new();
            for endpoint in slice.endpoints.iter().flatten() {
                // Only the first address counts to Kubernetes; with more, the slice is not what we wrote.
                if let [address] = endpoint.addresses.as_slice()
                    && let Ok(address) = address.parse::<IpAddr>()
                    && Family::of(address) == family
                {
                    endpoints.push(read(endpoint, address));
                    nodes.push(endpoint.node_name.as_deref().map(NodeName::from));
                }
            }
            let ports = slice.ports.iter().flatten().filter_map(port).collect();
            Arc::new(SliceContent { family, ports, endpoints })
        });
        Self { metadata: slice.metadata, content, nodes }
    }
}

fn read(endpoint: &WireEndpoint, address: IpAddr) -> Endpoint {
    let conditions = endpoint.conditions.clone().unwrap_or_default();
    let ready = conditions.ready.unwrap_or(true);
    Endpoint {
        address,
        conditions: EndpointConditions {
            ready,
            serving: conditions.serving.unwrap_or(ready),
            terminating: conditions.terminating.unwrap_or(false),
        },
        zone: endpoint.zone.as_deref().map(Arc::from),
        hostname: endpoint.hostname.as_deref().map(Arc::from),
    }
}

fn port(port: &WirePort) -> Option<EndpointPort> {
    Some(EndpointPort {
        name: port.name.as_deref().unwrap_or_default().into(),
        protocol: protocol(port.protocol.as_deref()),
        app_protocol: port.app_protocol.as_deref().map(Arc::from),
        port: u16::try_from(port.port?).ok().filter(|port| *port != 0)?,
    })
}

/// The transport of a port; TCP if nothing is said.
pub(super) fn protocol(name: Option<&str>) -> Protocol {
    match name {
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        _ => Protocol::Tcp,
    }
}

impl From<Slice> for EndpointSlice {
    fn from(slice: Slice) -> Self {
        let Slice { metadata, content, nodes } = slice;
        let (family, ports, endpoints) = match content.as_deref() {
            Some(SliceContent { family, ports, endpoints }) => (Some(*family), &ports[..], &endpoints[..]),
            None => (None, &[][..], &[][..]),
        };
        let address_type = match family {
            Some(Family::V4) => "IPv4",
            Some(Family::V6) => "IPv6",
            None => "FQDN",
        };
        let nodes = nodes.into_iter().chain(std::iter::repeat(None));
        Self {
            metadata,
            address_type: address_type.to_owned(),
            endpoints: Some(
                endpoints.iter().zip(nodes).map(|(endpoint, node)| written(endpoint, node.as_deref())).collect(),
            ),
            ports: Some(ports.iter().map(written_port).collect()),
        }
    }
}

fn written(endpoint: &Endpoint, node: Option<&str>) -> WireEndpoint {
    let EndpointConditions { ready, serving, terminating } = endpoint.conditions;
    let conditions = WireConditions { ready: Some(ready), serving: Some(serving), terminating: Some(terminating) };
    WireEndpoint {
        addresses: vec![endpoint.address.to_string()],
        conditions: Some(conditions),
        zone: endpoint.zone.as_deref().map(str::to_owned),
        hostname: endpoint.hostname.as_deref().map(str::to_owned),
        node_name: node.map(str::to_owned),
        ..WireEndpoint::default()
    }
}

fn written_port(port: &EndpointPort) -> WirePort {
    WirePort {
        name: Some(port.name.to_string()),
        protocol: Some(port.protocol.as_str().to_owned()),
        app_protocol: port.app_protocol.as_deref().map(str::to_owned),
        port: Some(i32::from(port.port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn addresses() -> impl Strategy<Value = Vec<String>> {
        let address = prop_oneof![
            any::<IpAddr>().prop_map(|address| address.to_string()),
            prop::sample::select(vec!["", "10.0.0.1/8", "::ffff:10.0.0.1", "010.0.0.1", "a.example", "fe80::1%eth0"])
                .prop_map(str::to_owned),
        ];
        prop::collection::vec(address, 0..3)
    }

    /// What a remote's API server might send; one that is hostile validates nothing.
    fn wire_slice() -> impl Strategy<Value = Value> {
        let endpoint = (addresses(), any::<Option<bool>>(), any::<Option<bool>>(), any::<Option<String>>()).prop_map(
            |(addresses, ready, serving, node)| {
                json!({
                    "addresses": addresses, "conditions": { "ready": ready, "serving": serving }, "nodeName": node,
                })
            },
        );
        let port = (any::<Option<i32>>(), -1..=65536_i32, any::<bool>(), prop::sample::select(vec!["TCP", "UDP", "tcp"]))
            .prop_map(|(any_port, near, is_near, protocol)| {
                json!({ "port": if is_near { Some(near) } else { any_port }, "protocol": protocol })
            });
        let family = prop::sample::select(vec!["IPv4", "IPv6", "FQDN", ""]);
        (family, prop::collection::vec(endpoint, 0..4), prop::collection::vec(port, 0..4)).prop_map(
            |(family, endpoints, ports)| {
                json!({ "metadata": { "name": "s" }, "addressType": family, "endpoints": endpoints, "ports": ports })
            },
        )
    }

    proptest! {
        #[test]
        fn whatever_a_remote_sends_only_addresses_of_the_family_and_real_ports_are_read(wire in wire_slice()) {
            let slice: Slice = serde_json::from_value(wire.clone()).unwrap();
            let Some(content) = &slice.content else {
                prop_assert!(!["IPv4", "IPv6"].contains(&wire["addressType"].as_str().unwrap()));
                return Ok(());
            };
            prop_assert_eq!(content.endpoints.len(), slice.nodes.len(), "each endpoint has its own node");
            prop_assert!(content.endpoints.iter().all(|endpoint| Family::of(endpoint.address) == content.family));
            prop_assert!(content.ports.iter().all(|port| port.port != 0));
            let written = serde_json::to_value(slice.clone()).unwrap();
            let again: Slice = serde_json::from_value(written).unwrap();
            prop_assert_eq!(&again.content, &slice.content, "what is read is what would be written");
        }
    }

    #[test]
    fn a_slice_is_written_as_it_was_read() {
        let wire = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": { "name": "web-1", "namespace": "shop" },
            "addressType": "IPv6",
            "ports": [{ "name": "", "protocol": "UDP", "port": 30053 }],
            "endpoints": [{
                "addresses": ["2001:db8::1"],
                "conditions": { "ready": false, "serving": true, "terminating": true },
                "zone": "a",
                "nodeName": "n1",
            }],
        });
        let slice: Slice = serde_json::from_value(wire.clone()).unwrap();
        assert_eq!(serde_json::to_value(slice).unwrap(), wire);
    }

    #[test]
    fn what_is_not_said_means_ready_and_names_are_no_addresses() {
        let wire = json!({
            "addressType": "IPv4",
            "metadata": {},
            "endpoints": [{ "addresses": ["10.0.0.1"] }, { "addresses": ["10.0.0.2", "10.0.0.3"] }],
        });
        let content = serde_json::from_value::<Slice>(wire).unwrap().content.unwrap();
        assert_eq!((content.endpoints.len(), content.endpoints[0].conditions), (1, EndpointConditions::READY));
        let wire = json!({ "addressType": "FQDN", "metadata": {}, "endpoints": [{ "addresses": ["a.example"] }] });
        assert!(serde_json::from_value::<Slice>(wire).unwrap().content.is_none());
    }
}
