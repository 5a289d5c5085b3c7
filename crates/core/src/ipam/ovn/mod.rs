//! OVN-Kubernetes: an EgressIP takes the place of NetNamespace and HostSubnets, and OVN-Kubernetes chooses the nodes.
//!
//! The plan is that for OpenShift SDN, of a world in which each namespace has a NetNamespace that lists what its EgressIP
//! lists, and each node a HostSubnet with the addresses of its claims. Before that, claims follow the nodes that
//! OVN-Kubernetes chose. Where nobody else serves CloudPrivateIPConfigs, we do: to the planner, one whose address is not a
//! namespace's is a namespace that requests it.

mod nodes;
mod serve;
mod shown;
mod translate;

use self::serve::serve;
use self::shown::waits;
pub use self::shown::{EgressIp, Ovn};
use self::translate::{NEVER, as_sdn, follow};
use super::action::{Action, ClaimWrite, ListAnnotation, Plan, Step};
use super::journal::Journal;
use super::types::{Calls, World};

/// Decides what is due. `SetNetNamespace` is about the EgressIP of the namespace; there is no `SetHostSubnet`.
pub fn plan(world: &World, ovn: &Ovn, journal: &Journal, calls: &Calls) -> Plan {
    let (followed, moved) = follow(world, ovn, journal);
    let mut plan = super::plan(&as_sdn(world, ovn, &followed), &followed, calls);
    plan.actions.retain(|action| match action {
        Action::UpdateClaim(write) | Action::ConfirmClaim(write) => !moved.contains(&write.address),
        Action::SetHostSubnet { .. } => false,
        Action::AnnotateNamespace { egressips: Some(ListAnnotation::Write(_)), name, .. } => {
            let egress_ip = ovn.egress_ips.get(name);
            egress_ip.is_some_and(|found| found.addresses.iter().all(|address| found.items.contains_key(address)))
        }
        Action::CreateClaim(_)
        | Action::DeleteClaim(_)
        | Action::Call(_)
        | Action::SetNetNamespace { .. }
        | Action::AnnotateNamespace { .. } => true,
    });
    plan.actions.extend(moved.iter().map(|address| {
        let claim = followed.claims[address].clone();
        let step = if claim.status.served { Step::Move } else { Step::Target };
        Action::UpdateClaim(ClaimWrite { address: *address, claim, step })
    }));
    plan.wake = plan.wake.filter(|wake| *wake < NEVER);
    for (address, claim) in &journal.claims {
        let end = claim.status.since + world.options.node_grace;
        if waits(ovn, *address, claim) && end > world.now {
            plan.wake = Some(plan.wake.map_or(end, |wake| wake.min(end)));
        }
    }
    if ovn.serves {
        serve(&mut plan, ovn, journal, &followed, &moved);
    }
    plan.nodes = nodes::changes(world, ovn, journal);
    plan
}
