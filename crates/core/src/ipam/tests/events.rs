//! Things that happen to a cluster: users, nodes, consoles and strangers.

use std::net::Ipv4Addr;
use std::sync::Arc;

use super::cloud::By;
use super::lab::Lab;
use crate::ipam::*;

const NAMESPACES: [&str; 4] = ["blog", "crm", "mail", "shop"];

impl Lab {
    /// A number below `count`.
    pub(super) fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.random.next_u64() % u64::try_from(count.max(1)).unwrap()).unwrap()
    }

    fn one_of<T: Clone>(&mut self, all: impl IntoIterator<Item = T>) -> Option<T> {
        let all: Vec<T> = all.into_iter().collect();
        let index = self.below(all.len());
        all.get(index).cloned()
    }

    fn any_address(&mut self) -> Ipv4Addr {
        let subnet = self.below(self.cloud.subnets.len());
        let last = self.below(17);
        Ipv4Addr::new(10, 0, u8::try_from(subnet).unwrap(), u8::try_from(last).unwrap())
    }

    fn any_list(&mut self) -> String {
        let count = 1 + self.below(3);
        let known: Vec<Ipv4Addr> = self.journal.claims.keys().copied().collect();
        let mut items: Vec<String> = (0..count).map(|_| self.any_address().to_string()).collect();
        match self.below(12) {
            0 => items.push("10.0.0".to_owned()),
            1 => items.push("192.168.0.9".to_owned()),
            5 => items.push("10.0.0.251".to_owned()),
            2..5 => items.extend(self.one_of(known).map(|address| address.to_string())),
            _ => {}
        }
        items.join(",")
    }

    /// One random thing; gives its name for the log.
    pub(super) fn happen(&mut self) -> &'static str {
        let name = NAMESPACES[self.below(4)];
        match self.below(10) {
            0..4 => self.happen_to_namespace(name),
            4..7 => self.happen_to_node(),
            7 => self.happen_to_objects(name),
            _ => self.happen_in_cloud(),
        }
    }

    fn happen_to_namespace(&mut self, name: &str) -> &'static str {
        if !self.world.namespaces.contains_key(name) {
            let list = (self.below(3) == 0).then(|| self.any_list());
            self.add_namespace(name, list.as_deref());
            return "namespace created";
        }
        match self.below(12) {
            0 => {
                self.world.namespaces.remove(name);
                self.world.net_namespaces.remove(name);
                "namespace deleted"
            }
            1 => {
                self.world.namespaces.remove(name);
                self.add_namespace(name, None);
                "namespace made again"
            }
            2 | 3 => {
                let namespace = self.namespace(name);
                namespace.opted_in = !namespace.opted_in;
                "opt-in changed"
            }
            4..7 => {
                let list = self.any_list();
                self.namespace(name).egressips = Some(list.into());
                "list changed"
            }
            7 => {
                self.namespace(name).egressips = None;
                "list removed"
            }
            8 => {
                self.namespace(name).modified = false;
                "modified removed"
            }
            9 => {
                self.world.net_namespaces.remove(name);
                "NetNamespace removed"
            }
            10 => {
                let netid = u32::try_from(1_000 + self.random.next_u64() % 3).unwrap();
                let found = self.world.net_namespaces.entry(name.into()).or_default();
                found.netid = netid;
                "netid changed"
            }
            _ => {
                let namespace = self.namespace(name);
                namespace.terminating = true;
                "namespace terminating"
            }
        }
    }

    fn happen_to_node(&mut self) -> &'static str {
        let now = self.world.now;
        let kind = self.below(12);
        let Some(name) = self.one_of(self.world.nodes.keys().cloned().collect::<Vec<_>>()) else {
            self.add_node("a9", "subnet-a", 6);
            return "node added";
        };
        let instance = self.world.nodes[&name].instance.clone();
        let node = self.world.nodes.get_mut(&name).unwrap();
        match kind {
            0..3 => {
                node.not_ready_since = if node.not_ready_since.is_some() { None } else { Some(now) };
                "readiness changed"
            }
            3 => {
                self.world.nodes.remove(&name);
                self.world.host_subnets.remove(&name);
                "node deleted, instance stays"
            }
            4 => {
                self.world.nodes.remove(&name);
                self.world.host_subnets.remove(&name);
                self.set_state(instance.as_ref(), InstanceState::Terminated);
                "node deleted, instance terminated"
            }
            5 => {
                self.set_state(instance.as_ref(), InstanceState::Terminated);
                "instance terminated"
            }
            6 => {
                self.set_state(instance.as_ref(), InstanceState::Stopped);
                "instance stopped"
            }
            7 => {
                self.set_state(instance.as_ref(), InstanceState::Running);
                "instance started"
            }
            8 => {
                node.compute = !node.compute;
                "label changed"
            }
            9 => {
                if let Some(subnet) = self.world.host_subnets.get_mut(&name) {
                    subnet.egress_cidrs = !subnet.egress_cidrs;
                }
                "egressCIDRs changed"
            }
            _ => {
                let zone = ["a", "b", "c"][self.below(self.cloud.subnets.len())];
                let number = self.random.next_u64() % 1_000;
                let limit = u16::try_from(2 + self.below(5)).unwrap();
                self.add_node(&format!("{zone}{number}"), &format!("subnet-{zone}"), limit);
                "node added"
            }
        }
    }

    fn set_state(&mut self, instance: Option<&InstanceId>, state: InstanceState) {
        if let Some(instance) = instance {
            self.cloud.set_state(instance, state, self.world.now);
        }
    }

    fn happen_to_objects(&mut self, name: &str) -> &'static str {
        let address = self.any_address();
        let known = self.one_of(self.journal.claims.keys().copied().collect::<Vec<_>>());
        let host = self.one_of(self.world.host_subnets.keys().cloned().collect::<Vec<_>>());
        match (self.below(6), host, known) {
            (0, Some(host), _) => {
                self.world.host_subnets.get_mut(&host).unwrap().egress_ips.clear();
                "HostSubnet emptied"
            }
            (1, Some(host), Some(known)) => {
                self.world.host_subnets.get_mut(&host).unwrap().egress_ips.insert(known);
                "address of ours entered in a HostSubnet"
            }
            (2, Some(host), _) => {
                self.world.host_subnets.get_mut(&host).unwrap().egress_ips.insert(address);
                "address entered in a HostSubnet"
            }
            (3, _, _) => {
                if let Some(found) = self.world.net_namespaces.get_mut(name) {
                    found.egress_ips.clear();
                }
                "NetNamespace emptied"
            }
            (4, _, _) => {
                if let Some(found) = self.world.net_namespaces.get_mut(name) {
                    found.egress_ips = [address].into();
                }
                "NetNamespace edited"
            }
            (_, _, Some(known)) => {
                self.journal.claims.get_mut(&known).unwrap().deleting = true;
                "claim deleted"
            }
            (_, _, None) => "nothing",
        }
    }

    /// Nobody gets an address so soon after it was freed that a describe which still counts shows the former holder.
    fn is_takeable(&self, address: Ipv4Addr) -> bool {
        let cooled = self.cloud.freed.get(&address).is_none_or(|freed| freed + self.lag + 15_000 < self.world.now);
        cooled && !self.cloud.is_used(address) && address.octets()[3] >= 4
    }

    fn happen_in_cloud(&mut self) -> &'static str {
        let now = self.world.now;
        let address = self.any_address();
        let claimed = self.one_of(self.journal.claims.keys().copied().collect::<Vec<_>>());
        let stranger = self.one_of(self.cloud.strangers.iter().copied().collect::<Vec<_>>());
        let instance = self.one_of(self.cloud.instances.keys().cloned().collect::<Vec<_>>());
        let address = claimed.filter(|_| self.below(2) == 0).unwrap_or(address);
        match (self.below(5), instance, stranger) {
            (0 | 1, _, _) if self.is_takeable(address) => {
                self.cloud.strangers.insert(address);
                "stranger takes an address"
            }
            (2, _, Some(stranger)) => {
                self.cloud.strangers.remove(&stranger);
                "stranger frees an address"
            }
            (3, Some(instance), _) => {
                self.cloud.edit(&instance, now, |secondary| secondary.retain(|_, by| *by == By::Other));
                "addresses removed in the console"
            }
            (4, Some(instance), _) => {
                // On the very interface that the journal names, the caller could not be identified: these addresses
                // are never drawn, as another capability claims them.
                let third = address.octets()[2];
                let last = 250 + u8::try_from(self.below(5)).unwrap();
                let address = Ipv4Addr::new(10, 0, third, last);
                let recorded = self.journal.claims.contains_key(&address);
                let found = &self.cloud.instances[&instance];
                let fits = self.cloud.subnets[&found.subnet].1.contains(&address)
                    && found.secondary.len() + 1 < usize::from(found.limit);
                if recorded || !fits || !self.is_takeable(address) {
                    return "nothing";
                }
                self.cloud.edit(&instance, now, |secondary| {
                    secondary.insert(address, By::Other);
                });
                "somebody else's address on a node"
            }
            (..) => "nothing",
        }
    }

    /// An error that the next call gives.
    pub(super) fn fault(&mut self) -> CloudError {
        match self.below(8) {
            0 | 1 => CloudError::Throttled,
            2 => CloudError::LimitExceeded,
            3 => CloudError::SubnetFull,
            4 => CloudError::Denied { action: Arc::from("ec2:AssignPrivateIpAddresses") },
            _ => CloudError::Transient,
        }
    }
}
