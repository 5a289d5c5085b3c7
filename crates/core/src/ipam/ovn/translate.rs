//! What OVN-Kubernetes shows, in the terms of OpenShift SDN.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::super::cloud::InstanceState;
use super::super::error::CloudError;
use super::super::journal::{Claim, Journal, LastError, State};
use super::super::request::AddressList;
use super::super::types::{
    Assigned, HostSubnet, NamespaceName, NetNamespace, NodeName, PrivateIp, PrivateIpStatus, World,
};
use super::serve::{self, as_namespace};
use super::shown::{Ovn, waits};

/// Longer than any process runs, in milliseconds.
pub(super) const NEVER: u64 = u64::MAX / 2;
/// Failed attempts of an address that OVN-Kubernetes gave no node: enough to be reported.
const REPORTED: u32 = 3;

/// The journal with the nodes that OVN-Kubernetes chose, and the addresses whose claims differ in that.
pub(super) fn follow(world: &World, ovn: &Ovn, journal: &Journal) -> (Journal, BTreeSet<Ipv4Addr>) {
    let mut journal = journal.clone();
    let mut moved = BTreeSet::new();
    for (address, claim) in &mut journal.claims {
        if ovn.serves {
            as_namespace(*address, &mut claim.spec.owner);
        }
        let is_live = match claim.status.state {
            State::Assigning | State::Attached | State::Published | State::Moving => true,
            State::Reserved | State::Releasing | State::Blocked => false,
        };
        let chosen = ovn.chosen(*address, claim).filter(|node| is_live && can_have(world, node, claim));
        if let Some(node) = chosen {
            // where we make the calls, the cloud shows where it is
            let is_shown = !ovn.serves && matches!(claim.status.state, State::Attached | State::Published);
            if claim.spec.node != *node || is_shown && claim.status.node.as_ref() != Some(node) {
                claim.spec.node = node.clone();
                if !ovn.serves {
                    claim.status.node = Some(node.clone());
                }
                moved.insert(*address);
            }
        }
        if waits(ovn, *address, claim) && claim.status.since + world.options.node_grace <= world.now {
            let message = "OVN-Kubernetes has assigned it to no node: see `kubectl describe egressip`";
            let error = CloudError::Unknown { code: "NotAssigned".into(), message: message.into() };
            claim.status.last_error = Some(LastError { error, at: claim.status.since });
            claim.status.attempts = REPORTED;
        }
    }
    let is_served = |address: &Ipv4Addr| ovn.serves && ovn.private_ips.contains_key(address);
    let foreign = ovn.foreign.iter().filter(|address| !journal.claims.contains_key(*address) && !is_served(address));
    journal.other_use.extend(foreign);
    (journal, moved)
}

/// True if the cloud lets a node have the address. Otherwise the planner would choose another one again and again.
fn can_have(world: &World, node: &NodeName, claim: &Claim) -> bool {
    let instance = world.nodes.get(node).and_then(|node| node.instance.as_ref());
    let seen = instance.and_then(|instance| world.cloud.as_ref()?.nodes.get(instance)).map(|seen| &seen.what);
    seen.is_some_and(|seen| {
        seen.state == InstanceState::Running && seen.interface.is_some() && seen.subnet == claim.spec.subnet
    })
}

/// The world as OpenShift SDN would show it.
pub(super) fn as_sdn(world: &World, ovn: &Ovn, journal: &Journal) -> World {
    let mut sdn = world.clone();
    sdn.net_namespaces = net_namespaces(world, ovn, journal);
    sdn.host_subnets = host_subnets(world, ovn, journal);
    sdn.cloud_controller = (!ovn.serves).then(|| private_ips(world, ovn));
    if ovn.serves {
        sdn.publish_first = true;
        for (name, namespace, net_namespace) in serve::namespaces(ovn, journal) {
            sdn.namespaces.insert(name.clone(), namespace);
            sdn.net_namespaces.insert(name, net_namespace);
        }
    }
    // OVN-Kubernetes alone takes addresses off a node, be it not ready or none that we would choose.
    sdn.options.node_grace = NEVER;
    for claim in journal.claims.values().filter(|claim| claim.status.state != State::Reserved) {
        if let Some(node) = sdn.nodes.get_mut(&claim.spec.node).filter(|node| !node.compute || node.deleting) {
            (node.compute, node.deleting, node.not_ready_since) = (true, false, Some(world.now));
        }
    }
    sdn
}

