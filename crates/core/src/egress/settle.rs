//! Settling: whoever lost its node gets another, then whoever waits is served, until nothing more can be given.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;

use super::choose::{NodeId, Seeker, choose};
use super::planner::{Affected, Planner};
use super::policies::{Grant, PolicyId};
use super::state::{Gate, Seat, Turn};
use super::{AddressRecord, AddressRequest, Eip, GatewayName, Move, MoveCause, Unmet};
use crate::pick;

/// The numbers that stand for addresses: 1 is a node's own address and 0 none; 14 bits of a mark.
pub(super) const SLOTS: RangeInclusive<u16> = 2..=16383;

/// One decision in the making.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) touched: Affected,
    /// Policies that are touched, by number and perhaps more than once.
    pub(super) policies: Vec<PolicyId>,
    /// Gateways to settle.
    pub(super) gates: BTreeSet<GatewayName>,
    /// Something that others may wait for was given back: room on a node, a slot, an address.
    pub(super) freed: bool,
    /// Where the seats that move came from.
    pub(super) origins: BTreeMap<(GatewayName, Eip), Origin>,
    /// Likewise for policies on a node's own address.
    locals: BTreeMap<PolicyId, (GatewayName, Option<NodeId>, MoveCause)>,
}

/// Where a seat was before.
#[derive(Debug, Clone, Copy)]
pub(super) enum Origin {
    /// It is not recorded yet: no move, no epoch.
    Fresh,
    /// On this node, which it had to leave.
    From(Option<NodeId>, MoveCause),
}

impl Round {
    pub(super) fn touch_address(&mut self, address: IpAddr) {
        self.touched.addresses.insert(address);
    }

    pub(super) fn touch_seat(&mut self, gateway: &GatewayName, eip: Eip) {
        self.touched.addresses.extend(eip.addresses());
        self.touched.gateways.insert(gateway.clone());
    }
}

impl Planner {
    pub(super) fn settle(&mut self, mut round: Round) -> Affected {
        loop {
            if std::mem::take(&mut round.freed) {
                let needy = self.gates.iter().filter(|(_, gate)| {
                    !gate.waiting.is_empty() || gate.by_node.contains_key(&None) || gate.locals.contains_key(&None)
                });
                round.gates.extend(needy.map(|(name, _)| name.clone()));
            }
            let gates: Vec<GatewayName> =
                round.gates.iter().filter(|name| self.gates.contains_key(*name)).cloned().collect();
            for gateway in &gates {
                self.place_orphans(gateway, &mut round);
            }
            let mut served = false;
            for gateway in &gates {
                served |= self.serve(gateway, &mut round);
            }
            if !served && !round.freed {
                break;
            }
        }
        self.conclude(&mut round);
        self.moves.clone_from(&round.touched.moves);
        round.touched
    }

    /// Gives every seat, then every policy on a node's own address, that has no node a node, if there is one.
    fn place_orphans(&mut self, gateway: &GatewayName, round: &mut Round) {
        let gate = &self.gates[gateway];
        if !gate.any_ready() {
            return;
        }
        for eip in gate.in_order(gate.by_node.get(&None).into_iter().flatten().copied()) {
            let Ok(node) = self.node_for(&self.gates[gateway], eip) else { continue };
            round.origins.entry((gateway.clone(), eip)).or_insert(Origin::From(None, MoveCause::NodeReady));
            self.rehouse(gateway, eip, Some(node));
        }
        let locals: Vec<Turn> = self.gates[gateway].locals.get(&None).into_iter().flatten().cloned().collect();
        for turn in locals {
            let id = turn.2;
            let Ok(node) = self.node_for_local(&self.gates[gateway], id) else { continue };
            round.locals.entry(id).or_insert((gateway.clone(), None, MoveCause::NodeReady));
            let gate = self.gate_mut(gateway);
            gate.set_local(None, turn.clone(), false);
            gate.set_local(Some(node), turn, true);
            self.policies[id].grant.as_mut().expect("a local has a grant").node = Some(node);
        }
    }

