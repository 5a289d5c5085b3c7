//! The plan of a whole world.

use super::action::Plan;
use super::draft::Draft;
use super::index::Index;
use super::journal::Journal;
use super::types::{Calls, World};

/// Decides what is due. Total and deterministic; empty until the cloud has answered.
pub fn plan(world: &World, journal: &Journal, calls: &Calls) -> Plan {
    let Some(cloud) = &world.cloud else { return Plan::default() };
    let index = Index::of(world, journal, calls, cloud);
    let mut draft = Draft::new(&index);
    for since in world.nodes.values().filter_map(|node| node.not_ready_since) {
        draft.wake_at(since + world.options.node_grace);
    }
    // Addresses that exist choose their node before those that do not.
    let owners = index.owners.values().filter_map(|addresses| addresses.first());
    for address in owners {
        draft.decide(&journal.claims[address].spec.owner.name);
    }
    for (name, namespace) in &world.namespaces {
        let concerns_us =
            namespace.opted_in || namespace.modified || namespace.egressips.is_some() || namespace.status.is_some();
        if concerns_us && !index.owners.contains_key(&**name) {
            draft.decide(name);
        }
    }
    draft.publish_host_subnets();
    draft.finish()
}
