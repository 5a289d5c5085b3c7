//! What OVN-Kubernetes shows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use super::super::journal::{Claim, State};
use super::super::types::{NamespaceName, NodeName, PrivateIp};

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
    pub(super) fn chosen(&self, address: Ipv4Addr, claim: &Claim) -> Option<&NodeName> {
        if self.serves {
            return self.private_ips.get(&address).filter(|ip| !ip.deleting).map(|ip| &ip.wanted);
        }
        self.egress_ips.get(&claim.spec.owner.name)?.items.get(&address)
    }
}

/// True if an address waits for OVN-Kubernetes to choose a node.
pub(super) fn waits(ovn: &Ovn, address: Ipv4Addr, claim: &Claim) -> bool {
    matches!(claim.status.state, State::Assigning | State::Moving) && ovn.chosen(address, claim).is_none()
}
