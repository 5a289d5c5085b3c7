//! Loads a ledger into the planner's state and back. What is recorded takes precedence.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::placement::CandidateNode;
use super::planner::{OrphanedRecord, Planner, fits};
use super::policies::{Grant, PolicyId};
use super::settle::{MoveOrigin, PlanningRound, SLOTS};
use super::state::{Allocation, GatewayState};
use super::{AddressRecord, Binding, Eip, GatewayName, Ledger};
use crate::net::Family;

impl Planner {
    /// Opens gateways with their records and restores the bindings of policies. Records of other gateways become
    /// orphaned records.
    pub(super) fn load(
        &mut self,
        opened: &[GatewayName],
        mut ledger: Ledger,
        policies: Vec<PolicyId>,
        round: &mut PlanningRound,
    ) {
        let mut records = BTreeMap::<GatewayName, BTreeMap<IpAddr, AddressRecord>>::new();
        for (address, record) in ledger.addresses {
            self.owners.insert(address, record.gateway.clone());
            records.entry(record.gateway.clone()).or_default().insert(address, record);
        }
        let mut without_slot = Vec::new();
        for gateway in opened {
            let own = records.remove(gateway).unwrap_or_default();
            without_slot.extend(self.open_gateway(gateway, &own).into_iter().map(|eip| (gateway.clone(), eip)));
            round.gateways.insert(gateway.clone());
        }
        for (address, record) in records.into_values().flatten() {
            self.keep_orphan(address, record);
        }
        for (gateway, eip) in without_slot {
            match self.free_slot() {
                Some(slot) => {
                    self.slots.insert(slot.into(), slot.into());
                    self.gateway_mut(&gateway).change(eip, |allocation| allocation.slot = slot);
                }
                None => self.orphan(&gateway, eip),
            }
        }
        for gateway in opened {
            self.exclude(gateway, round);
        }
        self.note_overlaps();
        let policies = policies.into_iter().map(|id| (id, ledger.bindings.remove(&self.policies[id].name)));
        self.restore_bindings(policies.collect(), round);
    }

    /// Restores bindings that are still valid; the other policies wait.
    pub(super) fn restore_bindings(&mut self, policies: Vec<(PolicyId, Option<Binding>)>, round: &mut PlanningRound) {
        let (mut exclusive, mut lost) = (Vec::new(), Vec::new());
        for (id, binding) in policies {
            match binding.map(|binding| (self.check_binding(id, &binding), binding)) {
                Some((BindingCheck::Valid(eip), binding)) if self.gateways[&binding.gateway].spec.exclusive => {
                    exclusive.push((id, eip, binding));
                }
                Some((BindingCheck::Valid(eip), binding)) => self.restore_grant(id, eip, &binding, round),
                Some((BindingCheck::RecordLost(eip), binding)) => lost.push((id, eip, binding)),
                Some((BindingCheck::Invalid, _)) | None => self.enqueue(id, round),
            }
        }
        // policies that requested an address explicitly come before those that only received it
        exclusive.sort_by_cached_key(|(id, _, _)| (!self.policies[*id].is_explicit(), self.policies[*id].order(*id)));
        lost.sort_by_cached_key(|(id, _, binding)| (binding.gateway.clone(), self.policies[*id].order(*id)));
        for (id, eip, binding) in exclusive.into_iter().chain(lost) {
            let allowed = self.gateways[&binding.gateway].allows(eip, id, &self.policies);
            if allowed && (eip.is_none() || self.recreate(eip, &binding, round)) {
                self.restore_grant(id, eip, &binding, round);
            } else {
                self.enqueue(id, round);
            }
        }
    }

    /// Closes a gateway and returns its records and bindings.
    pub(super) fn close_gateway(&mut self, gateway: &GatewayName, round: &mut PlanningRound) -> Ledger {
        let mut ledger = Ledger::default();
        let Some(state) = self.gateways.get(gateway) else { return ledger };
        let users = state.allocations.values().flat_map(|allocation| &allocation.users);
        let policies: Vec<PolicyId> =
            users.chain(state.node_address_users.values().flatten().map(|order| &order.policy)).copied().collect();
        for (eip, allocation) in &state.allocations {
            for address in allocation.recorded.addresses() {
                ledger.addresses.insert(address, self.record_of(gateway, *eip, allocation, address));
            }
        }
        for id in policies {
            let binding = self.bound(id).expect("a user has a grant");
            ledger.bindings.insert(self.policies[id].name.clone(), binding);
            self.policies[id].grant = None;
        }
        let state = self.gateways.remove(gateway).expect("looked up above");
        let half_recorded: Vec<Eip> = state.half_recorded().collect();
        for (eip, allocation) in state.allocations {
            for half in eip.addresses() {
                self.owners.remove(&half);
            }
            self.slots.remove(allocation.slot.into(), allocation.slot.into());
            self.nodes.move_address(allocation.node, None);
        }
        for address in half_recorded.into_iter().flat_map(Eip::addresses) {
            self.refresh_all(address, round);
        }
        round.freed = true;
        ledger
    }

