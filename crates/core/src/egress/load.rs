//! From a ledger to the planner's state and back: what is recorded claims first.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::choose::Site;
use super::planner::{Planner, Stray, fits};
use super::policies::{Grant, PolicyId};
use super::settle::{Origin, Round, SLOTS};
use super::state::{Gate, Seat};
use super::{AddressRecord, Binding, Eip, GatewayName, Ledger};
use crate::net::Family;

impl Planner {
    /// Opens gateways with what is recorded for them, and seats policies. Records of other gateways are strays.
    pub(super) fn absorb(
        &mut self,
        opened: &[GatewayName],
        mut ledger: Ledger,
        policies: Vec<PolicyId>,
        round: &mut Round,
    ) {
        let mut records = BTreeMap::<GatewayName, BTreeMap<IpAddr, AddressRecord>>::new();
        for (address, held) in ledger.addresses {
            self.owners.insert(address, held.gateway.clone());
            records.entry(held.gateway.clone()).or_default().insert(address, held);
        }
        let mut without_slot = Vec::new();
        for gateway in opened {
            let own = records.remove(gateway).unwrap_or_default();
            without_slot.extend(self.open(gateway, &own).into_iter().map(|eip| (gateway.clone(), eip)));
            round.gates.insert(gateway.clone());
        }
        for (address, held) in records.into_values().flatten() {
            self.keep_stray(address, held);
        }
        for (gateway, eip) in without_slot {
            match self.free_slot() {
                Some(slot) => {
                    self.slots.insert(slot.into(), slot.into());
                    self.gate_mut(&gateway).change(eip, |seat| seat.slot = slot);
                }
                None => self.give_up(&gateway, eip),
            }
        }
        for gateway in opened {
            self.exclude(gateway, round);
        }
        self.note_overlaps();
        let policies = policies.into_iter().map(|id| (id, ledger.bindings.remove(&self.policies[id].name)));
        self.seat(policies.collect(), round);
    }

    /// Seats policies: with what was granted to them if that is lawful, else in the queue.
    pub(super) fn seat(&mut self, policies: Vec<(PolicyId, Option<Binding>)>, round: &mut Round) {
        let (mut guarded, mut lost) = (Vec::new(), Vec::new());
        for (id, binding) in policies {
            match binding.map(|binding| (self.judge(id, &binding), binding)) {
                Some((Verdict::Keep(eip), binding)) if self.gates[&binding.gateway].spec.exclusive => {
                    guarded.push((id, eip, binding));
                }
                Some((Verdict::Keep(eip), binding)) => self.attach(id, eip, &binding, round),
                Some((Verdict::Lost(eip), binding)) => lost.push((id, eip, binding)),
                Some((Verdict::Void, _)) | None => self.enqueue(id, round),
            }
        }
        // whoever asked for an address by name comes before those it was only given to
        guarded.sort_by_cached_key(|(id, _, _)| (!self.policies[*id].is_explicit(), self.policies[*id].turn(*id)));
        lost.sort_by_cached_key(|(id, _, binding)| (binding.gateway.clone(), self.policies[*id].turn(*id)));
        for (id, eip, binding) in guarded.into_iter().chain(lost) {
            let allowed = self.gates[&binding.gateway].allows(eip, id, &self.policies);
            if allowed && (eip.is_none() || self.restore(eip, &binding, round)) {
                self.attach(id, eip, &binding, round);
            } else {
                self.enqueue(id, round);
            }
        }
    }

    /// Closes a gateway and returns what it had.
    pub(super) fn dissolve(&mut self, gateway: &GatewayName, round: &mut Round) -> Ledger {
        let mut ledger = Ledger::default();
        let Some(gate) = self.gates.get(gateway) else { return ledger };
        let seated = gate.seats.values().flat_map(|seat| &seat.users);
        let policies: Vec<PolicyId> =
            seated.chain(gate.locals.values().flatten().map(|(_, _, id)| id)).copied().collect();
        for (eip, seat) in &gate.seats {
            for address in seat.recorded.addresses() {
                ledger.addresses.insert(address, self.held(gateway, *eip, seat, address));
            }
        }
        for id in policies {
            let binding = self.bound(id).expect("a user has a grant");
            ledger.bindings.insert(self.policies[id].name.clone(), binding);
            self.policies[id].grant = None;
        }
        let gate = self.gates.remove(gateway).expect("looked up above");
        let half_recorded: Vec<Eip> = gate.half_recorded().collect();
        for (eip, seat) in gate.seats {
            for half in eip.addresses() {
                self.owners.remove(&half);
            }
            self.slots.remove(seat.slot.into(), seat.slot.into());
            self.nodes.rehouse(seat.node, None);
        }
        for address in half_recorded.into_iter().flat_map(Eip::addresses) {
            self.refresh_all(address, round);
        }
        round.freed = true;
        ledger
    }

