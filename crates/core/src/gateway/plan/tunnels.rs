//! Tunnels: one for each client's node that has an endpoint of a load balancer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::super::keys::KeySpace;
use super::super::problem::Problem;
use super::super::quarantine::Space;
use super::super::reserve::{Child, Holder, Reservations, reserve};
use super::super::types::{NodeConfig, Tunnel, World};
use super::accounts;
use super::endpoints::Judged;
use super::services::{Service, Services};

pub(super) struct Tunnels {
    pub(super) reservations: Reservations,
    pub(super) live: BTreeSet<u32>,
    /// By position of the service.
    pub(super) by_service: Vec<OfLoadBalancer>,
}

pub(super) struct OfLoadBalancer {
    /// The tunnels as its status should have them.
    pub(super) wanted: BTreeMap<IpAddr, Tunnel>,
    /// Why it is not known that they are up.
    pub(super) problem: Problem,
}

pub(super) fn tunnels(world: &World, services: &Services<'_>, judged: &Judged<'_>) -> Tunnels {
    let parent = world.egw.as_ref().map(|egw| egw.tunnels.clone()).unwrap_or_default();
    let offered = world.node_config.as_ref().and_then(|NodeConfig { endpoint, .. }| endpoint.as_ref());
    let all = services.all.iter().enumerate();
    let wanted: Vec<Vec<IpAddr>> = all.map(|(position, service)| nodes(position, service, judged)).collect();
    let mut children = Vec::new();
    for (service, nodes) in services.all.iter().zip(&wanted) {
        for (node, tunnel) in service.object.tunnels.iter().filter(|(_, tunnel)| tunnel.id != 0) {
            children.push(Child { holder: holder(service, *node), number: Some(tunnel.id) });
        }
        let has = |node: &IpAddr| service.object.tunnels.get(node).is_some_and(|tunnel| tunnel.id != 0);
        for node in nodes.iter().filter(|node| offered.is_some() && !has(node)) {
            children.push(Child { holder: holder(service, *node), number: None });
        }
    }
    let live = children.iter().filter_map(|child| child.number).collect();
    let space = KeySpace::tunnel_ids(parent.counter);
    let space = world.quarantine.apply(&Space::Tunnels, world.now, world.settings.key_quarantine, space);
    let reservations = reserve(&parent, &children, space);
    let each = services.all.iter().zip(wanted);
    let by_service = each.map(|(service, nodes)| one(world, service, &nodes, &reservations)).collect();
    Tunnels { reservations, live, by_service }
}

fn holder(service: &Service<'_>, node: IpAddr) -> Holder {
    Holder { node: Some(node), ..service.holder.clone() }
}

/// The nodes that need a tunnel, each once. One that is being deleted keeps what it has until its Envoy has let go of it.
fn nodes(position: usize, service: &Service<'_>, judged: &Judged<'_>) -> Vec<IpAddr> {
    if service.object.identity.is_terminating() && !service.is_released {
        return service.object.tunnels.keys().copied().collect();
    }
    if !service.is_served() {
        return Vec::new();
    }
    let mut nodes: Vec<IpAddr> = judged.used(position).map(|used| used.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

fn one(world: &World, service: &Service<'_>, nodes: &[IpAddr], reservations: &Reservations) -> OfLoadBalancer {
    let offered = world.node_config.as_ref().and_then(|NodeConfig { endpoint, .. }| endpoint.as_ref());
    let mut problem = if offered.is_some() { Problem::DriverDirect } else { Problem::NoTunnelAddress };
    let mut wanted = BTreeMap::new();
    for node in nodes {
        let has = service.object.tunnels.get(node).filter(|tunnel| tunnel.id != 0);
        if let Some(tunnel) = has
            && !reservations.duplicates.is_empty()
            && let Some(older) = reservations.duplicates.get(&holder(service, *node))
        {
            problem = Problem::DuplicateKey { number: tunnel.id, other: Arc::clone(&older.object) };
            continue;
        }
        let mut id = has.map(|tunnel| tunnel.id);
        if id.is_none() {
            let holder = holder(service, *node);
            if reservations.exhausted.contains(&holder) {
                problem = accounts::exhausted(world, &Space::Tunnels, "tunnel ids", u32::MAX);
            }
            id = reservations.granted.get(&holder).copied();
        }
        let endpoint = offered.or_else(|| has.map(|tunnel| &tunnel.endpoint));
        if let (Some(id), Some(endpoint)) = (id, endpoint) {
            wanted.insert(*node, Tunnel { endpoint: Arc::clone(endpoint), id });
        }
    }
    OfLoadBalancer { wanted, problem }
}
