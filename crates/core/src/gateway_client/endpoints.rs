//! Slices and nodes -> the endpoints that a load balancer should have.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::problem::Unhonoured;
use super::types::{Endpoint, NodeEndpoints, Port, Protocol, ServiceName, Slice, SlicePort, World};

/// Endpoints of a Service, by node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gathered {
    /// Those that the gateway should have.
    pub nodes: NodeEndpoints,
    /// What could not be had.
    pub problems: Vec<Unhonoured>,
}

/// The endpoints of a Service that serve. An address is on one node and feeds one port only, as at the gateway.
pub fn gather(world: &World, name: &ServiceName, ports: &[Port]) -> Gathered {
    let mut gathered = Gathered::default();
    let Some(slices) = world.slices.get(name) else { return gathered };
    let mut taken: BTreeSet<(IpAddr, u16, Protocol)> = BTreeSet::new();
    let mut unplaced: BTreeSet<IpAddr> = BTreeSet::new();
    let mut shared: BTreeMap<Arc<str>, Unhonoured> = BTreeMap::new();
    for slice in slices.values() {
        let feeding = feeding(slice, ports, &mut shared);
        for endpoint in slice.endpoints.iter().filter(|endpoint| endpoint.serves) {
            // all addresses of an endpoint reach the same pod
            let Some(address) = endpoint.addresses.first().copied() else { continue };
            let node = endpoint.node.as_ref().and_then(|node| node_address(world.nodes.get(node)?, address));
            let Some(node) = node else {
                unplaced.insert(address);
                continue;
            };
            for port in &feeding {
                let endpoint = Endpoint { address, port: port.port, protocol: port.protocol, name: port.name.clone() };
                if taken.insert(endpoint.identity()) {
                    gathered.nodes.entry(node).or_default().insert(endpoint);
                }
            }
        }
    }
    gathered.problems.extend(shared.into_values());
    if !unplaced.is_empty() {
        gathered.problems.push(Unhonoured::EndpointsWithoutNode(unplaced.len()));
    }
    gathered
}

/// The ports of a slice that feed a port of the Service, in the order of the Service's.
fn feeding<'a>(slice: &'a Slice, ports: &[Port], shared: &mut BTreeMap<Arc<str>, Unhonoured>) -> Vec<&'a SlicePort> {
    let mut feeding: Vec<&SlicePort> = Vec::new();
    for port in ports {
        let of_slice = slice.ports.iter().find(|one| one.name == port.name && one.protocol == port.protocol);
        let Some(found) = of_slice else { continue };
        if feeding.iter().any(|one| (one.port, one.protocol) == (found.port, found.protocol)) {
            let problem =
                Unhonoured::PortsShareTarget { port: port.name.clone(), number: found.port, protocol: found.protocol };
            shared.insert(port.name.clone(), problem);
        } else {
            feeding.push(found);
        }
    }
    feeding
}

/// The node's address of the endpoint's family, else its first.
fn node_address(addresses: &[IpAddr], endpoint: IpAddr) -> Option<IpAddr> {
    let of_family = addresses.iter().find(|address| address.is_ipv4() == endpoint.is_ipv4());
    of_family.or_else(|| addresses.first()).copied()
}
