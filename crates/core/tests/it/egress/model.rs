//! The planner's definition in plain nested loops: pools are lists, everything is counted anew whenever it is needed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use portolan_core::egress::*;
use portolan_core::pick;

#[derive(Clone, Debug)]
struct Allocation {
    gateway: GatewayName,
    eip: Eip,
    slot: u16,
    node: Option<NodeName>,
    epoch: u64,
    recorded: Vec<IpAddr>,
    users: BTreeSet<PolicyName>,
    /// Where it was and why it left; none if it has not moved.
    left: Option<(Option<NodeName>, MoveCause)>,
    fresh: bool,
}

#[derive(Clone, Debug)]
struct NodeAddressUser {
    gateway: GatewayName,
    name: PolicyName,
    node: Option<NodeName>,
    left: Option<(Option<NodeName>, MoveCause)>,
}

struct Model<'a> {
    world: &'a World,
    ledger: &'a Ledger,
    lists: BTreeMap<GatewayName, Vec<Eip>>,
    allocations: Vec<Allocation>,
    node_address_users: Vec<NodeAddressUser>,
    /// Records that belong to no allocation.
    orphans: BTreeMap<IpAddr, u16>,
    unmet: BTreeMap<PolicyName, Unmet>,
}

pub(crate) fn plan(world: &World, ledger: &Ledger) -> Plan {
    let mut model = Model {
        world,
        ledger,
        lists: BTreeMap::new(),
        allocations: Vec::new(),
        node_address_users: Vec::new(),
        orphans: BTreeMap::new(),
        unmet: BTreeMap::new(),
    };
    model.read_records();
    model.keep_bindings();
    model.settle();
    model.write()
}

fn single(address: IpAddr) -> Eip {
    match address {
        IpAddr::V4(v4) => Eip { v4: Some(v4), v6: None },
        IpAddr::V6(v6) => Eip { v4: None, v6: Some(v6) },
    }
}

