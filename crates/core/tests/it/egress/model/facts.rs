//! What holds at this moment, counted anew each time.

use std::collections::BTreeSet;
use std::net::IpAddr;

use portolan_core::egress::*;

use super::{Allocation, Model};

impl Model<'_> {
    pub(super) fn load(&self, gateway: &GatewayName, node: &NodeName) -> i64 {
        let allocations = self
            .allocations
            .iter()
            .filter(|allocation| allocation.gateway == *gateway && allocation.node.as_ref() == Some(node));
        let node_address_users =
            self.node_address_users.iter().filter(|user| user.gateway == *gateway && user.node.as_ref() == Some(node));
        (allocations.map(|allocation| allocation.users.len()).sum::<usize>() + node_address_users.count()) as i64
    }

    pub(super) fn addresses_on(&self, gateway: &GatewayName, node: &NodeName) -> i64 {
        let allocations = self
            .allocations
            .iter()
            .filter(|allocation| allocation.gateway == *gateway && allocation.node.as_ref() == Some(node));
        allocations.filter(|allocation| !allocation.users.is_empty()).count() as i64
    }

    pub(super) fn has_room(&self, node: &NodeName) -> bool {
        let there = self.allocations.iter().filter(|allocation| allocation.node.as_ref() == Some(node)).count();
        self.world.nodes[node].capacity.is_none_or(|capacity| there < capacity as usize)
    }

    pub(super) fn ready(&self, gateway: &GatewayName, node: &NodeName) -> bool {
        let spec = &self.world.gateways[gateway];
        self.world.nodes.get(node).is_some_and(|node| node.ready && spec.selector.matches(&node.labels))
    }

    pub(super) fn excludes(&self, eip: Eip, node: &NodeName) -> bool {
        eip.addresses().any(|a| self.world.excluded_nodes.get(&a).is_some_and(|nodes| nodes.contains(node)))
    }

    pub(super) fn cause(&self, gateway: &GatewayName, node: &NodeName) -> MoveCause {
        let Some(there) = self.world.nodes.get(node) else { return MoveCause::NodeDeleted };
        if !there.ready {
            MoveCause::NodeNotReady
        } else if self.ready(gateway, node) {
            MoveCause::NodeExcluded
        } else {
            MoveCause::NotSelected
        }
    }

    pub(super) fn allocation_of(&self, gateway: &GatewayName, address: IpAddr) -> Option<usize> {
        let is_it = |allocation: &Allocation| {
            allocation.gateway == *gateway && allocation.eip.addresses().any(|a| a == address)
        };
        self.allocations.iter().position(is_it)
    }

    pub(super) fn users(&self, gateway: &GatewayName, eip: Eip) -> BTreeSet<PolicyName> {
        let allocation =
            self.allocations.iter().find(|allocation| allocation.gateway == *gateway && allocation.eip == eip);
        allocation.map(|allocation| allocation.users.clone()).unwrap_or_default()
    }

    /// In the pool, not taken, and not recorded for another gateway.
    pub(super) fn givable(&self, gateway: &GatewayName, eip: Eip) -> bool {
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

    pub(super) fn allowed(&self, gateway: &GatewayName, eip: Eip, name: &PolicyName, explicit: bool) -> bool {
        let users = self.users(gateway, eip);
        let asked = |user: &PolicyName| matches!(self.world.policies[user].request, AddressRequest::Explicit(_));
        !self.world.gateways[gateway].exclusive
            || users.iter().all(|user| user.namespace == name.namespace)
            || (!explicit && !users.iter().any(asked))
    }

    pub(super) fn order(&self, gateway: &GatewayName, eip: Eip) -> usize {
        self.lists[gateway].iter().position(|other| *other == eip).unwrap()
    }

    pub(super) fn has_something(&self, name: &PolicyName) -> bool {
        self.allocations.iter().any(|allocation| allocation.users.contains(name))
            || self.node_address_users.iter().any(|user| user.name == *name)
    }
}
