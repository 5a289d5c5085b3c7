//! What the decision may use: free of Kubernetes types and of HTTP.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::names::{ClusterKey, LbName};

/// Namespace and name of a Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceName {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name there.
    pub name: Arc<str>,
}

impl ServiceName {
    /// A name of two parts.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Everything that is known.
#[derive(Debug, Clone)]
pub struct World {
    /// This cluster.
    pub cluster: ClusterKey,
    /// The group of the gateway that new load balancers join.
    pub group: Arc<str>,
    /// Services that are ours, or were.
    pub services: BTreeMap<ServiceName, Service>,
    /// Slices by Service and name.
    pub slices: BTreeMap<ServiceName, BTreeMap<Arc<str>, Slice>>,
    /// Internal addresses of nodes.
    pub nodes: BTreeMap<Arc<str>, Vec<IpAddr>>,
    /// What the gateway said; a name that is missing here has to be asked for.
    pub seen: BTreeMap<LbName, Seen>,
}

/// A Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// UID of the object.
    pub uid: Arc<str>,
    /// Whether the gateway is to serve it.
    pub standing: Standing,
    /// It has our finalizer.
    pub is_held: bool,
    /// Its status has conditions of ours.
    pub is_reported: bool,
    /// Its ports.
    pub ports: Vec<Port>,
    /// The address that it asks for.
    pub requested: Requested,
    /// Fields that no gateway honours.
    pub limits: Limits,
}

/// Whether the gateway is to serve a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its type and class ask for it.
    Ours,
    /// They do not.
    Elsewhere,
    /// It is being deleted.
    Deleting,
}

/// The address that a Service asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Requested {
    /// Any.
    #[default]
    Any,
    /// This one.
    Address(IpAddr),
    /// Text that is no address.
    Invalid(Arc<str>),
}

/// Fields of a Service that say how traffic reaches its pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// `spec.sessionAffinity` is ClientIP.
    pub session_affinity: bool,
    /// `spec.loadBalancerSourceRanges` is not empty.
    pub source_ranges: bool,
    /// `spec.externalTrafficPolicy` is Local.
    pub local_traffic: bool,
}

/// Transport of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP, which gateways do not serve.
    Sctp,
}

impl Protocol {
    /// As Kubernetes spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }

    /// Reads what Kubernetes or a gateway wrote, in any case; nothing is TCP.
    pub fn parse(text: Option<&str>) -> Option<Self> {
        let all = [Self::Tcp, Self::Udp, Self::Sctp];
        text.map_or(Some(Self::Tcp), |text| all.into_iter().find(|one| one.as_str().eq_ignore_ascii_case(text)))
    }
}

/// A port of a Service and of its load balancer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// Empty if it has no name.
    pub name: Arc<str>,
    /// The public number.
    pub port: u16,
    /// Its transport.
    pub protocol: Protocol,
    /// Where it leads.
    pub target: TargetPort,
}

/// The port of the pods that a port leads to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TargetPort {
    /// The same number.
    Same,
    /// This number.
    Number(u16),
    /// The port of this name, which differs from pod to pod.
    Name(Arc<str>),
}

/// Endpoints of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slice {
    /// Its ports, with numbers.
    pub ports: Vec<SlicePort>,
    /// Its endpoints.
    pub endpoints: Vec<SliceEndpoint>,
}

/// A port of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlicePort {
    /// The name of the Service's port.
    pub name: Arc<str>,
    /// The number on the pods.
    pub port: u16,
    /// Its transport.
    pub protocol: Protocol,
}

/// An endpoint of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceEndpoint {
    /// Its addresses, all of which reach the same pod.
    pub addresses: Vec<IpAddr>,
    /// The node that it runs on.
    pub node: Option<Arc<str>>,
    /// Ready, and not terminating.
    pub serves: bool,
}

/// Endpoints by the address of their node.
pub type NodeEndpoints = BTreeMap<IpAddr, BTreeSet<Endpoint>>;

/// An endpoint as the gateway has it. The gateway tells endpoints apart by address, number and transport alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// Address of the pod.
    pub address: IpAddr,
    /// Number of the port.
    pub port: u16,
    /// Its transport.
    pub protocol: Protocol,
    /// Name of the public port that it feeds; empty if that has none.
    pub name: Arc<str>,
}

impl Endpoint {
    /// What makes it one endpoint and not another.
    pub fn identity(&self) -> (IpAddr, u16, Protocol) {
        (self.address, self.port, self.protocol)
    }
}

/// What the gateway said about a load balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// There is none.
    Absent,
    /// There is one that is being deleted.
    Leaving,
    /// There is one.
    Present(Remote),
}

/// A load balancer at the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// Its UID there: another one means that everything about it has to be read again.
    pub id: Arc<str>,
    /// Its group.
    pub group: Arc<str>,
    /// Its public address, once it has one.
    pub address: Option<IpAddr>,
    /// Its ports.
    pub ports: Vec<Port>,
    /// Its endpoints, once they were read.
    pub endpoints: Option<NodeEndpoints>,
}
