//! The planner: keeps the world and its decisions, and replans only what a change affects.
//!
//! ```text
//! World + Ledger --load--> gateways, allocations, grants --settle--> Plan
//!                                       ^                     |
//!                           Change -----+                     +--> Affected
//! ```
//! A change followed by [`Planner::plan`] gives the same result as planning the changed world from scratch, with the
//! planner's own state as the ledger. A property test checks this after every change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::placement::{CandidateNode, NodeId, Nodes};
use super::policies::{Grant, Policies, PolicyId};
use super::settle::PlanningRound;
use super::state::GatewayState;
use super::{
    AddressRecord, AddressRequest, Binding, Eip, Gateway, GatewayName, Ledger, Move, Node, NodeName, PlannedAddress,
    Policy, PolicyName, Unmet, World,
};
use crate::net::{AddressSet, IntervalSet};

/// A change of the world or of the ledger.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A policy was created, changed or deleted. One with another uid is another policy and inherits nothing.
    Policy(PolicyName, Option<Policy>),
    /// A node was created, changed or deleted.
    Node(NodeName, Option<Node>),
    /// A gateway was created, changed or deleted: it is replanned from what is recorded.
    Gateway(GatewayName, Option<Gateway>),
    /// Whether an address is held elsewhere or being released.
    Taken(IpAddr, bool),
    /// The nodes that cannot hold an address.
    ExcludedNodes(IpAddr, BTreeSet<NodeName>),
    /// Whether recycling is suspended.
    KeepUnused(bool),
    /// The record of an address differs from the plan. A higher epoch is adopted, an equal or lower one is repaired.
    /// When a claim is deleted, send [`Change::Taken`] with false before this change.
    ObservedRecord(IpAddr, Option<AddressRecord>),
    /// The status of a policy differs from the plan. It is adopted if it is valid, else repaired.
    ObservedBinding(PolicyName, Option<Binding>),
}

/// Everything whose desired state may have changed.
///
/// Standbys are not included, because any change of load may change them: read [`Planner::standby`] for the nodes of
/// the gateways listed here.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Affected {
    /// Addresses whose record may have to be written or deleted.
    pub addresses: BTreeSet<IpAddr>,
    /// Policies whose binding or unmet reason may have changed.
    pub policies: BTreeSet<PolicyName>,
    /// Gateways whose view may have changed.
    pub gateways: BTreeSet<GatewayName>,
    /// Addresses and policies that change their node.
    pub moves: Vec<Move>,
}

/// A record whose gateway does not exist, or that has no slot.
#[derive(Debug, Clone)]
pub(super) struct OrphanedRecord {
    pub(super) record: AddressRecord,
    /// Its slot is reserved for it.
    pub(super) has_slot: bool,
}

/// Decides which policy gets which address and node, for a whole world or change by change.
#[derive(Debug, Clone, Default)]
pub struct Planner {
    /// Without its policies, which are in `policies`.
    pub(super) world: World,
    pub(super) gateways: BTreeMap<GatewayName, GatewayState>,
    pub(super) policies: Policies,
    /// The gateway of every address that has a record, or whose pair has one.
    pub(super) owners: BTreeMap<IpAddr, GatewayName>,
    pub(super) orphans: BTreeMap<IpAddr, OrphanedRecord>,
    pub(super) slots: IntervalSet,
    pub(super) nodes: Nodes,
    /// Two pools share an address although validation rejects that.
    pub(super) overlapping: bool,
    /// Moves of the last decision.
    pub(super) moves: Vec<Move>,
}

impl Planner {
    /// Plans a world. What is recorded takes precedence.
    pub fn new(world: World, ledger: Ledger) -> Self {
        let mut planner = Self { world, ..Self::default() };
        let Self { world, nodes, policies, .. } = &mut planner;
        for (name, node) in &world.nodes {
            let id = nodes.id(name, world.seed);
            nodes.set_capacity(id, node.capacity);
        }
        let requested = std::mem::take(&mut world.policies);
        *policies = Policies::with_capacity(requested.len());
        let policies = requested.into_iter().map(|(name, policy)| policies.add(name, policy)).collect();
        let mut round = PlanningRound::default();
        let gateways: Vec<GatewayName> = planner.world.gateways.keys().cloned().collect();
        planner.load(&gateways, ledger, policies, &mut round);
        planner.settle(round);
        planner
    }

