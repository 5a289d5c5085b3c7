//! Chooses the node for an address, or for a policy that uses a node's own address, by the gateway's mode.

use std::sync::Arc;

use super::{NodeMode, NodeName, Unmet};
use crate::pick;

/// Index of a node in [`Nodes`].
pub(super) type NodeId = u32;

/// Every node ever seen, so that the planner can use numbers instead of names.
#[derive(Debug, Clone, Default)]
pub(super) struct Nodes {
    ids: std::collections::BTreeMap<NodeName, NodeId>,
    entries: Vec<NodeEntry>,
}

#[derive(Debug, Clone)]
struct NodeEntry {
    name: NodeName,
    hash: u64,
    capacity: Option<u32>,
    /// Egress addresses recorded on it, of all gateways, idle ones included.
    addresses: u32,
}

impl Nodes {
    pub(super) fn id(&mut self, name: &NodeName, seed: u64) -> NodeId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = NodeId::try_from(self.entries.len()).expect("fewer than 2^32 nodes");
        let hash = pick::hash(seed, &[name.as_bytes()]);
        self.entries.push(NodeEntry { name: Arc::clone(name), hash, capacity: None, addresses: 0 });
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
        &self.entries[id as usize].name
    }

    pub(super) fn hash(&self, id: NodeId) -> u64 {
        self.entries[id as usize].hash
    }

    pub(super) fn set_capacity(&mut self, id: NodeId, capacity: Option<u32>) {
        self.entries[id as usize].capacity = capacity;
    }

    /// True if the node has capacity for another address.
    pub(super) fn has_room(&self, id: NodeId) -> bool {
        let entry = &self.entries[id as usize];
        entry.capacity.is_none_or(|capacity| entry.addresses < capacity)
    }

    pub(super) fn any_capacity(&self) -> bool {
        self.entries.iter().any(|entry| entry.capacity.is_some())
    }

    /// Updates the address counts after a move.
    pub(super) fn move_address(&mut self, from: Option<NodeId>, to: Option<NodeId>) {
        if let Some(from) = from {
            self.entries[from as usize].addresses -= 1;
        }
        if let Some(to) = to {
            self.entries[to as usize].addresses += 1;
        }
    }
}

/// A node that a gateway's selector matches.
#[derive(Debug, Clone, Copy)]
pub(super) struct CandidateNode {
    pub(super) node: NodeId,
    /// Policies of this gateway on the node.
    pub(super) load: u32,
    /// Addresses of this gateway in service on the node.
    pub(super) eips: u32,
    pub(super) ready: bool,
    pub(super) hash: u64,
}

/// What needs a node.
#[derive(Clone, Copy)]
pub(super) struct PlacementRequest<'a> {
    /// Rendezvous key: hash of gateway and address, or of gateway and policy.
    pub(super) key: u64,
    /// It counts towards the node's capacity.
    pub(super) uses_capacity: bool,
    /// Nodes that must not be chosen.
    pub(super) excluded: &'a dyn Fn(NodeId) -> bool,
}

/// The index of the candidate that the mode chooses, or why there is none.
pub(super) fn choose(
    mode: NodeMode,
    candidates: &[CandidateNode],
    nodes: &Nodes,
    request: PlacementRequest<'_>,
) -> Result<usize, Unmet> {
    let best = rank(mode, candidates, nodes, request, 1);
    let any_ready = || candidates.iter().any(|candidate| candidate.ready && !(request.excluded)(candidate.node));
    best.first().copied().ok_or_else(|| if any_ready() { Unmet::NoCapacity } else { Unmet::NoReadyNode })
}

/// The indices of the best `count` candidates in the mode's order. Ties go to the highest rendezvous weight, which is
/// also how a `Limit` gateway chooses when all nodes are full. The rank of a node does not depend on the others, so
/// the second is what would be chosen without the first.
pub(super) fn rank(
    mode: NodeMode,
    candidates: &[CandidateNode],
    nodes: &Nodes,
    request: PlacementRequest<'_>,
    count: usize,
) -> Vec<usize> {
    let mut best: Vec<Ranked> = Vec::with_capacity(count + 1);
    // the lowest score that still counts: most candidates are rejected here, before the costly checks
    let mut minimum = (0, 0);
    for (index, candidate) in candidates.iter().enumerate() {
        let score = score(mode, candidate);
        if score < minimum.0 || !candidate.ready {
            continue;
        }
        let weight = pick::weight(request.key, candidate.hash);
        if (score, weight) < minimum {
            continue;
        }
        let position = best.partition_point(|other| {
            let by_name = || nodes.name(candidate.node).cmp(nodes.name(candidates[other.index].node));
            (other.score, other.weight).cmp(&(score, weight)).then_with(by_name).is_gt()
        });
        if position == count
            || (request.excluded)(candidate.node)
            || (request.uses_capacity && !nodes.has_room(candidate.node))
        {
            continue;
        }
        best.insert(position, Ranked { score, weight, index });
        best.truncate(count);
        if best.len() == count {
            minimum = (best[count - 1].score, best[count - 1].weight);
        }
    }
    best.into_iter().map(|ranked| ranked.index).collect()
}

/// A candidate among the best.
struct Ranked {
    score: u64,
    weight: u64,
    index: usize,
}

/// Higher is better.
fn score(mode: NodeMode, candidate: &CandidateNode) -> u64 {
    let load = u64::from(candidate.load);
    match mode {
        NodeMode::Average => u64::MAX - ((load << 32) | u64::from(candidate.eips)),
        NodeMode::FewestNodes => load,
        NodeMode::Limit(_) if load == 0 => 1 << 32,
        NodeMode::Limit(limit) if load < u64::from(limit) => (2 << 32) | load,
        NodeMode::Limit(_) => 0,
    }
}
