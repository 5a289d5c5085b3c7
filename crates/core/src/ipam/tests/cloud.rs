//! A small cloud that keeps the rules, shows changes late, and notes every wrong done to somebody else.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::ipam::room::usable_range;
use crate::ipam::*;

/// Whose address it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Us,
    Other,
}

#[derive(Debug, Clone)]
pub(super) struct Instance {
    pub(super) zone: Zone,
    pub(super) subnet: SubnetId,
    pub(super) interface: InterfaceId,
    pub(super) primary: Ipv4Addr,
    pub(super) limit: u16,
    pub(super) state: InstanceState,
    pub(super) secondary: BTreeMap<Ipv4Addr, By>,
    /// What a describe could show, from when on.
    history: Vec<(Moment, InstanceState, BTreeSet<Ipv4Addr>)>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct ModelCloud {
    pub(super) subnets: BTreeMap<SubnetId, (Zone, Ipv4Net)>,
    pub(super) instances: BTreeMap<InstanceId, Instance>,
    /// Addresses on interfaces that are not the cluster's.
    pub(super) strangers: BTreeSet<Ipv4Addr>,
    pub(super) freed: BTreeMap<Ipv4Addr, Moment>,
    pub(super) wrongs: Vec<String>,
}

impl ModelCloud {
    pub(super) fn add_instance(&mut self, id: &str, subnet: &str, limit: u16, now: Moment) {
        let (zone, cidr) = self.subnets[subnet].clone();
        let (first, last) = usable_range(cidr).unwrap();
        let primary = (first..=last).map(Ipv4Addr::from_bits).find(|address| !self.is_used(*address));
        let Some(primary) = primary else { return };
        let mut instance = Instance {
            zone,
            subnet: subnet.into(),
            interface: format!("eni-{id}").into(),
            primary,
            limit,
            state: InstanceState::Running,
            secondary: BTreeMap::new(),
            history: Vec::new(),
        };
        instance.remember(now);
        self.instances.insert(id.into(), instance);
    }

    pub(super) fn is_used(&self, address: Ipv4Addr) -> bool {
        self.strangers.contains(&address)
            || self.instances.values().any(|instance| {
                instance.is_alive() && (instance.primary == address || instance.secondary.contains_key(&address))
            })
    }

    /// The instance with this interface.
    fn at(&mut self, interface: &InterfaceId) -> Result<&mut Instance, CloudError> {
        let found = self.instances.values_mut().find(|instance| instance.interface == *interface);
        found.filter(|instance| instance.is_alive()).ok_or(CloudError::NoSuchInterface)
    }

    pub(super) fn call(
        &mut self,
        kind: CallKind,
        interface: &InterfaceId,
        address: Ipv4Addr,
        now: Moment,
    ) -> Result<(), CloudError> {
        if kind == CallKind::Release {
            let instance = self.at(interface)?;
            let by = instance.secondary.remove(&address);
            instance.remember(now);
            if by.is_some() {
                self.freed.insert(address, now);
            }
            if by == Some(By::Other) {
                self.wrongs.push(format!("{address} of somebody else was released"));
            }
            return Ok(());
        }
        let instance = self.at(interface)?;
        let (subnet, limit) = (instance.subnet.clone(), usize::from(instance.limit));
        if instance.secondary.contains_key(&address) {
            return Ok(());
        }
        let is_full = instance.secondary.len() + 1 >= limit;
        let (first, last) = usable_range(self.subnets[&subnet].1).unwrap();
        if !(first..=last).contains(&address.to_bits()) {
            return Err(CloudError::OutsideSubnet);
        }
        if kind == CallKind::Assign && self.is_used(address) {
            return Err(CloudError::InUse { by: None });
        }
        if is_full {
            return Err(CloudError::LimitExceeded);
        }
        if self.strangers.remove(&address) {
            self.wrongs.push(format!("{address} was taken from a stranger"));
        }
        for other in self.instances.values_mut().filter(|other| other.is_alive()) {
            if let Some(by) = other.secondary.remove(&address) {
                other.remember(now);
                if by == By::Other {
                    self.wrongs.push(format!("{address} was taken from somebody on a node"));
                }
            }
        }
        let instance = self.at(interface)?;
        instance.secondary.insert(address, By::Us);
        instance.remember(now);
        Ok(())
    }

    pub(super) fn set_state(&mut self, id: &InstanceId, state: InstanceState, now: Moment) {
        let Some(instance) = self.instances.get_mut(id) else { return };
        if !instance.is_alive() {
            return;
        }
        instance.state = state;
        if state == InstanceState::Terminated {
            self.freed.extend(instance.secondary.keys().map(|address| (*address, now)));
            instance.secondary.clear();
        }
        instance.remember(now);
    }

    /// Somebody works in the console.
    pub(super) fn edit(&mut self, id: &InstanceId, now: Moment, edit: impl FnOnce(&mut BTreeMap<Ipv4Addr, By>)) {
        let Some(instance) = self.instances.get_mut(id).filter(|instance| instance.is_alive()) else { return };
        let before = instance.secondary.clone();
        edit(&mut instance.secondary);
        instance.remember(now);
        let gone = before.keys().filter(|address| !instance.secondary.contains_key(address));
        self.freed.extend(gone.map(|address| (*address, now)));
    }

    /// What a describe shows that begins now; `lag` says how old the view of each instance is.
    pub(super) fn describe(&self, now: Moment, mut lag: impl FnMut() -> u64) -> Cloud {
        let mut cloud = Cloud::default();
        for (id, instance) in &self.instances {
            let at = now.saturating_sub(lag());
            let Some((_, state, secondary)) = instance.history.iter().rev().find(|(since, ..)| *since <= at) else {
                continue;
            };
            let interface = CloudInterface {
                id: instance.interface.clone(),
                primary: instance.primary,
                secondary: secondary.clone(),
                prefixes: 0,
            };
            let node = CloudNode {
                instance: id.clone(),
                state: *state,
                instance_type: "m5.large".into(),
                zone: instance.zone.clone(),
                subnet: instance.subnet.clone(),
                interface: (*state != InstanceState::Terminated).then_some(interface),
                address_limit: instance.limit,
            };
            cloud.nodes.insert(id.clone(), Seen { what: node, began: now });
        }
        for (id, (zone, cidr)) in &self.subnets {
            let on_nodes = cloud.nodes.values().filter(|seen| seen.what.subnet == *id).filter_map(|seen| {
                let interface = seen.what.interface.as_ref()?;
                Some(interface.secondary.iter().copied().chain([interface.primary]))
            });
            let strangers = self.strangers.iter().copied().filter(|address| cidr.contains(address));
            let used = on_nodes.flatten().chain(strangers).collect();
            let subnet = CloudSubnet { id: id.clone(), zone: zone.clone(), cidr: *cidr, used };
            cloud.subnets.insert(id.clone(), Seen { what: subnet, began: now });
        }
        cloud
    }
}

impl Instance {
    fn is_alive(&self) -> bool {
        self.state != InstanceState::Terminated
    }

    fn remember(&mut self, now: Moment) {
        self.history.push((now, self.state, self.secondary.keys().copied().collect()));
    }
}
