//! The state of one gateway, with indices that make each planning step cheap.
//!
//! An [`Allocation`] is an egress address with a record in the ledger: in service while policies use it, idle
//! otherwise. All changes go through [`GatewayState::change`], which compares the allocation before and after and
//! updates every index, so that they cannot diverge.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::allocation_mode::Offers;
use super::pairs::EipPairs;
use super::placement::{CandidateNode, NodeId, Nodes, PlacementRequest, choose};
use super::policies::{Policies, PolicyId};
use super::{AddressRequest, Eip, Gateway, PolicyName, Unmet};
use crate::net::{Family, IntervalSet};
use crate::pick;

/// The order in which policies are served: oldest first, then by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AllocationOrder {
    pub(super) created: i64,
    pub(super) name: PolicyName,
    pub(super) policy: PolicyId,
}

/// An egress address with a record in the ledger.
#[derive(Debug, Clone, Default)]
pub(super) struct Allocation {
    /// Position in pool order; `u128::MAX` if its first address is outside the pool.
    pub(super) index: u128,
    pub(super) slot: u16,
    pub(super) node: Option<NodeId>,
    pub(super) epoch: u64,
    /// Unordered.
    pub(super) users: Vec<PolicyId>,
    /// Number of users that requested this address explicitly.
    pub(super) explicit: u32,
    /// The addresses of the pair that have a record.
    pub(super) recorded: Eip,
}

impl Allocation {
    pub(super) fn load(&self) -> u32 {
        u32::try_from(self.users.len()).expect("fewer than 2^32 policies")
    }

    fn indexed(&self) -> IndexedState {
        IndexedState { load: self.load(), node: self.node, explicit: self.explicit > 0 }
    }
}

/// The part of an allocation that the indices depend on.
#[derive(Clone, Copy, Default)]
struct IndexedState {
    load: u32,
    node: Option<NodeId>,
    explicit: bool,
}

#[derive(Debug, Clone)]
pub(super) struct GatewayState {
    pub(super) spec: Gateway,
    pub(super) pairs: EipPairs,
    /// The nodes that the selector matches, sorted by id.
    pub(super) candidates: Vec<CandidateNode>,
    pub(super) allocations: BTreeMap<Eip, Allocation>,
    /// Allocations in service, by node; `None` holds those without a node.
    pub(super) by_node: BTreeMap<Option<NodeId>, BTreeSet<Eip>>,
    /// Pool positions in service, by number of users. Built when the first policy needs it, because every change
    /// has to maintain it.
    by_user_count: Option<BTreeMap<u32, BTreeSet<u128>>>,
    /// Pool positions that a policy requested explicitly.
    explicit: BTreeSet<u128>,
    /// Policies that use a node's own address, by node; `None` holds those without a node.
    pub(super) node_address_users: BTreeMap<Option<NodeId>, BTreeSet<AllocationOrder>>,
    /// Pool positions that are never allocated: gaps, and pairs with an address that is outside the pool or held
    /// elsewhere. The value is that address.
    excluded: BTreeMap<u128, Option<IpAddr>>,
    /// Pool positions that are excluded or in service.
    blocked: IntervalSet,
    /// Policies without a grant, and why.
    pub(super) waiting: BTreeMap<AllocationOrder, Unmet>,
    /// Pool addresses in service, by family.
    pub(super) used: [u64; 2],
    /// Policies with a grant.
    pub(super) policies: u64,
    /// No node was ready at the end of the last round.
    pub(super) no_ready_node: bool,
}

impl GatewayState {
    pub(super) fn new(spec: Gateway, candidates: Vec<CandidateNode>, recorded: impl IntoIterator<Item = Eip>) -> Self {
        let pairs = EipPairs::new(&spec.pool, recorded);
        Self {
            spec,
            pairs,
            candidates,
            allocations: BTreeMap::new(),
            by_node: BTreeMap::new(),
            by_user_count: None,
            explicit: BTreeSet::new(),
            node_address_users: BTreeMap::new(),
            excluded: BTreeMap::new(),
            blocked: IntervalSet::default(),
            waiting: BTreeMap::new(),
            used: [0; 2],
            policies: 0,
            no_ready_node: false,
        }
    }

