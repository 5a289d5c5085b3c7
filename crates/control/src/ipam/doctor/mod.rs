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
mod ovn;
mod repair;
mod snapshot;
#[cfg(test)]
mod tests;

use kube::Client;

use self::finding::Finding;
use self::snapshot::Snapshot;
use super::backend::Network;
use super::snapshot::IDLE;
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
    let checks: &[fn(&Snapshot) -> Vec<Finding>] = match snapshot.network {
        Network::Sdn => &[
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
        ],
        Network::Ovn => &[
            namespaces::service,
            namespaces::annotations,
            ovn::egress_ips,
            ovn::assigned,
            ovn::private_ips,
            attached::addresses,
            journal::claims,
            nodes::joined,
            ovn::assignable,
            nodes::capacity,
            access::credentials,
            foreign::finalizers,
            foreign::operators,
        ],
        Network::Absent | Network::Ambiguous => &[nowhere],
    };
    checks.iter().flat_map(|check| check(snapshot)).collect()
}

/// There is no network plugin that could use an address.
fn nowhere(snapshot: &Snapshot) -> Vec<Finding> {
    let check = if snapshot.asking().next().is_some() {
        Check::warn("openshift", "", IDLE, "run ipam on OpenShift, with OpenShift SDN or OVN-Kubernetes")
    } else {
        Check::ok("openshift", IDLE)
    };
    vec![check.into()]
}