    /// Applies a change and returns what it affects.
    pub fn change(&mut self, change: Change) -> Affected {
        let mut round = PlanningRound::default();
        match change {
            Change::Policy(name, policy) => self.change_policy(name, policy, &mut round),
            Change::Node(name, node) => self.change_node(&name, node.as_ref(), &mut round),
            Change::Gateway(name, gateway) => self.change_gateway(&name, gateway, &mut round),
            Change::Taken(address, taken) => {
                if taken {
                    self.world.taken.insert(address)
                } else {
                    self.world.taken.remove(&address)
                };
                round.mark_address(address);
                self.refresh_all(address, &mut round);
            }
            Change::ExcludedNodes(address, nodes) => self.change_barred(address, nodes, &mut round),
            Change::KeepUnused(keep) => {
                if self.world.keep_unused != keep {
                    self.world.keep_unused = false;
                    round.affected.addresses.extend(self.recycled());
                    self.world.keep_unused = keep;
                }
            }
            Change::ObservedRecord(address, record) => self.change_record(address, record, &mut round),
            Change::ObservedBinding(name, binding) => {
                if let Some(policy) = self.policies.find(&name) {
                    self.change_binding(policy, binding, &mut round);
                }
            }
        }
        self.settle(round)
    }

    /// Applies changes of several nodes at once: nothing moves to a node that is lost in the same batch, and what waits
    /// for a node is spread over all new ones.
    pub fn change_nodes(&mut self, nodes: impl IntoIterator<Item = (NodeName, Option<Node>)>) -> Affected {
        let mut round = PlanningRound::default();
        for (name, node) in nodes {
            self.change_node(&name, node.as_ref(), &mut round);
        }
        self.settle(round)
    }

    /// The current world, to plan it again.
    pub fn world(&self) -> World {
        let policies = self.policies.iter().map(|(_, entry)| (entry.name.clone(), entry.spec.clone())).collect();
        World { policies, ..self.world.clone() }
    }

    /// A policy, with or without a grant.
    pub fn policy(&self, name: &PolicyName) -> Option<&Policy> {
        self.policies.find(name).map(|id| &self.policies[id].spec)
    }

