//! One gateway's state, with the indices that make each step of a decision cheap.
//!
//! A *seat* is an egress address with a record: in service while it has users, idle otherwise. Every change of a
//! seat is seen by what it was and what it is, and moves it in all indices, so that they cannot drift apart.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::choose::{NodeId, Nodes, Seeker, Site, choose};
use super::pairs::EipPairs;
use super::policies::{Policies, PolicyId};
use super::{AddressRequest, Eip, Gateway, PolicyName, Unmet};
use crate::net::{Family, IntervalSet};
use crate::pick;

/// The place of a policy in the order of service: creation, then name.
pub(super) type Turn = (i64, PolicyName, PolicyId);

/// An egress address with a record.
#[derive(Debug, Clone, Default)]
pub(super) struct Seat {
    /// Its place in pool order; the highest number if it begins outside the pool.
    pub(super) index: u128,
    pub(super) slot: u16,
    pub(super) node: Option<NodeId>,
    pub(super) epoch: u64,
    /// In no order.
    pub(super) users: Vec<PolicyId>,
    /// How many of the users asked for it by name.
    pub(super) explicit: u32,
    /// The halves that have a record.
    pub(super) recorded: Eip,
}

impl Seat {
    pub(super) fn load(&self) -> u32 {
        u32::try_from(self.users.len()).expect("fewer than 2^32 policies")
    }

    fn mark(&self) -> Mark {
        Mark { load: self.load(), node: self.node, named: self.explicit > 0 }
    }
}

/// What the indices know of a seat.
#[derive(Clone, Copy, Default)]
struct Mark {
    load: u32,
    node: Option<NodeId>,
    named: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Gate {
    pub(super) spec: Gateway,
    pub(super) pairs: EipPairs,
    /// The nodes that the selector matches, by number.
    pub(super) sites: Vec<Site>,
    pub(super) seats: BTreeMap<Eip, Seat>,
    /// Seats in service by node; those under none have no node.
    pub(super) by_node: BTreeMap<Option<NodeId>, BTreeSet<Eip>>,
    /// Indices in service by number of users; only where a policy ever asked by use, as every change pays for it.
    by_use: Option<BTreeMap<u32, BTreeSet<u128>>>,
    /// Indices with users that asked for them by name.
    named: BTreeSet<u128>,
    /// Policies on the own address of a node; those under none have no node.
    pub(super) locals: BTreeMap<Option<NodeId>, BTreeSet<Turn>>,
    /// Indices that are never given: holes, and those with a half that is outside the pool or held elsewhere.
    excluded: BTreeMap<u128, Option<IpAddr>>,
    /// Indices that are excluded or in service.
    blocked: IntervalSet,
    /// Policies that have nothing, in order of service.
    pub(super) waiting: BTreeMap<Turn, Unmet>,
    /// Pool addresses in service, by family.
    pub(super) used: [u64; 2],
    /// Policies served.
    pub(super) policies: u64,
    /// No node was ready when it was last settled.
    pub(super) dark: bool,
}

impl Gate {
    pub(super) fn new(spec: Gateway, sites: Vec<Site>, recorded: impl IntoIterator<Item = Eip>) -> Self {
        let pairs = EipPairs::new(&spec.pool, recorded);
        Self {
            spec,
            pairs,
            sites,
            seats: BTreeMap::new(),
            by_node: BTreeMap::new(),
            by_use: None,
            named: BTreeSet::new(),
            locals: BTreeMap::new(),
            excluded: BTreeMap::new(),
            blocked: IntervalSet::default(),
            waiting: BTreeMap::new(),
            used: [0; 2],
            policies: 0,
            dark: false,
        }
    }

    /// The index of an egress address in pool order; the highest number if it begins outside the pool.
    pub(super) fn order(&self, eip: Eip) -> u128 {
        self.pairs.index(eip).unwrap_or(u128::MAX)
    }

    /// Seats that hold an address without a record of its own.
    pub(super) fn half_recorded(&self) -> impl Iterator<Item = Eip> {
        self.seats.iter().filter(|(eip, seat)| seat.recorded != **eip).map(|(eip, _)| *eip)
    }

    pub(super) fn any_ready(&self) -> bool {
        self.sites.iter().any(|site| site.ready)
    }

    pub(super) fn site(&mut self, node: NodeId) -> Option<&mut Site> {
        let place = self.sites.binary_search_by_key(&node, |site| site.node).ok()?;
        Some(&mut self.sites[place])
    }

