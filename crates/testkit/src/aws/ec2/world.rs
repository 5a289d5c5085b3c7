//! Instances, interfaces and addresses of an account, and the rules that EC2 has for them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::response::{Refusal, refused};

#[derive(Default)]
pub(super) struct World {
    pub(super) subnets: BTreeMap<String, Subnet>,
    pub(super) instances: BTreeMap<String, Instance>,
    pub(super) interfaces: BTreeMap<String, Interface>,
    /// Public address to the interface and private address that it belongs to.
    pub(super) elastic: BTreeMap<Ipv4Addr, (String, Ipv4Addr)>,
    made: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Subnet {
    pub(super) zone: String,
    pub(super) cidr: Ipv4Net,
}

#[derive(Debug, Clone)]
pub(super) struct Instance {
    /// Such as `m5.large`.
    pub(super) size: String,
    pub(super) state: &'static str,
    pub(super) reservation: String,
    pub(super) zone: String,
    pub(super) subnet: String,
    /// None once it is terminated.
    pub(super) interface: Option<String>,
    pub(super) tags: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) id: String,
    pub(super) subnet: String,
    /// None for those of strangers.
    pub(super) instance: Option<String>,
    pub(super) primary: Ipv4Addr,
    pub(super) secondary: BTreeSet<Ipv4Addr>,
    pub(super) prefixes: Vec<Ipv4Net>,
    pub(super) tags: BTreeSet<String>,
    pub(super) limit: usize,
}

impl Interface {
    pub(super) fn has(&self, address: Ipv4Addr) -> bool {
        self.primary == address
            || self.secondary.contains(&address)
            || self.prefixes.iter().any(|prefix| prefix.contains(&address))
    }

    pub(super) fn used(&self) -> usize {
        1 + self.secondary.len() + self.prefixes.len()
    }
}

impl Subnet {
    /// The first four addresses and the last are AWS's.
    pub(super) fn is_reserved(&self, address: Ipv4Addr) -> bool {
        let first = u32::from(self.cidr.network());
        (first..first + 4).contains(&u32::from(address)) || address == self.cidr.broadcast()
    }

    pub(super) fn usable(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.cidr.hosts().filter(|address| !self.is_reserved(*address))
    }
}

/// What an assignment did.
pub(super) struct Assigned {
    /// Addresses that the interface did not have.
    pub(super) fresh: Vec<Ipv4Addr>,
    /// Interfaces that are not what they were.
    pub(super) changed: BTreeSet<String>,
}

/// What to assign: addresses or their number.
pub(super) enum Wish {
    Addresses(Vec<Ipv4Addr>),
    Count(usize),
}