fn both(a: IpAddr, b: IpAddr) -> Eip {
    Eip { v4: single(a).v4.or(single(b).v4), v6: single(a).v6.or(single(b).v6) }
}

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
    fn read_records(&mut self) {
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

    fn free_slot(&self) -> u16 {
        let used = |slot: u16| {
            self.allocations.iter().any(|allocation| allocation.slot == slot)
                || self.orphans.values().any(|s| *s == slot)
        };
        (2..=16383).find(|slot| !used(*slot)).unwrap()
    }

    fn keep_bindings(&mut self) {
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

    fn settle(&mut self) {
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

    fn assign_missing_nodes(&mut self, gateway: &GatewayName) {
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

    fn serve(&mut self, gateway: &GatewayName, name: &PolicyName, policy: &Policy) -> Result<(), Unmet> {
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

    fn pick(&self, gateway: &GatewayName, name: &PolicyName, policy: &Policy) -> Result<Eip, Unmet> {
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
    fn choose(
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

    fn load(&self, gateway: &GatewayName, node: &NodeName) -> i64 {
        let allocations = self
            .allocations
            .iter()
            .filter(|allocation| allocation.gateway == *gateway && allocation.node.as_ref() == Some(node));
        let node_address_users =
            self.node_address_users.iter().filter(|user| user.gateway == *gateway && user.node.as_ref() == Some(node));
        (allocations.map(|allocation| allocation.users.len()).sum::<usize>() + node_address_users.count()) as i64
    }

    fn addresses_on(&self, gateway: &GatewayName, node: &NodeName) -> i64 {
        let allocations = self
            .allocations
            .iter()
            .filter(|allocation| allocation.gateway == *gateway && allocation.node.as_ref() == Some(node));
        allocations.filter(|allocation| !allocation.users.is_empty()).count() as i64
    }

    fn has_room(&self, node: &NodeName) -> bool {
        let there = self.allocations.iter().filter(|allocation| allocation.node.as_ref() == Some(node)).count();
        self.world.nodes[node].capacity.is_none_or(|capacity| there < capacity as usize)
    }

    fn ready(&self, gateway: &GatewayName, node: &NodeName) -> bool {
        let spec = &self.world.gateways[gateway];
        self.world.nodes.get(node).is_some_and(|node| node.ready && spec.selector.matches(&node.labels))
    }

    fn excludes(&self, eip: Eip, node: &NodeName) -> bool {
        eip.addresses().any(|a| self.world.excluded_nodes.get(&a).is_some_and(|nodes| nodes.contains(node)))
    }

    fn cause(&self, gateway: &GatewayName, node: &NodeName) -> MoveCause {
        let Some(there) = self.world.nodes.get(node) else { return MoveCause::NodeDeleted };
        if !there.ready {
            MoveCause::NodeNotReady
        } else if self.ready(gateway, node) {
            MoveCause::NodeExcluded
        } else {
            MoveCause::NotSelected
        }
    }

    fn allocation_of(&self, gateway: &GatewayName, address: IpAddr) -> Option<usize> {
        let is_it = |allocation: &Allocation| {
            allocation.gateway == *gateway && allocation.eip.addresses().any(|a| a == address)
        };
        self.allocations.iter().position(is_it)
    }

    fn users(&self, gateway: &GatewayName, eip: Eip) -> BTreeSet<PolicyName> {
        let allocation =
            self.allocations.iter().find(|allocation| allocation.gateway == *gateway && allocation.eip == eip);
        allocation.map(|allocation| allocation.users.clone()).unwrap_or_default()
    }

    /// In the pool, not taken, and not recorded for another gateway.
    fn givable(&self, gateway: &GatewayName, eip: Eip) -> bool {
        eip.addresses().all(|a| {
            let elsewhere = self
                .allocations
                .iter()
                .any(|allocation| allocation.gateway != *gateway && allocation.eip.addresses().any(|b| a == b));
            self.world.gateways[gateway].pool.contains(a)
                && !self.world.taken.contains(&a)
                && !elsewhere
                && !self.orphans.contains_key(&a)
        })
    }

    fn allowed(&self, gateway: &GatewayName, eip: Eip, name: &PolicyName, explicit: bool) -> bool {
        let users = self.users(gateway, eip);
        let asked = |user: &PolicyName| matches!(self.world.policies[user].request, AddressRequest::Explicit(_));
        !self.world.gateways[gateway].exclusive
            || users.iter().all(|user| user.namespace == name.namespace)
            || (!explicit && !users.iter().any(asked))
    }

    fn order(&self, gateway: &GatewayName, eip: Eip) -> usize {
        self.lists[gateway].iter().position(|other| *other == eip).unwrap()
    }

    fn has_something(&self, name: &PolicyName) -> bool {
        self.allocations.iter().any(|allocation| allocation.users.contains(name))
            || self.node_address_users.iter().any(|user| user.name == *name)
    }

    fn write(mut self) -> Plan {
        let mut plan = Plan { unmet: std::mem::take(&mut self.unmet), ..Plan::default() };
        for allocation in &mut self.allocations {
            if let Some((from, cause)) =
                allocation.left.clone().filter(|(from, _)| !allocation.fresh && *from != allocation.node)
            {
                allocation.epoch += 1;
                let (gateway, to) = (allocation.gateway.clone(), allocation.node.clone());
                plan.moves.push(Move { eip: allocation.eip, policy: None, gateway, from, to, cause });
            }
        }
        for user in &self.node_address_users {
            if let Some((from, cause)) = user.left.clone().filter(|(from, _)| *from != user.node) {
                let (gateway, to, policy) = (user.gateway.clone(), user.node.clone(), Some(user.name.clone()));
                plan.moves.push(Move { eip: Eip::default(), policy, gateway, from, to, cause });
            }
        }
        plan.moves.sort_by_key(|m| (m.gateway.clone(), m.eip, m.policy.clone()));
        for allocation in &self.allocations {
            for a in &allocation.recorded {
                if allocation.users.is_empty() {
                    plan.recycled.insert(*a);
                }
            }
            for a in allocation.eip.addresses().filter(|_| !allocation.users.is_empty()) {
                let record = AddressRecord {
                    gateway: allocation.gateway.clone(),
                    pair: allocation.eip.addresses().find(|b| *b != a),
                    slot: allocation.slot,
                    node: allocation.node.clone(),
                    epoch: allocation.epoch,
                };
                let outside_pool = !self.world.gateways[&allocation.gateway].pool.contains(a);
                plan.addresses.insert(a, PlannedAddress { record, standby: self.standby(allocation), outside_pool });
            }
            for user in &allocation.users {
                let binding =
                    Binding { eip: allocation.eip, node: allocation.node.clone(), gateway: allocation.gateway.clone() };
                plan.bindings.insert(user.clone(), binding);
            }
        }
        plan.recycled.extend(self.orphans.keys());
        if self.world.keep_unused {
            plan.recycled.clear();
        }
        for user in &self.node_address_users {
            let binding = Binding { eip: Eip::default(), node: user.node.clone(), gateway: user.gateway.clone() };
            plan.bindings.insert(user.name.clone(), binding);
        }
        for (name, policy) in &self.world.policies {
            let unmet = match plan.bindings.get(name) {
                _ if policy.refused => Some(Unmet::Refused),
                None if !self.world.gateways.contains_key(&policy.gateway) => Some(Unmet::GatewayNotFound),
                None => continue,
                Some(binding) if binding.gateway != policy.gateway || !fits(policy.request, binding.eip) => {
                    Some(Unmet::ImmutableField)
                }
                Some(binding) if binding.node.is_some() => None,
                Some(binding) if binding.eip.is_none() => Some(Unmet::NoReadyNode),
                Some(binding) => self.choose(&binding.gateway, Some(binding.eip), None, &[]).err(),
            };
            if let Some(unmet) = unmet {
                plan.unmet.insert(name.clone(), unmet);
            }
        }
        for (name, gateway) in &self.world.gateways {
            plan.views.insert(name.clone(), self.view(name, gateway));
        }
        plan
    }

    fn view(&self, name: &GatewayName, gateway: &Gateway) -> GatewayView {
        let mut view = GatewayView {
            total: [gateway.pool.v4.count() as u64, gateway.pool.v6.count() as u64],
            ..GatewayView::default()
        };
        view.free = view.total;
        for (node, there) in &self.world.nodes {
            if !gateway.selector.matches(&there.labels) {
                continue;
            }
            let mut entries = Vec::new();
            for allocation in self
                .allocations
                .iter()
                .filter(|allocation| allocation.gateway == *name && allocation.node.as_ref() == Some(node))
            {
                if !allocation.users.is_empty() {
                    entries
                        .push(EipUsers { eip: allocation.eip, policies: allocation.users.iter().cloned().collect() });
                }
            }
            let node_address_users =
                self.node_address_users.iter().filter(|user| user.gateway == *name && user.node.as_ref() == Some(node));
            let mut policies: Vec<PolicyName> = node_address_users.map(|user| user.name.clone()).collect();
            policies.sort();
            if !policies.is_empty() {
                entries.push(EipUsers { eip: Eip::default(), policies });
            }
            entries.sort_by_key(|entry| entry.eip);
            view.nodes.insert(node.clone(), entries);
        }
        for allocation in
            self.allocations.iter().filter(|allocation| allocation.gateway == *name && !allocation.users.is_empty())
        {
            view.policies += allocation.users.len() as u64;
            for a in allocation.eip.addresses().filter(|a| gateway.pool.contains(*a)) {
                view.free[usize::from(a.is_ipv6())] -= 1;
            }
        }
        view.policies += self.node_address_users.iter().filter(|user| user.gateway == *name).count() as u64;
        view
    }

    /// What happens to this allocation when its node is lost: all allocations without a node, of all gateways, in order, on a copy.
    fn standby(&self, allocation: &Allocation) -> Vec<NodeName> {
        let Some(lost) = &allocation.node else { return Vec::new() };
        let mut world = self.world.clone();
        world.nodes.get_mut(lost).unwrap().ready = false;
        let mut copy = Model {
            world: &world,
            ledger: self.ledger,
            lists: self.lists.clone(),
            allocations: self.allocations.clone(),
            node_address_users: self.node_address_users.clone(),
            orphans: self.orphans.clone(),
            unmet: BTreeMap::new(),
        };
        let orphans: Vec<usize> = (0..copy.allocations.len())
            .filter(|i| copy.allocations[*i].node.as_ref() == Some(lost) && !copy.allocations[*i].users.is_empty())
            .collect();
        for i in &orphans {
            copy.allocations[*i].node = None;
        }
        // policies on the node's own address leave as well, but find their places after the addresses
        for user in copy.node_address_users.iter_mut().filter(|user| user.node.as_ref() == Some(lost)) {
            user.node = None;
        }
        let mut order = orphans;
        order.sort_by_key(|i| {
            let allocation = &copy.allocations[*i];
            (
                allocation.gateway.clone(),
                std::cmp::Reverse(allocation.users.len()),
                copy.order(&allocation.gateway, allocation.eip),
            )
        });
        for i in order {
            let (gateway, eip) = (copy.allocations[i].gateway.clone(), copy.allocations[i].eip);
            let mut chosen = Vec::new();
            while let Ok(node) = copy.choose(&gateway, Some(eip), None, &chosen) {
                chosen.push(node);
                if chosen.len() == 3 {
                    break;
                }
            }
            if gateway == allocation.gateway && eip == allocation.eip {
                return chosen;
            }
            copy.allocations[i].node = chosen.first().cloned();
        }
        unreachable!()
    }
}

pub(crate) fn fits(ask: AddressRequest, eip: Eip) -> bool {
    match ask {
        AddressRequest::NodeAddress => eip.is_none(),
        AddressRequest::Explicit(e) => {
            !eip.is_none() && (e.v4.is_none() || e.v4 == eip.v4) && (e.v6.is_none() || e.v6 == eip.v6)
        }
        AddressRequest::FromPool(_) => !eip.is_none(),
    }
}
