//! HostSubnets: which node hosts which addresses.

use std::net::Ipv4Addr;

use portolan_core::ipam::{Claim, NodeName, State};

use super::finding::{Finding, Fix, OPERATOR, REPAIR, or_ok};
use super::snapshot::Snapshot;
use crate::runtime::doctor::Check;

const ADDRESSES: &str = "hostsubnet-addresses";

/// Every address in service stands on the HostSubnet of its node, and on no other.
pub(super) fn addresses(snapshot: &Snapshot) -> Vec<Finding> {
    let found = snapshot.claims().filter_map(|(address, claim)| match claim.status.state {
        State::Published => misplaced(snapshot, address, claim),
        // the operator is at work on it, one host at a time
        State::Reserved | State::Assigning | State::Attached | State::Moving | State::Releasing | State::Blocked => {
            doubled(snapshot, address, claim)
        }
    });
    let in_service = snapshot.claims().filter(|(_, claim)| claim.status.state == State::Published).count();
    or_ok(ADDRESSES, found.collect(), format!("{in_service} addresses stand on one HostSubnet each"))
}

fn misplaced(snapshot: &Snapshot, address: Ipv4Addr, claim: &Claim) -> Option<Finding> {
    let (node, namespace) = (&claim.spec.node, &claim.spec.owner.name);
    let Some(subnet) = snapshot.world.host_subnets.get(node) else {
        let seen = format!("it does not exist, and {address} is on node {node}");
        return Some(Finding::fixed_by(fail(node, seen, OPERATOR), Fix::AskOperator { address }));
    };
    let hosts = snapshot.hosts(address);
    let others: Vec<NodeName> = hosts.iter().copied().filter(|host| *host != node).cloned().collect();
    let is_listed = subnet.egress_ips.contains(&address);
    let seen = match (is_listed, others.is_empty()) {
        (true, true) if subnet.annotations.get(&address) == Some(namespace) => return None,
        (true, true) => format!("the annotation of {address} does not name namespace {namespace}"),
        (true, false) => format!("{address} stands on HostSubnet {}, too", others.join(", ")),
        (false, true) => format!("egressIPs lacks {address} of namespace {namespace}"),
        (false, false) => format!("{address} stands on HostSubnet {} instead", others.join(", ")),
    };
    // what is not on the interface must not be announced, and the SDN fills egressIPs where egressCIDRs is set
    let is_ours_to_write = snapshot.is_attached(address, node) != Some(false) && !subnet.egress_cidrs;
    if !is_ours_to_write {
        return Some(Finding::fixed_by(fail(node, seen, OPERATOR), Fix::AskOperator { address }));
    }
    let fix = Fix::SetHost { address, namespace: namespace.clone(), node: node.clone(), others };
    Some(Finding::fixed_by(fail(node, seen, REPAIR), fix))
}

fn doubled(snapshot: &Snapshot, address: Ipv4Addr, claim: &Claim) -> Option<Finding> {
    let hosts = snapshot.hosts(address);
    let hosts: Vec<&str> = hosts.iter().map(|host| &***host).collect();
    let seen = match hosts[..] {
        [host] if claim.is_cooling() => format!("{address} was released, and still stands on HostSubnet {host}"),
        [] | [_] => return None,
        [_, _, ..] => format!("{address} stands on HostSubnets {}", hosts.join(", ")),
    };
    Some(Finding::fixed_by(fail(&claim.spec.node, seen, OPERATOR), Fix::AskOperator { address }))
}

fn fail(node: &str, seen: String, advice: &str) -> Check {
    Check::fail(ADDRESSES, format!("HostSubnet/{node}"), seen, advice)
}