    pub(super) fn is_ready(&self, node: NodeId) -> bool {
        self.sites.binary_search_by_key(&node, |site| site.node).is_ok_and(|place| self.sites[place].ready)
    }

    /// Notes whether an index may be given.
    pub(super) fn refresh(&mut self, index: u128, held_elsewhere: impl Fn(IpAddr) -> bool) {
        if index >= self.pairs.span() {
            return;
        }
        let eip = self.pairs.at(index);
        let bad = |address: &IpAddr| !self.spec.pool.contains(*address) || held_elsewhere(*address);
        let culprit = eip.and_then(|eip| eip.addresses().find(bad));
        if eip.is_none() || culprit.is_some() {
            self.excluded.insert(index, culprit);
            self.blocked.insert(index, index);
        } else if self.excluded.remove(&index).is_some() {
            let seat = eip.and_then(|eip| self.seats.get(&eip));
            if seat.is_none_or(|seat| seat.users.is_empty()) {
                self.blocked.remove(index, index);
            }
        }
    }

    pub(super) fn is_excluded(&self, index: u128) -> bool {
        self.excluded.contains_key(&index)
    }

    /// Changes a seat, and all indices with it. A missing seat is made.
    pub(super) fn change<T>(&mut self, eip: Eip, change: impl FnOnce(&mut Seat) -> T) -> T {
        let index = || self.pairs.index(eip).unwrap_or(u128::MAX);
        let seat = self.seats.entry(eip).or_insert_with(|| Seat { index: index(), ..Seat::default() });
        let before = seat.mark();
        let outcome = change(seat);
        let (index, after) = (seat.index, seat.mark());
        self.index(eip, index, before, after);
        outcome
    }

    /// Keeps account of who has how many users from here on.
    pub(super) fn rank_by_use(&mut self) {
        let (span, seats) = (self.pairs.span(), &self.seats);
        self.by_use.get_or_insert_with(|| {
            let mut by_use = BTreeMap::new();
            for seat in seats.values().filter(|seat| seat.load() > 0 && seat.index < span) {
                put(&mut by_use, seat.load(), seat.index, true);
            }
            by_use
        });
    }

    /// Takes a seat out whole.
    pub(super) fn remove(&mut self, eip: Eip) -> Option<Seat> {
        let seat = self.seats.remove(&eip)?;
        self.index(eip, seat.index, seat.mark(), Mark::default());
        Some(seat)
    }

