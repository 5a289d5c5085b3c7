//! What others have written: addresses that are not ours, ranges of the SDN, and what the Go operators left.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use portolan_core::ipam::HostSubnet;

use super::finding::{Finding, Fix, listed, or_ok};
use super::snapshot::Snapshot;
use crate::runtime::doctor::Check;

const EGRESS_CIDRS: &str = "egress-cidrs";
const ADDRESSES: &str = "foreign-addresses";
const FINALIZERS: &str = "finalizers";
const OPERATORS: &str = "other-operators";

/// No compute node leaves its addresses to the SDN.
pub(super) fn egress_cidrs(snapshot: &Snapshot) -> Vec<Finding> {
    let hosts = |name: &str| snapshot.claims().any(|(_, claim)| *claim.spec.node == *name);
    let is_ours = |name: &str, subnet: &HostSubnet| {
        let is_compute = snapshot.world.nodes.get(name).is_some_and(|node| node.compute);
        subnet.egress_cidrs && (hosts(name) || is_compute && snapshot.scope.is_none())
    };
    let subnets = snapshot.world.host_subnets.iter().filter(|(name, subnet)| is_ours(name, subnet));
    let found = subnets.map(|(name, _)| {
        let object = format!("HostSubnet/{name}");
        let advice = format!(r#"kubectl patch hostsubnet {name} --type merge -p '{{"egressCIDRs":[]}}'"#);
        let check = if hosts(name) {
            Check::fail(EGRESS_CIDRS, object, "egressCIDRs is set: the SDN takes our addresses off it", advice)
        } else {
            Check::warn(EGRESS_CIDRS, object, "egressCIDRs is set: the node gets no addresses of ours", advice)
        };
        Finding::from(check)
    });
    or_ok(EGRESS_CIDRS, found.collect(), "no HostSubnet with addresses of ours has egressCIDRs".to_owned())
}

/// Nobody has entered addresses by hand.
pub(super) fn addresses(snapshot: &Snapshot) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    let mut report = |object: String, addresses: &BTreeSet<Ipv4Addr>| {
        let foreign: Vec<&Ipv4Addr> = addresses.iter().filter(|address| !snapshot.is_ours(**address)).collect();
        if foreign.is_empty() {
            return;
        }
        let seen = format!("{} is not in the journal: it is left alone", listed(foreign));
        let advice = "remove it, or have a Namespace ask for it in annotation egressips";
        found.push(Check::warn(ADDRESSES, object, seen, advice).into());
    };
    // with egressCIDRs they are the SDN's own
    let subnets = snapshot.world.host_subnets.iter().filter(|(_, subnet)| !subnet.egress_cidrs);
    for (name, subnet) in subnets.filter(|_| snapshot.scope.is_none()) {
        let all = subnet.egress_ips.iter().chain(subnet.annotations.keys()).copied().collect();
        report(format!("HostSubnet/{name}"), &all);
    }
    for (name, net_namespace) in snapshot.world.net_namespaces.iter().filter(|(name, _)| snapshot.examines(name)) {
        report(format!("NetNamespace/{name}"), &net_namespace.egress_ips);
    }
    or_ok(ADDRESSES, found, "all addresses are in the journal".to_owned())
}

/// Nothing waits for an operator that is gone.
pub(super) fn finalizers(snapshot: &Snapshot) -> Vec<Finding> {
    let examined = snapshot.leftovers.iter().filter(|leftover| snapshot.examines(&leftover.name));
    let found = examined.map(|leftover| {
        let object = format!("{}/{}", leftover.kind.as_str(), leftover.name);
        let seen = format!("it has finalizer {}: it cannot be deleted", leftover.finalizers.join(", "));
        let advice = "if the operator that set it is gone: portolan doctor ipam --repair";
        Finding::fixed_by(Check::warn(FINALIZERS, object, seen, advice), Fix::RemoveFinalizers(leftover.clone()))
    });
    or_ok(FINALIZERS, found.collect(), "there are no finalizers of other operators".to_owned())
}

/// No other operator writes the same objects.
pub(super) fn operators(snapshot: &Snapshot) -> Vec<Finding> {
    let found = match &snapshot.other_operators {
        Ok(names) => names.iter().map(|name| {
            let seen = "it writes the same annotations, HostSubnets and NetNamespaces";
            let advice = "delete it: of two operators, each undoes what the other one does";
            Finding::from(Check::fail(OPERATORS, format!("Deployment/{name}"), seen, advice))
        }),
        Err(problem) => {
            let seen = format!("Deployments were not read: {problem}");
            return vec![Check::warn(OPERATORS, "", seen, "get permission to list Deployments").into()];
        }
    };
    or_ok(OPERATORS, found.collect(), "no other operator runs".to_owned())
}