    /// The position of an egress address in pool order; `u128::MAX` if its first address is outside the pool.
    pub(super) fn pool_index(&self, eip: Eip) -> u128 {
        self.pairs.index(eip).unwrap_or(u128::MAX)
    }

    /// Allocations of pairs of which only one address has a record.
    pub(super) fn half_recorded(&self) -> impl Iterator<Item = Eip> {
        self.allocations.iter().filter(|(eip, allocation)| allocation.recorded != **eip).map(|(eip, _)| *eip)
    }

    pub(super) fn any_ready(&self) -> bool {
        self.candidates.iter().any(|candidate| candidate.ready)
    }

    pub(super) fn candidate(&mut self, node: NodeId) -> Option<&mut CandidateNode> {
        let place = self.candidates.binary_search_by_key(&node, |candidate| candidate.node).ok()?;
        Some(&mut self.candidates[place])
    }

    pub(super) fn is_ready(&self, node: NodeId) -> bool {
        self.candidates
            .binary_search_by_key(&node, |candidate| candidate.node)
            .is_ok_and(|place| self.candidates[place].ready)
    }

    /// Recomputes whether a pool position may be allocated.
    pub(super) fn refresh(&mut self, index: u128, held_elsewhere: impl Fn(IpAddr) -> bool) {
        if index >= self.pairs.span() {
            return;
        }
        let eip = self.pairs.at(index);
        let unavailable = |address: &IpAddr| !self.spec.pool.contains(*address) || held_elsewhere(*address);
        let culprit = eip.and_then(|eip| eip.addresses().find(unavailable));
        if eip.is_none() || culprit.is_some() {
            self.excluded.insert(index, culprit);
            self.blocked.insert(index, index);
        } else if self.excluded.remove(&index).is_some() {
            let allocation = eip.and_then(|eip| self.allocations.get(&eip));
            if allocation.is_none_or(|allocation| allocation.users.is_empty()) {
                self.blocked.remove(index, index);
            }
        }
    }

    pub(super) fn is_excluded(&self, index: u128) -> bool {
        self.excluded.contains_key(&index)
    }

    /// Changes an allocation and updates all indices. Creates the allocation if it does not exist.
    pub(super) fn change<T>(&mut self, eip: Eip, change: impl FnOnce(&mut Allocation) -> T) -> T {
        let index = || self.pairs.index(eip).unwrap_or(u128::MAX);
        let allocation =
            self.allocations.entry(eip).or_insert_with(|| Allocation { index: index(), ..Allocation::default() });
        let before = allocation.indexed();
        let outcome = change(allocation);
        let (index, after) = (allocation.index, allocation.indexed());
        self.index(eip, index, before, after);
        outcome
    }

    /// Builds the index by number of users if it does not exist.
    pub(super) fn index_by_user_count(&mut self) {
        let (span, allocations) = (self.pairs.span(), &self.allocations);
        self.by_user_count.get_or_insert_with(|| {
            let mut by_user_count = BTreeMap::new();
            for allocation in allocations.values().filter(|allocation| allocation.load() > 0 && allocation.index < span)
            {
                put(&mut by_user_count, allocation.load(), allocation.index, true);
            }
            by_user_count
        });
    }

    /// Removes an allocation.
    pub(super) fn remove(&mut self, eip: Eip) -> Option<Allocation> {
        let allocation = self.allocations.remove(&eip)?;
        self.index(eip, allocation.index, allocation.indexed(), IndexedState::default());
        Some(allocation)
    }

