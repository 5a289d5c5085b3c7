//! The state of a cloud in memory, and its rules.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::Ipv4Net;
use portolan_core::ipam::{
    CloudError, CloudInterface, CloudNode, CloudSubnet, InstanceId, InstanceState, InterfaceId, SubnetId, Zone,
};

use crate::cloud::is_reserved;
use crate::cloud::limits::address_limit;

#[derive(Debug, Default)]
pub(super) struct World {
    subnets: BTreeMap<SubnetId, Subnet>,
    nodes: BTreeMap<InstanceId, CloudNode>,
    /// Interfaces that are not an instance's: one address each.
    strangers: BTreeMap<InterfaceId, Ipv4Addr>,
    /// Instances by their interface.
    instances: BTreeMap<InterfaceId, InstanceId>,
    interfaces_made: u64,
}

#[derive(Debug)]
struct Subnet {
    zone: Zone,
    cidr: Ipv4Net,
    /// Who has which address.
    used: BTreeMap<Ipv4Addr, InterfaceId>,
}

impl Subnet {
    fn has(&self, address: Ipv4Addr) -> bool {
        self.cidr.contains(&address) && !is_reserved(self.cidr, address)
    }

    fn first_free(&self) -> Result<Ipv4Addr, CloudError> {
        let free = self.cidr.hosts().find(|address| self.has(*address) && !self.used.contains_key(address));
        free.ok_or(CloudError::SubnetFull)
    }
}

impl World {
    pub(super) fn add_subnet(&mut self, id: &str, zone: &str, cidr: Ipv4Net) {
        self.subnets.insert(id.into(), Subnet { zone: zone.into(), cidr: cidr.trunc(), used: BTreeMap::new() });
    }

    pub(super) fn remove_subnet(&mut self, id: &str) -> bool {
        if self.subnets.get(id).is_some_and(|subnet| !subnet.used.is_empty()) {
            return false;
        }
        self.subnets.remove(id);
        true
    }

    pub(super) fn run(&mut self, id: &str, instance_type: &str, subnet: &str) -> Result<CloudNode, CloudError> {
        let interface = self.next_interface();
        let place = self.subnets.get_mut(subnet).ok_or_else(|| no_subnet(subnet))?;
        let primary = place.first_free()?;
        place.used.insert(primary, interface.clone());
        let node = CloudNode {
            instance: id.into(),
            state: InstanceState::Running,
            instance_type: instance_type.into(),
            zone: place.zone.clone(),
            subnet: subnet.into(),
            interface: Some(CloudInterface { id: interface.clone(), primary, secondary: BTreeSet::new(), prefixes: 0 }),
            address_limit: address_limit(instance_type),
        };
        self.release_interface(id);
        self.instances.insert(interface, id.into());
        self.nodes.insert(id.into(), node.clone());
        Ok(node)
    }

    pub(super) fn set_state(&mut self, id: &str, state: InstanceState) -> Result<(), CloudError> {
        let node = self.nodes.get_mut(id).ok_or(CloudError::NoSuchInstance)?;
        node.state = state;
        if state == InstanceState::Terminated {
            self.release_interface(id);
        }
        Ok(())
    }

    pub(super) fn remove_instance(&mut self, id: &str) {
        self.release_interface(id);
        self.nodes.remove(id);
    }

    pub(super) fn occupy(&mut self, subnet: &str, address: Ipv4Addr) -> Result<InterfaceId, CloudError> {
        let interface = self.next_interface();
        let place = self.subnets.get_mut(subnet).ok_or_else(|| no_subnet(subnet))?;
        if !place.has(address) {
            return Err(CloudError::OutsideSubnet);
        }
        if let Some(by) = place.used.get(&address) {
            return Err(CloudError::InUse { by: Some(by.clone()) });
        }
        place.used.insert(address, interface.clone());
        self.strangers.insert(interface.clone(), address);
        Ok(interface)
    }

    pub(super) fn vacate(&mut self, interface: &InterfaceId) {
        if self.strangers.remove(interface).is_some() {
            for subnet in self.subnets.values_mut() {
                subnet.used.retain(|_, by| by != interface);
            }
        }
    }

    pub(super) fn node(&self, id: &InstanceId) -> Option<CloudNode> {
        self.nodes.get(id).cloned()
    }

