//! OVN-Kubernetes: EgressIPs, the nodes that it chose, and what became of them on the cloud.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use portolan_core::ipam::{Assigned, Claim, NamespaceName, State};

use super::super::names::EGRESS_ASSIGNABLE;
use super::finding::{Finding, Fix, OPERATOR, REPAIR, listed, or_ok};
use super::snapshot::Snapshot;
use crate::runtime::doctor::Check;

const EGRESS_IPS: &str = "egressip-addresses";
const NODES: &str = "egressip-nodes";
const PRIVATE_IPS: &str = "cloudprivateipconfigs";
const ASSIGNABLE: &str = "egress-assignable";

/// Addresses in service, with their claims.
fn in_service(snapshot: &Snapshot) -> impl Iterator<Item = (Ipv4Addr, &Claim)> {
    snapshot.claims().filter(|(_, claim)| claim.status.state == State::Published)
}

/// The EgressIP of a namespace lists the addresses of the journal, for this namespace alone.
pub(super) fn egress_ips(snapshot: &Snapshot) -> Vec<Finding> {
    let owners: BTreeSet<&NamespaceName> = in_service(snapshot).map(|(_, claim)| &claim.spec.owner.name).collect();
    let mut found: Vec<Finding> = owners.iter().filter_map(|name| wrong(snapshot, name)).collect();
    for (address, _) in snapshot.claims().filter(|(address, _)| snapshot.ovn.foreign.contains(address)) {
        let seen = "an EgressIP that is not ours lists it, too: OVN-Kubernetes gives it to one of them only";
        let advice = "remove it from that EgressIP: kubectl get egressips -o wide";
        found.push(Check::fail(EGRESS_IPS, format!("AddressClaim/{address}"), seen, advice).into());
    }
    or_ok(EGRESS_IPS, found, format!("{} EgressIPs have the addresses of the journal", owners.len()))
}

fn wrong(snapshot: &Snapshot, name: &NamespaceName) -> Option<Finding> {
    let own: BTreeSet<Ipv4Addr> = snapshot.claims_of(name).map(|(address, _)| address).collect();
    let served = in_service(snapshot).filter(|(_, claim)| claim.spec.owner.name == *name);
    let served: BTreeSet<Ipv4Addr> = served.map(|(address, _)| address).collect();
    let Some(found) = snapshot.ovn.egress_ips.get(name) else {
        let object = format!("Namespace/{name}");
        let seen = format!("it has no EgressIP, and the journal has {}", listed(&served));
        let address = *served.first()?;
        return Some(Finding::fixed_by(Check::fail(EGRESS_IPS, object, seen, OPERATOR), Fix::AskOperator { address }));
    };
    let missing: Vec<&Ipv4Addr> = served.difference(&found.addresses).collect();
    let others: Vec<&Ipv4Addr> = found.addresses.difference(&own).collect();
    let seen = match (missing.is_empty(), others.is_empty()) {
        (true, true) if found.is_intact => return None,
        (true, true) => "its selector does not select its namespace alone".to_owned(),
        (false, _) => format!("egressIPs lacks {}", listed(missing)),
        (true, false) => format!("egressIPs has {}, which the journal does not have for it", listed(others)),
    };
    // what is on its way stays
    let list = served.iter().chain(found.addresses.intersection(&own)).copied().collect();
    let fix = Fix::SetEgressIp { name: found.name.clone(), namespace: name.clone(), list };
    let check = Check::fail(EGRESS_IPS, format!("EgressIP/{}", found.name), seen, REPAIR);
    Some(Finding::fixed_by(check, fix))
}

/// OVN-Kubernetes has assigned every address in service to the node of the journal.
pub(super) fn assigned(snapshot: &Snapshot) -> Vec<Finding> {
    let found = in_service(snapshot).filter_map(|(address, claim)| {
        let egress_ip = snapshot.ovn.egress_ips.get(&claim.spec.owner.name)?;
        egress_ip.addresses.contains(&address).then_some(())?;
        let object = format!("EgressIP/{}", egress_ip.name);
        match egress_ip.items.get(&address) {
            Some(node) if *node == claim.spec.node => None,
            Some(node) => {
                let seen = format!("{address} is assigned to node {node}, the journal has {}", claim.spec.node);
                let check = Check::fail(NODES, object, seen, OPERATOR);
                Some(Finding::fixed_by(check, Fix::AskOperator { address }))
            }
            None => {
                let advice = format!("see why: kubectl describe egressip {}", egress_ip.name);
                Some(Check::fail(NODES, object, format!("{address} is assigned to no node"), advice).into())
            }
        }
    });
    or_ok(NODES, found.collect(), format!("{} addresses are assigned to nodes", in_service(snapshot).count()))
}

/// Every CloudPrivateIPConfig of an address in service says that it is attached.
pub(super) fn private_ips(snapshot: &Snapshot) -> Vec<Finding> {
    let found = snapshot.claims().filter_map(|(address, claim)| {
        let ip = snapshot.ovn.private_ips.get(&address);
        let seen = match ip.map(|ip| (&ip.status.assigned, &ip.wanted)) {
            Some((Assigned::Failed(message), node)) => format!("it is not attached to node {node}: {message}"),
            Some((Assigned::Pending, node)) if claim.status.state == State::Published => {
                format!("it waits to be attached to node {node}")
            }
            None if claim.status.state == State::Published => "it does not exist".to_owned(),
            Some((Assigned::Yes | Assigned::Pending, _)) | None => return None,
        };
        let advice =
            if snapshot.ovn.serves { OPERATOR } else { "cloud-network-config-controller attaches it: see its log" };
        Some(Check::fail(PRIVATE_IPS, format!("CloudPrivateIPConfig/{address}"), seen, advice).into())
    });
    let attached = snapshot.ovn.private_ips.values().filter(|ip| ip.status.assigned == Assigned::Yes).count();
    or_ok(PRIVATE_IPS, found.collect(), format!("{attached} CloudPrivateIPConfigs are attached"))
}

/// OVN-Kubernetes may use every node that can host addresses.
pub(super) fn assignable(snapshot: &Snapshot) -> Vec<Finding> {
    if snapshot.asking().next().is_none() || snapshot.scope.is_some() {
        return Vec::new();
    }
    let compute = || snapshot.world.nodes.iter().filter(|(_, node)| node.compute && !node.deleting);
    let mut found: Vec<Finding> = Vec::new();
    for (name, node) in compute() {
        let object = format!("Node/{name}");
        if !node.egress_assignable {
            let seen = format!("it lacks label {EGRESS_ASSIGNABLE}: OVN-Kubernetes gives it no addresses");
            found.push(Check::warn(ASSIGNABLE, object, seen, OPERATOR).into());
        } else if node.egress_ip_config.is_none() {
            let seen = "it lacks annotation cloud.network.openshift.io/egress-ipconfig: OVN-Kubernetes does not know \
                how many addresses fit";
            found.push(Check::warn(ASSIGNABLE, object, seen, OPERATOR).into());
        }
    }
    or_ok(ASSIGNABLE, found, format!("OVN-Kubernetes may use {} nodes", compute().count()))
}
