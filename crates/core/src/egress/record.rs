//! What the ledger shows, where it is not what was decided: adopted if lawful, repaired otherwise.

use std::net::IpAddr;

use super::absorb::set_half;
use super::planner::{Planner, fits};
use super::policies::PolicyId;
use super::settle::{Origin, Round, SLOTS};
use super::state::Seat;
use super::{AddressRecord, Binding, Eip, GatewayName, Ledger, MoveCause};

impl Planner {
    pub(super) fn change_record(&mut self, address: IpAddr, held: Option<AddressRecord>, round: &mut Round) {
        let before = self.record(address);
        if before == held {
            return;
        }
        round.touch_address(address);
        match (before, held) {
            (Some(before), None) => self.forget(address, &before, round),
            (None, Some(held)) => self.learn(address, held, round),
            (Some(before), Some(held)) if before.gateway != held.gateway => {
                self.start_over(|ledger| drop(ledger.addresses.insert(address, held)), round);
            }
            (Some(before), Some(held)) if held.epoch > before.epoch => self.follow(address, &held, round),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    pub(super) fn change_binding(&mut self, id: PolicyId, binding: Option<Binding>, round: &mut Round) {
        if self.bound(id) == binding {
            return;
        }
        round.policies.push(id);
        let policy = &self.policies[id].spec;
        let Some(binding) = binding.filter(|binding| binding.gateway == policy.gateway) else { return };
        let Some(gate) = self.gates.get(&binding.gateway) else { return };
        let seats = binding.eip.addresses().filter_map(|address| gate.pairs.eip(address));
        let seat = seats.into_iter().find(|eip| gate.seats.contains_key(eip));
        let eip = seat.unwrap_or_default();
        let recorded = binding.eip.is_none() || seat.is_some();
        if recorded && fits(policy.request, eip) && gate.allows(eip, id, &self.policies) {
            self.dismiss(id, round);
            self.seat(vec![(id, Some(binding))], round);
        }
    }

    pub(super) fn record(&self, address: IpAddr) -> Option<AddressRecord> {
        if let Some(stray) = self.strays.get(&address) {
            return Some(stray.held.clone());
        }
        let gateway = self.owners.get(&address)?;
        let gate = self.gates.get(gateway)?;
        let eip = gate.pairs.eip(address)?;
        let seat = gate.seats.get(&eip).filter(|seat| seat.recorded.addresses().any(|half| half == address))?;
        Some(self.held(gateway, eip, seat, address))
    }

    /// A record is gone.
    fn forget(&mut self, address: IpAddr, held: &AddressRecord, round: &mut Round) {
        if let Some(stray) = self.strays.remove(&address) {
            self.free_slot_of(&stray);
            self.disown(address, round);
            return;
        }
        let Some(gate) = self.gates.get_mut(&held.gateway) else { return };
        let Some(eip) = gate.pairs.eip(address) else { return };
        let Some(seat) = gate.seats.get(&eip) else { return };
        let mut left = seat.recorded;
        set_half(&mut left, address, false);
        let in_service = !seat.users.is_empty();
        if in_service && !left.is_none() {
            return; // the other half still tells all: this one is written again
        }
        if gate.pairs.deviates(eip) && left.is_none() {
            return self.start_over(|ledger| drop(ledger.addresses.remove(&address)), round);
        }
        if !left.is_none() {
            return gate.change(eip, |seat| seat.recorded = left);
        }
        let users = seat.users.clone();
        let bindings: Vec<_> = users.into_iter().map(|id| (id, self.bound(id))).collect();
        for (id, _) in &bindings {
            self.dismiss(*id, round);
        }
        if let Some(seat) = self.gate_mut(&held.gateway).remove(eip) {
            self.release_slot(seat.slot);
            self.nodes.rehouse(seat.node, None);
        }
        for half in eip.addresses() {
            self.disown(half, round);
        }
        round.policies.extend(bindings.iter().map(|(id, _)| id));
        self.seat(bindings, round);
    }

    fn disown(&mut self, address: IpAddr, round: &mut Round) {
        self.owners.remove(&address);
        round.freed = true;
        self.refresh_all(address, round);
    }

    /// A record has appeared.
    fn learn(&mut self, address: IpAddr, held: AddressRecord, round: &mut Round) {
        let Some(gate) = self.gates.get(&held.gateway) else {
            self.keep_stray(address, held);
            return self.refresh_all(address, round);
        };
        let eip: Eip = [Some(address), held.pair].into_iter().flatten().collect();
        let as_expected = gate.pairs.eip(address) == Some(eip) && !gate.seats.contains_key(&eip);
        let mut halves = eip.addresses();
        let unowned = halves.all(|half| !self.owners.contains_key(&half));
        if !as_expected || !unowned || !SLOTS.contains(&held.slot) || self.slots.contains(held.slot.into()) {
            return self.start_over(|ledger| drop(ledger.addresses.insert(address, held)), round);
        }
        let node = held.node.as_ref().map(|node| self.nodes.id(node, self.world.seed));
        self.slots.insert(held.slot.into(), held.slot.into());
        self.nodes.rehouse(None, node);
        for half in eip.addresses() {
            self.owners.insert(half, held.gateway.clone());
        }
        let AddressRecord { slot, epoch, gateway, .. } = held;
        self.gate_mut(&gateway).change(eip, |seat| {
            *seat = Seat { index: seat.index, slot, node, epoch, ..Seat::default() };
            set_half(&mut seat.recorded, address, true);
        });
        for half in eip.addresses() {
            self.refresh_all(half, round);
        }
    }

    /// A record has a higher epoch: someone moved the address.
    fn follow(&mut self, address: IpAddr, held: &AddressRecord, round: &mut Round) {
        let Some(eip) = self.gates.get(&held.gateway).and_then(|gate| gate.pairs.eip(address)) else {
            if let Some(stray) = self.strays.get_mut(&address) {
                (stray.held.node, stray.held.epoch) = (held.node.clone(), held.epoch);
            }
            return;
        };
        let node = held.node.as_ref().map(|node| self.nodes.id(node, self.world.seed));
        self.rehouse(&held.gateway, eip, node);
        let gate = self.gate_mut(&held.gateway);
        gate.change(eip, |seat| seat.epoch = held.epoch);
        round.policies.extend(&gate.seats[&eip].users);
        round.touch_seat(&held.gateway, eip);
        round.gates.insert(held.gateway.clone());
        round.freed = true;
        let gate = &self.gates[&held.gateway];
        if node.is_some_and(|node| !self.suits(gate, eip, node)) {
            self.uproot(&held.gateway, eip, round);
        } else if node.is_none() {
            round.origins.insert((held.gateway.clone(), eip), Origin::From(None, MoveCause::NodeReady));
        }
    }

    /// Plans everything anew from what is recorded: for records that contradict each other.
    pub(super) fn start_over(&mut self, edit: impl FnOnce(&mut Ledger), round: &mut Round) {
        let mut ledger = Ledger::default();
        let gateways: Vec<GatewayName> = self.gates.keys().cloned().collect();
        for gateway in &gateways {
            let own = self.dissolve(gateway, round);
            ledger.addresses.extend(own.addresses);
            ledger.bindings.extend(own.bindings);
        }
        for (address, stray) in std::mem::take(&mut self.strays) {
            ledger.addresses.insert(address, stray.held);
        }
        round.touched.addresses.extend(ledger.addresses.keys().copied());
        edit(&mut ledger);
        (self.owners, self.slots) = Default::default();
        round.touched.addresses.extend(ledger.addresses.keys().copied());
        round.touched.gateways.extend(gateways);
        let gateways: Vec<GatewayName> = self.world.gateways.keys().cloned().collect();
        round.touched.gateways.extend(gateways.iter().cloned());
        let policies: Vec<PolicyId> = self.policies.iter().map(|(id, _)| id).collect();
        round.policies.extend(&policies);
        self.absorb(&gateways, ledger, policies, round);
    }
}