    pub(super) fn subnet(&self, id: &SubnetId) -> Option<CloudSubnet> {
        let Subnet { zone, cidr, used } = self.subnets.get(id)?;
        Some(CloudSubnet { id: id.clone(), zone: zone.clone(), cidr: *cidr, used: used.keys().copied().collect() })
    }

    pub(super) fn locate(&self, address: Ipv4Addr, subnet: &SubnetId) -> Option<InterfaceId> {
        self.subnets.get(subnet)?.used.get(&address).cloned()
    }

    /// Adds a secondary address; `reassign` takes it from whoever has it as a secondary one.
    pub(super) fn add(&mut self, id: &InterfaceId, address: Ipv4Addr, reassign: bool) -> Result<(), CloudError> {
        let node = self.node_of(id)?;
        let (limit, subnet) = (usize::from(node.address_limit), node.subnet.clone());
        let interface = node.interface.as_ref().ok_or(CloudError::NoSuchInterface)?;
        if interface.secondary.contains(&address) {
            return Ok(());
        }
        let used = 1 + interface.secondary.len() + usize::from(interface.prefixes);
        let place = self.subnets.get(&subnet).ok_or_else(|| no_subnet(&subnet))?;
        if !place.has(address) {
            return Err(CloudError::OutsideSubnet);
        }
        let holder = place.used.get(&address).cloned();
        if let Some(by) = &holder
            && !(reassign && self.is_secondary(by, address))
        {
            return Err(CloudError::InUse { by: Some(by.clone()) });
        }
        if used >= limit {
            return Err(CloudError::LimitExceeded);
        }
        if let Some(by) = holder {
            self.secondary_of(&by)?.remove(&address);
        }
        self.secondary_of(id)?.insert(address);
        self.subnets.get_mut(&subnet).ok_or_else(|| no_subnet(&subnet))?.used.insert(address, id.clone());
        Ok(())
    }

    /// Removes a secondary address.
    pub(super) fn remove(&mut self, id: &InterfaceId, address: Ipv4Addr) -> Result<(), CloudError> {
        let node = self.node_of(id)?;
        let subnet = node.subnet.clone();
        if node.interface.as_ref().is_some_and(|interface| interface.primary == address) {
            let message = format!("{address} is the primary address of {id}");
            return Err(CloudError::Unknown { code: "InvalidParameterValue".into(), message: message.into() });
        }
        if self.secondary_of(id)?.remove(&address)
            && let Some(place) = self.subnets.get_mut(&subnet)
        {
            place.used.remove(&address);
        }
        Ok(())
    }

    fn node_of(&self, interface: &InterfaceId) -> Result<&CloudNode, CloudError> {
        let instance = self.instances.get(interface).ok_or(CloudError::NoSuchInterface)?;
        self.nodes.get(instance).ok_or(CloudError::NoSuchInterface)
    }

    fn secondary_of(&mut self, interface: &InterfaceId) -> Result<&mut BTreeSet<Ipv4Addr>, CloudError> {
        let instance = self.instances.get(interface).ok_or(CloudError::NoSuchInterface)?;
        let node = self.nodes.get_mut(instance).ok_or(CloudError::NoSuchInterface)?;
        Ok(&mut node.interface.as_mut().ok_or(CloudError::NoSuchInterface)?.secondary)
    }

    fn is_secondary(&self, interface: &InterfaceId, address: Ipv4Addr) -> bool {
        let node = self.node_of(interface).ok();
        node.and_then(|node| node.interface.as_ref()).is_some_and(|interface| interface.secondary.contains(&address))
    }

    fn release_interface(&mut self, instance: &str) {
        let Some(interface) = self.nodes.get_mut(instance).and_then(|node| node.interface.take()) else { return };
        self.instances.remove(&interface.id);
        for subnet in self.subnets.values_mut() {
            subnet.used.retain(|_, by| *by != interface.id);
        }
    }

    fn next_interface(&mut self) -> InterfaceId {
        self.interfaces_made += 1;
        Arc::from(format!("eni-{:017x}", self.interfaces_made))
    }
}

fn no_subnet(id: &str) -> CloudError {
    CloudError::Unknown {
        code: "InvalidSubnetID.NotFound".into(),
        message: format!("the subnet `{id}` does not exist").into(),
    }
}
