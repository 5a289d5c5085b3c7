//! Watches -> what is seen, and which keys moved since the last turn. Synchronous, no client.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::api::ObjectMeta;
use portolan_api::address_claim::AddressClaim;
use portolan_api::egress::{
    EgressClusterEndpointSlice, EgressClusterInfo, EgressClusterPolicy, EgressEndpointSlice, EgressGateway,
    EgressPolicy, EgressTunnel,
};
use portolan_api::well_known::egress as words;
use portolan_core::net::claim_name;
use tokio::time::Instant;

use super::slim::{CalicoPool, PHRASES, Pod};
use crate::runtime::pack::Packing;
use crate::runtime::store::{Key, Store};
use crate::runtime::watch::{Kind, Selection, Watches};

/// Everything that a decision may look at. Clones see the same objects.
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

/// Keys that moved, by kind.
#[derive(Debug, Default)]
pub(super) struct Moved {
    pub(super) gateways: BTreeSet<Arc<Key>>,
    pub(super) policies: BTreeSet<Arc<Key>>,
    pub(super) cluster_policies: BTreeSet<Arc<Key>>,
    pub(super) claims: BTreeSet<Arc<Key>>,
    pub(super) tunnels: BTreeSet<Arc<Key>>,
    pub(super) nodes: BTreeSet<Arc<Key>>,
    pub(super) namespaces: BTreeSet<Arc<Key>>,
    pub(super) pods: BTreeSet<Arc<Key>>,
    /// Something that says which ranges are inside the cluster.
    pub(super) ranges: bool,
    /// Slices that somebody else may have written.
    pub(super) slices: BTreeSet<Arc<Key>>,
    pub(super) cluster_slices: BTreeSet<Arc<Key>>,
}

impl Moved {
    /// True when nothing moved that metrics speak of.
    pub(super) fn is_empty(&self) -> bool {
        let Self { gateways, policies, cluster_policies, claims, tunnels, nodes, namespaces, .. } = self;
        [gateways, policies, cluster_policies, claims, tunnels, nodes, namespaces].into_iter().all(BTreeSet::is_empty)
    }
}

