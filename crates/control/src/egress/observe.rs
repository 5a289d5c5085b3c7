//! Watches -> stores, and which keys changed since the last turn. Synchronous, no client.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use portolan_api::address_claim::AddressClaim;
use portolan_api::egress::{
    EgressClusterEndpointSlice, EgressClusterInfo, EgressClusterPolicy, EgressEndpointSlice, EgressGateway,
    EgressPolicy, EgressTunnel,
};
use portolan_api::well_known::egress as words;
use portolan_core::net::claim_name;
use tokio::time::Instant;

use super::slim::{CalicoPool, Node, PHRASES, Pod};
use crate::runtime::pack::Packing;
use crate::runtime::store::{Key, Store};
use crate::runtime::watch::{Kind, Selection, Watches};

/// All objects that decisions are based on. Clones share the stores.
#[derive(Clone)]
pub struct Cache {
    pub gateways: Store<EgressGateway>,
    pub policies: Store<EgressPolicy>,
    pub cluster_policies: Store<EgressClusterPolicy>,
    pub claims: Store<AddressClaim>,
    pub tunnels: Store<EgressTunnel>,
    pub infos: Store<EgressClusterInfo>,
    pub slices: Store<EgressEndpointSlice>,
    pub cluster_slices: Store<EgressClusterEndpointSlice>,
    pub nodes: Store<Node>,
    pub namespaces: Store<Namespace>,
    pub pods: Store<Pod>,
    pub service_cidrs: Store<ServiceCIDR>,
    pub calico_pools: Store<CalicoPool>,
}

/// Keys that changed, by kind.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) gateways: BTreeSet<Arc<Key>>,
    pub(super) policies: BTreeSet<Arc<Key>>,
    pub(super) cluster_policies: BTreeSet<Arc<Key>>,
    pub(super) claims: BTreeSet<Arc<Key>>,
    pub(super) tunnels: BTreeSet<Arc<Key>>,
    pub(super) nodes: BTreeSet<Arc<Key>>,
    pub(super) namespaces: BTreeSet<Arc<Key>>,
    pub(super) pods: BTreeSet<Arc<Key>>,
    /// An object that defines the ranges inside the cluster changed.
    pub(super) ranges: bool,
    /// Slices, which others may have overwritten.
    pub(super) slices: BTreeSet<Arc<Key>>,
    pub(super) cluster_slices: BTreeSet<Arc<Key>>,
}

impl Changes {
    /// True when nothing changed that metrics are computed from.
    pub(super) fn is_empty(&self) -> bool {
        let Self { gateways, policies, cluster_policies, claims, tunnels, nodes, namespaces, .. } = self;
        [gateways, policies, cluster_policies, claims, tunnels, nodes, namespaces].into_iter().all(BTreeSet::is_empty)
    }
}

impl Cache {
    /// Subscribes to all kinds.
    pub(super) fn watched(watches: &mut Watches) -> Self {
        Self {
            // whole: their finalizer is written with a PUT, which would take annotations of others away
            gateways: watches.add(Selection::default()),
            policies: watches.add(Selection {
                trim: trim::<EgressPolicy>,
                packing: Some(Packing::with(PHRASES)),
                ..Selection::default()
            }),
            cluster_policies: watches.add(Selection {
                trim: trim::<EgressClusterPolicy>,
                packing: Some(Packing::with(PHRASES)),
                ..Selection::default()
            }),
            claims: watches.add(Selection { trim: trim::<AddressClaim>, ..Selection::default() }),
            tunnels: watches.add(Selection { trim: trim::<EgressTunnel>, ..Selection::default() }),
            infos: watches.add(Selection::default()),
            slices: watches.add(Selection {
                trim: trim_slice,
                packing: Some(Packing::with(PHRASES)),
                ..Selection::default()
            }),
            cluster_slices: watches.add(Selection {
                trim: trim_slice,
                packing: Some(Packing::with(PHRASES)),
                ..Selection::default()
            }),
            nodes: watches.add(Selection { trim: Node::trim, ..Selection::default() }),
            namespaces: watches.add(Selection { trim: trim::<Namespace>, ..Selection::default() }),
            pods: watches.add(Selection {
                trim: Pod::trim,
                packing: Some(Packing::with(PHRASES)),
                ..Selection::default()
            }),
            service_cidrs: watches.add(Selection { optional: true, ..Selection::default() }),
            calico_pools: watches.add(Selection { optional: true, ..Selection::default() }),
        }
    }

    /// What changed since the last call.
    pub(super) fn take_changes(&self) -> Changes {
        let ranges = [
            !self.service_cidrs.take_changes().is_empty(),
            !self.calico_pools.take_changes().is_empty(),
            !self.infos.take_changes().is_empty(),
        ];
        Changes {
            gateways: self.gateways.take_changes(),
            policies: self.policies.take_changes(),
            cluster_policies: self.cluster_policies.take_changes(),
            claims: self.claims.take_changes(),
            tunnels: self.tunnels.take_changes(),
            nodes: self.nodes.take_changes(),
            namespaces: self.namespaces.take_changes(),
            pods: self.pods.take_changes(),
            ranges: ranges.contains(&true),
            slices: self.slices.take_changes(),
            cluster_slices: self.cluster_slices.take_changes(),
        }
    }

    /// The claim of an address.
    pub(super) fn claim(&self, address: IpAddr) -> Option<Arc<AddressClaim>> {
        self.claims.get(&Key::of_cluster(&claim_name(address)))
    }

