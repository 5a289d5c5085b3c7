//! What the mirror reads of the local cluster.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Endpoints, Namespace, Node, Secret, Service};
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::Resource;
use portolan_api::mirror::{RemoteCluster, ServiceImport};
use portolan_api::well_known::mirror::{BARRELMAN, MANAGED_BY as MIRROR};
use portolan_core::mirror::ServiceName;

use super::names::{MANAGED_BY, SERVICE_NAME};
use super::slim::Slice;
use crate::runtime::store::{Key, Store};
use crate::runtime::watch::{Selection, Watches};

/// Objects of the local cluster.
#[derive(Clone)]
pub struct Cache {
    pub(super) services: Store<Service>,
    /// The EndpointSlices of mirrors and hand-labelled Services.
    pub(super) slices: Store<Slice>,
    /// The EndpointSlices of the API server.
    pub(super) api_server: Store<Slice>,
    pub(super) namespaces: Store<Namespace>,
    pub(super) nodes: Store<Node>,
    pub(super) service_cidrs: Store<ServiceCIDR>,
    pub(super) remotes: Store<RemoteCluster>,
    /// Those of the operator's own namespace.
    pub(super) secrets: Store<Secret>,
    /// Those that Barrelman or we have written.
    pub(super) endpoints: Store<Endpoints>,
    /// All ServiceImports.
    pub(super) imports: Store<ServiceImport>,
}

impl Cache {
    /// Watches everything.
    pub(super) fn watched(watches: &mut Watches, operator_namespace: &str) -> Self {
        Self {
            services: watches.add(Selection { trim: trim_service, ..Selection::default() }),
            slices: watches.add(Selection { labels: Some(format!("{MANAGED_BY}={MIRROR}")), ..Selection::default() }),
            api_server: watches.add(Selection {
                namespace: "default".to_owned(),
                labels: Some(format!("{SERVICE_NAME}=kubernetes")),
                ..Selection::default()
            }),
            namespaces: watches.add(Selection { trim: trim_annotations, ..Selection::default() }),
            nodes: watches.add(Selection { trim: trim_node, ..Selection::default() }),
            service_cidrs: watches.add(Selection { optional: true, ..Selection::default() }),
            remotes: watches.add(Selection { optional: true, ..Selection::default() }),
            secrets: watches.add(Selection { namespace: operator_namespace.to_owned(), ..Selection::default() }),
            endpoints: watches.add(Selection { labels: Some(BARRELMAN.to_owned()), ..Selection::default() }),
            imports: watches.add(Selection { optional: true, ..Selection::default() }),
        }
    }
}

/// The name of a Service by its key.
pub(super) fn service_name(key: &Key) -> ServiceName {
    ServiceName::new(key.namespace.as_str(), key.name.as_str())
}

/// The key of a Service by its name.
pub(super) fn service_key(name: &ServiceName) -> Key {
    Key { namespace: name.namespace.to_string(), name: name.name.to_string() }
}

/// A name without a namespace.
pub(super) fn plain_name(key: &Key) -> Arc<str> {
    key.name.as_str().into()
}

/// Drops what the mirror does not read. What it writes is sent as a patch, so nothing is lost by it.
pub(super) fn trim_service(service: &mut Service) {
    if let Some(status) = &mut service.status {
        // The load balancer of a local Service is nobody's business here, but conditions are.
        for ingress in status.load_balancer.iter_mut().flat_map(|balancer| balancer.ingress.iter_mut().flatten()) {
            ingress.ports = None;
        }
    }
    let applied = "kubectl.kubernetes.io/last-applied-configuration";
    if let Some(annotations) = &mut service.metadata.annotations {
        annotations.remove(applied);
    }
}

fn trim_annotations(namespace: &mut Namespace) {
    namespace.metadata.annotations = None;
    namespace.spec = None;
}

/// Drops what decides nothing about a node.
pub(super) fn trim_node(node: &mut Node) {
    node.meta_mut().annotations = None;
    if let Some(status) = &mut node.status {
        status.images = None;
        status.capacity = None;
        status.allocatable = None;
        status.node_info = None;
        status.volumes_attached = None;
        status.volumes_in_use = None;
        for condition in status.conditions.iter_mut().flatten() {
            condition.message = None;
            condition.reason = None;
            condition.last_heartbeat_time = None;
            condition.last_transition_time = None;
        }
    }
}
