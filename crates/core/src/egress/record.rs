//! Differences between the ledger and the plan: adopted if valid, repaired otherwise.

use std::net::IpAddr;

use super::load::set_half;
use super::planner::{Planner, fits};
use super::policies::PolicyId;
use super::settle::{MoveOrigin, PlanningRound, SLOTS};
use super::state::Allocation;
use super::{AddressRecord, Binding, Eip, GatewayName, Ledger, MoveCause};

impl Planner {
    pub(super) fn change_record(&mut self, address: IpAddr, record: Option<AddressRecord>, round: &mut PlanningRound) {
        let before = self.recorded(address);
        if before == record {
            return;
        }
        round.mark_address(address);
        match (before, record) {
            (Some(before), None) => self.remove_record(address, &before, round),
            (None, Some(record)) => self.add_record(address, record, round),
            (Some(before), Some(record)) if before.gateway != record.gateway => {
                self.replan_all(|ledger| drop(ledger.addresses.insert(address, record)), round);
            }
            (Some(before), Some(record)) if record.epoch > before.epoch => self.follow_record(address, &record, round),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    pub(super) fn change_binding(&mut self, id: PolicyId, binding: Option<Binding>, round: &mut PlanningRound) {
        if self.bound(id) == binding {
            return;
        }
        round.policies.push(id);
        let policy = &self.policies[id].spec;
        let Some(binding) = binding.filter(|binding| binding.gateway == policy.gateway) else { return };
        let Some(state) = self.gateways.get(&binding.gateway) else { return };
        let allocations = binding.eip.addresses().filter_map(|address| state.pairs.eip(address));
        let allocation = allocations.into_iter().find(|eip| state.allocations.contains_key(eip));
        let eip = allocation.unwrap_or_default();
        let recorded = binding.eip.is_none() || allocation.is_some();
        if recorded && fits(policy.request, eip) && state.allows(eip, id, &self.policies) {
            self.release(id, round);
            self.restore_bindings(vec![(id, Some(binding))], round);
        }
    }

    pub(super) fn recorded(&self, address: IpAddr) -> Option<AddressRecord> {
        if let Some(orphan) = self.orphans.get(&address) {
            return Some(orphan.record.clone());
        }
        let gateway = self.owners.get(&address)?;
        let state = self.gateways.get(gateway)?;
        let eip = state.pairs.eip(address)?;
        let allocation = state
            .allocations
            .get(&eip)
            .filter(|allocation| allocation.recorded.addresses().any(|half| half == address))?;
        Some(self.record_of(gateway, eip, allocation, address))
    }

    /// Handles a deleted record.
    fn remove_record(&mut self, address: IpAddr, record: &AddressRecord, round: &mut PlanningRound) {
        if let Some(orphan) = self.orphans.remove(&address) {
            self.free_slot_of(&orphan);
            self.remove_owner(address, round);
            return;
        }
        let Some(state) = self.gateways.get_mut(&record.gateway) else { return };
        let Some(eip) = state.pairs.eip(address) else { return };
        let Some(allocation) = state.allocations.get(&eip) else { return };
        let mut left = allocation.recorded;
        set_half(&mut left, address, false);
        let in_service = !allocation.users.is_empty();
        if in_service && !left.is_none() {
            return; // the record of the other address is enough: this one is written again
        }
        if state.pairs.deviates(eip) && left.is_none() {
            return self.replan_all(|ledger| drop(ledger.addresses.remove(&address)), round);
        }
        if !left.is_none() {
            return state.change(eip, |allocation| allocation.recorded = left);
        }
        let users = allocation.users.clone();
        let bindings: Vec<_> = users.into_iter().map(|id| (id, self.bound(id))).collect();
        for (id, _) in &bindings {
            self.release(*id, round);
        }
        if let Some(allocation) = self.gateway_mut(&record.gateway).remove(eip) {
            self.release_slot(allocation.slot);
            self.nodes.move_address(allocation.node, None);
        }
        for half in eip.addresses() {
            self.remove_owner(half, round);
        }
        round.policies.extend(bindings.iter().map(|(id, _)| id));
        self.restore_bindings(bindings, round);
    }

    fn remove_owner(&mut self, address: IpAddr, round: &mut PlanningRound) {
        self.owners.remove(&address);
        round.freed = true;
        self.refresh_all(address, round);
    }

    /// Handles a new record.
    fn add_record(&mut self, address: IpAddr, record: AddressRecord, round: &mut PlanningRound) {
        let Some(state) = self.gateways.get(&record.gateway) else {
            self.keep_orphan(address, record);
            return self.refresh_all(address, round);
        };
        let eip: Eip = [Some(address), record.pair].into_iter().flatten().collect();
        let as_expected = state.pairs.eip(address) == Some(eip) && !state.allocations.contains_key(&eip);
        let mut halves = eip.addresses();
        let unowned = halves.all(|half| !self.owners.contains_key(&half));
        if !as_expected || !unowned || !SLOTS.contains(&record.slot) || self.slots.contains(record.slot.into()) {
            return self.replan_all(|ledger| drop(ledger.addresses.insert(address, record)), round);
        }
        let node = record.node.as_ref().map(|node| self.nodes.id(node, self.world.seed));
        self.slots.insert(record.slot.into(), record.slot.into());
        self.nodes.move_address(None, node);
        for half in eip.addresses() {
            self.owners.insert(half, record.gateway.clone());
        }
        let AddressRecord { slot, epoch, gateway, .. } = record;
        self.gateway_mut(&gateway).change(eip, |allocation| {
            *allocation = Allocation { index: allocation.index, slot, node, epoch, ..Allocation::default() };
            set_half(&mut allocation.recorded, address, true);
        });
        for half in eip.addresses() {
            self.refresh_all(half, round);
        }
    }

    /// Handles a record with a higher epoch: somebody else moved the address.
    fn follow_record(&mut self, address: IpAddr, record: &AddressRecord, round: &mut PlanningRound) {
        let Some(eip) = self.gateways.get(&record.gateway).and_then(|state| state.pairs.eip(address)) else {
            if let Some(orphan) = self.orphans.get_mut(&address) {
                (orphan.record.node, orphan.record.epoch) = (record.node.clone(), record.epoch);
            }
            return;
        };
        let node = record.node.as_ref().map(|node| self.nodes.id(node, self.world.seed));
        self.assign_node(&record.gateway, eip, node);
        let state = self.gateway_mut(&record.gateway);
        state.change(eip, |allocation| allocation.epoch = record.epoch);
        round.policies.extend(&state.allocations[&eip].users);
        round.mark_allocation(&record.gateway, eip);
        round.gateways.insert(record.gateway.clone());
        round.freed = true;
        let state = &self.gateways[&record.gateway];
        if node.is_some_and(|node| !self.can_host(state, eip, node)) {
            self.unassign_node(&record.gateway, eip, round);
        } else if node.is_none() {
            round.origins.insert((record.gateway.clone(), eip), MoveOrigin::From(None, MoveCause::NodeReady));
        }
    }

    /// Replans all gateways from what is recorded: for records that contradict each other.
    pub(super) fn replan_all(&mut self, edit: impl FnOnce(&mut Ledger), round: &mut PlanningRound) {
        let mut ledger = Ledger::default();
        let gateways: Vec<GatewayName> = self.gateways.keys().cloned().collect();
        for gateway in &gateways {
            let own = self.close_gateway(gateway, round);
            ledger.addresses.extend(own.addresses);
            ledger.bindings.extend(own.bindings);
        }
        for (address, orphan) in std::mem::take(&mut self.orphans) {
            ledger.addresses.insert(address, orphan.record);
        }
        round.affected.addresses.extend(ledger.addresses.keys().copied());
        edit(&mut ledger);
        (self.owners, self.slots) = Default::default();
        round.affected.addresses.extend(ledger.addresses.keys().copied());
        round.affected.gateways.extend(gateways);
        let gateways: Vec<GatewayName> = self.world.gateways.keys().cloned().collect();
        round.affected.gateways.extend(gateways.iter().cloned());
        let policies: Vec<PolicyId> = self.policies.iter().map(|(id, _)| id).collect();
        round.policies.extend(&policies);
        self.load(&gateways, ledger, policies, round);
    }
}
