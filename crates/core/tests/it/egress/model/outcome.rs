//! The plan that says what came of it.

use std::collections::BTreeMap;

use portolan_core::egress::*;

use super::{Allocation, Model, fits};

impl Model<'_> {
    pub(super) fn write(mut self) -> Plan {
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

    pub(super) fn view(&self, name: &GatewayName, gateway: &Gateway) -> GatewayView {
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
    pub(super) fn standby(&self, allocation: &Allocation) -> Vec<NodeName> {
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
