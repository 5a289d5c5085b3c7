//! Settling: allocations without a node get one, then waiting policies are served, until nothing more changes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;

use super::placement::{NodeId, PlacementRequest, choose};
use super::planner::{Affected, Planner};
use super::policies::{Grant, PolicyId};
use super::state::{Allocation, AllocationOrder, GatewayState};
use super::{AddressRecord, AddressRequest, Eip, GatewayName, Move, MoveCause, Unmet};
use crate::pick;

/// Slots: the number of an egress address in packet marks, 14 bits. 0 means none and 1 the node's own address.
pub(super) const SLOTS: RangeInclusive<u16> = 2..=16383;

/// One planning round: what has changed so far and what is still to be settled.
#[derive(Debug, Default)]
pub(super) struct PlanningRound {
    pub(super) affected: Affected,
    /// Affected policies; may contain duplicates.
    pub(super) policies: Vec<PolicyId>,
    /// Gateways to settle.
    pub(super) gateways: BTreeSet<GatewayName>,
    /// Capacity that others may wait for was freed: on a node, a slot, or an address.
    pub(super) freed: bool,
    /// Where the allocations that move came from.
    pub(super) origins: BTreeMap<(GatewayName, Eip), MoveOrigin>,
    /// Where the policies that use a node's own address came from.
    policy_origins: BTreeMap<PolicyId, PolicyOrigin>,
}

/// Where a policy that uses a node's own address was before.
#[derive(Debug)]
struct PolicyOrigin {
    gateway: GatewayName,
    from: Option<NodeId>,
    cause: MoveCause,
}

/// Where an allocation was before.
#[derive(Debug, Clone, Copy)]
pub(super) enum MoveOrigin {
    /// It is not recorded yet, so it does not count as a move.
    New,
    /// On this node, which it had to leave for this cause.
    From(Option<NodeId>, MoveCause),
}

impl PlanningRound {
    pub(super) fn mark_address(&mut self, address: IpAddr) {
        self.affected.addresses.insert(address);
    }

    pub(super) fn mark_allocation(&mut self, gateway: &GatewayName, eip: Eip) {
        self.affected.addresses.extend(eip.addresses());
        self.affected.gateways.insert(gateway.clone());
    }
}

impl Planner {
    pub(super) fn settle(&mut self, mut round: PlanningRound) -> Affected {
        loop {
            if std::mem::take(&mut round.freed) {
                let unsettled = self.gateways.iter().filter(|(_, state)| {
                    !state.waiting.is_empty()
                        || state.by_node.contains_key(&None)
                        || state.node_address_users.contains_key(&None)
                });
                round.gateways.extend(unsettled.map(|(name, _)| name.clone()));
            }
            let gateways: Vec<GatewayName> =
                round.gateways.iter().filter(|name| self.gateways.contains_key(*name)).cloned().collect();
            for gateway in &gateways {
                self.assign_missing_nodes(gateway, &mut round);
            }
            let mut served = false;
            for gateway in &gateways {
                served |= self.serve(gateway, &mut round);
            }
            if !served && !round.freed {
                break;
            }
        }
        self.record_moves(&mut round);
        self.moves.clone_from(&round.affected.moves);
        round.affected
    }

    /// Assigns nodes to allocations without one, then to policies that use a node's own address.
    fn assign_missing_nodes(&mut self, gateway: &GatewayName, round: &mut PlanningRound) {
        let state = &self.gateways[gateway];
        if !state.any_ready() {
            return;
        }
        for eip in state.in_order(state.by_node.get(&None).into_iter().flatten().copied()) {
            let Ok(node) = self.node_for(&self.gateways[gateway], eip) else { continue };
            round.origins.entry((gateway.clone(), eip)).or_insert(MoveOrigin::From(None, MoveCause::NodeReady));
            self.assign_node(gateway, eip, Some(node));
        }
        let without_node = self.gateways[gateway].node_address_users.get(&None).into_iter().flatten();
        for order in without_node.cloned().collect::<Vec<AllocationOrder>>() {
            let id = order.policy;
            let Ok(node) = self.node_for_policy(&self.gateways[gateway], id) else { continue };
            let origin = PolicyOrigin { gateway: gateway.clone(), from: None, cause: MoveCause::NodeReady };
            round.policy_origins.entry(id).or_insert(origin);
            let state = self.gateway_mut(gateway);
            state.set_node_address_user(None, order.clone(), false);
            state.set_node_address_user(Some(node), order, true);
            self.policies[id].grant.as_mut().expect("a user of a node's address has a grant").node = Some(node);
        }
    }

