//! What is wrong with egress addresses: the checklist from the Namespace to the interface on the cloud.
//!
//! ```text
//!   read (client) --> Snapshot --> checks (no client) --> findings, each with a fix --> repairs (client)
//! ```
//! The journal decides: it is the only proof that an address is ours. Objects that contradict it are written from it;
//! addresses that are not in it are reported and left. What needs a call to the cloud, or a change of the journal, is the
//! operator's work: the repair asks it to look.

mod access;
mod attached;
mod finding;
mod foreign;
mod hosts;
mod journal;
mod namespaces;
mod net_namespaces;
mod nodes;
mod repair;
mod snapshot;
#[cfg(test)]
mod tests;

use kube::Client;

use self::finding::Finding;
use self::snapshot::Snapshot;
use crate::runtime::doctor::{Check, Examination};
use crate::runtime::query::QueryError;

/// Checks everything, or what concerns one namespace.
pub(super) async fn examine(client: Client, examination: Examination) -> Result<Vec<Check>, QueryError> {
    let snapshot = Snapshot::read(&client, &examination).await?;
    let found = checked(&snapshot).into_iter();
    Ok(found.map(|finding| repair::prepared(&client, finding)).collect())
}

/// Every check, in the order of an address: whoever repairs from the top down repairs causes first.
fn checked(snapshot: &Snapshot) -> Vec<Finding> {
    if !snapshot.is_served() {
        let seen = "there are no NetNamespaces and HostSubnets of network.openshift.io/v1: ipam idles";
        let check = if snapshot.asking().next().is_some() {
            Check::warn("openshift", "", seen, "run ipam on OpenShift with OpenShift SDN only")
        } else {
            Check::ok("openshift", seen)
        };
        return vec![check.into()];
    }
    let checks = [
        namespaces::service,
        namespaces::annotations,
        net_namespaces::annotations,
        net_namespaces::addresses,
        hosts::addresses,
        attached::addresses,
        journal::claims,
        nodes::joined,
        nodes::capacity,
        access::credentials,
        foreign::egress_cidrs,
        foreign::addresses,
        foreign::finalizers,
        foreign::operators,
    ];
    checks.iter().flat_map(|check| check(snapshot)).collect()
}
