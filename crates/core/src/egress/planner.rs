//! The planner: keeps the world and what was decided, and changes its mind only where a change makes it.
//!
//! ```text
//! World + Ledger --absorb--> gates, seats, grants --settle--> Plan
//!                                 ^                  |
//!                     Change -----+                  +--> Touched
//! ```
//! A change followed by [`Planner::plan`] gives what planning the changed world afresh would give, with the
//! planner's own state as the ledger. A property test holds it to that after every change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::choose::{NodeId, Nodes, Site};
use super::policies::{Grant, Policies, PolicyId};
use super::settle::Round;
use super::state::Gate;
use super::{
    AddressRecord, AddressRequest, Binding, Eip, Gateway, GatewayName, Ledger, Move, Node, NodeName, PlannedAddress,
    Policy, PolicyName, Unmet, World,
};
use crate::net::{AddressSet, IntervalSet};

/// Something that is now different.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A policy came, changed or went. One that changes its uid is another policy and inherits nothing.
    Policy(PolicyName, Option<Policy>),
    /// A node came, changed or went.
    Node(NodeName, Option<Node>),
    /// A gateway came, changed or went: it is planned anew from what it has.
    Gateway(GatewayName, Option<Gateway>),
    /// An address is held elsewhere or on its way out, or no longer.
    Taken(IpAddr, bool),
    /// The nodes on which an address cannot live.
    ExcludedNodes(IpAddr, BTreeSet<NodeName>),
    /// Whether recycling waits.
    KeepUnused(bool),
    /// The ledger shows something else for an address than was decided. A higher epoch is followed, an equal or lower
    /// one is repaired. When a claim is gone, say that it is no longer taken before saying that it is gone.
    ObservedRecord(IpAddr, Option<AddressRecord>),
    /// A policy's status shows something else than was decided. It is adopted if it is lawful, else repaired.
    ObservedBinding(PolicyName, Option<Binding>),
}

/// Everything whose desired state may have changed.
///
/// Standbys are not among it: any change of load may change them, so ask [`Planner::standby`] for the owners in the
/// gateways named here.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Affected {
    /// Addresses to be recorded, repaired or recycled.
    pub addresses: BTreeSet<IpAddr>,
    /// Policies whose binding or unmet reason may differ.
    pub policies: BTreeSet<PolicyName>,
    /// Gateways whose view may differ.
    pub gateways: BTreeSet<GatewayName>,
    /// What changes its node.
    pub moves: Vec<Move>,
}

/// A record whose gateway does not exist.
#[derive(Debug, Clone)]
pub(super) struct Stray {
    pub(super) held: AddressRecord,
    /// Its slot is reserved for it.
    pub(super) has_slot: bool,
}

/// Decides who gets which address and node, all at once or change by change.
#[derive(Debug, Clone, Default)]
pub struct Planner {
    /// Without its policies, which are in the rows.
    pub(super) world: World,
    pub(super) gates: BTreeMap<GatewayName, Gate>,
    pub(super) policies: Policies,
    /// The gateway of every address that has a record or is the other half of one that has.
    pub(super) owners: BTreeMap<IpAddr, GatewayName>,
    pub(super) strays: BTreeMap<IpAddr, Stray>,
    pub(super) slots: IntervalSet,
    pub(super) nodes: Nodes,
    /// Two pools have an address in common, past validation.
    pub(super) overlapping: bool,
    /// Moves of the last decision.
    pub(super) moves: Vec<Move>,
}

impl Planner {
    /// Plans the world: what is recorded claims first.
    pub fn new(world: World, ledger: Ledger) -> Self {
        let mut planner = Self { world, ..Self::default() };
        let Self { world, nodes, policies, .. } = &mut planner;
        for (name, node) in &world.nodes {
            let id = nodes.id(name, world.seed);
            nodes.set_capacity(id, node.capacity);
        }
        let asking = std::mem::take(&mut world.policies);
        *policies = Policies::with_capacity(asking.len());
        let policies = asking.into_iter().map(|(name, policy)| policies.add(name, policy)).collect();
        let mut round = Round::default();
        let gateways: Vec<GatewayName> = planner.world.gateways.keys().cloned().collect();
        planner.absorb(&gateways, ledger, policies, &mut round);
        planner.settle(round);
        planner
    }