    /// Serves those who wait, in their order; true if anyone got something.
    fn serve(&mut self, gateway: &GatewayName, round: &mut Round) -> bool {
        let gate = self.gate_mut(gateway);
        let ready = gate.any_ready();
        if gate.waiting.is_empty() || (!ready && gate.dark) {
            gate.dark = !ready;
            return false;
        }
        gate.dark = !ready;
        let (mut served, mut left) = (false, BTreeMap::new());
        for (turn, before) in std::mem::take(&mut gate.waiting) {
            let granted = if ready { self.grant(gateway, turn.2, round) } else { Err(Unmet::NoReadyNode) };
            served |= granted.is_ok();
            if granted.as_ref().err() != Some(&before) {
                round.policies.push(turn.2);
            }
            if let Err(unmet) = granted {
                left.insert(turn, unmet);
            }
        }
        self.gate_mut(gateway).waiting = left;
        served
    }

    /// Gives a policy what it asks for, or says why not and changes nothing.
    fn grant(&mut self, gateway: &GatewayName, id: PolicyId, round: &mut Round) -> Result<(), Unmet> {
        let gate = &self.gates[gateway];
        if self.policies[id].spec.request == AddressRequest::NodeAddress {
            let node = Some(self.node_for_local(gate, id)?);
            let turn = self.policies[id].turn(id);
            self.gate_mut(gateway).set_local(node, turn, true);
            round.touched.gateways.insert(gateway.clone());
            let (gateway, eip) = (gateway.clone(), Eip::default());
            self.policies[id].grant = Some(Grant { gateway, eip, node, place: 0 });
            return Ok(());
        }
        if matches!(self.policies[id].spec.request, AddressRequest::Limit(_)) {
            self.gate_mut(gateway).rank_by_use();
        }
        let gate = &self.gates[gateway];
        let eip = gate.pick(id, &self.policies, self.world.seed)?;
        match gate.seats.get(&eip).map(|seat| seat.node) {
            Some(Some(node)) if self.suits(gate, eip, node) => {}
            Some(from) => {
                let to = self.node_for(gate, eip)?;
                let cause = from.map_or(MoveCause::NodeReady, |node| self.cause(gate, node));
                round.origins.entry((gateway.clone(), eip)).or_insert(Origin::From(from, cause));
                self.rehouse(gateway, eip, Some(to));
                round.freed |= from.is_some();
            }
            None => {
                let node = Some(self.node_for(gate, eip)?);
                let slot = self.free_slot().ok_or(Unmet::SlotsExhausted)?;
                self.found(gateway, eip, Seat { slot, node, epoch: 1, ..Seat::default() }, round);
            }
        }
        self.join_seat(gateway, eip, id, round);
        Ok(())
    }

    /// Adds a user to a seat.
    pub(super) fn join_seat(&mut self, gateway: &GatewayName, eip: Eip, id: PolicyId, round: &mut Round) {
        let explicit = self.policies[id].is_explicit();
        let place = self.gate_mut(gateway).change(eip, |seat| {
            let place = seat.load();
            seat.users.push(id);
            seat.explicit += u32::from(explicit);
            seat.recorded = eip;
            place
        });
        if place == 0 {
            round.touch_seat(gateway, eip);
        }
        round.touched.gateways.insert(gateway.clone());
        self.policies[id].grant = Some(Grant { gateway: gateway.clone(), eip, node: None, place });
    }

    /// Makes a seat that was not recorded before.
    pub(super) fn found(&mut self, gateway: &GatewayName, eip: Eip, seat: Seat, round: &mut Round) {
        self.slots.insert(seat.slot.into(), seat.slot.into());
        self.nodes.rehouse(None, seat.node);
        round.touch_seat(gateway, eip);
        self.gate_mut(gateway).change(eip, |made| *made = Seat { index: made.index, recorded: eip, ..seat });
        for address in eip.addresses() {
            self.owners.insert(address, gateway.clone());
            if self.overlapping {
                self.refresh_all(address, round);
            }
        }
    }

