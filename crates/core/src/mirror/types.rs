//! Input of the mirror planner: validated, ordered, without Kubernetes types.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::rules::Rules;
use crate::net::Family;
use crate::select::Labels;

/// Name of a remote cluster.
pub type RemoteName = Arc<str>;
/// Name of a node of a remote cluster.
pub type NodeName = Arc<str>;

/// Namespace and name of a Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceName {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl ServiceName {
    /// A name from its parts.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Everything the planner may use.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct World {
    /// The cluster that is written.
    pub local: Local,
    /// The clusters that are read.
    pub remotes: BTreeMap<RemoteName, Remote>,
}

/// The cluster whose Services and EndpointSlices are written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Local {
    /// All Services.
    pub services: BTreeMap<ServiceName, LocalService>,
    /// The EndpointSlices that the mirror manages, by the Service they belong to and their name.
    pub slices: BTreeMap<ServiceName, BTreeMap<Arc<str>, RecordedSlice>>,
    /// All namespaces.
    pub namespaces: BTreeMap<Arc<str>, Namespace>,
    /// IP families that Services can have here. None: not known.
    pub families: Option<BTreeSet<Family>>,
    /// Ranges of this cluster (Services, pods, nodes): never the address of a remote endpoint.
    pub ranges: Vec<IpNet>,
    /// Namespaces that no mirror may enter, as patterns.
    pub protected: Vec<NamespacePattern>,
    /// Mirrors whose nodePorts the API server refused.
    pub refused_node_ports: BTreeSet<ServiceName>,
    /// UIDs of RemoteClusters that no longer exist, as read from the API server.
    pub gone_remotes: BTreeSet<Arc<str>>,
    /// Endpoints in one EndpointSlice.
    pub slice_size: usize,
}

/// A namespace of the local cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespace {
    /// It is being deleted.
    pub terminating: bool,
    /// The remote for which the mirror made it.
    pub created_for: Option<RemoteName>,
}

/// A name, or the beginning of one followed by `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamespacePattern {
    /// Exactly this name.
    Name(Arc<str>),
    /// Every name that begins with this.
    Prefix(Arc<str>),
}

impl NamespacePattern {
    /// Reads `name` or `prefix*`.
    pub fn new(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some(prefix) => Self::Prefix(prefix.into()),
            None => Self::Name(text.into()),
        }
    }

    /// True if the namespace has this name or begins like this.
    pub fn matches(&self, namespace: &str) -> bool {
        match self {
            Self::Name(name) => **name == *namespace,
            Self::Prefix(prefix) => namespace.starts_with(&**prefix),
        }
    }
}

/// A Service of the local cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LocalService {
    /// Its UID.
    pub uid: Arc<str>,
    /// What its label asks for.
    pub role: Role,
    /// Annotation `tfw.io/barrelman: ignore`.
    pub ignored: bool,
    /// The remote that owns it, by our label.
    pub owner: Option<RemoteName>,
    /// UID of the RemoteCluster that owned it when it was last written.
    pub remote_uid: Option<Arc<str>>,
    /// UID of the source that it was last written for.
    pub source_uid: Option<Arc<str>>,
    /// UID of the RemoteCluster in its ownerReferences.
    pub owner_reference: Option<Arc<str>>,
    /// Remotes that a hand-labelled Service names.
    pub remotes: Option<BTreeSet<RemoteName>>,
    /// What of its spec the mirror looks at.
    pub spec: ServiceSpec,
    /// It selects pods of this cluster.
    pub has_selector: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// Its labels and annotations, as far as a remote may copy them.
    pub copied: Copied,
}

/// What the label `tfw.io/barrelman` of a local Service asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Role {
    /// Nothing: the Service belongs to somebody else.
    #[default]
    Foreign,
    /// `"true"`: made by a user who wants its endpoints kept.
    HandLabelled,
    /// `managed-resource`: made for a Service of a remote.
    Mirror,
}

/// The part of a Service's spec that mirrors share with their sources.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServiceSpec {
    /// How it is reachable.
    pub service_type: ServiceType,
    /// `clusterIP: None`.
    pub headless: bool,
    /// Families in order; at most two.
    pub families: Vec<Family>,
    /// `ipFamilyPolicy` is not SingleStack.
    pub dual_stack: bool,
    /// Its ports, in order.
    pub ports: Vec<ServicePort>,
    /// Seconds for which a client stays with an endpoint. None: no affinity.
    pub session_affinity: Option<u32>,
}

/// How a Service is reachable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServiceType {
    /// By an address inside its cluster.
    #[default]
    ClusterIp,
    /// Also by a port of every node.
    NodePort,
    /// Also by an external address.
    LoadBalancer,
    /// By another DNS name.
    ExternalName,
}

/// The transport of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP, the default.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// As Kubernetes writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

/// A port of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServicePort {
    /// The number that clients use.
    pub port: u16,
    /// Its transport.
    pub protocol: Protocol,
    /// Its name; empty for the only port of a Service.
    pub name: Arc<str>,
    /// What is spoken on it.
    pub app_protocol: Option<Arc<str>>,
    /// Where its traffic goes.
    pub target: TargetPort,
    /// The port of every node that leads to it.
    pub node_port: Option<u16>,
}

impl ServicePort {
    /// The port of endpoints that its traffic goes to.
    pub(super) fn endpoint(&self, port: u16) -> EndpointPort {
        let Self { name, protocol, app_protocol, .. } = self;
        EndpointPort { name: name.clone(), protocol: *protocol, app_protocol: app_protocol.clone(), port }
    }
}

/// Where the traffic of a Service port goes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TargetPort {
    /// To this port.
    Number(u16),
    /// To the port of this name.
    Name(Arc<str>),
}