    /// True if the address is recorded for the gateway.
    pub(super) fn is_claimed_by(&self, address: IpAddr, gateway: &str) -> bool {
        let claim = self.claim(address);
        claim.is_some_and(|claim| claim.spec.egress.as_ref().is_some_and(|record| record.gateway == gateway))
    }

    /// The names of all nodes, and of deleted nodes whose tunnel still exists.
    pub(super) fn nodes_and_tunnels(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        self.nodes.for_each(|key, _| _ = names.insert(key.name.clone()));
        self.tunnels.for_each(|key, _| _ = names.insert(key.name.clone()));
        names
    }

    /// Lists all kinds that can use an address again before the next turn.
    pub(super) fn relist_users(&self) {
        self.gateways.invalidate();
        self.namespaces.invalidate();
        self.policies.invalidate();
        self.cluster_policies.invalidate();
    }

    /// True while an object that may hold an address cannot be decoded.
    pub(super) fn has_undecodable(&self) -> bool {
        !(self.policies.undecodable().is_empty()
            && self.cluster_policies.undecodable().is_empty()
            && self.gateways.undecodable().is_empty())
    }
}

/// How long a node that was lost must stay ready before it gets addresses again.
const STABLE_FOR: Duration = Duration::from_secs(10);
/// Nodes that return within this time of each other are accepted together, so that addresses spread over all of them.
const RETURN_TOGETHER: Duration = Duration::from_secs(1);

/// Delays the return of nodes that were lost, so that addresses do not follow a node that flaps. Uses this process's
/// clock only.
#[derive(Debug, Default)]
pub(super) struct FlapDamping {
    nodes: BTreeMap<Arc<str>, History>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum History {
    Stable,
    Lost,
    ReadySince(Instant),
}

impl FlapDamping {
    /// Whether a node counts as ready, given what its object says. A node that was never lost is accepted at once.
    pub(super) fn update(&mut self, node: &Arc<str>, says_ready: bool, now: Instant) -> bool {
        let before = self.nodes.get(node).copied();
        let after = match (before, says_ready) {
            (None, false) => return false,
            (Some(_), false) => History::Lost,
            (Some(History::Lost), true) => History::ReadySince(now),
            (Some(History::ReadySince(since)), true) if now < self.until(since) => History::ReadySince(since),
            (None | Some(History::Stable | History::ReadySince(_)), true) => History::Stable,
        };
        self.nodes.insert(node.clone(), after);
        after == History::Stable
    }

    /// Forgets a deleted node: one of the same name starts without history.
    pub(super) fn forget(&mut self, node: &str) {
        self.nodes.remove(node);
    }

    /// Nodes that are ready but not accepted yet, and until when.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (&Arc<str>, Instant)> {
        self.nodes.iter().filter_map(|(node, trust)| match trust {
            History::ReadySince(since) => Some((node, self.until(*since))),
            History::Stable | History::Lost => None,
        })
    }

    /// When a node that has been ready since then is accepted.
    fn until(&self, since: Instant) -> Instant {
        let all = self.nodes.values().filter_map(|trust| match trust {
            History::ReadySince(other) => Some(*other),
            History::Stable | History::Lost => None,
        });
        all.filter(|other| *other <= since + RETURN_TOGETHER).max().unwrap_or(since).max(since) + STABLE_FOR
    }
}

/// Keeps only the annotations that decisions use.
fn trim<K: Kind>(object: &mut K) {
    let metadata = object.meta_mut();
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|name, _| name.starts_with("portolan.dev/"));
        if annotations.is_empty() {
            metadata.annotations = None;
        }
    }
}

/// A slice is only compared with its desired content.
fn trim_slice<K: Kind>(slice: &mut K) {
    trim(slice);
    let metadata = slice.meta_mut();
    (metadata.creation_timestamp, metadata.generation) = (None, None);
}

/// Whether the Node object says that the node is ready, and not being drained.
pub(super) fn says_ready(node: &Node) -> bool {
    node.is_ready() && !is_drained(node)
}

/// Whether the label that drains a node is set.
pub(super) fn is_drained(node: &Node) -> bool {
    let label = node.metadata.labels.as_ref().and_then(|labels| labels.get(words::DRAIN));
    label.is_some_and(|value| value == "true")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_node_that_was_lost_is_accepted_after_ten_unbroken_seconds() {
        let (mut damping, node, start) = (FlapDamping::default(), Arc::from("n1"), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!damping.update(&node, false, at(0)));
        assert!(damping.update(&node, true, at(0)), "a node that was never lost is accepted");
        assert!(!damping.update(&node, false, at(1)));
        assert!(!damping.update(&node, true, at(2)));
        assert!(!damping.update(&node, false, at(8)), "it flaps");
        assert!(!damping.update(&node, true, at(9)));
        assert_eq!(damping.waiting().map(|(_, until)| until).collect::<Vec<_>>(), [at(19)]);
        assert!(!damping.update(&node, true, at(18)));
        assert!(damping.update(&node, true, at(19)));
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_that_return_together_are_accepted_together() {
        let (mut damping, start) = (FlapDamping::default(), Instant::now());
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let [one, two, late] = ["n1", "n2", "n3"].map(Arc::<str>::from);
        for node in [&one, &two, &late] {
            assert!(damping.update(node, true, at(0)) && !damping.update(node, false, at(0)));
        }
        for (node, back) in [(&one, 0), (&two, 700), (&late, 5_000)] {
            assert!(!damping.update(node, true, at(back)));
        }
        assert!(!damping.update(&one, true, at(10_000)), "the second is close behind");
        assert!(damping.update(&one, true, at(10_700)) && damping.update(&two, true, at(10_700)));
        assert!(!damping.update(&late, true, at(10_700)));
    }
}