    /// Serves waiting policies in order; true if any got a grant.
    fn serve(&mut self, gateway: &GatewayName, round: &mut PlanningRound) -> bool {
        let state = self.gateway_mut(gateway);
        let ready = state.any_ready();
        if state.waiting.is_empty() || (!ready && state.no_ready_node) {
            state.no_ready_node = !ready;
            return false;
        }
        state.no_ready_node = !ready;
        let (mut served, mut left) = (false, BTreeMap::new());
        for (order, before) in std::mem::take(&mut state.waiting) {
            let granted = if ready { self.grant(gateway, order.policy, round) } else { Err(Unmet::NoReadyNode) };
            served |= granted.is_ok();
            if granted.as_ref().err() != Some(&before) {
                round.policies.push(order.policy);
            }
            if let Err(unmet) = granted {
                left.insert(order, unmet);
            }
        }
        self.gateway_mut(gateway).waiting = left;
        served
    }

    /// Grants a policy what it requests, or returns why not and changes nothing.
    fn grant(&mut self, gateway: &GatewayName, id: PolicyId, round: &mut PlanningRound) -> Result<(), Unmet> {
        let state = &self.gateways[gateway];
        if self.policies[id].spec.request == AddressRequest::NodeAddress {
            let node = Some(self.node_for_policy(state, id)?);
            let order = self.policies[id].order(id);
            self.gateway_mut(gateway).set_node_address_user(node, order, true);
            round.affected.gateways.insert(gateway.clone());
            let (gateway, eip) = (gateway.clone(), Eip::default());
            self.policies[id].grant = Some(Grant { gateway, eip, node, user_index: 0 });
            return Ok(());
        }
        if let AddressRequest::FromPool(mode) = self.policies[id].spec.request
            && mode.needs_user_counts()
        {
            self.gateway_mut(gateway).index_by_user_count();
        }
        let state = &self.gateways[gateway];
        let eip = state.pick(id, &self.policies, self.world.seed)?;
        match state.allocations.get(&eip).map(|allocation| allocation.node) {
            Some(Some(node)) if self.can_host(state, eip, node) => {}
            Some(from) => {
                let to = self.node_for(state, eip)?;
                let cause = from.map_or(MoveCause::NodeReady, |node| self.cause(state, node));
                round.origins.entry((gateway.clone(), eip)).or_insert(MoveOrigin::From(from, cause));
                self.assign_node(gateway, eip, Some(to));
                round.freed |= from.is_some();
            }
            None => {
                let node = Some(self.node_for(state, eip)?);
                let slot = self.free_slot().ok_or(Unmet::SlotsExhausted)?;
                self.insert(gateway, eip, Allocation { slot, node, epoch: 1, ..Allocation::default() }, round);
            }
        }
        self.add_user(gateway, eip, id, round);
        Ok(())
    }

    /// Adds a policy to the users of an allocation.
    pub(super) fn add_user(&mut self, gateway: &GatewayName, eip: Eip, id: PolicyId, round: &mut PlanningRound) {
        let explicit = self.policies[id].is_explicit();
        let user_index = self.gateway_mut(gateway).change(eip, |allocation| {
            let user_index = allocation.load();
            allocation.users.push(id);
            allocation.explicit += u32::from(explicit);
            allocation.recorded = eip;
            user_index
        });
        if user_index == 0 {
            round.mark_allocation(gateway, eip);
        }
        round.affected.gateways.insert(gateway.clone());
        self.policies[id].grant = Some(Grant { gateway: gateway.clone(), eip, node: None, user_index });
    }

    /// Inserts an allocation that has no record yet.
    pub(super) fn insert(
        &mut self,
        gateway: &GatewayName,
        eip: Eip,
        allocation: Allocation,
        round: &mut PlanningRound,
    ) {
        self.slots.insert(allocation.slot.into(), allocation.slot.into());
        self.nodes.move_address(None, allocation.node);
        round.mark_allocation(gateway, eip);
        self.gateway_mut(gateway)
            .change(eip, |made| *made = Allocation { index: made.index, recorded: eip, ..allocation });
        for address in eip.addresses() {
            self.owners.insert(address, gateway.clone());
            if self.overlapping {
                self.refresh_all(address, round);
            }
        }
    }