    /// Takes everything from a policy.
    pub(super) fn dismiss(&mut self, id: PolicyId, round: &mut Round) {
        let row = &mut self.policies[id];
        let explicit = row.is_explicit();
        let Some(Grant { gateway, eip, node, place }) = row.grant.take() else {
            if let Some(gate) = self.gates.get_mut(&row.spec.gateway) {
                gate.waiting.remove(&row.turn(id));
            }
            return;
        };
        let gate = self.gates.get_mut(&gateway).expect("a grant has its gate");
        round.gates.insert(gateway.clone());
        if eip.is_none() {
            gate.set_local(node, row.turn(id), false);
        } else {
            let (last, filler) = gate.change(eip, |seat| {
                seat.users.swap_remove(place as usize);
                seat.explicit -= u32::from(explicit);
                (seat.users.is_empty(), seat.users.get(place as usize).copied())
            });
            if let Some(grant) = filler.and_then(|filler| self.policies[filler].grant.as_mut()) {
                grant.place = place;
            }
            if last {
                round.touch_seat(&gateway, eip);
            }
        }
        round.touched.gateways.insert(gateway);
    }

    pub(super) fn enqueue(&mut self, id: PolicyId, round: &mut Round) {
        let row = &self.policies[id];
        if let Some(gate) = self.gates.get_mut(&row.spec.gateway).filter(|_| !row.spec.refused) {
            gate.waiting.insert(row.turn(id), Unmet::NoReadyNode);
            round.gates.insert(row.spec.gateway.clone());
        }
    }

    /// Takes the node from everything of the gateway that is on it.
    pub(super) fn evict(&mut self, gateway: &GatewayName, node: NodeId, round: &mut Round) {
        let gate = &self.gates[gateway];
        let eips: Vec<Eip> = gate.by_node.get(&Some(node)).into_iter().flatten().copied().collect();
        let locals: Vec<Turn> = gate.locals.get(&Some(node)).into_iter().flatten().cloned().collect();
        for eip in eips {
            self.uproot(gateway, eip, round);
        }
        for (_, _, id) in locals {
            self.uproot_local(gateway, id, round);
        }
    }

    /// Takes its node from a seat; an idle one keeps what is recorded.
    pub(super) fn uproot(&mut self, gateway: &GatewayName, eip: Eip, round: &mut Round) {
        let gate = &self.gates[gateway];
        let Some(node) = gate.seats.get(&eip).filter(|seat| !seat.users.is_empty()).and_then(|seat| seat.node) else {
            return;
        };
        let cause = self.cause(gate, node);
        round.origins.entry((gateway.clone(), eip)).or_insert(Origin::From(Some(node), cause));
        round.gates.insert(gateway.clone());
        round.freed = true;
        self.rehouse(gateway, eip, None);
    }

    pub(super) fn uproot_local(&mut self, gateway: &GatewayName, id: PolicyId, round: &mut Round) {
        let row = &mut self.policies[id];
        let Some(node) = row.grant.as_mut().and_then(|grant| grant.node.take()) else { return };
        let turn = row.turn(id);
        let cause = self.cause(&self.gates[gateway], node);
        round.locals.entry(id).or_insert((gateway.clone(), Some(node), cause));
        let gate = self.gate_mut(gateway);
        gate.set_local(Some(node), turn.clone(), false);
        gate.set_local(None, turn, true);
    }

    pub(super) fn rehouse(&mut self, gateway: &GatewayName, eip: Eip, to: Option<NodeId>) {
        let gate = self.gates.get_mut(gateway).expect("a seat has its gate");
        let from = gate.seats.get(&eip).and_then(|seat| seat.node);
        gate.change(eip, |seat| seat.node = to);
        self.nodes.rehouse(from, to);
    }