    /// A node, selected by a gateway or not.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.world.nodes.get(name)
    }

    /// The decisions as a ledger.
    pub fn ledger(&self) -> Ledger {
        let mut ledger = Ledger::default();
        for (gateway, state) in &self.gateways {
            for (eip, allocation) in &state.allocations {
                for address in allocation.recorded.addresses() {
                    ledger.addresses.insert(address, self.record_of(gateway, *eip, allocation, address));
                }
            }
        }
        ledger.addresses.extend(self.orphans.iter().map(|(address, orphan)| (*address, orphan.record.clone())));
        ledger.bindings = self.bindings();
        ledger
    }

    /// An address in service, without its standbys: see [`Planner::standby`].
    pub fn planned(&self, address: IpAddr) -> Option<PlannedAddress> {
        let gateway = self.owners.get(&address)?;
        let state = self.gateways.get(gateway)?;
        let eip = state.pairs.eip(address)?;
        let allocation = state.allocations.get(&eip).filter(|allocation| !allocation.users.is_empty())?;
        let record = self.record_of(gateway, eip, allocation, address);
        Some(PlannedAddress { record, standby: Vec::new(), outside_pool: !state.spec.pool.contains(address) })
    }

    /// The policies that use an address, sorted by name.
    pub fn users(&self, address: IpAddr) -> impl Iterator<Item = &PolicyName> {
        let state = self.owners.get(&address).and_then(|gateway| self.gateways.get(gateway));
        let allocation = state.and_then(|state| state.allocations.get(&state.pairs.eip(address)?));
        let users = allocation.into_iter().flat_map(|allocation| allocation.users.iter().copied());
        self.policies.names(users, usize::MAX).into_iter()
    }

    /// What a policy is granted.
    pub fn binding(&self, policy: &PolicyName) -> Option<Binding> {
        self.bound(self.policies.find(policy)?)
    }

    /// Why a policy does not get everything it requests.
    pub fn unmet(&self, name: &PolicyName) -> Option<Unmet> {
        let id = self.policies.find(name)?;
        let entry = &self.policies[id];
        let policy = &entry.spec;
        if policy.refused {
            return Some(Unmet::Refused);
        }
        let Some(grant) = &entry.grant else {
            let Some(state) = self.gateways.get(&policy.gateway) else { return Some(Unmet::GatewayNotFound) };
            return state.waiting.get(&entry.order(id)).cloned();
        };
        if grant.gateway != policy.gateway || !fits(policy.request, grant.eip) {
            return Some(Unmet::ImmutableField);
        }
        let state = self.gateways.get(&grant.gateway)?;
        if grant.eip.is_none() {
            return grant.node.is_none().then_some(Unmet::NoReadyNode);
        }
        if state.allocations.get(&grant.eip)?.node.is_some() {
            return None;
        }
        Some(self.node_for(state, grant.eip).err().unwrap_or(Unmet::NoReadyNode))
    }

    /// True if the address is recorded, no policy uses it, and its record should be deleted.
    pub fn is_recycled(&self, address: IpAddr) -> bool {
        !self.world.keep_unused && self.recorded(address).is_some() && self.planned(address).is_none()
    }

    /// Recorded addresses that no policy uses any more.
    pub fn recycled(&self) -> BTreeSet<IpAddr> {
        if self.world.keep_unused {
            return BTreeSet::new();
        }
        let allocations = self.gateways.values().flat_map(|state| state.allocations.values());
        let idle = allocations
            .filter(|allocation| allocation.users.is_empty())
            .flat_map(|allocation| allocation.recorded.addresses());
        idle.chain(self.orphans.keys().copied()).collect()
    }

    pub(super) fn bindings(&self) -> BTreeMap<PolicyName, Binding> {
        self.policies
            .iter()
            .filter_map(|(_, entry)| Some((entry.name.clone(), self.bind(entry.grant.as_ref()?))))
            .collect()
    }

    pub(super) fn bound(&self, policy: PolicyId) -> Option<Binding> {
        self.policies[policy].grant.as_ref().map(|grant| self.bind(grant))
    }

    fn bind(&self, grant: &Grant) -> Binding {
        let allocation = self.gateways.get(&grant.gateway).and_then(|state| state.allocations.get(&grant.eip));
        let node = if grant.eip.is_none() { grant.node } else { allocation.and_then(|allocation| allocation.node) };
        Binding { eip: grant.eip, node: self.node_name(node), gateway: grant.gateway.clone() }
    }

    pub(super) fn node_name(&self, node: Option<NodeId>) -> Option<NodeName> {
        node.map(|node| self.nodes.name(node).clone())
    }

    fn change_policy(&mut self, name: PolicyName, policy: Option<Policy>, round: &mut PlanningRound) {
        let known = self.policies.find(&name);
        let before = known.map(|id| &self.policies[id].spec);
        if before == policy.as_ref() {
            return;
        }
        round.affected.policies.insert(name.clone());
        let same = before.zip(policy.as_ref()).filter(|(before, after)| before.uid == after.uid);
        let binding = known.filter(|_| same.is_some()).and_then(|id| self.bound(id));
        if let (Some(id), Some((before, after)), Some(binding)) = (known, same, &binding)
            && (before.request, before.created) != (after.request, after.created)
            && self.gateways[&binding.gateway].spec.exclusive
        {
            // who may share an exclusive address depends on who requested it, and in which order
            self.policies[id].spec = after.clone();
            return self.replan_gateway(&binding.gateway, round);
        }
        if let Some(id) = known {
            self.release(id, round);
        }
        match (known, policy) {
            (None, None) => {}
            (Some(id), None) => self.policies.remove(id),
            (Some(id), Some(policy)) => {
                self.policies[id].spec = policy;
                self.restore_bindings(vec![(id, binding)], round);
            }
            (None, Some(policy)) => {
                let id = self.policies.add(name, policy);
                self.restore_bindings(vec![(id, None)], round);
            }
        }
    }

    fn change_node(&mut self, name: &NodeName, node: Option<&Node>, round: &mut PlanningRound) {
        if self.world.nodes.get(name) == node {
            return;
        }
        let id = self.nodes.id(name, self.world.seed);
        self.nodes.set_capacity(id, node.and_then(|node| node.capacity));
        match node {
            Some(node) => self.world.nodes.insert(name.clone(), node.clone()),
            None => self.world.nodes.remove(name),
        };
        let gateways: Vec<GatewayName> = self.gateways.keys().cloned().collect();
        for gateway in gateways {
            let state = self.gateways.get_mut(&gateway).expect("just listed");
            let candidate = node.filter(|node| state.spec.selector.matches(&node.labels));
            let place = state.candidates.binary_search_by_key(&id, |candidate| candidate.node);
            if candidate.is_none() && place.is_err() {
                continue;
            }
            round.gateways.insert(gateway.clone());
            round.affected.gateways.insert(gateway.clone());
            let ready = candidate.is_some_and(|node| node.ready);
            if !ready {
                self.evict(&gateway, id, round);
            }
            let state = self.gateways.get_mut(&gateway).expect("just listed");
            match (candidate.is_some(), place) {
                (true, Ok(place)) => state.candidates[place].ready = ready,
                (true, Err(place)) => {
                    let hash = self.nodes.hash(id);
                    state.candidates.insert(place, CandidateNode { node: id, load: 0, eips: 0, ready, hash });
                }
                (false, Ok(place)) => drop(state.candidates.remove(place)),
                (false, Err(_)) => {}
            }
            let without_node = state.by_node.get(&None).into_iter().flatten();
            round.policies.extend(without_node.flat_map(|eip| &state.allocations[eip].users));
        }
    }

    fn change_gateway(&mut self, name: &GatewayName, gateway: Option<Gateway>, round: &mut PlanningRound) {
        if self.world.gateways.get(name) == gateway.as_ref() {
            return;
        }
        match gateway {
            Some(gateway) => self.world.gateways.insert(name.clone(), gateway),
            None => self.world.gateways.remove(name),
        };
        self.replan_gateway(name, round);
    }

    /// Replans a gateway from what is recorded.
    fn replan_gateway(&mut self, name: &GatewayName, round: &mut PlanningRound) {
        round.affected.gateways.insert(name.clone());
        if self.orphans.values().any(|orphan| orphan.record.gateway == *name || !orphan.has_slot) {
            return self.replan_all(|_| (), round);
        }
        let ledger = self.close_gateway(name, round);
        let opened: Vec<GatewayName> =
            self.world.gateways.contains_key(name).then(|| name.clone()).into_iter().collect();
        let affected = self.policies.iter().filter(|(_, entry)| {
            entry.grant.is_none() && (entry.spec.gateway == *name || ledger.bindings.contains_key(&entry.name))
        });
        let policies: Vec<PolicyId> = affected.map(|(id, _)| id).collect();
        round.policies.extend(&policies);
        round.affected.addresses.extend(ledger.addresses.keys().copied());
        self.load(&opened, ledger, policies, round);
    }

    fn change_barred(&mut self, address: IpAddr, nodes: BTreeSet<NodeName>, round: &mut PlanningRound) {
        if nodes.is_empty() {
            self.world.excluded_nodes.remove(&address);
        } else {
            self.world.excluded_nodes.insert(address, nodes);
        }
        let gateways: Vec<GatewayName> = self.gateways.keys().cloned().collect();
        for gateway in gateways {
            let state = &self.gateways[&gateway];
            let Some(eip) = state.pairs.eip(address) else { continue };
            round.gateways.insert(gateway.clone());
            let Some(allocation) = state.allocations.get(&eip) else { continue };
            round.policies.extend(&allocation.users);
            if allocation.node.is_some_and(|node| !self.can_host(state, eip, node)) {
                self.unassign_node(&gateway, eip, round);
            }
        }
    }

    /// Recomputes in every gateway what depends on the owner of an address.
    pub(super) fn refresh_all(&mut self, address: IpAddr, round: &mut PlanningRound) {
        for (gateway, state) in &mut self.gateways {
            let Some(index) = state.pairs.eip(address).and_then(|eip| state.pairs.index(eip)) else { continue };
            let (taken, owners) = (&self.world.taken, &self.owners);
            state.refresh(index, |a| taken.contains(&a) || owners.get(&a).is_some_and(|owner| owner != gateway));
            round.gateways.insert(gateway.clone());
        }
    }

    pub(super) fn note_overlaps(&mut self) {
        let mut seen = AddressSet::default();
        self.overlapping = false;
        for range in self.gateways.values().flat_map(|state| state.spec.pool.ranges()) {
            self.overlapping |= seen.intersects(range);
            seen.insert(range);
        }
    }
}

/// True if an address satisfies a request (none for the node's own address).
pub(super) fn fits(ask: AddressRequest, eip: Eip) -> bool {
    match ask {
        AddressRequest::NodeAddress => eip.is_none(),
        AddressRequest::Explicit(asked) => {
            !eip.is_none()
                && asked.v4.is_none_or(|v4| eip.v4 == Some(v4))
                && asked.v6.is_none_or(|v6| eip.v6 == Some(v6))
        }
        AddressRequest::FromPool(_) => !eip.is_none(),
    }
}