impl Cache {
    /// Starts watching.
    pub(super) fn watched(watches: &mut Watches) -> Self {
        Self {
            gateways: watches.add(Selection { trim: trim::<EgressGateway>, ..Selection::default() }),
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
            nodes: watches.add(Selection { trim: trim_node, ..Selection::default() }),
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

    /// What moved since the last call.
    pub(super) fn moved(&self) -> Moved {
        let ranges = [
            !self.service_cidrs.take_changes().is_empty(),
            !self.calico_pools.take_changes().is_empty(),
            !self.infos.take_changes().is_empty(),
        ];
        Moved {
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

    /// The names of all nodes, and of those that left only their tunnel.
    pub(super) fn nodes_and_tunnels(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        self.nodes.for_each(|key, _| _ = names.insert(key.name.clone()));
        self.tunnels.for_each(|key, _| _ = names.insert(key.name.clone()));
        names
    }

    /// Lists whoever could use an address once more before the next turn.
    pub(super) fn list_users_again(&self) {
        self.gateways.invalidate();
        self.namespaces.invalidate();
        self.policies.invalidate();
        self.cluster_policies.invalidate();
    }

    /// True while an object that may hold an address cannot be read.
    pub(super) fn blurred(&self) -> bool {
        !(self.policies.undecodable().is_empty()
            && self.cluster_policies.undecodable().is_empty()
            && self.gateways.undecodable().is_empty())
    }
}

/// How long a node that was lost must be ready without a break before addresses go to it again.
const PROBATION: Duration = Duration::from_secs(10);
/// Nodes that come back within this time of each other count together, so that what waits for them is spread.
const TOGETHER: Duration = Duration::from_secs(1);

/// Remembers which nodes were lost, so that one that flaps is not trusted at once. Time is that of this process: no
/// clock of another machine counts.
#[derive(Debug, Default)]
pub(super) struct Probation {
    nodes: BTreeMap<Arc<str>, Trust>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    Trusted,
    Lost,
    ReadySince(Instant),
}

impl Probation {
    /// Whether a node counts as ready, given that it says so (or not). One that was never ready has nothing to prove.
    pub(super) fn judge(&mut self, node: &Arc<str>, says_ready: bool, now: Instant) -> bool {
        let before = self.nodes.get(node).copied();
        let after = match (before, says_ready) {
            (None, false) => return false,
            (Some(_), false) => Trust::Lost,
            (Some(Trust::Lost), true) => Trust::ReadySince(now),
            (Some(Trust::ReadySince(since)), true) if now < self.until(since) => Trust::ReadySince(since),
            (None | Some(Trust::Trusted | Trust::ReadySince(_)), true) => Trust::Trusted,
        };
        self.nodes.insert(node.clone(), after);
        after == Trust::Trusted
    }

    /// A node that is gone starts afresh when it comes back.
    pub(super) fn forget(&mut self, node: &str) {
        self.nodes.remove(node);
    }

    /// Nodes that are waiting, and until when.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (&Arc<str>, Instant)> {
        self.nodes.iter().filter_map(|(node, trust)| match trust {
            Trust::ReadySince(since) => Some((node, self.until(*since))),
            Trust::Trusted | Trust::Lost => None,
        })
    }

    /// When a node that has been ready since then is trusted.
    fn until(&self, since: Instant) -> Instant {
        let all = self.nodes.values().filter_map(|trust| match trust {
            Trust::ReadySince(other) => Some(*other),
            Trust::Trusted | Trust::Lost => None,
        });
        all.filter(|other| *other <= since + TOGETHER).max().unwrap_or(since).max(since) + PROBATION
    }
}

/// Keeps of the metadata what decisions use.
fn trim<K: Kind>(object: &mut K) {
    let metadata = object.meta_mut();
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|name, _| name.starts_with("portolan.dev/"));
        if annotations.is_empty() {
            metadata.annotations = None;
        }
    }
}

/// A slice is only compared with what it should say.
fn trim_slice<K: Kind>(slice: &mut K) {
    trim(slice);
    let metadata = slice.meta_mut();
    (metadata.creation_timestamp, metadata.generation) = (None, None);
}

fn trim_node(node: &mut Node) {
    let ObjectMeta { name, uid, labels, resource_version, creation_timestamp, .. } = std::mem::take(&mut node.metadata);
    node.metadata = ObjectMeta { name, uid, labels, resource_version, creation_timestamp, ..ObjectMeta::default() };
    if let Some(status) = node.status.take() {
        let mut conditions = status.conditions;
        if let Some(conditions) = &mut conditions {
            conditions.retain(|condition| condition.type_ == "Ready");
        }
        node.status = Some(k8s_openapi::api::core::v1::NodeStatus {
            addresses: status.addresses,
            conditions,
            ..k8s_openapi::api::core::v1::NodeStatus::default()
        });
    }
}

/// Whether the Node object says that the node can be used: ready, and not being drained.
pub(super) fn says_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    ready && !is_drained(node)
}

/// Whether everything is to leave the node, by its label.
pub(super) fn is_drained(node: &Node) -> bool {
    let label = node.metadata.labels.as_ref().and_then(|labels| labels.get(words::DRAIN));
    label.is_some_and(|value| value == "true")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_node_that_was_lost_is_trusted_again_after_ten_unbroken_seconds() {
        let (mut probation, node, start) = (Probation::default(), Arc::from("n1"), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!probation.judge(&node, false, at(0)));
        assert!(probation.judge(&node, true, at(0)), "a node that was never lost is trusted");
        assert!(!probation.judge(&node, false, at(1)));
        assert!(!probation.judge(&node, true, at(2)));
        assert!(!probation.judge(&node, false, at(8)), "it flaps");
        assert!(!probation.judge(&node, true, at(9)));
        assert_eq!(probation.waiting().map(|(_, until)| until).collect::<Vec<_>>(), [at(19)]);
        assert!(!probation.judge(&node, true, at(18)));
        assert!(probation.judge(&node, true, at(19)));
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_that_come_back_together_are_trusted_together() {
        let (mut probation, start) = (Probation::default(), Instant::now());
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let [one, two, late] = ["n1", "n2", "n3"].map(Arc::<str>::from);
        for node in [&one, &two, &late] {
            assert!(probation.judge(node, true, at(0)) && !probation.judge(node, false, at(0)));
        }
        for (node, back) in [(&one, 0), (&two, 700), (&late, 5_000)] {
            assert!(!probation.judge(node, true, at(back)));
        }
        assert!(!probation.judge(&one, true, at(10_000)), "the second is close behind");
        assert!(probation.judge(&one, true, at(10_700)) && probation.judge(&two, true, at(10_700)));
        assert!(!probation.judge(&late, true, at(10_700)));
    }
}
