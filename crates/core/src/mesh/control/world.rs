//! The input of the resolver: the users' objects as written, and the state of the cluster, without Kubernetes types.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use serde_json::Value;

use super::names::ClusterDomain;
use super::types::{MeshKind, ObjectName};
use crate::select::Labels;

/// Everything the resolver may use.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct World {
    /// The settings of the operator.
    pub settings: Settings,
    /// Objects of `l7mp.io/v1`, including generated ones.
    pub objects: BTreeMap<(MeshKind, ObjectName), MeshObject>,
    /// Services.
    pub services: BTreeMap<ObjectName, Service>,
    /// EndpointSlices.
    pub slices: BTreeMap<ObjectName, EndpointSlice>,
    /// Pods.
    pub pods: BTreeMap<ObjectName, Pod>,
    /// Annotations of namespaces.
    pub namespaces: BTreeMap<Arc<str>, Labels>,
    /// What proxies have reported.
    pub proxies: BTreeMap<ObjectName, ProxyInfo>,
}

/// The settings of the operator.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The suffix of full names.
    pub domain: ClusterDomain,
    /// Whether names may cross namespaces.
    pub cross_namespace: CrossNamespace,
    /// Addresses that no endpoint may have, in addition to the built-in ones.
    pub denied_endpoints: Vec<IpNet>,
    /// Addresses of the API server.
    pub api_servers: BTreeSet<IpAddr>,
    /// Addresses of nodes, which proxies on the host network must not connect to.
    pub nodes: BTreeSet<IpAddr>,
    /// The loopback range of pods, if all pods run on one machine.
    pub loopback_pods: Option<IpNet>,
    /// Generated objects can be written; otherwise they are kept in memory.
    pub writes_generated: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            domain: ClusterDomain::default(),
            cross_namespace: CrossNamespace::Grant,
            denied_endpoints: Vec::new(),
            api_servers: BTreeSet::new(),
            nodes: BTreeSet::new(),
            loopback_pods: None,
            writes_generated: true,
        }
    }
}

/// Whether names may cross namespaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CrossNamespace {
    /// If the other namespace allows it.
    #[default]
    Grant,
    /// Never.
    Deny,
    /// Always, as in the l7mp operator.
    Open,
}

/// An object of `l7mp.io/v1`, as its user wrote it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MeshObject {
    /// Distinguishes it from an earlier object of the same name.
    pub uid: Arc<str>,
    /// Creation time in seconds; the older object keeps a port.
    pub created: i64,
    /// Its labels.
    pub labels: Labels,
    /// Its annotations.
    pub annotations: Labels,
    /// The spec as written, in any dialect.
    pub spec: Arc<Value>,
}

/// A Service.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Service {
    /// Distinguishes it from an earlier object of the same name.
    pub uid: Arc<str>,
    /// Its annotations.
    pub annotations: Labels,
    /// Selects its pods; empty means the pods of its EndpointSlices.
    pub selector: Labels,
    /// Its ports.
    pub ports: Vec<ServicePort>,
    /// The DNS name of a Service of type ExternalName.
    pub external_name: Option<Arc<str>>,
    /// Pods that are not ready are endpoints, too.
    pub publish_not_ready: bool,
}

/// A port of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServicePort {
    /// Its name; empty without one.
    pub name: Arc<str>,
    /// TCP, UDP or SCTP; empty is TCP.
    pub protocol: Arc<str>,
    /// The application protocol.
    pub app_protocol: Option<Arc<str>>,
    /// The Service's port.
    pub port: u16,
    /// The pods' port, where it is given as a number.
    pub target_port: Option<u16>,
}

/// An EndpointSlice.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EndpointSlice {
    /// The Service it belongs to, of the same namespace.
    pub service: Arc<str>,
    /// Its ports.
    pub ports: Vec<SlicePort>,
    /// Its endpoints.
    pub endpoints: Vec<SliceEndpoint>,
}

/// A port of an EndpointSlice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlicePort {
    /// Its name; empty without one.
    pub name: Arc<str>,
    /// The pods' port.
    pub port: u16,
}

/// An endpoint of an EndpointSlice.
#[derive(Debug, Clone, PartialEq)]
pub struct SliceEndpoint {
    /// Its first address.
    pub address: IpAddr,
    /// It accepts connections.
    pub ready: bool,
    /// It responds, ready or terminating.
    pub serving: bool,
    /// It is terminating.
    pub terminating: bool,
    /// Its pod.
    pub pod: Option<ObjectName>,
}

/// The relevant part of a pod.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent property of the pod")]
pub struct Pod {
    /// Its labels.
    pub labels: Labels,
    /// Annotations of `l7mp.io`.
    pub annotations: Labels,
    /// Its node; empty before it has one.
    pub node: Arc<str>,
    /// Its service account.
    pub service_account: Arc<str>,
    /// Its addresses, the primary one first.
    pub addresses: Vec<IpAddr>,
    /// Its node's addresses.
    pub host_addresses: Vec<IpAddr>,
    /// It uses the host network.
    pub host_network: bool,
    /// It is ready.
    pub ready: bool,
    /// It is terminating.
    pub terminating: bool,
    /// It has succeeded or failed.
    pub ended: bool,
    /// Containers, restartable init containers among them.
    pub containers: Vec<Container>,
}

/// The relevant part of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Container {
    /// Its name.
    pub name: Arc<str>,
    /// The ports it declares.
    pub ports: Vec<ContainerPort>,
}

