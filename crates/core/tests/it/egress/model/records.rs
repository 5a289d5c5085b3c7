//! What is recorded: read, and kept where it still holds.

use std::collections::BTreeSet;
use std::net::IpAddr;

use portolan_core::egress::*;

use super::{Allocation, Model, NodeAddressUser, both, fits, single};

/// Every egress address of a gateway in pool order, around those that are recorded.
fn list(gateway: &Gateway, recorded: &[Eip]) -> Vec<Eip> {
    let v4: Vec<_> = (0..).map_while(|i| gateway.pool.v4_at(i)).collect();
    let v6: Vec<_> = (0..).map_while(|i| gateway.pool.v6_at(i)).collect();
    let rows: Vec<Eip> =
        (0..v4.len().max(v6.len())).map(|i| Eip { v4: v4.get(i).copied(), v6: v6.get(i).copied() }).collect();
    let bent: Vec<Eip> = recorded.iter().copied().filter(|eip| !rows.contains(eip)).collect();
    let is_bent = |address: IpAddr| bent.iter().any(|eip| eip.addresses().any(|a| a == address));
    let (mut left4, mut left6, mut all) = (Vec::new(), Vec::new(), bent.clone());
    for row in &rows {
        let bent4 = row.v4.is_some_and(|a| is_bent(a.into()));
        let bent6 = row.v6.is_some_and(|a| is_bent(a.into()));
        match (bent4, bent6) {
            (false, false) => all.push(*row),
            (true, false) => left6.extend(row.v6),
            (false, true) => left4.extend(row.v4),
            (true, true) => {}
        }
    }
    for i in 0..left4.len().max(left6.len()) {
        all.push(Eip { v4: left4.get(i).copied(), v6: left6.get(i).copied() });
    }
    // pool order: by IPv4 address, then IPv6 addresses beyond the last IPv4 one, then those left alone, then the rest
    let mut ordered = Vec::new();
    for a in &v4 {
        ordered.extend(all.iter().filter(|eip| eip.v4 == Some(*a)));
    }
    for (i, a) in v6.iter().enumerate().filter(|(i, _)| *i >= v4.len()) {
        let _ = i;
        ordered.extend(all.iter().filter(|eip| eip.v4.is_none() && eip.v6 == Some(*a)));
    }
    for a in v6.iter().take(v4.len()) {
        ordered.extend(all.iter().filter(|eip| eip.v4.is_none() && eip.v6 == Some(*a)));
    }
    let mut rest: Vec<Eip> = all.into_iter().filter(|eip| !ordered.contains(eip)).collect();
    rest.sort();
    ordered.extend(rest);
    ordered
}

