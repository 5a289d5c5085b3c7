//! OVN-Kubernetes: an EgressIP takes the place of NetNamespace and HostSubnets, and OVN-Kubernetes chooses the nodes.
//!
//! The plan is that for OpenShift SDN, of a world in which each namespace has a NetNamespace that lists what its EgressIP
//! lists, and each node a HostSubnet with the addresses of its claims. Before that, claims follow the nodes that
//! OVN-Kubernetes chose. Where nobody else serves CloudPrivateIPConfigs, we do: to the planner, one whose address is not a
//! namespace's is a namespace that requests it.

mod nodes;
mod serve;
mod translate;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use self::serve::serve;
use self::translate::{NEVER, as_sdn, follow};
use super::action::{Action, ClaimWrite, ListAnnotation, Plan, Step};
use super::journal::{Claim, Journal, State};
use super::types::{Calls, NamespaceName, NodeName, PrivateIp, World};

/// What OVN-Kubernetes shows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ovn {
    /// EgressIPs of ours, by namespace.
    pub egress_ips: BTreeMap<NamespaceName, EgressIp>,
    /// Addresses of EgressIPs that are not ours.
    pub foreign: BTreeSet<Ipv4Addr>,
    /// CloudPrivateIPConfigs.
    pub private_ips: BTreeMap<Ipv4Addr, PrivateIp>,
    /// No other controller attaches what these ask for.
    pub serves: bool,
}

/// An EgressIP.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressIp {
    /// Its name.
    pub name: Arc<str>,
    /// Addresses that it asks for.
    pub addresses: BTreeSet<Ipv4Addr>,
    /// Where OVN-Kubernetes put them.
    pub items: BTreeMap<Ipv4Addr, NodeName>,
    /// It selects exactly its namespace.
    pub is_intact: bool,
}

impl Ovn {
    /// The node that OVN-Kubernetes chose for an address of this owner.
    fn chosen(&self, address: Ipv4Addr, claim: &Claim) -> Option<&NodeName> {
        if self.serves {
            return self.private_ips.get(&address).filter(|ip| !ip.deleting).map(|ip| &ip.wanted);
        }
        self.egress_ips.get(&claim.spec.owner.name)?.items.get(&address)
    }
}

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

/// True if an address waits for OVN-Kubernetes to choose a node.
fn waits(ovn: &Ovn, address: Ipv4Addr, claim: &Claim) -> bool {
    matches!(claim.status.state, State::Assigning | State::Moving) && ovn.chosen(address, claim).is_none()
}