/// A port that a container declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerPort {
    /// Its name; empty without one.
    pub name: Arc<str>,
    /// TCP or UDP.
    pub transport: Transport,
    /// The number.
    pub port: u16,
}

/// The transport protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// TCP, and what runs over it.
    Tcp,
    /// UDP, and what runs over it.
    Udp,
}

/// What a proxy reports about itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProxyInfo {
    /// Its implementation.
    pub implementation: ProxyImplementation,
    /// Ports of listeners that the operator did not configure.
    pub foreign_ports: Vec<ListenerPort>,
}

/// A port that a listener on a proxy is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerPort {
    /// TCP or UDP.
    pub transport: Transport,
    /// The address it is bound to; none is all.
    pub address: Option<IpAddr>,
    /// The number.
    pub port: u16,
}

/// Which program a proxy is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProxyImplementation {
    /// The proxy of Portolan.
    #[default]
    Portolan,
    /// A real l7mp.
    L7mp,
}

/// A change of the world.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// An object of `l7mp.io/v1` was created, changed or deleted.
    Object(MeshKind, ObjectName, Option<MeshObject>),
    /// A Service was created, changed or deleted.
    Service(ObjectName, Option<Service>),
    /// An EndpointSlice was created, changed or deleted.
    Slice(ObjectName, Option<EndpointSlice>),
    /// A pod was created, changed or deleted.
    Pod(ObjectName, Option<Pod>),
    /// The annotations of a namespace.
    Namespace(Arc<str>, Option<Labels>),
    /// A proxy reported about itself, or is gone.
    Proxy(ObjectName, Option<ProxyInfo>),
    /// The addresses of the API server and the nodes changed.
    ClusterAddresses {
        /// Addresses of the API server.
        api_servers: BTreeSet<IpAddr>,
        /// Addresses of nodes.
        nodes: BTreeSet<IpAddr>,
    },
    /// Whether generated objects can be written.
    WritesGenerated(bool),
}

impl World {
    /// Replaces the namespace of a change by the known one, which saves memory and makes comparisons cheap.
    pub fn with_shared_namespace(&self, mut change: Change) -> Change {
        match &mut change {
            Change::Object(_, name, _)
            | Change::Service(name, _)
            | Change::Slice(name, _)
            | Change::Pod(name, _)
            | Change::Proxy(name, _) => {
                if let Some((known, _)) = self.namespaces.get_key_value(&name.namespace) {
                    name.namespace = Arc::clone(known);
                }
            }
            Change::Namespace(..) | Change::ClusterAddresses { .. } | Change::WritesGenerated(_) => {}
        }
        change
    }

    /// Applies a change; false if it changes nothing.
    pub fn apply(&mut self, change: Change) -> bool {
        fn put<K: Ord, V: PartialEq>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> bool {
            match value {
                Some(value) if map.get(&key) == Some(&value) => false,
                Some(value) => {
                    map.insert(key, value);
                    true
                }
                None => map.remove(&key).is_some(),
            }
        }
        match change {
            Change::Object(kind, name, object) => put(&mut self.objects, (kind, name), object),
            Change::Service(name, service) => put(&mut self.services, name, service),
            Change::Slice(name, slice) => put(&mut self.slices, name, slice),
            Change::Pod(name, pod) => put(&mut self.pods, name, pod),
            Change::Namespace(name, annotations) => put(&mut self.namespaces, name, annotations),
            Change::Proxy(name, facts) => put(&mut self.proxies, name, facts),
            Change::ClusterAddresses { api_servers, nodes } => {
                let differs = (&self.settings.api_servers, &self.settings.nodes) != (&api_servers, &nodes);
                (self.settings.api_servers, self.settings.nodes) = (api_servers, nodes);
                differs
            }
            Change::WritesGenerated(can) => std::mem::replace(&mut self.settings.writes_generated, can) != can,
        }
    }
}

/// Whether a pod runs a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyRole {
    /// It does not.
    Naked,
    /// It does, with its API on this port.
    Proxy(u16),
    /// Two of its containers are proxies: it is skipped.
    TwoProxies,
}

/// The default port of the API.
const API_PORT: u16 = 1234;

impl Pod {
    /// Whether the pod runs a proxy, from its labels and containers alone: no network call is made.
    pub fn proxy_role(&self) -> ProxyRole {
        let is_api = |port: &ContainerPort| &*port.name == "l7mp-api";
        let is_proxy = |container: &&Container| {
            matches!(&*container.name, "l7mp" | "portolan-proxy") || container.ports.iter().any(is_api)
        };
        let label = self.labels.get("l7mp.io/proxy");
        let proxies = self.containers.iter().filter(is_proxy).count();
        if label == Some("false") || (label != Some("true") && proxies == 0) {
            return ProxyRole::Naked;
        }
        if proxies > 1 {
            return ProxyRole::TwoProxies;
        }
        let annotated = self.annotations.get("l7mp.io/api-port").and_then(|port| port.parse().ok());
        let named = || self.containers.iter().flat_map(|container| &container.ports).find(|port| is_api(port));
        ProxyRole::Proxy(annotated.or_else(|| named().map(|port| port.port)).unwrap_or(API_PORT))
    }

    /// Whether a container other than the proxy declares a port.
    pub fn declares(&self, transport: Transport, port: u16) -> bool {
        let others = self.containers.iter().filter(|one| !matches!(&*one.name, "l7mp" | "portolan-proxy"));
        others
            .flat_map(|one| &one.ports)
            .any(|own| own.transport == transport && own.port == port && &*own.name != "l7mp-api")
    }
}
