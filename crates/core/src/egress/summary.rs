//! What a controller asks of the planner besides single addresses and policies.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::state::Gate;
use super::{GatewayName, Move, NodeName, Planner, PolicyName};
use crate::net::Family;

/// A gateway in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GatewayUsage {
    /// Addresses in the pool: IPv4, then IPv6.
    pub total: [u64; 2],
    /// Those that nobody uses.
    pub free: [u64; 2],
    /// Policies that it serves.
    pub granted: u64,
    /// Policies that wait for something.
    pub waiting: u64,
}

impl GatewayUsage {
    pub(super) fn of(gate: &Gate) -> Self {
        let total = [Family::V4, Family::V6]
            .map(|family| u64::try_from(gate.spec.pool.family(family).count()).unwrap_or(u64::MAX));
        Self {
            total,
            free: [0, 1].map(|family| total[family].saturating_sub(gate.used[family])),
            granted: gate.policies,
            waiting: u64::try_from(gate.waiting.len()).unwrap_or(u64::MAX),
        }
    }
}

impl Planner {
    /// Every address with a record, in service or not.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.owners.keys().copied()
    }

    /// What the last decision moved.
    pub fn moves(&self) -> &[Move] {
        &self.moves
    }

    /// The gateways whose selector matches a node.
    pub fn gateways_of(&self, node: &str) -> Vec<GatewayName> {
        let Some(node) = self.nodes.find(node) else { return Vec::new() };
        let selects = |gate: &Gate| gate.sites.binary_search_by_key(&node, |site| site.node).is_ok();
        self.gates.iter().filter(|(_, gate)| selects(gate)).map(|(name, _)| name.clone()).collect()
    }

    /// The nodes that can serve a gateway as things stand.
    pub fn ready_nodes(&self, gateway: &str) -> BTreeSet<NodeName> {
        let sites = self.gates.get(gateway).map(|gate| gate.sites.as_slice()).unwrap_or_default();
        sites.iter().filter(|site| site.ready).map(|site| self.nodes.name(site.node).clone()).collect()
    }

    /// True if a policy names the gateway, or has something of it.
    pub fn is_used(&self, gateway: &str) -> bool {
        let granted = self.gates.get(gateway).is_some_and(|gate| gate.policies > 0);
        granted || self.policies.iter().any(|(_, row)| *row.spec.gateway == *gateway)
    }

    /// An address in use that is no longer in its gateway's pool.
    pub fn outside_pool(&self, gateway: &str) -> Option<IpAddr> {
        let gate = self.gates.get(gateway)?;
        let in_use = gate.seats.iter().filter(|(_, seat)| !seat.users.is_empty());
        in_use.flat_map(|(eip, _)| eip.addresses()).find(|address| !gate.spec.pool.contains(*address))
    }

    /// A gateway in numbers.
    pub fn usage(&self, gateway: &str) -> GatewayUsage {
        self.gates.get(gateway).map(GatewayUsage::of).unwrap_or_default()
    }

    /// Every policy that does not get all it asks for, in no order.
    pub fn unmet_policies(&self) -> impl Iterator<Item = &PolicyName> {
        self.policies.iter().map(|(_, row)| &row.name).filter(|policy| self.unmet(policy).is_some())
    }
}