    /// Creates the state of a gateway with idle allocations; returns those whose recorded slot is not available.
    fn open_gateway(&mut self, gateway: &GatewayName, records: &BTreeMap<IpAddr, AddressRecord>) -> Vec<Eip> {
        let spec = self.world.gateways[gateway].clone();
        let mut candidates = Vec::new();
        for (name, node) in self.world.nodes.iter().filter(|(_, node)| spec.selector.matches(&node.labels)) {
            let id = self.nodes.find(name).expect("every node has a number");
            candidates.push(CandidateNode { node: id, load: 0, eips: 0, ready: node.ready, hash: self.nodes.hash(id) });
        }
        candidates.sort_unstable_by_key(|candidate| candidate.node);
        let eips = join(records, |address| !self.owners.contains_key(&address));
        let mut state = GatewayState::new(spec, candidates, eips.iter().copied());
        let mut without_slot = Vec::new();
        let mut ordered: Vec<(u128, Eip)> = eips.into_iter().map(|eip| (state.pool_index(eip), eip)).collect();
        ordered.sort_unstable();
        for (_, eip) in ordered {
            let halves: Vec<(IpAddr, &AddressRecord)> =
                eip.addresses().filter_map(|address| Some((address, records.get(&address)?))).collect();
            let newest = halves.iter().map(|(_, record)| *record).rev().max_by_key(|record| record.epoch);
            let slot = halves.iter().map(|(_, record)| record.slot).filter(|slot| SLOTS.contains(slot)).min();
            let slot = slot.filter(|slot| !self.slots.contains((*slot).into()));
            match slot {
                Some(slot) => self.slots.insert(slot.into(), slot.into()),
                None => without_slot.push(eip),
            }
            let node = newest.and_then(|record| record.node.clone()).map(|node| self.nodes.id(&node, self.world.seed));
            self.nodes.move_address(None, node);
            for half in eip.addresses() {
                self.owners.insert(half, gateway.clone());
            }
            state.change(eip, |allocation| {
                allocation.slot = slot.unwrap_or(0);
                allocation.node = node;
                allocation.epoch = newest.map_or(1, |record| record.epoch);
                for (address, _) in &halves {
                    set_half(&mut allocation.recorded, *address, true);
                }
            });
        }
        self.gateways.insert(gateway.clone(), state);
        without_slot
    }

    /// Excludes pool positions of a gateway that was just opened, and of others because of it.
    fn exclude(&mut self, gateway: &GatewayName, round: &mut PlanningRound) {
        let Some(state) = self.gateways.get(gateway) else { return };
        let mut suspects: BTreeSet<u128> = state.pairs.irregular().collect();
        let pool = &state.spec.pool;
        for range in pool.ranges() {
            let (first, last) = (range.first_address(), range.last_address());
            let taken = self.world.taken.range(first..=last);
            let elsewhere = self.owners.range(first..=last).filter(|(_, owner)| *owner != gateway);
            let unavailable = taken.chain(elsewhere.map(|(address, _)| address));
            suspects.extend(unavailable.filter_map(|address| state.pairs.index(state.pairs.eip(*address)?)));
        }
        let half_recorded: Vec<Eip> = state.half_recorded().collect();
        let (taken, owners) = (&self.world.taken, &self.owners);
        let elsewhere = |a: IpAddr| taken.contains(&a) || owners.get(&a).is_some_and(|owner| owner != gateway);
        let state = self.gateways.get_mut(gateway).expect("looked up above");
        for index in suspects {
            state.refresh(index, elsewhere);
        }
        for address in half_recorded.into_iter().flat_map(Eip::addresses) {
            self.refresh_all(address, round);
        }
    }

    fn check_binding(&self, id: PolicyId, binding: &Binding) -> BindingCheck {
        let Some(state) = self.gateways.get(&binding.gateway) else { return BindingCheck::Invalid };
        let Some(first) = binding.eip.addresses().next() else { return BindingCheck::Valid(Eip::default()) };
        for eip in binding.eip.addresses().filter_map(|address| state.pairs.eip(address)) {
            if state.allocations.contains_key(&eip) {
                return BindingCheck::Valid(eip);
            }
        }
        let policy = &self.policies[id].spec;
        match state.pairs.eip(first) {
            Some(eip) if binding.gateway == policy.gateway && fits(policy.request, eip) && !policy.refused => {
                BindingCheck::RecordLost(eip)
            }
            _ => BindingCheck::Invalid,
        }
    }