    /// Makes the gate and its seats, all idle; returns those whose recorded slot cannot be theirs.
    fn open(&mut self, gateway: &GatewayName, records: &BTreeMap<IpAddr, AddressRecord>) -> Vec<Eip> {
        let spec = self.world.gateways[gateway].clone();
        let mut sites = Vec::new();
        for (name, node) in self.world.nodes.iter().filter(|(_, node)| spec.selector.matches(&node.labels)) {
            let id = self.nodes.find(name).expect("every node has a number");
            sites.push(Site { node: id, load: 0, eips: 0, ready: node.ready, hash: self.nodes.hash(id) });
        }
        sites.sort_unstable_by_key(|site| site.node);
        let eips = join(records, |address| !self.owners.contains_key(&address));
        let mut gate = Gate::new(spec, sites, eips.iter().copied());
        let mut without_slot = Vec::new();
        let mut ordered: Vec<(u128, Eip)> = eips.into_iter().map(|eip| (gate.order(eip), eip)).collect();
        ordered.sort_unstable();
        for (_, eip) in ordered {
            let halves: Vec<(IpAddr, &AddressRecord)> =
                eip.addresses().filter_map(|address| Some((address, records.get(&address)?))).collect();
            let newest = halves.iter().map(|(_, held)| *held).rev().max_by_key(|held| held.epoch);
            let slot = halves.iter().map(|(_, held)| held.slot).filter(|slot| SLOTS.contains(slot)).min();
            let slot = slot.filter(|slot| !self.slots.contains((*slot).into()));
            match slot {
                Some(slot) => self.slots.insert(slot.into(), slot.into()),
                None => without_slot.push(eip),
            }
            let node = newest.and_then(|held| held.node.clone()).map(|node| self.nodes.id(&node, self.world.seed));
            self.nodes.rehouse(None, node);
            for half in eip.addresses() {
                self.owners.insert(half, gateway.clone());
            }
            gate.change(eip, |seat| {
                seat.slot = slot.unwrap_or(0);
                seat.node = node;
                seat.epoch = newest.map_or(1, |held| held.epoch);
                for (address, _) in &halves {
                    set_half(&mut seat.recorded, *address, true);
                }
            });
        }
        self.gates.insert(gateway.clone(), gate);
        without_slot
    }

    /// Notes what a gateway just opened cannot give, and others because of it.
    fn exclude(&mut self, gateway: &GatewayName, round: &mut Round) {
        let Some(gate) = self.gates.get(gateway) else { return };
        let mut suspects: BTreeSet<u128> = gate.pairs.irregular().collect();
        let pool = &gate.spec.pool;
        for range in pool.ranges() {
            let (first, last) = (range.first_address(), range.last_address());
            let taken = self.world.taken.range(first..=last);
            let elsewhere = self.owners.range(first..=last).filter(|(_, owner)| *owner != gateway);
            let held = taken.chain(elsewhere.map(|(address, _)| address));
            suspects.extend(held.filter_map(|address| gate.pairs.index(gate.pairs.eip(*address)?)));
        }
        let half_recorded: Vec<Eip> = gate.half_recorded().collect();
        let (taken, owners) = (&self.world.taken, &self.owners);
        let elsewhere = |a: IpAddr| taken.contains(&a) || owners.get(&a).is_some_and(|owner| owner != gateway);
        let gate = self.gates.get_mut(gateway).expect("looked up above");
        for index in suspects {
            gate.refresh(index, elsewhere);
        }
        for address in half_recorded.into_iter().flat_map(Eip::addresses) {
            self.refresh_all(address, round);
        }
    }

    fn judge(&self, id: PolicyId, binding: &Binding) -> Verdict {
        let Some(gate) = self.gates.get(&binding.gateway) else { return Verdict::Void };
        let Some(first) = binding.eip.addresses().next() else { return Verdict::Keep(Eip::default()) };
        for eip in binding.eip.addresses().filter_map(|address| gate.pairs.eip(address)) {
            if gate.seats.contains_key(&eip) {
                return Verdict::Keep(eip);
            }
        }
        let policy = &self.policies[id].spec;
        match gate.pairs.eip(first) {
            Some(eip) if binding.gateway == policy.gateway && fits(policy.request, eip) && !policy.refused => {
                Verdict::Lost(eip)
            }
            _ => Verdict::Void,
        }
    }