    fn index(&mut self, eip: Eip, index: u128, before: IndexedState, after: IndexedState) {
        let inside = index < self.pairs.span();
        for (indexed, other, land) in [(before, after, false), (after, before, true)] {
            if indexed.load == 0 {
                continue;
            }
            if let Some(by_user_count) = self.by_user_count.as_mut().filter(|_| inside && indexed.load != other.load) {
                put(by_user_count, indexed.load, index, land);
            }
            if other.load == 0 || indexed.node != other.node {
                put(&mut self.by_node, indexed.node, eip, land);
            }
            if let Some(candidate) = indexed.node.and_then(|node| self.candidate(node)) {
                let load = indexed.load;
                (candidate.load, candidate.eips) = if land {
                    (candidate.load + load, candidate.eips + 1)
                } else {
                    (candidate.load - load, candidate.eips - 1)
                };
            }
        }
        if inside && before.explicit != after.explicit {
            if after.explicit {
                self.explicit.insert(index)
            } else {
                self.explicit.remove(&index)
            };
        }
        self.policies = self.policies + u64::from(after.load) - u64::from(before.load);
        let in_service = after.load > 0;
        if in_service == (before.load > 0) {
            return;
        }
        for address in eip.addresses().filter(|address| self.spec.pool.contains(*address)) {
            let used = &mut self.used[usize::from(Family::of(address) == Family::V6)];
            *used = if in_service { *used + 1 } else { *used - 1 };
        }
        if inside && in_service {
            self.blocked.insert(index, index);
        } else if inside && !self.excluded.contains_key(&index) {
            self.blocked.remove(index, index);
        }
    }

    /// Adds or removes a policy that uses a node's own address.
    pub(super) fn set_node_address_user(&mut self, node: Option<NodeId>, order: AllocationOrder, land: bool) {
        put(&mut self.node_address_users, node, order, land);
        if let Some(candidate) = node.and_then(|node| self.candidate(node)) {
            candidate.load = if land { candidate.load + 1 } else { candidate.load - 1 };
        }
        self.policies = if land { self.policies + 1 } else { self.policies - 1 };
    }

    /// The egress address that satisfies a policy's request in the current state.
    pub(super) fn pick(&self, id: PolicyId, policies: &Policies, seed: u64) -> Result<Eip, Unmet> {
        let offers = PoolOffers { state: self, id, policies, seed };
        match policies[id].spec.request {
            AddressRequest::Explicit(eip) => self.resolve(eip, |eip| offers.allows(eip)),
            AddressRequest::FromPool(mode) => mode.choose(&offers),
            AddressRequest::NodeAddress => Err(Unmet::PoolEmpty),
        }
    }

    /// True if an exclusive gateway lets the policy share this egress address.
    pub(super) fn allows(&self, eip: Eip, id: PolicyId, policies: &Policies) -> bool {
        let Some(allocation) = self.allocations.get(&eip).filter(|_| self.spec.exclusive) else { return true };
        let one = &policies[id];
        let mut users = allocation.users.iter().map(|user| &policies[*user].name.namespace);
        (!one.is_explicit() && allocation.explicit == 0) || users.all(|namespace| *namespace == one.name.namespace)
    }

    fn resolve(&self, asked: Eip, allowed: impl Fn(Eip) -> bool) -> Result<Eip, Unmet> {
        let first = asked.addresses().next().ok_or(Unmet::PoolEmpty)?;
        if let Some(outside) = asked.addresses().find(|address| !self.spec.pool.contains(*address)) {
            return Err(Unmet::OutsidePool(outside));
        }
        let eip = self.pairs.eip(first).ok_or(Unmet::OutsidePool(first))?;
        if let (Some(_), Some(v6)) = (asked.v4, asked.v6)
            && eip.v6 != Some(v6)
        {
            return Err(Unmet::PairMismatch(first, eip.v6.map(IpAddr::V6)));
        }
        if let Some(outside) = eip.addresses().find(|address| !self.spec.pool.contains(*address)) {
            return Err(Unmet::OutsidePool(outside));
        }
        if let Some(culprit) = self.excluded.get(&self.pool_index(eip)) {
            return Err(Unmet::Taken(culprit.unwrap_or(first)));
        }
        if allowed(eip) { Ok(eip) } else { Err(Unmet::NotAllowed(first)) }
    }

    /// The node for an egress address that has none or must leave its node.
    pub(super) fn node_for(
        &self,
        eip: Eip,
        nodes: &Nodes,
        seed: u64,
        excluded: &dyn Fn(NodeId) -> bool,
    ) -> Result<NodeId, Unmet> {
        let request = PlacementRequest { key: self.key(eip, seed), uses_capacity: true, excluded };
        choose(self.spec.mode, &self.candidates, nodes, request).map(|place| self.candidates[place].node)
    }

