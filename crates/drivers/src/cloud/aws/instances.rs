//! Reads instances and interfaces from XML.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::Ipv4Net;
use portolan_core::ipam::{CloudInterface, CloudNode, InstanceId, InstanceState, InterfaceId, SubnetId, Zone};
use roxmltree::Node;

use super::xml::{find, items, text};

/// An instance, or the id of one that could not be read.
pub(super) type ReadInstance = Result<CloudNode, InstanceId>;

/// Every instance of every reservation. The limits of addresses are still to be filled in.
pub(super) fn read_instances(root: Node<'_, '_>) -> Vec<ReadInstance> {
    items(root, &["reservationSet"])
        .flat_map(|reservation| items(reservation, &["instancesSet"]))
        .filter_map(|item| {
            let instance: InstanceId = text(item, &["instanceId"])?.into();
            Some(read_instance(item, instance.clone()).ok_or(instance))
        })
        .collect()
}

fn read_instance(item: Node<'_, '_>, instance: InstanceId) -> Option<CloudNode> {
    let state = read_state(text(item, &["instanceState", "name"])?)?;
    let first = items(item, &["networkInterfaceSet"])
        .find(|interface| text(*interface, &["attachment", "deviceIndex"]) == Some("0"));
    let interface = match first {
        Some(first) => Some(read_interface(first)?.interface),
        None => None,
    };
    Some(CloudNode {
        instance,
        state,
        instance_type: text(item, &["instanceType"])?.into(),
        zone: text(item, &["placement", "availabilityZone"])?.into(),
        // A terminated instance is in none.
        subnet: text(item, &["subnetId"]).unwrap_or_default().into(),
        interface,
        address_limit: 0,
    })
}

fn read_state(name: &str) -> Option<InstanceState> {
    Some(match name {
        "pending" => InstanceState::Pending,
        "running" => InstanceState::Running,
        "shutting-down" => InstanceState::ShuttingDown,
        "terminated" => InstanceState::Terminated,
        "stopping" => InstanceState::Stopping,
        "stopped" => InstanceState::Stopped,
        _ => return None,
    })
}

/// An interface, an instance's or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenInterface {
    pub(super) subnet: SubnetId,
    pub(super) interface: CloudInterface,
    pub(super) prefixes: Vec<Ipv4Net>,
}

impl SeenInterface {
    pub(super) fn has(&self, address: Ipv4Addr) -> bool {
        self.interface.primary == address
            || self.interface.secondary.contains(&address)
            || self.prefixes.iter().any(|prefix| prefix.contains(&address))
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        let own = self.interface.secondary.iter().copied().chain([self.interface.primary]);
        own.chain(
            self.prefixes
                .iter()
                .flat_map(|prefix| (u32::from(prefix.network())..=u32::from(prefix.broadcast())).map(Ipv4Addr::from)),
        )
    }
}

pub(super) fn read_interface(item: Node<'_, '_>) -> Option<SeenInterface> {
    let id: InterfaceId = text(item, &["networkInterfaceId"])?.into();
    let mut primary = text(item, &["privateIpAddress"]).and_then(|address| address.parse().ok());
    let mut secondary = BTreeSet::new();
    for entry in items(item, &["privateIpAddressesSet"]) {
        let address: Ipv4Addr = text(entry, &["privateIpAddress"])?.parse().ok()?;
        if text(entry, &["primary"]) == Some("true") {
            primary = Some(address);
        } else {
            secondary.insert(address);
        }
    }
    let prefixes: Vec<Ipv4Net> =
        items(item, &["ipv4PrefixSet"]).filter_map(|entry| text(entry, &["ipv4Prefix"])?.parse().ok()).collect();
    let interface = CloudInterface {
        id,
        primary: primary?,
        secondary,
        prefixes: u16::try_from(prefixes.len()).unwrap_or(u16::MAX),
    };
    Some(SeenInterface { subnet: text(item, &["subnetId"])?.into(), interface, prefixes })
}

/// A subnet without the addresses in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenSubnet {
    pub(super) id: SubnetId,
    pub(super) zone: Zone,
    pub(super) cidr: Ipv4Net,
    pub(super) available: Option<u64>,
}

pub(super) fn read_subnet(item: Node<'_, '_>) -> Option<SeenSubnet> {
    Some(SeenSubnet {
        id: text(item, &["subnetId"])?.into(),
        zone: text(item, &["availabilityZone"])?.into(),
        cidr: text(item, &["cidrBlock"])?.parse().ok()?,
        available: text(item, &["availableIpAddressCount"]).and_then(|count| count.parse().ok()),
    })
}

/// Addresses per interface of an instance type.
pub(super) fn read_type(item: Node<'_, '_>) -> Option<(Arc<str>, u16)> {
    let info = find(item, &["networkInfo"])?;
    Some((text(item, &["instanceType"])?.into(), text(info, &["ipv4AddressesPerInterface"])?.parse().ok()?))
}

/// The token of the next page.
pub(super) fn next_page(root: Node<'_, '_>) -> Option<String> {
    text(root, &["nextToken"]).map(str::to_owned)
}