    fn attach(&mut self, id: PolicyId, eip: Eip, binding: &Binding, round: &mut Round) {
        let gateway = binding.gateway.clone();
        round.gates.insert(gateway.clone());
        round.touched.gateways.insert(gateway.clone());
        if eip.is_none() {
            let turn = self.policies[id].turn(id);
            let node = binding.node.as_ref().map(|node| self.nodes.id(node, self.world.seed));
            let gate = self.gate_mut(&gateway);
            gate.set_local(node, turn, true);
            let ready = node.is_none_or(|node| gate.is_ready(node));
            self.policies[id].grant = Some(Grant { gateway: gateway.clone(), eip, node, place: 0 });
            if !ready {
                self.uproot_local(&gateway, id, round);
            }
            return;
        }
        self.join_seat(&gateway, eip, id, round);
        let gate = &self.gates[&gateway];
        if gate.seats[&eip].node.is_some_and(|node| !self.suits(gate, eip, node)) {
            self.uproot(&gateway, eip, round);
        }
    }

    /// Makes a seat for an address whose record was lost while a policy was using it.
    fn restore(&mut self, eip: Eip, binding: &Binding, round: &mut Round) -> bool {
        let gate = &self.gates[&binding.gateway];
        if gate.seats.contains_key(&eip) {
            return true;
        }
        let index = gate.order(eip);
        let Some(slot) = self.free_slot().filter(|_| index < gate.pairs.span() && !gate.is_excluded(index)) else {
            return false;
        };
        let node = binding.node.as_ref().and_then(|node| self.nodes.find(node));
        let node = node.filter(|node| self.suits(gate, eip, *node));
        round.origins.insert((binding.gateway.clone(), eip), Origin::Fresh);
        self.found(&binding.gateway, eip, Seat { slot, node, epoch: 1, ..Seat::default() }, round);
        true
    }

    /// A record that has no slot to be had is a stray.
    fn give_up(&mut self, gateway: &GatewayName, eip: Eip) {
        let Some(seat) = self.gate_mut(gateway).remove(eip) else { return };
        self.nodes.rehouse(seat.node, None);
        for address in seat.recorded.addresses() {
            let held = self.held(gateway, eip, &seat, address);
            self.strays.insert(address, Stray { held, has_slot: false });
        }
    }

    pub(super) fn keep_stray(&mut self, address: IpAddr, held: AddressRecord) {
        let shared = self.strays.values().any(|stray| stray.has_slot && stray.held.slot == held.slot);
        let has_slot = SLOTS.contains(&held.slot) && (shared || !self.slots.contains(held.slot.into()));
        if has_slot {
            self.slots.insert(held.slot.into(), held.slot.into());
        }
        self.owners.insert(address, held.gateway.clone());
        self.strays.insert(address, Stray { held, has_slot });
    }

    /// Frees the slot of a stray that was just taken out, unless its other half still has it.
    pub(super) fn free_slot_of(&mut self, stray: &Stray) {
        let slot = stray.held.slot;
        if stray.has_slot && !self.strays.values().any(|other| other.has_slot && other.held.slot == slot) {
            self.release_slot(slot);
        }
    }

    /// Frees a slot; a stray that is recorded with it comes first.
    pub(super) fn release_slot(&mut self, slot: u16) {
        self.slots.remove(slot.into(), slot.into());
        for stray in self.strays.values_mut().filter(|stray| stray.held.slot == slot) {
            stray.has_slot = true;
            self.slots.insert(slot.into(), slot.into());
        }
    }
}

enum Verdict {
    /// Lawful: it stays.
    Keep(Eip),
    /// The record is gone, but the address may be given again.
    Lost(Eip),
    /// It counts for nothing.
    Void,
}

/// Sets or clears one half.
pub(super) fn set_half(eip: &mut Eip, address: IpAddr, there: bool) {
    match address {
        IpAddr::V4(v4) => eip.v4 = there.then_some(v4),
        IpAddr::V6(v6) => eip.v6 = there.then_some(v6),
    }
}

/// Joins recorded halves: those that name each other, then those that name a half that nobody else has.
fn join(records: &BTreeMap<IpAddr, AddressRecord>, unrecorded: impl Fn(IpAddr) -> bool) -> Vec<Eip> {
    let (mut eips, mut joined) = (Vec::new(), BTreeSet::new());
    for mutual in [true, false] {
        for (address, held) in records {
            let Some(other) = held.pair.filter(|other| Family::of(*other) != Family::of(*address)) else { continue };
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