impl Model<'_> {
    pub(super) fn read_records(&mut self) {
        let mut contested = Vec::new();
        for (name, gateway) in &self.world.gateways {
            let own: Vec<(IpAddr, &AddressRecord)> = self
                .ledger
                .addresses
                .iter()
                .filter(|(_, record)| record.gateway == *name)
                .map(|(a, h)| (*a, h))
                .collect();
            let mut eips: Vec<Eip> = Vec::new();
            let known = |eips: &[Eip], a: IpAddr| eips.iter().any(|eip| eip.addresses().any(|b| a == b));
            for mutual in [true, false] {
                for (a, record) in &own {
                    let Some(b) = record.pair.filter(|b| b.is_ipv4() != a.is_ipv4()) else { continue };
                    let other = self.ledger.addresses.get(&b);
                    let agrees = other.is_some_and(|other| other.gateway == *name && other.pair == Some(*a));
                    let reserved = self.allocations.iter().any(|allocation| allocation.eip.addresses().any(|c| c == b));
                    let possible = other.is_none_or(|other| other.gateway == *name) && !reserved;
                    if (agrees || (!mutual && possible)) && !known(&eips, *a) && !known(&eips, b) {
                        eips.push(both(*a, b));
                    }
                }
            }
            for (a, _) in &own {
                if !known(&eips, *a) {
                    eips.push(single(*a));
                }
            }
            let list = list(gateway, &eips);
            for eip in list.iter().filter(|eip| eips.contains(eip)) {
                let halves: Vec<&AddressRecord> =
                    eip.addresses().filter_map(|a| self.ledger.addresses.get(&a)).collect();
                let mut newest = halves[0];
                if halves.iter().any(|record| record.epoch > newest.epoch) {
                    newest = halves[1];
                }
                let slot = halves.iter().map(|record| record.slot).filter(|slot| (2..=16383).contains(slot)).min();
                let free = slot.filter(|slot| self.allocations.iter().all(|allocation| allocation.slot != *slot));
                contested.extend(free.is_none().then_some(self.allocations.len()));
                self.allocations.push(Allocation {
                    gateway: name.clone(),
                    eip: *eip,
                    slot: free.unwrap_or(0),
                    node: newest.node.clone(),
                    epoch: newest.epoch,
                    recorded: eip.addresses().filter(|a| self.ledger.addresses.contains_key(a)).collect(),
                    users: BTreeSet::new(),
                    left: None,
                    fresh: false,
                });
            }
            self.lists.insert(name.clone(), list);
        }
        for (a, record) in &self.ledger.addresses {
            if !self.world.gateways.contains_key(&record.gateway) {
                self.orphans.insert(*a, record.slot);
            }
        }
        for allocation in contested {
            self.allocations[allocation].slot = self.free_slot();
        }
    }

    pub(super) fn free_slot(&self) -> u16 {
        let used = |slot: u16| {
            self.allocations.iter().any(|allocation| allocation.slot == slot)
                || self.orphans.values().any(|s| *s == slot)
        };
        (2..=16383).find(|slot| !used(*slot)).unwrap()
    }

    pub(super) fn keep_bindings(&mut self) {
        let (mut guarded, mut lost) = (Vec::new(), Vec::new());
        for (name, policy) in &self.world.policies {
            let Some(binding) = self.ledger.bindings.get(name) else { continue };
            if !self.world.gateways.contains_key(&binding.gateway) {
                continue;
            }
            if binding.eip.is_none() {
                let mut user = NodeAddressUser {
                    gateway: binding.gateway.clone(),
                    name: name.clone(),
                    node: binding.node.clone(),
                    left: None,
                };
                if let Some(node) = binding.node.clone().filter(|node| !self.ready(&binding.gateway, node)) {
                    user.left = Some((Some(node.clone()), self.cause(&binding.gateway, &node)));
                    user.node = None;
                }
                self.node_address_users.push(user);
                continue;
            }
            let halves: Vec<IpAddr> = binding.eip.addresses().collect();
            let allocation = halves.iter().find_map(|a| self.allocation_of(&binding.gateway, *a));
            if let Some(allocation) = allocation {
                if self.world.gateways[&binding.gateway].exclusive {
                    let explicit = matches!(policy.request, AddressRequest::Explicit(_));
                    guarded.push((!explicit, policy.created, name.clone(), allocation));
                } else {
                    self.allocations[allocation].users.insert(name.clone());
                }
            } else if binding.gateway == policy.gateway && !policy.refused {
                lost.push((binding.gateway.clone(), policy.created, name.clone(), binding.clone()));
            }
        }
        guarded.sort();
        for (given, _, name, allocation) in guarded {
            let Allocation { gateway, eip, .. } = self.allocations[allocation].clone();
            if self.allowed(&gateway, eip, &name, !given) {
                self.allocations[allocation].users.insert(name);
            }
        }
        lost.sort_by_key(|(gateway, created, name, _)| (gateway.clone(), *created, name.clone()));
        for (gateway, _, name, binding) in lost {
            let first = binding.eip.addresses().next().unwrap();
            let Some(eip) = self.lists[&gateway].iter().copied().find(|eip| eip.addresses().any(|a| a == first)) else {
                continue;
            };
            let ask = self.world.policies[&name].request;
            if !fits(ask, eip) || !self.allowed(&gateway, eip, &name, matches!(ask, AddressRequest::Explicit(_))) {
                continue;
            }
            if let Some(allocation) = self.allocation_of(&gateway, first) {
                self.allocations[allocation].users.insert(name);
                continue;
            }
            if !self.givable(&gateway, eip) {
                continue;
            }
            let node = binding.node.clone().filter(|node| self.ready(&gateway, node) && !self.excludes(eip, node));
            let slot = self.free_slot();
            self.allocations.push(Allocation {
                gateway,
                eip,
                slot,
                node,
                epoch: 1,
                recorded: eip.addresses().collect(),
                users: BTreeSet::from([name]),
                left: None,
                fresh: true,
            });
        }
        for i in 0..self.allocations.len() {
            let allocation = self.allocations[i].clone();
            let Some(node) = allocation.node.clone().filter(|_| !allocation.users.is_empty()) else { continue };
            if !self.ready(&allocation.gateway, &node) || self.excludes(allocation.eip, &node) {
                self.allocations[i].left = Some((Some(node.clone()), self.cause(&allocation.gateway, &node)));
                self.allocations[i].node = None;
            }
        }
    }
}
