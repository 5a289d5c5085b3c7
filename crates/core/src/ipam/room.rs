//! Chooses nodes and addresses, and counts what this plan has chosen already.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::cloud::{SubnetId, Zone};
use super::index::{Index, NodeId};
use super::journal::Claim;
use super::reason::Reason;
use super::types::NodeName;
use crate::pick;

/// Addresses at the start of a subnet that the cloud keeps for itself; it keeps the last one, too.
const RESERVED: u32 = 4;

/// What is left on nodes and in subnets.
pub(super) struct Room {
    /// Claims that want each node.
    load: Vec<u32>,
    /// Addresses that each node can still get.
    left: Vec<u32>,
    keys: Vec<u64>,
    /// Addresses chosen by this plan.
    chosen: BTreeSet<Ipv4Addr>,
    /// Subnets found full.
    full: BTreeSet<SubnetId>,
}

impl Room {
    pub(super) fn of(index: &Index<'_>) -> Self {
        let mut load = vec![0; index.nodes.len()];
        let mut used: Vec<u32> = index.nodes.iter().map(|_| 0).collect();
        for (address, claim) in &index.journal.claims {
            count(index, *address, claim, &mut load, &mut used);
        }
        let left = index.nodes.iter().zip(&used).map(|(view, ours)| {
            let seen = view.host.and_then(|host| index.cloud.nodes.get(host.instance));
            let Some((limit, interface)) =
                seen.and_then(|seen| Some((seen.what.address_limit, seen.what.interface.as_ref()?)))
            else {
                return 0;
            };
            let present = u32::try_from(interface.secondary.len()).unwrap_or(u32::MAX);
            let used = ours.saturating_add(present).saturating_add(1).saturating_add(interface.prefixes.into());
            u32::from(limit).saturating_sub(used)
        });
        let keys = index.nodes.iter().map(|view| pick::hash(index.world.seed, &[view.name.as_bytes()])).collect();
        Self { left: left.collect(), load, keys, chosen: BTreeSet::new(), full: BTreeSet::new() }
    }

    /// The node with the fewest claims among these that are not barred and have room.
    pub(super) fn choose(&self, nodes: &[NodeId], barred: &[NodeId], key: u64) -> Result<NodeId, Reason> {
        self.choose_where(nodes, barred, key, |_| true)
    }

    fn choose_where(
        &self,
        nodes: &[NodeId],
        barred: &[NodeId],
        key: u64,
        fits: impl Fn(NodeId) -> bool,
    ) -> Result<NodeId, Reason> {
        if nodes.is_empty() {
            return Err(Reason::NoNodeInZone);
        }
        let open = || nodes.iter().copied().filter(|node| !barred.contains(node));
        if open().next().is_none() {
            return Err(Reason::NotEnoughNodes);
        }
        let roomy = || open().filter(|node| self.left[*node] > 0);
        if roomy().next().is_none() {
            return Err(Reason::NoCapacity);
        }
        let Some(fewest) = roomy().filter(|node| fits(*node)).map(|node| self.load[node]).min() else {
            return Err(Reason::SubnetFull);
        };
        let ties = roomy().filter(|node| self.load[*node] == fewest && fits(*node));
        ties.max_by_key(|node| (pick::weight(key, self.keys[*node]), std::cmp::Reverse(*node)))
            .ok_or(Reason::NoCapacity)
    }

    /// A node of a zone and a free address of its subnet.
    pub(super) fn draw(
        &mut self,
        index: &Index<'_>,
        zone: &Zone,
        barred: &[NodeId],
        uid: &str,
    ) -> Result<(NodeId, Ipv4Addr), Reason> {
        let nodes = index.by_zone.get(zone).map_or(&[][..], Vec::as_slice);
        let key = pick::hash(index.world.seed, &[uid.as_bytes(), zone.as_bytes()]);
        loop {
            let has_free = |node: NodeId| index.nodes[node].host.is_some_and(|host| !self.full.contains(host.subnet));
            let node = self.choose_where(nodes, barred, key, has_free)?;
            let Some(host) = index.nodes[node].host else { return Err(Reason::NoNodeInZone) };
            if let Some(address) = self.free_address(index, host.subnet, key) {
                return Ok((node, address));
            }
            self.full.insert(host.subnet.clone());
        }
    }

    /// Counts a choice, so that the next one takes it into account.
    pub(super) fn take(&mut self, node: NodeId, address: Ipv4Addr) {
        self.load[node] += 1;
        self.left[node] = self.left[node].saturating_sub(1);
        self.chosen.insert(address);
    }

    /// True if this plan chose the address already.
    pub(super) fn is_chosen(&self, address: Ipv4Addr) -> bool {
        self.chosen.contains(&address)
    }

    fn free_address(&self, index: &Index<'_>, subnet: &SubnetId, key: u64) -> Option<Ipv4Addr> {
        let subnet = &index.cloud.subnets.get(subnet)?.what;
        let (first, last) = usable_range(subnet.cidr)?;
        let count = last - first + 1;
        let start = u32::try_from(pick::draw(key, u128::from(count))?).ok()?;
        let mut candidates = (first + start..=last).chain(first..first + start).map(Ipv4Addr::from_bits);
        let is_free = |address: &Ipv4Addr| {
            !subnet.used.contains(address)
                && !index.journal.claims.contains_key(address)
                && !index.journal.other_use.contains(address)
                && !index.named.contains(address)
                && !index.requested.contains(address)
                && !self.chosen.contains(address)
        };
        candidates.find(is_free)
    }
}

fn count(index: &Index<'_>, address: Ipv4Addr, claim: &Claim, load: &mut [u32], used: &mut [u32]) {
    let mut names: Vec<&NodeName> = claim.nodes().collect();
    names.sort_unstable();
    names.dedup();
    for id in names.into_iter().filter_map(|node| index.id(node)) {
        if *index.nodes[id].name == claim.spec.node {
            load[id] += 1;
        }
        let shown = index.nodes[id].host.is_some_and(|host| index.shown(address).contains(&host.instance));
        if !shown {
            used[id] += 1;
        }
    }
}

/// The addresses of a subnet that the cloud gives away: from the first to the last.
pub(super) fn usable_range(cidr: Ipv4Net) -> Option<(u32, u32)> {
    let first = cidr.network().to_bits().checked_add(RESERVED)?;
    let last = cidr.broadcast().to_bits().checked_sub(1)?;
    (first <= last).then_some((first, last))
}
