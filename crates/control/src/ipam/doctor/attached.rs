//! The cloud: whether interfaces have the addresses that the journal says they have.

use std::net::Ipv4Addr;

use portolan_core::ipam::{Claim, InstanceId, Node, State};

use super::finding::{Finding, Fix, OPERATOR, or_ok};
use super::snapshot::Snapshot;
use crate::runtime::doctor::Check;

const ADDRESSES: &str = "cloud-addresses";

/// Every attached address is a secondary one of the primary interface of its node.
pub(super) fn addresses(snapshot: &Snapshot) -> Vec<Finding> {
    if let Some(problem) = &snapshot.unread {
        let advice = "see what the credentials allow, below";
        return vec![Check::fail(ADDRESSES, "", format!("the cloud was not read: {problem}"), advice).into()];
    }
    if snapshot.world.cloud.is_none() {
        // one line of the credentials says so
        return Vec::new();
    }
    let attached = || {
        let is_attached = |claim: &Claim| matches!(claim.status.state, State::Attached | State::Published);
        snapshot.claims().filter(move |(_, claim)| is_attached(claim))
    };
    let found = attached().filter_map(|(address, claim)| {
        let seen = missing(snapshot, address, claim)?;
        let check = Check::fail(ADDRESSES, format!("AddressClaim/{address}"), seen, OPERATOR);
        Some(Finding::fixed_by(check, Fix::AskOperator { address }))
    });
    or_ok(ADDRESSES, found.collect(), format!("{} addresses are on their interfaces", attached().count()))
}

fn missing(snapshot: &Snapshot, address: Ipv4Addr, claim: &Claim) -> Option<String> {
    let node = &claim.spec.node;
    // the check of the node says so
    let is_unknown = |node: &Node| node.instance.as_ref().is_none_or(|id| snapshot.unanswered.contains(id));
    if snapshot.world.nodes.get(node).is_some_and(is_unknown) {
        return None;
    }
    let shown = instances(snapshot, address);
    match (snapshot.is_attached(address, node)?, &shown[..]) {
        (true, [_]) => None,
        (_, []) => Some(format!("no interface of the cluster has it; it should be on node {node}")),
        (_, [one]) => Some(format!("instance {one} has it; it should be on node {node}")),
        (_, several) => Some(format!("instances {} have it", several.join(", "))),
    }
}

/// Instances whose primary interface shows an address.
fn instances(snapshot: &Snapshot, address: Ipv4Addr) -> Vec<InstanceId> {
    let nodes = snapshot.world.cloud.iter().flat_map(|cloud| cloud.nodes.values());
    let has_it = nodes
        .filter(|seen| seen.what.interface.as_ref().is_some_and(|interface| interface.secondary.contains(&address)));
    has_it.map(|seen| seen.what.instance.clone()).collect()
}
