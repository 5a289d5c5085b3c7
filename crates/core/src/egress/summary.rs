//! Queries about gateways and totals.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::state::GatewayState;
use super::{GatewayName, Move, NodeName, Planner, PolicyName};
use crate::net::Family;

/// Numbers of a gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GatewayUsage {
    /// Addresses in the pool: IPv4, then IPv6.
    pub total: [u64; 2],
    /// Addresses that no policy uses.
    pub free: [u64; 2],
    /// Policies with a grant.
    pub granted: u64,
    /// Policies without a grant.
    pub waiting: u64,
}

impl GatewayUsage {
    pub(super) fn of(state: &GatewayState) -> Self {
        let total = [Family::V4, Family::V6]
            .map(|family| u64::try_from(state.spec.pool.family(family).count()).unwrap_or(u64::MAX));
        Self {
            total,
            free: [0, 1].map(|family| total[family].saturating_sub(state.used[family])),
            granted: state.policies,
            waiting: u64::try_from(state.waiting.len()).unwrap_or(u64::MAX),
        }
    }
}

impl Planner {
    /// Every address with a record, in service or not.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.owners.keys().copied()
    }

    /// The moves of the last round.
    pub fn moves(&self) -> &[Move] {
        &self.moves
    }

    /// The gateways whose selector matches a node.
    pub fn gateways_of(&self, node: &str) -> Vec<GatewayName> {
        let Some(node) = self.nodes.find(node) else { return Vec::new() };
        let selects =
            |state: &GatewayState| state.candidates.binary_search_by_key(&node, |candidate| candidate.node).is_ok();
        self.gateways.iter().filter(|(_, state)| selects(state)).map(|(name, _)| name.clone()).collect()
    }

    /// The nodes of a gateway that are ready.
    pub fn ready_nodes(&self, gateway: &str) -> BTreeSet<NodeName> {
        let candidates = self.gateways.get(gateway).map(|state| state.candidates.as_slice()).unwrap_or_default();
        candidates
            .iter()
            .filter(|candidate| candidate.ready)
            .map(|candidate| self.nodes.name(candidate.node).clone())
            .collect()
    }

    /// True if a policy names the gateway or has a grant of it.
    pub fn is_used(&self, gateway: &str) -> bool {
        let granted = self.gateways.get(gateway).is_some_and(|state| state.policies > 0);
        granted || self.policies.iter().any(|(_, entry)| *entry.spec.gateway == *gateway)
    }

    /// The first policies that name a gateway, by name, and how many there are.
    pub fn policies_of(&self, gateway: &str, limit: usize) -> (Vec<&PolicyName>, usize) {
        let named = self.policies.iter().filter(|(_, entry)| *entry.spec.gateway == *gateway);
        let mut names: Vec<&PolicyName> = named.map(|(_, entry)| &entry.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.truncate(limit);
        (names, count)
    }

    /// An address in use that is no longer in its gateway's pool.
    pub fn outside_pool(&self, gateway: &str) -> Option<IpAddr> {
        let state = self.gateways.get(gateway)?;
        let in_use = state.allocations.iter().filter(|(_, allocation)| !allocation.users.is_empty());
        in_use.flat_map(|(eip, _)| eip.addresses()).find(|address| !state.spec.pool.contains(*address))
    }

    /// The numbers of a gateway.
    pub fn usage(&self, gateway: &str) -> GatewayUsage {
        self.gateways.get(gateway).map(GatewayUsage::of).unwrap_or_default()
    }

    /// Every policy that does not get everything it requests, unordered.
    pub fn unmet_policies(&self) -> impl Iterator<Item = &PolicyName> {
        self.policies.iter().map(|(_, entry)| &entry.name).filter(|policy| self.unmet(policy).is_some())
    }
}
