//! The node modes: which of a gateway's nodes takes an address, or a policy on a node's own address.

use std::sync::Arc;

use super::{NodeMode, NodeName, Unmet};
use crate::pick;

/// A node by its place in [`Nodes`].
pub(super) type NodeId = u32;

/// Every node ever heard of, so that the rest goes by number.
#[derive(Debug, Clone, Default)]
pub(super) struct Nodes {
    ids: std::collections::BTreeMap<NodeName, NodeId>,
    rows: Vec<Row>,
}

#[derive(Debug, Clone)]
struct Row {
    name: NodeName,
    hash: u64,
    capacity: Option<u32>,
    /// Egress addresses recorded as living there, of all gateways, idle ones among them.
    held: u32,
}

impl Nodes {
    pub(super) fn id(&mut self, name: &NodeName, seed: u64) -> NodeId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = NodeId::try_from(self.rows.len()).expect("fewer than 2^32 nodes");
        let hash = pick::hash(seed, &[name.as_bytes()]);
        self.rows.push(Row { name: Arc::clone(name), hash, capacity: None, held: 0 });
        self.ids.insert(Arc::clone(name), id);
        id
    }

    pub(super) fn find(&self, name: &str) -> Option<NodeId> {
        self.ids.get(name).copied()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = NodeId> {
        self.ids.values().copied()
    }

    pub(super) fn name(&self, id: NodeId) -> &NodeName {
        &self.rows[id as usize].name
    }

    pub(super) fn hash(&self, id: NodeId) -> u64 {
        self.rows[id as usize].hash
    }

    pub(super) fn set_capacity(&mut self, id: NodeId, capacity: Option<u32>) {
        self.rows[id as usize].capacity = capacity;
    }

    /// True if the node can hold one address more.
    pub(super) fn has_room(&self, id: NodeId) -> bool {
        let row = &self.rows[id as usize];
        row.capacity.is_none_or(|capacity| row.held < capacity)
    }

    pub(super) fn any_capacity(&self) -> bool {
        self.rows.iter().any(|row| row.capacity.is_some())
    }

    /// Notes that an address lives elsewhere.
    pub(super) fn rehouse(&mut self, from: Option<NodeId>, to: Option<NodeId>) {
        if let Some(from) = from {
            self.rows[from as usize].held -= 1;
        }
        if let Some(to) = to {
            self.rows[to as usize].held += 1;
        }
    }
}

/// A node that a gateway's selector matches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Site {
    pub(super) node: NodeId,
    /// Policies of this gateway that it serves.
    pub(super) load: u32,
    /// Addresses of this gateway in service there.
    pub(super) eips: u32,
    pub(super) ready: bool,
    pub(super) hash: u64,
}

/// What asks for a node.
#[derive(Clone, Copy)]
pub(super) struct Seeker<'a> {
    /// Hash of gateway and address, or gateway and policy.
    pub(super) key: u64,
    /// It takes up room on the node.
    pub(super) takes_room: bool,
    /// Nodes that are out of the question.
    pub(super) not: &'a dyn Fn(NodeId) -> bool,
}

/// The place in `sites` that the mode chooses, or why there is none.
pub(super) fn choose(mode: NodeMode, sites: &[Site], nodes: &Nodes, seeker: Seeker<'_>) -> Result<usize, Unmet> {
    let best = rank(mode, sites, nodes, seeker, 1);
    let crowded = || sites.iter().any(|site| site.ready && !(seeker.not)(site.node));
    best.first().copied().ok_or_else(|| if crowded() { Unmet::NoCapacity } else { Unmet::NoReadyNode })
}

/// The places in `sites` in the mode's order, at most `count`. Ties go to the highest rendezvous weight, which is
/// also the uniform draw of a `Limit` gateway whose nodes are all full. A node's rank does not depend on the others,
/// so the second is what would be chosen without the first.
pub(super) fn rank(mode: NodeMode, sites: &[Site], nodes: &Nodes, seeker: Seeker<'_>, count: usize) -> Vec<usize> {
    let mut best: Vec<(u64, u64, usize)> = Vec::with_capacity(count + 1);
    // what a node must reach: most are turned away here, before anything costly
    let mut bar = (0, 0);
    for (place, site) in sites.iter().enumerate() {
        let score = score(mode, site);
        if score < bar.0 || !site.ready {
            continue;
        }
        let weight = pick::weight(seeker.key, site.hash);
        if (score, weight) < bar {
            continue;
        }
        let worse = best.partition_point(|(other, heavier, at)| {
            let by_name = || nodes.name(site.node).cmp(nodes.name(sites[*at].node));
            (*other, *heavier).cmp(&(score, weight)).then_with(by_name).is_gt()
        });
        if worse == count || (seeker.not)(site.node) || (seeker.takes_room && !nodes.has_room(site.node)) {
            continue;
        }
        best.insert(worse, (score, weight, place));
        best.truncate(count);
        if best.len() == count {
            bar = (best[count - 1].0, best[count - 1].1);
        }
    }
    best.into_iter().map(|(_, _, place)| place).collect()
}

/// The higher, the better.
fn score(mode: NodeMode, site: &Site) -> u64 {
    let load = u64::from(site.load);
    match mode {
        NodeMode::Average => u64::MAX - ((load << 32) | u64::from(site.eips)),
        NodeMode::FewestNodes => load,
        NodeMode::Limit(_) if load == 0 => 1 << 32,
        NodeMode::Limit(limit) if load < u64::from(limit) => (2 << 32) | load,
        NodeMode::Limit(_) => 0,
    }
}
