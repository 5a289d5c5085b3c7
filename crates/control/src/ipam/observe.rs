//! What ipam reads of the cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, NodeStatus};
use portolan_api::address_claim::AddressClaim;
use portolan_api::ipam::{CloudPrivateIpConfig, EgressIp, HostSubnet, NetNamespace, NetworkConfig};

use super::names::{CONTROLLER_LOCK, CONTROLLER_NAMESPACE, EGRESS_IP_CONFIG, EGRESSIPAM, EGRESSIPS, MODIFIED, STATUS};
use crate::runtime::store::{Key, Store};
use crate::runtime::watch::{Selection, Watches};

/// Name of the one object of OpenShift's configuration of the network.
pub(super) const CLUSTER: &str = "cluster";

/// Objects of the cluster.
#[derive(Clone)]
pub struct Cache {
    pub(super) namespaces: Store<Namespace>,
    pub(super) nodes: Store<Node>,
    pub(super) claims: Store<AddressClaim>,
    pub(super) net_namespaces: Store<NetNamespace>,
    pub(super) host_subnets: Store<HostSubnet>,
    pub(super) private_ips: Store<CloudPrivateIpConfig>,
    pub(super) egress_ips: Store<EgressIp>,
    /// The object `cluster`, if there is one.
    networks: Store<NetworkConfig>,
    /// The Lease of cloud-network-config-controller, if there is one.
    locks: Store<Lease>,
}

/// Keys of objects that changed.
pub(super) struct Changes {
    pub(super) namespaces: BTreeSet<Arc<Key>>,
    pub(super) nodes: BTreeSet<Arc<Key>>,
    pub(super) claims: BTreeSet<Arc<Key>>,
    pub(super) net_namespaces: BTreeSet<Arc<Key>>,
    pub(super) host_subnets: BTreeSet<Arc<Key>>,
    pub(super) private_ips: BTreeSet<Arc<Key>>,
    pub(super) egress_ips: BTreeSet<Arc<Key>>,
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
            private_ips: watches.add(Selection { optional: true, ..Selection::default() }),
            egress_ips: watches.add(Selection { optional: true, ..Selection::default() }),
            networks: watches.add(Selection {
                fields: Some(format!("metadata.name={CLUSTER}")),
                optional: true,
                ..Selection::default()
            }),
            locks: watches.add(Selection {
                namespace: CONTROLLER_NAMESPACE.to_owned(),
                fields: Some(format!("metadata.name={CONTROLLER_LOCK}")),
                ..Selection::default()
            }),
        }
    }

    /// The network that OpenShift configured.
    pub(super) fn network_config(&self) -> Option<Arc<NetworkConfig>> {
        self.networks.get(&Key::of_cluster(CLUSTER))
    }

    /// The Lease of cloud-network-config-controller.
    pub(super) fn controller_lock(&self) -> Option<Arc<Lease>> {
        self.locks.get(&Key { namespace: CONTROLLER_NAMESPACE.to_owned(), name: CONTROLLER_LOCK.to_owned() })
    }

    /// What changed since the last call.
    pub(super) fn take_changes(&self) -> Changes {
        Changes {
            namespaces: self.namespaces.take_changes(),
            nodes: self.nodes.take_changes(),
            claims: self.claims.take_changes(),
            net_namespaces: self.net_namespaces.take_changes(),
            host_subnets: self.host_subnets.take_changes(),
            private_ips: self.private_ips.take_changes(),
            egress_ips: self.egress_ips.take_changes(),
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
    if let Some(annotations) = &mut node.metadata.annotations {
        annotations.retain(|key, _| key == EGRESS_IP_CONFIG);
    }
    if let Some(status) = node.status.take() {
        let ready = status.conditions.into_iter().flatten().filter(|condition| condition.type_ == "Ready").collect();
        node.status = Some(NodeStatus { conditions: Some(ready), ..NodeStatus::default() });
    }
}