    /// The rendezvous key of an egress address: the hash of its first address.
    pub(super) fn key(&self, eip: Eip, seed: u64) -> u64 {
        match (eip.v4, eip.v6) {
            (Some(v4), _) => pick::hash(seed, &[self.spec.uid.as_bytes(), &v4.octets()]),
            (None, Some(v6)) => pick::hash(seed, &[self.spec.uid.as_bytes(), &v6.octets()]),
            (None, None) => 0,
        }
    }

    /// Sorts allocations into the order in which they get nodes: most policies first.
    pub(super) fn in_order(&self, eips: impl Iterator<Item = Eip>) -> Vec<Eip> {
        let mut eips: Vec<Eip> = eips.collect();
        eips.sort_by_cached_key(|eip| {
            let allocation = &self.allocations[eip];
            (std::cmp::Reverse(allocation.load()), allocation.index, *eip)
        });
        eips
    }
}

/// What the pool offers to one policy.
struct PoolOffers<'a> {
    state: &'a GatewayState,
    id: PolicyId,
    policies: &'a Policies,
    seed: u64,
}

impl PoolOffers<'_> {
    fn allows(&self, eip: Eip) -> bool {
        self.state.allows(eip, self.id, self.policies)
    }
}

impl Offers for PoolOffers<'_> {
    fn default_address(&self) -> Result<Eip, Unmet> {
        let spec = &self.state.spec;
        let first = || {
            let v4 = spec.pool.v4_at(0);
            Eip { v4, v6: spec.pool.v6_at(0).filter(|_| v4.is_none()) }
        };
        let asked = if spec.default.is_none() { first() } else { spec.default };
        self.state.resolve(asked, |eip| self.allows(eip))
    }

    fn lowest_unused(&self) -> Option<Eip> {
        let (blocked, pairs) = (&self.state.blocked, &self.state.pairs);
        blocked.first_gap(0).filter(|index| *index < pairs.span()).and_then(|index| pairs.at(index))
    }

    fn most_used_below(&self, limit: u16) -> Option<Eip> {
        let GatewayState { by_user_count, excluded, pairs, .. } = self.state;
        let most_used_first = by_user_count.iter().flat_map(|by_count| by_count.range(..u32::from(limit)).rev());
        let free_to_give = most_used_first.flat_map(|(_, indices)| indices).filter(|at| !excluded.contains_key(at));
        free_to_give.filter_map(|index| pairs.at(*index)).find(|eip| self.allows(*eip))
    }

    /// A seeded draw over all pool positions that may be allocated to the policy.
    fn any(&self) -> Result<Eip, Unmet> {
        let GatewayState { spec, explicit, excluded, pairs, .. } = self.state;
        let hash = pick::hash(self.seed, &[spec.uid.as_bytes(), self.policies[self.id].spec.uid.as_bytes()]);
        let shared = explicit.iter().filter(|index| !excluded.contains_key(index));
        let closed: Vec<u128> =
            shared.filter(|index| pairs.at(**index).is_some_and(|eip| !self.allows(eip))).copied().collect();
        let count = pairs.span() - (excluded.len() + closed.len()) as u128;
        let mut index = pick::draw(hash, count).ok_or(Unmet::PoolEmpty)?;
        for skipped in merge(excluded.keys(), closed.iter()) {
            if skipped > index {
                break;
            }
            index += 1;
        }
        pairs.at(index).ok_or(Unmet::PoolEmpty)
    }
}

/// Inserts into or removes from the set under a key; removes a set that becomes empty.
fn put<K: Ord + Copy, T: Ord>(sets: &mut BTreeMap<K, BTreeSet<T>>, key: K, item: T, land: bool) {
    let set = sets.entry(key).or_default();
    if land {
        set.insert(item);
    } else {
        set.remove(&item);
        if set.is_empty() {
            sets.remove(&key);
        }
    }
}

/// Merges two disjoint ascending sequences.
fn merge<'a>(
    left: impl Iterator<Item = &'a u128>,
    right: impl Iterator<Item = &'a u128>,
) -> impl Iterator<Item = u128> {
    let (mut left, mut right) = (left.copied().peekable(), right.copied().peekable());
    std::iter::from_fn(move || match (left.peek(), right.peek()) {
        (Some(l), Some(r)) if l > r => right.next(),
        (Some(_), _) => left.next(),
        (None, _) => right.next(),
    })
}
