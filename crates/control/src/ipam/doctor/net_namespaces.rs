//! NetNamespaces: who leaves with which addresses.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use portolan_core::ipam::{AddressList, NamespaceName, NetNamespace, State};

use super::finding::{Finding, Fix, REPAIR, listed, or_ok};
use super::snapshot::Snapshot;
use crate::runtime::doctor::Check;

const ANNOTATION: &str = "netnamespace-annotation";
const ADDRESSES: &str = "netnamespace-addresses";

/// What a NetNamespace should have.
struct Wanted<'a> {
    name: &'a NamespaceName,
    found: &'a NetNamespace,
    /// Addresses in service.
    served: BTreeSet<Ipv4Addr>,
    /// These, and what else may stand there: addresses on their way, and those of others.
    allowed: BTreeSet<Ipv4Addr>,
}

impl Wanted<'_> {
    fn fix(&self) -> Fix {
        Fix::SetNetNamespace { name: self.name.clone(), list: self.allowed.clone() }
    }

    fn object(&self) -> String {
        object(self.name)
    }
}

fn all(snapshot: &Snapshot) -> impl Iterator<Item = Wanted<'_>> {
    let examined = snapshot.world.net_namespaces.iter().filter(move |(name, _)| snapshot.examines(name));
    examined.map(move |(name, found)| {
        let own: BTreeSet<Ipv4Addr> = snapshot.claims_of(name).map(|(address, _)| address).collect();
        let served: BTreeSet<Ipv4Addr> = snapshot
            .claims_of(name)
            .filter(|(_, claim)| claim.status.served && claim.status.state != State::Releasing)
            .map(|(address, _)| address)
            .collect();
        let may_stay = |address: &&Ipv4Addr| own.contains(address) || !snapshot.is_ours(**address);
        let allowed = served.iter().chain(found.egress_ips.iter().filter(may_stay)).copied().collect();
        Wanted { name, found, served, allowed }
    })
}

/// The annotation is a copy of the list, for those who read it.
pub(super) fn annotations(snapshot: &Snapshot) -> Vec<Finding> {
    let wrong = |wanted: Wanted<'_>| {
        if wanted.served.is_empty() {
            return None;
        }
        let seen = match AddressList::parse(wanted.found.annotation.as_deref()) {
            AddressList::Addresses(list) if wanted.served.is_subset(&list) && list.is_subset(&wanted.allowed) => {
                return None;
            }
            AddressList::Absent => "annotation egressips is missing".to_owned(),
            AddressList::Addresses(list) => {
                format!("annotation egressips is {}, the journal has {}", listed(&list), listed(&wanted.served))
            }
            AddressList::Invalid(why) => format!("annotation egressips: {why}"),
        };
        Some(Finding::fixed_by(Check::fail(ANNOTATION, wanted.object(), seen, REPAIR), wanted.fix()))
    };
    let served = all(snapshot).filter(|wanted| !wanted.served.is_empty()).count();
    let found = all(snapshot).filter_map(wrong).collect();
    or_ok(ANNOTATION, found, format!("the annotations of {served} NetNamespaces agree with the journal"))
}

/// Pods leave with the addresses in service, and with nobody else's.
pub(super) fn addresses(snapshot: &Snapshot) -> Vec<Finding> {
    let wrong = |wanted: Wanted<'_>| {
        let Wanted { found, served, allowed, .. } = &wanted;
        let missing: Vec<&Ipv4Addr> = served.difference(&found.egress_ips).collect();
        let others: Vec<&Ipv4Addr> = found.egress_ips.difference(allowed).collect();
        let seen = match (missing.is_empty(), others.is_empty()) {
            (true, true) => return None,
            (false, _) => format!("egressIPs lacks {}", listed(missing)),
            (true, false) => format!("egressIPs has {}, which is not its own: traffic is dropped", listed(others)),
        };
        Some(Finding::fixed_by(Check::fail(ADDRESSES, wanted.object(), seen, REPAIR), wanted.fix()))
    };
    let mut found: Vec<Finding> = all(snapshot).filter_map(wrong).collect();
    for (name, _) in snapshot.asking().filter(|(name, _)| !snapshot.world.net_namespaces.contains_key(*name)) {
        let advice = "OpenShift SDN makes it: check that the SDN runs";
        found.push(Check::fail(ADDRESSES, object(name), "it does not exist", advice).into());
    }
    let served = all(snapshot).filter(|wanted| !wanted.served.is_empty()).count();
    or_ok(ADDRESSES, found, format!("{served} NetNamespaces have the addresses of the journal"))
}

fn object(name: &str) -> String {
    format!("NetNamespace/{name}")
}
