//! The plan of a whole world.

use std::collections::BTreeSet;

use super::action::{Action, Plan};
use super::draft::Draft;
use super::index::Index;
use super::journal::Journal;
use super::reason::{Reason, Unmet};
use super::step::reason_of;
use super::types::{Calls, World};

/// Decides what is due. Total and deterministic. Until the cloud has answered, it only says so.
pub fn plan(world: &World, journal: &Journal, calls: &Calls) -> Plan {
    let Some(cloud) = &world.cloud else {
        return world
            .cloud_problem
            .as_ref()
            .map(|problem| refused(world, journal, reason_of(problem), &problem.to_string()))
            .unwrap_or_default();
    };
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

/// Tells those who wait for addresses why nothing can be decided. Whoever has some keeps them.
pub fn refused(world: &World, journal: &Journal, reason: Reason, message: &str) -> Plan {
    let served: BTreeSet<&str> = journal.claims.values().map(|claim| &*claim.spec.owner.name).collect();
    let mut plan = Plan::default();
    for (name, namespace) in &world.namespaces {
        if !namespace.opted_in || namespace.terminating || served.contains(&**name) {
            continue;
        }
        let unmet = Unmet { namespace: name.clone(), reason, message: message.to_owned() };
        let status = Some(unmet.annotation());
        if status != namespace.status {
            plan.actions.push(Action::AnnotateNamespace { name: name.clone(), egressips: None, status });
        }
        plan.unmet.push(unmet);
    }
    plan
}
