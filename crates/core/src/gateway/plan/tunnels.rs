//! Tunnels: one for each client's node that has an endpoint of a load balancer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::super::keys::KeySpace;
use super::super::problem::Problem;
use super::super::quarantine::Space;
use super::super::reserve::{Child, Holder, Reservations, reserve};
use super::super::types::{NodeConfig, ObjectName, Tunnel, World};
use super::accounts;
use super::endpoints::Judged;
use super::services::{Service, Services};

pub(super) struct Tunnels {
    pub(super) reservations: Reservations,
    pub(super) live: BTreeSet<u32>,
    by_load_balancer: BTreeMap<ObjectName, OfLoadBalancer>,
    none: OfLoadBalancer,
}

pub(super) struct OfLoadBalancer {
    /// The tunnels as its status should have them.
    pub(super) wanted: BTreeMap<IpAddr, Tunnel>,
    /// Why it is not known that they are up.
    pub(super) problem: Problem,
}

impl Tunnels {
    pub(super) fn of(&self, load_balancer: &ObjectName) -> &OfLoadBalancer {
        self.by_load_balancer.get(load_balancer).unwrap_or(&self.none)
    }
}

pub(super) fn tunnels(world: &World, services: &Services<'_>, judged: &Judged<'_>) -> Tunnels {
    let parent = world.egw.as_ref().map(|egw| egw.tunnels.clone()).unwrap_or_default();
    let offered = world.node_config.as_ref().and_then(|NodeConfig { endpoint, .. }| endpoint.as_ref());
    let wanted: Vec<BTreeSet<IpAddr>> = services.all.iter().map(|service| nodes(service, judged)).collect();
    let mut children = Vec::new();
    let mut live = BTreeSet::new();
    for (service, nodes) in services.all.iter().zip(&wanted) {
        let object: Arc<str> = service.name.to_string().into();
        let holder = |node: IpAddr| Holder {
            uid: Arc::clone(&service.object.identity.uid),
            object: Arc::clone(&object),
            node: Some(node),
        };
        for (node, tunnel) in service.object.tunnels.iter().filter(|(_, tunnel)| tunnel.id != 0) {
            live.insert(tunnel.id);
            children.push(Child { holder: holder(*node), number: Some(tunnel.id) });
        }
        let has = |node: &IpAddr| service.object.tunnels.get(node).is_some_and(|tunnel| tunnel.id != 0);
        for node in nodes.iter().filter(|node| !has(node) && offered.is_some()) {
            children.push(Child { holder: holder(*node), number: None });
        }
    }
    let space = KeySpace::tunnel_ids(parent.counter);
    let space = world.quarantine.apply(&Space::Tunnels, world.now, world.settings.key_quarantine, space);
    let reservations = reserve(&parent, &children, space);
    let mut by_load_balancer = BTreeMap::new();
    for (service, nodes) in services.all.iter().zip(wanted) {
        let of_load_balancer = one(world, service, &nodes, &reservations);
        by_load_balancer.insert(service.name.clone(), of_load_balancer);
    }
    let none = OfLoadBalancer { wanted: BTreeMap::new(), problem: Problem::DriverDirect };
    Tunnels { reservations, live, by_load_balancer, none }
}

/// The nodes that need a tunnel. One that is being deleted keeps what it has until its Envoy has let go of it.
fn nodes(service: &Service<'_>, judged: &Judged<'_>) -> BTreeSet<IpAddr> {
    if service.object.identity.is_terminating() && !service.is_released {
        return service.object.tunnels.keys().copied().collect();
    }
    if !service.is_served() {
        return BTreeSet::new();
    }
    let endpoints = judged.get(service.name).into_iter().flat_map(BTreeMap::values);
    endpoints.filter_map(|judgement| judgement.used.as_ref().ok()).map(|used| used.spec.node).collect()
}

fn one(world: &World, service: &Service<'_>, nodes: &BTreeSet<IpAddr>, reservations: &Reservations) -> OfLoadBalancer {
    let offered = world.node_config.as_ref().and_then(|NodeConfig { endpoint, .. }| endpoint.as_ref());
    let mut problem = if offered.is_some() { Problem::DriverDirect } else { Problem::NoTunnelAddress };
    let mut wanted = BTreeMap::new();
    for node in nodes {
        let has = service.object.tunnels.get(node).filter(|tunnel| tunnel.id != 0);
        let holder = service.object.holder(service.name, Some(*node));
        if let (Some(older), Some(tunnel)) = (reservations.duplicates.get(&holder), has) {
            problem = Problem::DuplicateKey { number: tunnel.id, other: Arc::clone(&older.object) };
            continue;
        }
        if reservations.exhausted.contains(&holder) {
            problem = accounts::exhausted(world, &Space::Tunnels, "tunnel ids", u32::MAX);
        }
        let id = has.map(|tunnel| tunnel.id).or_else(|| reservations.granted.get(&holder).copied());
        let endpoint = offered.or_else(|| has.map(|tunnel| &tunnel.endpoint));
        if let (Some(id), Some(endpoint)) = (id, endpoint) {
            wanted.insert(*node, Tunnel { endpoint: Arc::clone(endpoint), id });
        }
    }
    OfLoadBalancer { wanted, problem }
}