    /// Releases what a policy was granted, or removes it from the waiting ones.
    pub(super) fn release(&mut self, id: PolicyId, round: &mut PlanningRound) {
        let entry = &mut self.policies[id];
        let explicit = entry.is_explicit();
        let Some(Grant { gateway, eip, node, user_index }) = entry.grant.take() else {
            if let Some(state) = self.gateways.get_mut(&entry.spec.gateway) {
                state.waiting.remove(&entry.order(id));
            }
            return;
        };
        let state = self.gateways.get_mut(&gateway).expect("a grant has its gateway");
        round.gateways.insert(gateway.clone());
        if eip.is_none() {
            state.set_node_address_user(node, entry.order(id), false);
        } else {
            let (is_unused, moved) = state.change(eip, |allocation| {
                allocation.users.swap_remove(user_index as usize);
                allocation.explicit -= u32::from(explicit);
                (allocation.users.is_empty(), allocation.users.get(user_index as usize).copied())
            });
            if let Some(grant) = moved.and_then(|moved| self.policies[moved].grant.as_mut()) {
                grant.user_index = user_index;
            }
            if is_unused {
                round.mark_allocation(&gateway, eip);
            }
        }
        round.affected.gateways.insert(gateway);
    }

    pub(super) fn enqueue(&mut self, id: PolicyId, round: &mut PlanningRound) {
        let entry = &self.policies[id];
        if let Some(state) = self.gateways.get_mut(&entry.spec.gateway).filter(|_| !entry.spec.refused) {
            state.waiting.insert(entry.order(id), Unmet::NoReadyNode);
            round.gateways.insert(entry.spec.gateway.clone());
        }
    }

    /// Unassigns a node from everything of a gateway.
    pub(super) fn evict(&mut self, gateway: &GatewayName, node: NodeId, round: &mut PlanningRound) {
        let state = &self.gateways[gateway];
        let eips: Vec<Eip> = state.by_node.get(&Some(node)).into_iter().flatten().copied().collect();
        let users: Vec<AllocationOrder> =
            state.node_address_users.get(&Some(node)).into_iter().flatten().cloned().collect();
        for eip in eips {
            self.unassign_node(gateway, eip, round);
        }
        for order in users {
            self.unassign_node_of_policy(gateway, order.policy, round);
        }
    }

    /// Unassigns the node of an allocation; an idle one keeps what is recorded.
    pub(super) fn unassign_node(&mut self, gateway: &GatewayName, eip: Eip, round: &mut PlanningRound) {
        let state = &self.gateways[gateway];
        let Some(node) = state
            .allocations
            .get(&eip)
            .filter(|allocation| !allocation.users.is_empty())
            .and_then(|allocation| allocation.node)
        else {
            return;
        };
        let cause = self.cause(state, node);
        round.origins.entry((gateway.clone(), eip)).or_insert(MoveOrigin::From(Some(node), cause));
        round.gateways.insert(gateway.clone());
        round.freed = true;
        self.assign_node(gateway, eip, None);
    }

    pub(super) fn unassign_node_of_policy(&mut self, gateway: &GatewayName, id: PolicyId, round: &mut PlanningRound) {
        let entry = &mut self.policies[id];
        let Some(node) = entry.grant.as_mut().and_then(|grant| grant.node.take()) else { return };
        let order = entry.order(id);
        let cause = self.cause(&self.gateways[gateway], node);
        let origin = PolicyOrigin { gateway: gateway.clone(), from: Some(node), cause };
        round.policy_origins.entry(id).or_insert(origin);
        let state = self.gateway_mut(gateway);
        state.set_node_address_user(Some(node), order.clone(), false);
        state.set_node_address_user(None, order, true);
    }

    pub(super) fn assign_node(&mut self, gateway: &GatewayName, eip: Eip, to: Option<NodeId>) {
        let state = self.gateways.get_mut(gateway).expect("an allocation has its gateway");
        let from = state.allocations.get(&eip).and_then(|allocation| allocation.node);
        state.change(eip, |allocation| allocation.node = to);
        self.nodes.move_address(from, to);
    }