impl World {
    pub(super) fn id(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}-{:017x}", self.made)
    }

    pub(super) fn holder(&self, subnet: &str, address: Ipv4Addr) -> Option<&Interface> {
        self.interfaces.values().find(|interface| interface.subnet == subnet && interface.has(address))
    }

    pub(super) fn free(&self, subnet: &str) -> Vec<Ipv4Addr> {
        let Some(place) = self.subnets.get(subnet) else { return Vec::new() };
        let inside: Vec<&Interface> = self.interfaces.values().filter(|interface| interface.subnet == subnet).collect();
        let used: BTreeSet<Ipv4Addr> = inside
            .iter()
            .flat_map(|interface| interface.secondary.iter().copied().chain([interface.primary]))
            .collect();
        let prefixes: Vec<Ipv4Net> = inside.iter().flat_map(|interface| interface.prefixes.iter().copied()).collect();
        let is_free =
            |address: &Ipv4Addr| !used.contains(address) && !prefixes.iter().any(|prefix| prefix.contains(address));
        place.usable().filter(is_free).collect()
    }

    pub(super) fn new_interface(
        &mut self,
        subnet: &str,
        primary: Ipv4Addr,
        instance: Option<&str>,
        limit: usize,
    ) -> String {
        let id = self.id("eni");
        let interface = Interface {
            id: id.clone(),
            subnet: subnet.to_owned(),
            instance: instance.map(str::to_owned),
            primary,
            secondary: BTreeSet::new(),
            prefixes: Vec::new(),
            tags: BTreeSet::new(),
            limit,
        };
        self.interfaces.insert(id.clone(), interface);
        id
    }

    pub(super) fn terminate(&mut self, instance: &str) -> Option<String> {
        let found = self.instances.get_mut(instance)?;
        found.state = "terminated";
        let interface = found.interface.take()?;
        self.interfaces.remove(&interface);
        self.elastic.retain(|_, (on, _)| *on != interface);
        Some(interface)
    }

    /// Adds all or nothing.
    pub(super) fn assign(&mut self, id: &str, wish: Wish, reassign: bool) -> Result<Assigned, Refusal> {
        let Some(interface) = self.interfaces.get(id) else { return no_interface(id) };
        let (subnet, limit, used) = (interface.subnet.clone(), interface.limit, interface.used());
        let addresses = match wish {
            Wish::Addresses(addresses) => addresses,
            Wish::Count(count) => {
                let free = self.free(&subnet);
                if free.len() < count {
                    let message = "The specified subnet does not have enough free addresses to satisfy the request.";
                    return refused(400, "InsufficientFreeAddressesInSubnet", message);
                }
                free.into_iter().take(count).collect()
            }
        };
        let mut fresh = Vec::new();
        for address in addresses {
            self.may_assign(id, &subnet, address, reassign)?;
            if !self.interfaces[id].has(address) && !fresh.contains(&address) {
                fresh.push(address);
            }
        }
        if used + fresh.len() > limit {
            return refused(400, "PrivateIpAddressLimitExceeded", "Number of private addresses will exceed limit.");
        }
        let mut changed = BTreeSet::from([id.to_owned()]);
        for address in &fresh {
            let holder = self.holder(&subnet, *address).map(|holder| holder.id.clone());
            if let Some(old) = holder.and_then(|holder| self.interfaces.get_mut(&holder)) {
                old.secondary.remove(address);
                changed.insert(old.id.clone());
            }
            for (on, private) in self.elastic.values_mut() {
                if private == address && changed.contains(on) {
                    id.clone_into(on);
                }
            }
        }
        if let Some(interface) = self.interfaces.get_mut(id) {
            interface.secondary.extend(&fresh);
        }
        Ok(Assigned { fresh, changed })
    }

    fn may_assign(&self, id: &str, subnet: &str, address: Ipv4Addr, reassign: bool) -> Result<(), Refusal> {
        let invalid = |message: String| refused(400, "InvalidParameterValue", message);
        let place = &self.subnets[subnet];
        if !place.cidr.contains(&address) {
            return invalid(format!("Address {address} does not fall within the subnet's address range"));
        }
        if place.is_reserved(address) {
            return invalid(format!("Address {address} is in subnet's reserved address range"));
        }
        match self.holder(subnet, address) {
            Some(holder) if holder.id == id && holder.primary != address => Ok(()),
            Some(holder) if reassign && holder.secondary.contains(&address) => Ok(()),
            Some(_) => invalid(format!("[{address}] assigned, but move is not allowed.")),
            None => Ok(()),
        }
    }

    pub(super) fn unassign(&mut self, id: &str, addresses: &[Ipv4Addr]) -> Result<(), Refusal> {
        let Some(interface) = self.interfaces.get_mut(id) else { return no_interface(id) };
        if addresses.contains(&interface.primary) {
            return refused(
                400,
                "InvalidParameterValue",
                "The primary IP address of the interface cannot be unassigned.",
            );
        }
        if !addresses.iter().all(|address| interface.secondary.contains(address)) {
            let message = format!("Some of {addresses:?} are not assigned to interface {id}");
            return refused(400, "InvalidParameterValue", message);
        }
        interface.secondary.retain(|address| !addresses.contains(address));
        self.elastic.retain(|_, (on, private)| on != id || !addresses.contains(private));
        Ok(())
    }

    /// Rules that are broken by these interfaces; empty if all hold.
    pub(super) fn violations(&self, of: &BTreeSet<String>) -> Vec<String> {
        let mut broken = Vec::new();
        for interface in of.iter().filter_map(|id| self.interfaces.get(id)) {
            let id = &interface.id;
            let place = &self.subnets[&interface.subnet];
            if interface.used() > interface.limit {
                broken.push(format!("{id} has more addresses than its limit"));
            }
            if interface.secondary.contains(&interface.primary) {
                broken.push(format!("{id} has its primary address twice"));
            }
            for address in interface.secondary.iter().chain([&interface.primary]) {
                let has = |other: &&Interface| other.subnet == interface.subnet && other.has(*address);
                if self.interfaces.values().filter(has).count() != 1 {
                    broken.push(format!("{address} is on several interfaces"));
                }
                if !place.cidr.contains(address) || place.is_reserved(*address) {
                    broken.push(format!("{address} of {id} cannot be used in its subnet"));
                }
            }
            let instance = interface.instance.as_ref().and_then(|instance| self.instances.get(instance));
            if instance.is_some_and(|instance| instance.state == "terminated") {
                broken.push(format!("{id} outlived its instance"));
            }
        }
        for (public, (on, private)) in &self.elastic {
            if !self.interfaces.get(on).is_some_and(|interface| interface.has(*private)) {
                broken.push(format!("elastic {public} belongs to {private}, which {on} does not have"));
            }
        }
        broken
    }
}

fn no_interface<T>(id: &str) -> Result<T, Refusal> {
    let message = format!("The networkInterface ID '{id}' does not exist");
    refused(400, "InvalidNetworkInterfaceID.NotFound", message)
}

/// Addresses of an interface, from AWS's documentation; enough types for the tests.
pub(super) fn limit(instance_type: &str) -> usize {
    match instance_type {
        "t3.small" => 4,
        "t3.medium" => 6,
        "m5.large" | "c5.large" => 10,
        "m5.xlarge" => 15,
        "m5.4xlarge" | "m5.12xlarge" => 30,
        "c5.24xlarge" => 50,
        _ => 2,
    }
}

/// All types that the stand-in knows.
pub(super) const TYPES: &[&str] = &[
    "t3.nano",
    "t3.small",
    "t3.medium",
    "m5.large",
    "c5.large",
    "m5.xlarge",
    "m5.4xlarge",
    "m5.12xlarge",
    "c5.24xlarge",
];