fn net_namespaces(world: &World, ovn: &Ovn, journal: &Journal) -> BTreeMap<NamespaceName, NetNamespace> {
    let asking = world.namespaces.iter().filter(|(_, namespace)| namespace.opted_in).map(|(name, _)| name);
    let owners = journal.claims.values().map(|claim| &claim.spec.owner.name);
    let names: BTreeSet<&NamespaceName> = asking.chain(owners).chain(ovn.egress_ips.keys()).collect();
    let described = (1..).zip(names).map(|(netid, name)| {
        let found = ovn.egress_ips.get(name);
        let egress_ips = found.map(|found| found.addresses.clone()).unwrap_or_default();
        let is_listed = !egress_ips.is_empty() && found.is_some_and(|found| found.is_intact);
        let annotation = is_listed.then(|| AddressList::format(&egress_ips));
        (name.clone(), NetNamespace { netid, egress_ips, annotation })
    });
    described.collect()
}

fn host_subnets(world: &World, ovn: &Ovn, journal: &Journal) -> BTreeMap<NodeName, HostSubnet> {
    let mut subnets: BTreeMap<NodeName, HostSubnet> =
        world.nodes.keys().map(|name| (name.clone(), HostSubnet::default())).collect();
    let mut list = |node: &NodeName, address: Ipv4Addr, namespace: &NamespaceName| {
        if let Some(subnet) = subnets.get_mut(node) {
            subnet.egress_ips.insert(address);
            subnet.annotations.insert(address, namespace.clone());
        }
    };
    for (address, claim) in &journal.claims {
        if is_hosted(ovn, *address, claim) {
            list(&claim.spec.node, *address, &claim.spec.owner.name);
        }
    }
    for (namespace, egress_ip) in &ovn.egress_ips {
        for (address, node) in egress_ip.items.iter().filter(|(address, _)| !journal.claims.contains_key(*address)) {
            list(node, *address, namespace);
        }
    }
    for (address, ip) in ovn.private_ips.iter().filter(|(address, _)| !journal.claims.contains_key(*address)) {
        // with us to serve it, it is taken over as it is
        if let Some(node) = ip.status.node.as_ref().filter(|_| ovn.serves) {
            list(node, *address, &format!("{address}").into());
        }
    }
    subnets
}

fn is_hosted(ovn: &Ovn, address: Ipv4Addr, claim: &Claim) -> bool {
    match claim.status.state {
        State::Assigning | State::Attached | State::Published | State::Moving => true,
        State::Releasing => {
            let egress_ip = ovn.egress_ips.get(&claim.spec.owner.name);
            egress_ip.is_some_and(|found| found.addresses.contains(&address))
        }
        State::Reserved | State::Blocked => false,
    }
}

/// Addresses that nodes have, and those that they may have as long as there is a CloudPrivateIPConfig.
fn private_ips(world: &World, ovn: &Ovn) -> BTreeMap<Ipv4Addr, PrivateIp> {
    let any = world.nodes.iter().find(|(_, node)| node.instance.is_some()).map(|(name, _)| name);
    let mut known: BTreeMap<Ipv4Addr, PrivateIp> = BTreeMap::new();
    for (address, ip) in &ovn.private_ips {
        // that of a node which is gone is not forgotten
        let node = Some(ip.node()).filter(|node| world.nodes.contains_key(*node)).or(any);
        let assigned = match &ip.status.assigned {
            Assigned::Failed(message) => Assigned::Failed(message.clone()),
            Assigned::Yes | Assigned::Pending => Assigned::Pending,
        };
        let status = PrivateIpStatus { node: None, assigned };
        known.extend(node.map(|node| (*address, PrivateIp { wanted: node.clone(), status, ..PrivateIp::default() })));
    }
    for (address, node) in ovn.egress_ips.values().flat_map(|found| &found.items) {
        let status = PrivateIpStatus { node: Some(node.clone()), assigned: Assigned::Yes };
        known.insert(*address, PrivateIp { status, ..PrivateIp::default() });
    }
    known
}