    /// Increments the epochs of what moved and lists the moves.
    fn record_moves(&mut self, round: &mut PlanningRound) {
        for ((gateway, eip), origin) in std::mem::take(&mut round.origins) {
            let Some(allocation) = self.gateways.get(&gateway).and_then(|state| state.allocations.get(&eip)) else {
                continue;
            };
            round.mark_allocation(&gateway, eip);
            round.policies.extend(&allocation.users);
            let MoveOrigin::From(from, cause) = origin else { continue };
            if from == allocation.node || allocation.users.is_empty() {
                continue;
            }
            let (from, to) = (self.node_name(from), self.node_name(allocation.node));
            self.gateway_mut(&gateway).change(eip, |allocation| allocation.epoch += 1);
            round.affected.moves.push(Move { eip, policy: None, gateway, from, to, cause });
        }
        for (id, PolicyOrigin { gateway, from, cause }) in std::mem::take(&mut round.policy_origins) {
            round.affected.gateways.insert(gateway.clone());
            round.policies.push(id);
            let entry = &self.policies[id];
            let Some(grant) = entry.grant.as_ref().filter(|grant| grant.node != from) else { continue };
            let (from, to, policy) = (self.node_name(from), self.node_name(grant.node), Some(entry.name.clone()));
            round.affected.moves.push(Move { eip: Eip::default(), policy, gateway, from, to, cause });
        }
        round.policies.sort_unstable();
        round.policies.dedup();
        // collected first, because sorting compares fewer names than inserting one by one
        let mut names = round.policies.iter().map(|id| self.policies[*id].name.clone()).collect();
        round.affected.policies.append(&mut names);
        round.affected.moves.sort_by(|a, b| (&a.gateway, a.eip, &a.policy).cmp(&(&b.gateway, b.eip, &b.policy)));
    }

    pub(super) fn gateway_mut(&mut self, gateway: &GatewayName) -> &mut GatewayState {
        self.gateways.get_mut(gateway).expect("only gateways that exist are settled")
    }

    pub(super) fn free_slot(&self) -> Option<u16> {
        let slot = self.slots.first_gap((*SLOTS.start()).into())?;
        u16::try_from(slot).ok().filter(|slot| SLOTS.contains(slot))
    }

    /// True if the node can hold the address.
    pub(super) fn can_host(&self, state: &GatewayState, eip: Eip, node: NodeId) -> bool {
        state.is_ready(node) && !self.is_node_excluded(eip, node)
    }

    pub(super) fn is_node_excluded(&self, eip: Eip, node: NodeId) -> bool {
        let excluded = |address| {
            self.world.excluded_nodes.get(&address).is_some_and(|nodes| nodes.contains(self.nodes.name(node)))
        };
        !self.world.excluded_nodes.is_empty() && eip.addresses().any(excluded)
    }

    pub(super) fn node_for(&self, state: &GatewayState, eip: Eip) -> Result<NodeId, Unmet> {
        state.node_for(eip, &self.nodes, self.world.seed, &|node| self.is_node_excluded(eip, node))
    }

    fn node_for_policy(&self, state: &GatewayState, id: PolicyId) -> Result<NodeId, Unmet> {
        let uid = self.policies[id].spec.uid.as_bytes();
        let key = pick::hash(self.world.seed, &[state.spec.uid.as_bytes(), uid]);
        let request = PlacementRequest { key, uses_capacity: false, excluded: &|_| false };
        choose(state.spec.mode, &state.candidates, &self.nodes, request).map(|index| state.candidates[index].node)
    }

    fn cause(&self, state: &GatewayState, node: NodeId) -> MoveCause {
        match self.world.nodes.get(self.nodes.name(node)) {
            None => MoveCause::NodeDeleted,
            Some(node) if !node.ready => MoveCause::NodeNotReady,
            Some(node) if !state.spec.selector.matches(&node.labels) => MoveCause::NotSelected,
            Some(_) => MoveCause::NodeExcluded,
        }
    }

    pub(super) fn record_of(
        &self,
        gateway: &GatewayName,
        eip: Eip,
        allocation: &Allocation,
        address: IpAddr,
    ) -> AddressRecord {
        AddressRecord {
            gateway: gateway.clone(),
            pair: eip.addresses().find(|other| *other != address),
            slot: allocation.slot,
            node: self.node_name(allocation.node),
            epoch: allocation.epoch,
        }
    }
}