    fn index(&mut self, eip: Eip, index: u128, before: Mark, after: Mark) {
        let inside = index < self.pairs.span();
        for (mark, other, land) in [(before, after, false), (after, before, true)] {
            if mark.load == 0 {
                continue;
            }
            if let Some(by_use) = self.by_use.as_mut().filter(|_| inside && mark.load != other.load) {
                put(by_use, mark.load, index, land);
            }
            if other.load == 0 || mark.node != other.node {
                put(&mut self.by_node, mark.node, eip, land);
            }
            if let Some(site) = mark.node.and_then(|node| self.site(node)) {
                let load = mark.load;
                (site.load, site.eips) =
                    if land { (site.load + load, site.eips + 1) } else { (site.load - load, site.eips - 1) };
            }
        }
        if inside && before.named != after.named {
            if after.named {
                self.named.insert(index)
            } else {
                self.named.remove(&index)
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

    /// Puts a policy on a node's own address, or takes it off.
    pub(super) fn set_local(&mut self, node: Option<NodeId>, turn: Turn, land: bool) {
        put(&mut self.locals, node, turn, land);
        if let Some(site) = node.and_then(|node| self.site(node)) {
            site.load = if land { site.load + 1 } else { site.load - 1 };
        }
        self.policies = if land { self.policies + 1 } else { self.policies - 1 };
    }

    /// The egress address that a policy's ask means as things stand.
    pub(super) fn pick(&self, id: PolicyId, policies: &Policies, seed: u64) -> Result<Eip, Unmet> {
        let ours = |eip| self.allows(eip, id, policies);
        let draw = || self.draw(&policies[id].spec.uid, ours, seed);
        match policies[id].spec.request {
            AddressRequest::Explicit(eip) => self.resolve(eip, ours),
            AddressRequest::Default if self.spec.default.is_none() => {
                let v4 = self.spec.pool.v4_at(0);
                let v6 = self.spec.pool.v6_at(0).filter(|_| v4.is_none());
                self.resolve(Eip { v4, v6 }, ours)
            }
            AddressRequest::Default => self.resolve(self.spec.default, ours),
            AddressRequest::Random => draw(),
            AddressRequest::PreferUnallocated => self.lowest_unused().map_or_else(draw, Ok),
            AddressRequest::Limit(limit) => {
                self.busiest_below(limit, ours).or_else(|| self.lowest_unused()).map_or_else(draw, Ok)
            }
            AddressRequest::NodeAddress => Err(Unmet::PoolEmpty),
        }
    }

    /// True if an exclusive gateway lets the policy share this egress address.
    pub(super) fn allows(&self, eip: Eip, id: PolicyId, policies: &Policies) -> bool {
        let Some(seat) = self.seats.get(&eip).filter(|_| self.spec.exclusive) else { return true };
        let one = &policies[id];
        let mut users = seat.users.iter().map(|user| &policies[*user].name.namespace);
        (!one.is_explicit() && seat.explicit == 0) || users.all(|namespace| *namespace == one.name.namespace)
    }

    fn resolve(&self, asked: Eip, ours: impl Fn(Eip) -> bool) -> Result<Eip, Unmet> {
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
        if let Some(culprit) = self.excluded.get(&self.order(eip)) {
            return Err(Unmet::Taken(culprit.unwrap_or(first)));
        }
        if ours(eip) { Ok(eip) } else { Err(Unmet::NotAllowed(first)) }
    }

    fn lowest_unused(&self) -> Option<Eip> {
        self.blocked.first_gap(0).filter(|index| *index < self.pairs.span()).and_then(|index| self.pairs.at(index))
    }

    fn busiest_below(&self, limit: u16, ours: impl Fn(Eip) -> bool) -> Option<Eip> {
        let busiest_first = self.by_use.iter().flat_map(|by_use| by_use.range(..u32::from(limit)).rev());
        let givable = busiest_first.flat_map(|(_, indices)| indices).filter(|index| !self.excluded.contains_key(index));
        givable.filter_map(|index| self.pairs.at(*index)).find(|eip| ours(*eip))
    }

    /// A draw over all indices that may be given to the policy.
    fn draw(&self, uid: &str, ours: impl Fn(Eip) -> bool, seed: u64) -> Result<Eip, Unmet> {
        let hash = pick::hash(seed, &[self.spec.uid.as_bytes(), uid.as_bytes()]);
        let givable = self.named.iter().filter(|index| !self.excluded.contains_key(index));
        let closed: Vec<u128> =
            givable.filter(|index| self.pairs.at(**index).is_some_and(|eip| !ours(eip))).copied().collect();
        let count = self.pairs.span() - (self.excluded.len() + closed.len()) as u128;
        let mut index = pick::draw(hash, count).ok_or(Unmet::PoolEmpty)?;
        for skipped in merge(self.excluded.keys(), closed.iter()) {
            if skipped > index {
                break;
            }
            index += 1;
        }
        self.pairs.at(index).ok_or(Unmet::PoolEmpty)
    }

    /// The place in `sites` for an egress address that has no node or must leave it.
    pub(super) fn node_for(
        &self,
        eip: Eip,
        nodes: &Nodes,
        seed: u64,
        barred: &dyn Fn(NodeId) -> bool,
    ) -> Result<NodeId, Unmet> {
        let seeker = Seeker { key: self.key(eip, seed), takes_room: true, not: barred };
        choose(self.spec.mode, &self.sites, nodes, seeker).map(|place| self.sites[place].node)
    }

    /// The hash by which nodes are weighed for an egress address: that of its first half.
    pub(super) fn key(&self, eip: Eip, seed: u64) -> u64 {
        match (eip.v4, eip.v6) {
            (Some(v4), _) => pick::hash(seed, &[self.spec.uid.as_bytes(), &v4.octets()]),
            (None, Some(v6)) => pick::hash(seed, &[self.spec.uid.as_bytes(), &v6.octets()]),
            (None, None) => 0,
        }
    }

    /// Seats in service that need a node, in the order in which they are placed: most policies first.
    pub(super) fn in_order(&self, eips: impl Iterator<Item = Eip>) -> Vec<Eip> {
        let mut eips: Vec<Eip> = eips.collect();
        eips.sort_by_cached_key(|eip| {
            let seat = &self.seats[eip];
            (std::cmp::Reverse(seat.load()), seat.index, *eip)
        });
        eips
    }
}

/// Adds to, or takes from, one of many sets; an empty one is no more.
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

/// The members of two ascending sequences without a common member, ascending.
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
