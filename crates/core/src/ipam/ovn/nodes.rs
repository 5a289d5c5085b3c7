//! What OVN-Kubernetes is to know of nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::action::NodeChange;
use super::super::journal::Journal;
use super::super::types::{Node, NodeName, World};
use super::shown::Ovn;

/// Nodes that are to be used and are not known to OVN-Kubernetes as they are. Before anybody asks for addresses, none is.
pub(super) fn changes(world: &World, ovn: &Ovn, journal: &Journal) -> BTreeMap<NodeName, NodeChange> {
    let is_asked = world.namespaces.values().any(|namespace| namespace.opted_in);
    let mut changes = BTreeMap::new();
    for (name, node) in world.nodes.iter().filter(|(_, node)| node.compute && !node.deleting) {
        let config = if ovn.serves { config(world, ovn, journal, node) } else { None };
        let config = config.filter(|config| Some(config) != node.egress_ip_config.as_ref());
        let label = is_asked && !node.egress_assignable;
        if label || config.is_some() {
            changes.insert(name.clone(), NodeChange { label, config });
        }
    }
    changes
}

/// The annotation of a node: its interface, the range of its subnet, and how many addresses it can have.
fn config(world: &World, ovn: &Ovn, journal: &Journal, node: &Node) -> Option<Arc<str>> {
    let cloud = world.cloud.as_ref()?;
    let seen = &cloud.nodes.get(node.instance.as_ref()?)?.what;
    let interface = seen.interface.as_ref()?;
    let cidr = cloud.subnets.get(&seen.subnet)?.what.cidr;
    let is_counted = |address| ovn.private_ips.contains_key(address) || journal.claims.contains_key(address);
    let others = interface.secondary.iter().filter(|address| !is_counted(*address)).count();
    let taken = others + 1 + usize::from(interface.prefixes);
    let capacity = usize::from(seen.address_limit).saturating_sub(taken);
    let id = &interface.id;
    let text = format!(r#"[{{"interface":"{id}","ifaddr":{{"ipv4":"{cidr}"}},"capacity":{{"ipv4":{capacity}}}}}]"#);
    Some(text.into())
}