    /// Takes in a change and says what it touches.
    pub fn change(&mut self, change: Change) -> Affected {
        let mut round = Round::default();
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
                round.touch_address(address);
                self.refresh_all(address, &mut round);
            }
            Change::ExcludedNodes(address, nodes) => self.change_barred(address, nodes, &mut round),
            Change::KeepUnused(keep) => {
                if self.world.keep_unused != keep {
                    self.world.keep_unused = false;
                    round.touched.addresses.extend(self.recycled());
                    self.world.keep_unused = keep;
                }
            }
            Change::ObservedRecord(address, held) => self.change_record(address, held, &mut round),
            Change::ObservedBinding(name, binding) => {
                if let Some(policy) = self.policies.find(&name) {
                    self.change_binding(policy, binding, &mut round);
                }
            }
        }
        self.settle(round)
    }

    /// Takes in what became of several nodes at once: nothing moves to one that goes too, and what waits for a node is
    /// spread over all that came.
    pub fn change_nodes(&mut self, nodes: impl IntoIterator<Item = (NodeName, Option<Node>)>) -> Affected {
        let mut round = Round::default();
        for (name, node) in nodes {
            self.change_node(&name, node.as_ref(), &mut round);
        }
        self.settle(round)
    }

    /// The world as it stands, to plan it once more.
    pub fn world(&self) -> World {
        let policies = self.policies.iter().map(|(_, row)| (row.name.clone(), row.spec.clone())).collect();
        World { policies, ..self.world.clone() }
    }

    /// A policy, served or not.
    pub fn policy(&self, name: &PolicyName) -> Option<&Policy> {
        self.policies.find(name).map(|id| &self.policies[id].spec)
    }

    /// A node, selected by a gateway or not.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.world.nodes.get(name)
    }

    /// What has been decided, as a ledger.
    pub fn ledger(&self) -> Ledger {
        let mut ledger = Ledger::default();
        for (gateway, gate) in &self.gates {
            for (eip, seat) in &gate.seats {
                for address in seat.recorded.addresses() {
                    ledger.addresses.insert(address, self.held(gateway, *eip, seat, address));
                }
            }
        }
        ledger.addresses.extend(self.strays.iter().map(|(address, stray)| (*address, stray.held.clone())));
        ledger.bindings = self.bindings();
        ledger
    }

    /// An address in service; its standbys are left to [`Planner::standby`].
    pub fn planned(&self, address: IpAddr) -> Option<PlannedAddress> {
        let gateway = self.owners.get(&address)?;
        let gate = self.gates.get(gateway)?;
        let eip = gate.pairs.eip(address)?;
        let seat = gate.seats.get(&eip).filter(|seat| !seat.users.is_empty())?;
        let held = self.held(gateway, eip, seat, address);
        Some(PlannedAddress { record: held, standby: Vec::new(), outside_pool: !gate.spec.pool.contains(address) })
    }

    /// Who uses an address, in order of name.
    pub fn users(&self, address: IpAddr) -> impl Iterator<Item = &PolicyName> {
        let gate = self.owners.get(&address).and_then(|gateway| self.gates.get(gateway));
        let seat = gate.and_then(|gate| gate.seats.get(&gate.pairs.eip(address)?));
        let users = seat.into_iter().flat_map(|seat| seat.users.iter().copied());
        self.policies.names(users, usize::MAX).into_iter()
    }

    /// What a policy is granted.
    pub fn binding(&self, policy: &PolicyName) -> Option<Binding> {
        self.bound(self.policies.find(policy)?)
    }

    /// Why a policy does not get all it asks for.
    pub fn unmet(&self, name: &PolicyName) -> Option<Unmet> {
        let id = self.policies.find(name)?;
        let row = &self.policies[id];
        let policy = &row.spec;
        if policy.refused {
            return Some(Unmet::Refused);
        }
        let Some(grant) = &row.grant else {
            let Some(gate) = self.gates.get(&policy.gateway) else { return Some(Unmet::GatewayNotFound) };
            return gate.waiting.get(&row.turn(id)).cloned();
        };
        if grant.gateway != policy.gateway || !fits(policy.request, grant.eip) {
            return Some(Unmet::ImmutableField);
        }
        let gate = self.gates.get(&grant.gateway)?;
        if grant.eip.is_none() {
            return grant.node.is_none().then_some(Unmet::NoReadyNode);
        }
        if gate.seats.get(&grant.eip)?.node.is_some() {
            return None;
        }
        Some(self.node_for(gate, grant.eip).err().unwrap_or(Unmet::NoReadyNode))
    }

    /// True if the address is recorded, nobody uses it, and its record should go.
    pub fn is_recycled(&self, address: IpAddr) -> bool {
        !self.world.keep_unused && self.record(address).is_some() && self.planned(address).is_none()
    }

    /// Recorded addresses that nobody uses any more.
    pub fn recycled(&self) -> BTreeSet<IpAddr> {
        if self.world.keep_unused {
            return BTreeSet::new();
        }
        let seats = self.gates.values().flat_map(|gate| gate.seats.values());
        let idle = seats.filter(|seat| seat.users.is_empty()).flat_map(|seat| seat.recorded.addresses());
        idle.chain(self.strays.keys().copied()).collect()
    }

    pub(super) fn bindings(&self) -> BTreeMap<PolicyName, Binding> {
        self.policies.iter().filter_map(|(_, row)| Some((row.name.clone(), self.bind(row.grant.as_ref()?)))).collect()
    }

    pub(super) fn bound(&self, policy: PolicyId) -> Option<Binding> {
        self.policies[policy].grant.as_ref().map(|grant| self.bind(grant))
    }

    fn bind(&self, grant: &Grant) -> Binding {
        let seat = self.gates.get(&grant.gateway).and_then(|gate| gate.seats.get(&grant.eip));
        let node = if grant.eip.is_none() { grant.node } else { seat.and_then(|seat| seat.node) };
        Binding { eip: grant.eip, node: self.node_name(node), gateway: grant.gateway.clone() }
    }

    pub(super) fn node_name(&self, node: Option<NodeId>) -> Option<NodeName> {
        node.map(|node| self.nodes.name(node).clone())
    }

    fn change_policy(&mut self, name: PolicyName, policy: Option<Policy>, round: &mut Round) {
        let known = self.policies.find(&name);
        let before = known.map(|id| &self.policies[id].spec);
        if before == policy.as_ref() {
            return;
        }
        round.touched.policies.insert(name.clone());
        let same = before.zip(policy.as_ref()).filter(|(before, after)| before.uid == after.uid);
        let binding = known.filter(|_| same.is_some()).and_then(|id| self.bound(id));
        if let (Some(id), Some((before, after)), Some(binding)) = (known, same, &binding)
            && (before.request, before.created) != (after.request, after.created)
            && self.gates[&binding.gateway].spec.exclusive
        {
            // who may share an exclusive address depends on who asked for it, and in which order
            self.policies[id].spec = after.clone();
            return self.reopen(&binding.gateway, round);
        }
        if let Some(id) = known {
            self.dismiss(id, round);
        }
        match (known, policy) {
            (None, None) => {}
            (Some(id), None) => self.policies.remove(id),
            (Some(id), Some(policy)) => {
                self.policies[id].spec = policy;
                self.seat(vec![(id, binding)], round);
            }
            (None, Some(policy)) => {
                let id = self.policies.add(name, policy);
                self.seat(vec![(id, None)], round);
            }
        }
    }

    fn change_node(&mut self, name: &NodeName, node: Option<&Node>, round: &mut Round) {
        if self.world.nodes.get(name) == node {
            return;
        }
        let id = self.nodes.id(name, self.world.seed);
        self.nodes.set_capacity(id, node.and_then(|node| node.capacity));
        match node {
            Some(node) => self.world.nodes.insert(name.clone(), node.clone()),
            None => self.world.nodes.remove(name),
        };
        let gateways: Vec<GatewayName> = self.gates.keys().cloned().collect();
        for gateway in gateways {
            let gate = self.gates.get_mut(&gateway).expect("just listed");
            let site = node.filter(|node| gate.spec.selector.matches(&node.labels));
            let place = gate.sites.binary_search_by_key(&id, |site| site.node);
            if site.is_none() && place.is_err() {
                continue;
            }
            round.gates.insert(gateway.clone());
            round.touched.gateways.insert(gateway.clone());
            let ready = site.is_some_and(|node| node.ready);
            if !ready {
                self.evict(&gateway, id, round);
            }
            let gate = self.gates.get_mut(&gateway).expect("just listed");
            match (site.is_some(), place) {
                (true, Ok(place)) => gate.sites[place].ready = ready,
                (true, Err(place)) => {
                    let hash = self.nodes.hash(id);
                    gate.sites.insert(place, Site { node: id, load: 0, eips: 0, ready, hash });
                }
                (false, Ok(place)) => drop(gate.sites.remove(place)),
                (false, Err(_)) => {}
            }
            let still_homeless = gate.by_node.get(&None).into_iter().flatten();
            round.policies.extend(still_homeless.flat_map(|eip| &gate.seats[eip].users));
        }
    }

    fn change_gateway(&mut self, name: &GatewayName, gateway: Option<Gateway>, round: &mut Round) {
        if self.world.gateways.get(name) == gateway.as_ref() {
            return;
        }
        match gateway {
            Some(gateway) => self.world.gateways.insert(name.clone(), gateway),
            None => self.world.gateways.remove(name),
        };
        self.reopen(name, round);
    }

    /// Plans a gateway anew from what it has.
    fn reopen(&mut self, name: &GatewayName, round: &mut Round) {
        round.touched.gateways.insert(name.clone());
        if self.strays.values().any(|stray| stray.held.gateway == *name || !stray.has_slot) {
            return self.start_over(|_| (), round);
        }
        let ledger = self.dissolve(name, round);
        let opened: Vec<GatewayName> =
            self.world.gateways.contains_key(name).then(|| name.clone()).into_iter().collect();
        let concerned = self.policies.iter().filter(|(_, row)| {
            row.grant.is_none() && (row.spec.gateway == *name || ledger.bindings.contains_key(&row.name))
        });
        let policies: Vec<PolicyId> = concerned.map(|(id, _)| id).collect();
        round.policies.extend(&policies);
        round.touched.addresses.extend(ledger.addresses.keys().copied());
        self.absorb(&opened, ledger, policies, round);
    }

    fn change_barred(&mut self, address: IpAddr, nodes: BTreeSet<NodeName>, round: &mut Round) {
        if nodes.is_empty() {
            self.world.excluded_nodes.remove(&address);
        } else {
            self.world.excluded_nodes.insert(address, nodes);
        }
        let gateways: Vec<GatewayName> = self.gates.keys().cloned().collect();
        for gateway in gateways {
            let gate = &self.gates[&gateway];
            let Some(eip) = gate.pairs.eip(address) else { continue };
            round.gates.insert(gateway.clone());
            let Some(seat) = gate.seats.get(&eip) else { continue };
            round.policies.extend(&seat.users);
            if seat.node.is_some_and(|node| !self.suits(gate, eip, node)) {
                self.uproot(&gateway, eip, round);
            }
        }
    }

    /// Recomputes what depends on who holds the address, in every gateway.
    pub(super) fn refresh_all(&mut self, address: IpAddr, round: &mut Round) {
        for (gateway, gate) in &mut self.gates {
            let Some(index) = gate.pairs.eip(address).and_then(|eip| gate.pairs.index(eip)) else { continue };
            let (taken, owners) = (&self.world.taken, &self.owners);
            gate.refresh(index, |a| taken.contains(&a) || owners.get(&a).is_some_and(|owner| owner != gateway));
            round.gates.insert(gateway.clone());
        }
    }

    pub(super) fn note_overlaps(&mut self) {
        let mut seen = AddressSet::default();
        self.overlapping = false;
        for range in self.gates.values().flat_map(|gate| gate.spec.pool.ranges()) {
            self.overlapping |= seen.intersects(range);
            seen.insert(range);
        }
    }
}

/// True if a policy that asks like this may have this address (none for the node's own).
pub(super) fn fits(ask: AddressRequest, eip: Eip) -> bool {
    match ask {
        AddressRequest::NodeAddress => eip.is_none(),
        AddressRequest::Explicit(asked) => {
            !eip.is_none()
                && asked.v4.is_none_or(|v4| eip.v4 == Some(v4))
                && asked.v6.is_none_or(|v6| eip.v6 == Some(v6))
        }
        AddressRequest::Default
        | AddressRequest::Random
        | AddressRequest::PreferUnallocated
        | AddressRequest::Limit(_) => !eip.is_none(),
    }
}