    fn restore_grant(&mut self, id: PolicyId, eip: Eip, binding: &Binding, round: &mut PlanningRound) {
        let gateway = binding.gateway.clone();
        round.gateways.insert(gateway.clone());
        round.affected.gateways.insert(gateway.clone());
        if eip.is_none() {
            let order = self.policies[id].order(id);
            let node = binding.node.as_ref().map(|node| self.nodes.id(node, self.world.seed));
            let state = self.gateway_mut(&gateway);
            state.set_node_address_user(node, order, true);
            let ready = node.is_none_or(|node| state.is_ready(node));
            self.policies[id].grant = Some(Grant { gateway: gateway.clone(), eip, node, user_index: 0 });
            if !ready {
                self.unassign_node_of_policy(&gateway, id, round);
            }
            return;
        }
        self.add_user(&gateway, eip, id, round);
        let state = &self.gateways[&gateway];
        if state.allocations[&eip].node.is_some_and(|node| !self.can_host(state, eip, node)) {
            self.unassign_node(&gateway, eip, round);
        }
    }

    /// Recreates the allocation of an address whose record was lost while a policy was using it.
    fn recreate(&mut self, eip: Eip, binding: &Binding, round: &mut PlanningRound) -> bool {
        let state = &self.gateways[&binding.gateway];
        if state.allocations.contains_key(&eip) {
            return true;
        }
        let index = state.pool_index(eip);
        let Some(slot) = self.free_slot().filter(|_| index < state.pairs.span() && !state.is_excluded(index)) else {
            return false;
        };
        let node = binding.node.as_ref().and_then(|node| self.nodes.find(node));
        let node = node.filter(|node| self.can_host(state, eip, *node));
        round.origins.insert((binding.gateway.clone(), eip), MoveOrigin::New);
        self.insert(&binding.gateway, eip, Allocation { slot, node, epoch: 1, ..Allocation::default() }, round);
        true
    }

    /// Turns an allocation into orphaned records, because there is no free slot for it.
    fn orphan(&mut self, gateway: &GatewayName, eip: Eip) {
        let Some(allocation) = self.gateway_mut(gateway).remove(eip) else { return };
        self.nodes.move_address(allocation.node, None);
        for address in allocation.recorded.addresses() {
            let record = self.record_of(gateway, eip, &allocation, address);
            self.orphans.insert(address, OrphanedRecord { record, has_slot: false });
        }
    }

    pub(super) fn keep_orphan(&mut self, address: IpAddr, record: AddressRecord) {
        let shared = self.orphans.values().any(|orphan| orphan.has_slot && orphan.record.slot == record.slot);
        let has_slot = SLOTS.contains(&record.slot) && (shared || !self.slots.contains(record.slot.into()));
        if has_slot {
            self.slots.insert(record.slot.into(), record.slot.into());
        }
        self.owners.insert(address, record.gateway.clone());
        self.orphans.insert(address, OrphanedRecord { record, has_slot });
    }

    /// Frees the slot of an orphaned record that was just removed, unless the other address of the pair has it.
    pub(super) fn free_slot_of(&mut self, orphan: &OrphanedRecord) {
        let slot = orphan.record.slot;
        if orphan.has_slot && !self.orphans.values().any(|other| other.has_slot && other.record.slot == slot) {
            self.release_slot(slot);
        }
    }

    /// Frees a slot; an orphaned record with the same slot takes it over.
    pub(super) fn release_slot(&mut self, slot: u16) {
        self.slots.remove(slot.into(), slot.into());
        for orphan in self.orphans.values_mut().filter(|orphan| orphan.record.slot == slot) {
            orphan.has_slot = true;
            self.slots.insert(slot.into(), slot.into());
        }
    }
}

/// Whether a recorded binding can be kept.
enum BindingCheck {
    /// It is kept.
    Valid(Eip),
    /// The address has no record any more, but may be allocated again.
    RecordLost(Eip),
    /// It is ignored.
    Invalid,
}

/// Sets or clears one address of a pair.
pub(super) fn set_half(eip: &mut Eip, address: IpAddr, present: bool) {
    match address {
        IpAddr::V4(v4) => eip.v4 = present.then_some(v4),
        IpAddr::V6(v6) => eip.v6 = present.then_some(v6),
    }
}

/// Joins recorded addresses into pairs: those that name each other, then those that name an address without a
/// record.
fn join(records: &BTreeMap<IpAddr, AddressRecord>, unrecorded: impl Fn(IpAddr) -> bool) -> Vec<Eip> {
    let (mut eips, mut joined) = (Vec::new(), BTreeSet::new());
    for mutual in [true, false] {
        for (address, record) in records {
            let Some(other) = record.pair.filter(|other| Family::of(*other) != Family::of(*address)) else { continue };
            if joined.contains(address) || joined.contains(&other) {
                continue;
            }
            let there = records.get(&other);
            let agrees = there.is_some_and(|other| other.pair == Some(*address));
            if agrees || (!mutual && (there.is_some() || unrecorded(other))) {
                joined.extend([*address, other]);
                eips.push(Eip::from_iter([*address, other]));
            }
        }
    }
    let alone = records.keys().filter(|address| !joined.contains(*address));
    eips.extend(alone.map(|address| Eip::from_iter([*address])));
    eips
}
