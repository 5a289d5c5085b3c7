//! Nodes: whether each has its instance and its HostSubnet, and how many addresses fit.

use std::collections::{BTreeMap, BTreeSet};

use portolan_core::ipam::{CloudNode, InstanceState, Node, NodeName, Zone};

use super::super::backend::Network;
use super::finding::{Finding, or_ok};
use super::snapshot::Snapshot;
use crate::runtime::doctor::Check;

const NODES: &str = "nodes";
const CAPACITY: &str = "capacity";

/// Every compute node is joined with its HostSubnet, its instance and its zone, and is ready.
pub(super) fn joined(snapshot: &Snapshot) -> Vec<Finding> {
    let hosts: BTreeSet<&NodeName> = snapshot.claims().flat_map(|(_, claim)| claim.nodes()).collect();
    let is_examined = |name: &NodeName| snapshot.scope.is_none() || hosts.contains(name);
    let nodes = || snapshot.world.nodes.iter().filter(|(name, node)| node.compute && is_examined(name));
    let mut found: Vec<Finding> =
        nodes().filter_map(|(name, node)| Some(unfit(snapshot, name, node)?.into())).collect();
    let subnets = snapshot.world.host_subnets.keys().filter(|name| is_examined(name));
    for name in subnets.filter(|name| !snapshot.world.nodes.contains_key(*name)) {
        let seen = "there is no Node of this name";
        let advice = "OpenShift SDN deletes it with its node: check that the SDN runs";
        found.push(Check::warn(NODES, format!("HostSubnet/{name}"), seen, advice).into());
    }
    or_ok(NODES, found, format!("{} nodes can host addresses", nodes().count()))
}

fn unfit(snapshot: &Snapshot, name: &NodeName, node: &Node) -> Option<Check> {
    let object = format!("Node/{name}");
    let fail = |seen: String, advice: &str| Some(Check::fail(NODES, &*object, seen, advice));
    if snapshot.network == Network::Sdn && !snapshot.world.host_subnets.contains_key(name) {
        let advice = "OpenShift SDN makes it: check that the SDN runs on the node";
        return Some(Check::warn(NODES, &*object, "it has no HostSubnet, so it hosts no addresses", advice));
    }
    let Some(instance) = &node.instance else {
        let advice = "the cloud controller manager sets it: check that it runs";
        return fail("spec.providerID names no instance of AWS, so the node hosts no addresses".to_owned(), advice);
    };
    if snapshot.world.cloud.is_some() {
        if snapshot.unanswered.contains(instance) {
            let advice = "see the status of its zone, and repeat";
            return Some(Check::warn(
                NODES,
                &*object,
                format!("the cloud did not describe instance {instance}"),
                advice,
            ));
        }
        let Some(CloudNode { state, zone, .. }) = snapshot.instance(name) else {
            return fail(format!("instance {instance} does not exist"), "delete the Node if its machine is gone");
        };
        if *state != InstanceState::Running {
            return fail(format!("instance {instance} is not running: {state:?}"), "start the instance");
        }
        if let Some(label) = node.zone.as_ref().filter(|label| *label != zone) {
            let seen = format!("its label says zone {label}, instance {instance} is in {zone}");
            return fail(seen, "correct label topology.kubernetes.io/zone");
        }
    }
    node.not_ready_since?;
    let advice = "the operator moves its addresses elsewhere: kubectl describe node";
    Some(Check::warn(NODES, &*object, "it is not ready", format!("{advice} {name}")))
}

/// Addresses of a subnet that the cloud keeps for itself: the first four and the last.
const RESERVED: u64 = 5;

/// What is left in each zone.
#[derive(Default)]
struct Room {
    nodes: u32,
    left: u32,
    /// Usable addresses that no interface has, in the subnets of these nodes.
    free: u64,
}

/// Every zone can take another address.
pub(super) fn capacity(snapshot: &Snapshot) -> Vec<Finding> {
    let Some(cloud) = snapshot.world.cloud.as_ref().filter(|_| snapshot.scope.is_none()) else { return Vec::new() };
    let mut zones: BTreeMap<&Zone, Room> = BTreeMap::new();
    let compute = snapshot.world.nodes.iter().filter(|(_, node)| node.compute && !node.deleting);
    let instances: Vec<&CloudNode> = compute.filter_map(|(name, _)| snapshot.instance(name)).collect();
    for instance in &instances {
        let room = zones.entry(&instance.zone).or_default();
        room.nodes += 1;
        room.left = room.left.saturating_add(left(instance));
    }
    let subnets: BTreeSet<_> = instances.iter().map(|instance| &instance.subnet).collect();
    for subnet in subnets.into_iter().filter_map(|subnet| Some(&cloud.subnets.get(subnet)?.what)) {
        let used = u64::try_from(subnet.used.len()).unwrap_or(u64::MAX).saturating_add(RESERVED);
        let size = 1_u64 << (subnet.cidr.max_prefix_len() - subnet.cidr.prefix_len());
        zones.entry(&subnet.zone).or_default().free += size.saturating_sub(used);
    }
    let row = |(zone, Room { nodes, left, free }): (&Zone, Room)| {
        let object = format!("zone {zone}");
        let seen = format!("{nodes} nodes have room for {left} addresses, their subnets have {free}");
        let is_full = left == 0 || free == 0;
        let advice = "add nodes or larger ones, or a subnet with nodes";
        let check = if is_full {
            Check::warn(CAPACITY, object, seen, advice)
        } else {
            Check { object, ..Check::ok(CAPACITY, seen) }
        };
        Finding::from(check)
    };
    zones.into_iter().map(row).collect()
}

/// Addresses that the primary interface of an instance can still get.
fn left(instance: &CloudNode) -> u32 {
    let Some(interface) = &instance.interface else { return 0 };
    let present = u32::try_from(interface.secondary.len()).unwrap_or(u32::MAX);
    let used = present.saturating_add(1).saturating_add(interface.prefixes.into());
    u32::from(instance.address_limit).saturating_sub(used)
}
