//! What the gateway client reads of the cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::settings::Options;
use crate::runtime::store::{Key, Store};
use crate::runtime::watch::{Selection, Watches};

/// The namespace whose UID is that of the cluster.
const KUBE_SYSTEM: &str = "kube-system";

/// Objects of the cluster.
#[derive(Clone)]
pub struct Cache {
    pub(super) services: Store<Service>,
    pub(super) slices: Store<EndpointSlice>,
    pub(super) nodes: Store<Node>,
    /// The one with the login.
    secrets: Store<Secret>,
    /// kube-system.
    namespaces: Store<Namespace>,
}

/// Keys of objects that changed.
pub(super) struct Changes {
    pub(super) services: BTreeSet<Arc<Key>>,
    pub(super) slices: BTreeSet<Arc<Key>>,
    pub(super) nodes: BTreeSet<Arc<Key>>,
}

impl Cache {
    /// Watches everything.
    pub(super) fn watched(watches: &mut Watches, options: &Options) -> Self {
        Self {
            services: watches.add(Selection { trim: trim_service, ..Selection::default() }),
            slices: watches.add(Selection { trim: trim_slice, ..Selection::default() }),
            nodes: watches.add(Selection { trim: trim_node, ..Selection::default() }),
            secrets: watches.add(Selection {
                namespace: options.operator_namespace.clone(),
                fields: Some(format!("metadata.name={}", options.secret)),
                ..Selection::default()
            }),
            namespaces: watches.add(Selection {
                fields: Some(format!("metadata.name={KUBE_SYSTEM}")),
                trim: |namespace: &mut Namespace| namespace.spec = None,
                ..Selection::default()
            }),
        }
    }

    /// What changed since the last call.
    pub(super) fn take_changes(&self) -> Changes {
        Changes {
            services: self.services.take_changes(),
            slices: self.slices.take_changes(),
            nodes: self.nodes.take_changes(),
        }
    }

    /// Everything there is.
    pub(super) fn all(&self) -> Changes {
        Changes { services: self.services.keys(), slices: self.slices.keys(), nodes: self.nodes.keys() }
    }

    /// The Secret with the login.
    pub(super) fn login(&self, options: &Options) -> Option<Arc<Secret>> {
        self.secrets.get(&Key { namespace: options.operator_namespace.clone(), name: options.secret.clone() })
    }

    /// The UID of kube-system.
    pub(super) fn cluster_uid(&self) -> Option<String> {
        self.namespaces.get(&Key::of_cluster(KUBE_SYSTEM))?.metadata.uid.clone()
    }
}

/// Drops what decides nothing. What is written is sent as a patch, so nothing is lost by it.
fn trim_service(service: &mut Service) {
    service.metadata.annotations = None;
    service.metadata.labels = None;
    if let Some(spec) = &mut service.spec {
        spec.selector = None;
    }
}

fn trim_slice(slice: &mut EndpointSlice) {
    slice.metadata.annotations = None;
    slice.metadata.owner_references = None;
    for endpoint in slice.endpoints.iter_mut().flatten() {
        endpoint.hints = None;
        endpoint.target_ref = None;
        endpoint.hostname = None;
        endpoint.zone = None;
        endpoint.deprecated_topology = None;
    }
}

fn trim_node(node: &mut Node) {
    node.metadata.annotations = None;
    node.metadata.labels = None;
    node.spec = None;
    if let Some(status) = &mut node.status {
        let addresses = status.addresses.take();
        *status = k8s_openapi::api::core::v1::NodeStatus { addresses, ..Default::default() };
    }
}
