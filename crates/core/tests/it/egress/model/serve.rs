//! Addresses for the policies that have none, and nodes for the addresses that have none.

use std::collections::BTreeSet;
use std::net::IpAddr;

use portolan_core::egress::*;
use portolan_core::pick;

use super::{Allocation, Model, NodeAddressUser, single};

impl Model<'_> {
    pub(super) fn settle(&mut self) {
        loop {
            for gateway in self.world.gateways.keys() {
                self.assign_missing_nodes(gateway);
            }
            let mut served = false;
            for gateway in self.world.gateways.keys() {
                let mut waiting: Vec<(i64, &PolicyName, &Policy)> = Vec::new();
                for (name, policy) in &self.world.policies {
                    if policy.gateway == *gateway && !policy.refused && !self.has_something(name) {
                        waiting.push((policy.created, name, policy));
                    }
                }
                waiting.sort_by_key(|(created, name, _)| (*created, (*name).clone()));
                for (_, name, policy) in waiting {
                    match self.serve(gateway, name, policy) {
                        Ok(()) => {
                            served = true;
                            self.unmet.remove(name);
                        }
                        Err(unmet) => drop(self.unmet.insert(name.clone(), unmet)),
                    }
                }
            }
            if !served {
                return;
            }
        }
    }

    pub(super) fn assign_missing_nodes(&mut self, gateway: &GatewayName) {
        let mut orphans: Vec<usize> = (0..self.allocations.len())
            .filter(|i| {
                let allocation = &self.allocations[*i];
                allocation.gateway == *gateway && !allocation.users.is_empty() && allocation.node.is_none()
            })
            .collect();
        orphans.sort_by_key(|i| {
            (std::cmp::Reverse(self.allocations[*i].users.len()), self.order(gateway, self.allocations[*i].eip))
        });
        for i in orphans {
            if let Ok(node) = self.choose(gateway, Some(self.allocations[i].eip), None, &[]) {
                self.allocations[i].left.get_or_insert((None, MoveCause::NodeReady));
                self.allocations[i].node = Some(node);
            }
        }
        let mut node_address_users: Vec<usize> = (0..self.node_address_users.len())
            .filter(|i| self.node_address_users[*i].gateway == *gateway && self.node_address_users[*i].node.is_none())
            .collect();
        node_address_users.sort_by_key(|i| {
            (self.world.policies[&self.node_address_users[*i].name].created, self.node_address_users[*i].name.clone())
        });
        for i in node_address_users {
            let name = self.node_address_users[i].name.clone();
            if let Ok(node) = self.choose(gateway, None, Some(&name), &[]) {
                self.node_address_users[i].left.get_or_insert((None, MoveCause::NodeReady));
                self.node_address_users[i].node = Some(node);
            }
        }
    }

    pub(super) fn serve(&mut self, gateway: &GatewayName, name: &PolicyName, policy: &Policy) -> Result<(), Unmet> {
        if !self.world.nodes.keys().any(|node| self.ready(gateway, node)) {
            return Err(Unmet::NoReadyNode);
        }
        if policy.request == AddressRequest::NodeAddress {
            let node = Some(self.choose(gateway, None, Some(name), &[])?);
            self.node_address_users.push(NodeAddressUser {
                gateway: gateway.clone(),
                name: name.clone(),
                node,
                left: None,
            });
            return Ok(());
        }
        let eip = self.pick(gateway, name, policy)?;
        let first = eip.addresses().next().unwrap();
        let Some(i) = self.allocation_of(gateway, first) else {
            let node = Some(self.choose(gateway, Some(eip), None, &[])?);
            let slot = self.free_slot();
            self.allocations.push(Allocation {
                gateway: gateway.clone(),
                eip,
                slot,
                node,
                epoch: 1,
                recorded: eip.addresses().collect(),
                users: BTreeSet::from([name.clone()]),
                left: None,
                fresh: true,
            });
            return Ok(());
        };
        let at = self.allocations[i].node.clone();
        let stays = at.as_ref().is_some_and(|node| self.ready(gateway, node) && !self.excludes(eip, node));
        if !stays {
            let to = self.choose(gateway, Some(eip), None, &[])?;
            let cause = at.as_ref().map_or(MoveCause::NodeReady, |node| self.cause(gateway, node));
            self.allocations[i].left.get_or_insert((at, cause));
            self.allocations[i].node = Some(to);
        }
        self.allocations[i].users.insert(name.clone());
        self.allocations[i].recorded = eip.addresses().collect();
        Ok(())
    }

    pub(super) fn pick(&self, gateway: &GatewayName, name: &PolicyName, policy: &Policy) -> Result<Eip, Unmet> {
        let spec = &self.world.gateways[gateway];
        let list = &self.lists[gateway];
        let named = |asked: Eip, explicit: bool| -> Result<Eip, Unmet> {
            let first = asked.addresses().next().ok_or(Unmet::PoolEmpty)?;
            for a in asked.addresses() {
                if !spec.pool.contains(a) {
                    return Err(Unmet::OutsidePool(a));
                }
            }
            let eip = list.iter().copied().find(|eip| eip.addresses().any(|a| a == first)).unwrap();
            if asked.v4.is_some() && asked.v6.is_some() && asked != eip {
                return Err(Unmet::PairMismatch(first, eip.v6.map(IpAddr::V6)));
            }
            if let Some(a) = eip.addresses().find(|a| !spec.pool.contains(*a)) {
                return Err(Unmet::OutsidePool(a));
            }
            if let Some(a) = eip.addresses().find(|a| !self.givable(gateway, single(*a))) {
                return Err(Unmet::Taken(a));
            }
            if !self.allowed(gateway, eip, name, explicit) {
                return Err(Unmet::NotAllowed(first));
            }
            Ok(eip)
        };
        let may: Vec<Eip> = list
            .iter()
            .copied()
            .filter(|eip| self.givable(gateway, *eip) && self.allowed(gateway, *eip, name, false))
            .collect();
        let used = |eip: Eip| self.users(gateway, eip).len();
        let unused = may.iter().copied().find(|eip| used(*eip) == 0);
        let hash = pick::hash(self.world.seed, &[spec.uid.as_bytes(), policy.uid.as_bytes()]);
        let draw = || may.get((u128::from(hash) % may.len().max(1) as u128) as usize).copied().ok_or(Unmet::PoolEmpty);
        match policy.request {
            AddressRequest::NodeAddress => unreachable!(),
            AddressRequest::Explicit(asked) => named(asked, true),
            AddressRequest::FromPool(AllocationMode::Default) if spec.default.is_none() => {
                let v4 = spec.pool.v4_at(0);
                let v6 = if v4.is_some() { None } else { spec.pool.v6_at(0) };
                named(Eip { v4, v6 }, false)
            }
            AddressRequest::FromPool(AllocationMode::Default) => named(spec.default, false),
            AddressRequest::FromPool(AllocationMode::Random) => draw(),
            AddressRequest::FromPool(AllocationMode::PreferUnallocated) => unused.map_or_else(draw, Ok),
            AddressRequest::FromPool(AllocationMode::Limit(n)) => {
                let mut best: Option<Eip> = None;
                for eip in may.iter().copied().filter(|eip| (1..usize::from(n)).contains(&used(*eip))) {
                    if best.is_none_or(|best| used(eip) > used(best)) {
                        best = Some(eip);
                    }
                }
                best.or(unused).map_or_else(draw, Ok)
            }
        }
    }

    /// The node mode's choice for an address, or for a policy on the node's own, with some nodes left out.
    pub(super) fn choose(
        &self,
        gateway: &GatewayName,
        eip: Option<Eip>,
        user: Option<&PolicyName>,
        not: &[NodeName],
    ) -> Result<NodeName, Unmet> {
        let spec = &self.world.gateways[gateway];
        let key = match (eip, user) {
            (Some(eip), _) => match eip.addresses().next().unwrap() {
                IpAddr::V4(v4) => pick::hash(self.world.seed, &[spec.uid.as_bytes(), &v4.octets()]),
                IpAddr::V6(v6) => pick::hash(self.world.seed, &[spec.uid.as_bytes(), &v6.octets()]),
            },
            (None, Some(name)) => {
                pick::hash(self.world.seed, &[spec.uid.as_bytes(), self.world.policies[name].uid.as_bytes()])
            }
            (None, None) => unreachable!(),
        };
        let weight = |node: &NodeName| pick::weight(key, pick::hash(self.world.seed, &[node.as_bytes()]));
        let open: Vec<&NodeName> = self
            .world
            .nodes
            .keys()
            .filter(|node| {
                self.ready(gateway, node) && !not.contains(node) && eip.is_none_or(|eip| !self.excludes(eip, node))
            })
            .collect();
        let mut fit: Vec<&NodeName> =
            open.iter().copied().filter(|node| eip.is_none() || self.has_room(node)).collect();
        if fit.is_empty() {
            return Err(if open.is_empty() { Unmet::NoReadyNode } else { Unmet::NoCapacity });
        }
        let keep_best = |fit: &mut Vec<&NodeName>, score: &dyn Fn(&NodeName) -> i64| {
            let best = fit.iter().map(|node| score(node)).max().unwrap();
            fit.retain(|node| score(node) == best);
        };
        match spec.mode {
            NodeMode::Average => {
                keep_best(&mut fit, &|node| -self.load(gateway, node));
                keep_best(&mut fit, &|node| -self.addresses_on(gateway, node));
            }
            NodeMode::FewestNodes => keep_best(&mut fit, &|node| self.load(gateway, node)),
            NodeMode::Limit(n) => {
                let n = i64::from(n);
                if fit.iter().any(|node| (1..n).contains(&self.load(gateway, node))) {
                    fit.retain(|node| (1..n).contains(&self.load(gateway, node)));
                    keep_best(&mut fit, &|node| self.load(gateway, node));
                } else if fit.iter().any(|node| self.load(gateway, node) == 0) {
                    fit.retain(|node| self.load(gateway, node) == 0);
                }
            }
        }
        Ok(fit.into_iter().max_by_key(|node| weight(node)).unwrap().clone())
    }
}