    /// Counts epochs and names the moves.
    fn conclude(&mut self, round: &mut Round) {
        for ((gateway, eip), origin) in std::mem::take(&mut round.origins) {
            let Some(seat) = self.gates.get(&gateway).and_then(|gate| gate.seats.get(&eip)) else { continue };
            round.touch_seat(&gateway, eip);
            round.policies.extend(&seat.users);
            let Origin::From(from, cause) = origin else { continue };
            if from == seat.node || seat.users.is_empty() {
                continue;
            }
            let (from, to) = (self.node_name(from), self.node_name(seat.node));
            self.gate_mut(&gateway).change(eip, |seat| seat.epoch += 1);
            round.touched.moves.push(Move { eip, policy: None, gateway, from, to, cause });
        }
        for (id, (gateway, from, cause)) in std::mem::take(&mut round.locals) {
            round.touched.gateways.insert(gateway.clone());
            round.policies.push(id);
            let row = &self.policies[id];
            let Some(grant) = row.grant.as_ref().filter(|grant| grant.node != from) else { continue };
            let (from, to, policy) = (self.node_name(from), self.node_name(grant.node), Some(row.name.clone()));
            round.touched.moves.push(Move { eip: Eip::default(), policy, gateway, from, to, cause });
        }
        round.policies.sort_unstable();
        round.policies.dedup();
        // collected, not inserted one by one: sorting compares far fewer names
        let mut names = round.policies.iter().map(|id| self.policies[*id].name.clone()).collect();
        round.touched.policies.append(&mut names);
        round.touched.moves.sort_by(|a, b| (&a.gateway, a.eip, &a.policy).cmp(&(&b.gateway, b.eip, &b.policy)));
    }

    pub(super) fn gate_mut(&mut self, gateway: &GatewayName) -> &mut Gate {
        self.gates.get_mut(gateway).expect("only gateways that exist are settled")
    }

    pub(super) fn free_slot(&self) -> Option<u16> {
        let slot = self.slots.first_gap((*SLOTS.start()).into())?;
        u16::try_from(slot).ok().filter(|slot| SLOTS.contains(slot))
    }

    /// True if the address can live on the node.
    pub(super) fn suits(&self, gate: &Gate, eip: Eip, node: NodeId) -> bool {
        gate.is_ready(node) && !self.is_barred(eip, node)
    }

    pub(super) fn is_barred(&self, eip: Eip, node: NodeId) -> bool {
        let barred = |address| {
            self.world.excluded_nodes.get(&address).is_some_and(|nodes| nodes.contains(self.nodes.name(node)))
        };
        !self.world.excluded_nodes.is_empty() && eip.addresses().any(barred)
    }

    pub(super) fn node_for(&self, gate: &Gate, eip: Eip) -> Result<NodeId, Unmet> {
        gate.node_for(eip, &self.nodes, self.world.seed, &|node| self.is_barred(eip, node))
    }

    fn node_for_local(&self, gate: &Gate, id: PolicyId) -> Result<NodeId, Unmet> {
        let uid = self.policies[id].spec.uid.as_bytes();
        let key = pick::hash(self.world.seed, &[gate.spec.uid.as_bytes(), uid]);
        let seeker = Seeker { key, takes_room: false, not: &|_| false };
        choose(gate.spec.mode, &gate.sites, &self.nodes, seeker).map(|place| gate.sites[place].node)
    }

    fn cause(&self, gate: &Gate, node: NodeId) -> MoveCause {
        match self.world.nodes.get(self.nodes.name(node)) {
            None => MoveCause::NodeDeleted,
            Some(node) if !node.ready => MoveCause::NodeNotReady,
            Some(node) if !gate.spec.selector.matches(&node.labels) => MoveCause::NotSelected,
            Some(_) => MoveCause::NodeExcluded,
        }
    }

    pub(super) fn held(&self, gateway: &GatewayName, eip: Eip, seat: &Seat, address: IpAddr) -> AddressRecord {
        AddressRecord {
            gateway: gateway.clone(),
            pair: eip.addresses().find(|other| *other != address),
            slot: seat.slot,
            node: self.node_name(seat.node),
            epoch: seat.epoch,
        }
    }
}