impl Default for TargetPort {
    fn default() -> Self {
        Self::Number(0)
    }
}

/// Labels and annotations that a mirror has from its source.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Copied {
    /// Labels.
    pub labels: Labels,
    /// Annotations.
    pub annotations: Labels,
}

/// A cluster that is only read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Remote {
    /// What the user decided about it.
    pub rules: Rules,
    /// UID of its RemoteCluster; empty for the remote of the flags.
    pub uid: Arc<str>,
    /// How much of it is known.
    pub sync: Sync,
    /// Out of contact for longer than its stale policy allows.
    pub stale: bool,
    /// Nothing is written for it.
    pub paused: bool,
    /// Its Services.
    pub services: BTreeMap<ServiceName, Source>,
    /// Its nodes.
    pub nodes: BTreeMap<NodeName, Node>,
    /// Its EndpointSlices.
    pub slices: SourceSlices,
}

/// The EndpointSlices of a remote. They are read only if a Service needs them.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum SourceSlices {
    /// Not read yet.
    #[default]
    Unread,
    /// The remote does not let us read them.
    Forbidden,
    /// By the Service they belong to, and their name.
    Read(BTreeMap<ServiceName, BTreeMap<Arc<str>, SourceSlice>>),
}

/// How much of a remote is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sync {
    /// There was no complete list yet.
    #[default]
    Listing,
    /// Lists were complete, and watches run.
    Complete,
    /// Lists were complete, but what happened since is not known.
    Broken,
}

/// A Service of a remote.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one object")]
pub struct Source {
    /// Its UID.
    pub uid: Arc<str>,
    /// Creation time in seconds.
    pub created: i64,
    /// Its labels.
    pub labels: Labels,
    /// Its annotations, as far as the remote's rules copy them.
    pub annotations: Labels,
    /// What of its spec mirrors share.
    pub spec: ServiceSpec,
    /// Annotation `tfw.io/barrelman: ignore`.
    pub ignored: bool,
    /// It is itself made for the Service of another cluster.
    pub is_mirror: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// `externalTrafficPolicy: Local`.
    pub local_traffic_only: bool,
    /// Addresses of its load balancer.
    pub ingress: Vec<IpAddr>,
    /// Its load balancer has a host name.
    pub ingress_has_hostname: bool,
}

/// A node of a remote: what decides whether it gets traffic, and where.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one object")]
pub struct Node {
    /// Creation time in seconds.
    pub created: i64,
    /// Its labels, if the remote's rules select by them.
    pub labels: Labels,
    /// Condition `Ready` is True, and `NetworkUnavailable` is absent or False.
    pub ready: bool,
    /// It was out of service too often lately, and has to wait.
    pub damped: bool,
    /// Label `node.kubernetes.io/exclude-from-external-load-balancers`.
    pub excluded: bool,
    /// It is cordoned.
    pub cordoned: bool,
    /// It is being removed: connections drain.
    pub leaving: bool,
    /// Its addresses, in the order of its status.
    pub addresses: Vec<NodeAddress>,
    /// Its zone.
    pub zone: Option<Arc<str>>,
}

/// An address of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeAddress {
    /// Where it can be reached from.
    pub kind: AddressKind,
    /// The address.
    pub address: IpAddr,
}

/// Where an address of a node can be reached from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressKind {
    /// `InternalIP`.
    Internal,
    /// `ExternalIP`.
    External,
}

/// An EndpointSlice of a remote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSlice {
    /// The family of its addresses.
    pub family: Family,
    /// Its ports.
    pub ports: Vec<EndpointPort>,
    /// Its endpoints.
    pub endpoints: Vec<SourceEndpoint>,
}

/// An endpoint of a remote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceEndpoint {
    /// Where it is, and in which state.
    pub endpoint: Endpoint,
    /// The node that it runs on.
    pub node: Option<NodeName>,
}

/// A port of an EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointPort {
    /// The name of the Service's port.
    pub name: Arc<str>,
    /// Its transport.
    pub protocol: Protocol,
    /// What is spoken on it.
    pub app_protocol: Option<Arc<str>>,
    /// Its number.
    pub port: u16,
}

/// One address of an EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// Whether it takes traffic.
    pub conditions: EndpointConditions,
    /// Its zone.
    pub zone: Option<Arc<str>>,
    /// Its name under the Service, for headless Services.
    pub hostname: Option<Arc<str>>,
}

/// Whether an endpoint takes traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointConditions {
    /// It takes new connections.
    pub ready: bool,
    /// It answers.
    pub serving: bool,
    /// It is going away.
    pub terminating: bool,
}

impl EndpointConditions {
    /// Takes traffic.
    pub const READY: Self = Self { ready: true, serving: true, terminating: false };
    /// Takes no new connections, and answers on those it has.
    pub const DRAINING: Self = Self { ready: false, serving: true, terminating: true };
    /// Takes no traffic, for all we know.
    pub const NOT_READY: Self = Self { ready: false, serving: false, terminating: false };
}

/// An EndpointSlice that the mirror wrote earlier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedSlice {
    /// The remote whose endpoints it has.
    pub remote: RemoteName,
    /// UID of that RemoteCluster; empty for the remote of the flags.
    pub remote_uid: Arc<str>,
    /// Cluster id of that remote.
    pub cluster_id: Arc<str>,
    /// UID of the Service that owns it.
    pub service_uid: Arc<str>,
    /// What it holds.
    pub content: Arc<SliceContent>,
}

/// What an EndpointSlice holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceContent {
    /// The family of its addresses.
    pub family: Family,
    /// Its ports, in the order of the Service's.
    pub ports: Vec<EndpointPort>,
    /// Its endpoints, sorted by address.
    pub endpoints: Vec<Endpoint>,
}
