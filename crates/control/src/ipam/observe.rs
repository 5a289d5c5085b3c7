//! What ipam reads of the cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, NodeStatus};
use portolan_api::address_claim::AddressClaim;
use portolan_api::ipam::{HostSubnet, NetNamespace};

use super::names::{EGRESSIPAM, EGRESSIPS, MODIFIED, STATUS};
use crate::runtime::store::{Key, Store};
use crate::runtime::watch::{Selection, Watches};

/// Objects of the cluster.
#[derive(Clone)]
pub struct Cache {
    pub(super) namespaces: Store<Namespace>,
    pub(super) nodes: Store<Node>,
    pub(super) claims: Store<AddressClaim>,
    pub(super) net_namespaces: Store<NetNamespace>,
    pub(super) host_subnets: Store<HostSubnet>,
}

/// Keys of objects that changed.
pub(super) struct Changes {
    pub(super) namespaces: BTreeSet<Arc<Key>>,
    pub(super) nodes: BTreeSet<Arc<Key>>,
    pub(super) claims: BTreeSet<Arc<Key>>,
    pub(super) net_namespaces: BTreeSet<Arc<Key>>,
    pub(super) host_subnets: BTreeSet<Arc<Key>>,
}

impl Cache {
    /// Watches everything.
    pub(super) fn watched(watches: &mut Watches) -> Self {
        Self {
            namespaces: watches.add(Selection { trim: trim_namespace, ..Selection::default() }),
            nodes: watches.add(Selection { trim: trim_node, ..Selection::default() }),
            claims: watches.add(Selection::default()),
            net_namespaces: watches.add(Selection { optional: true, ..Selection::default() }),
            host_subnets: watches.add(Selection { optional: true, ..Selection::default() }),
        }
    }

    /// What changed since the last call.
    pub(super) fn take_changes(&self) -> Changes {
        Changes {
            namespaces: self.namespaces.take_changes(),
            nodes: self.nodes.take_changes(),
            claims: self.claims.take_changes(),
            net_namespaces: self.net_namespaces.take_changes(),
            host_subnets: self.host_subnets.take_changes(),
        }
    }
}

fn trim_namespace(namespace: &mut Namespace) {
    namespace.spec = None;
    namespace.metadata.labels = None;
    if let Some(annotations) = &mut namespace.metadata.annotations {
        annotations.retain(|key, _| [EGRESSIPAM, EGRESSIPS, MODIFIED, STATUS].contains(&key.as_str()));
    }
}

fn trim_node(node: &mut Node) {
    node.metadata.annotations = None;
    if let Some(status) = node.status.take() {
        let ready = status.conditions.into_iter().flatten().filter(|condition| condition.type_ == "Ready").collect();
        node.status = Some(NodeStatus { conditions: Some(ready), ..NodeStatus::default() });
    }
}
