//! The normal form of the users' objects, whichever dialect they are written in.

use std::cmp::Ordering;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::selector::Selector;

/// Kinds of `l7mp.io/v1`, and Service, which names may refer to as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MeshKind {
    /// A listener and its rules.
    VirtualService,
    /// A route through clusters.
    Route,
    /// A cluster that proxies connect to.
    Target,
    /// One rule in a rulelist of the proxy's configuration file.
    Rule,
    /// A Service of Kubernetes.
    Service,
}

/// Namespace and name of an object; sorts by namespace.
#[derive(Debug, Clone)]
pub struct ObjectName {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl ObjectName {
    /// Makes a name from its parts.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl Ord for ObjectName {
    /// Most names are clones of each other, so equal pointers are compared first.
    fn cmp(&self, other: &Self) -> Ordering {
        fn compare(one: &Arc<str>, other: &Arc<str>) -> Ordering {
            if Arc::ptr_eq(one, other) { Ordering::Equal } else { one.cmp(other) }
        }
        compare(&self.namespace, &other.namespace).then_with(|| compare(&self.name, &other.name))
    }
}

impl PartialOrd for ObjectName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ObjectName {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ObjectName {}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The protocol of a socket, or the function of a virtual cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are the protocols'")]
pub enum Protocol {
    Udp,
    Tcp,
    WebSocket,
    Http,
    UnixDomainSocket,
    JsonSocket,
    Echo,
    Discard,
    Logger,
    Stdio,
    Sync,
    Metric,
    Prometheus,
    JsonEncap,
    JsonDecap,
    L7mpController,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Udp,
        Self::Tcp,
        Self::WebSocket,
        Self::Http,
        Self::UnixDomainSocket,
        Self::JsonSocket,
        Self::Echo,
        Self::Discard,
        Self::Logger,
        Self::Stdio,
        Self::Sync,
        Self::Metric,
        Self::Prometheus,
        Self::JsonEncap,
        Self::JsonDecap,
        Self::L7mpController,
    ];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::WebSocket => "WebSocket",
            Self::Http => "HTTP",
            Self::UnixDomainSocket => "UnixDomainSocket",
            Self::JsonSocket => "JSONSocket",
            Self::Echo => "Echo",
            Self::Discard => "Discard",
            Self::Logger => "Logger",
            Self::Stdio => "Stdio",
            Self::Sync => "Sync",
            Self::Metric => "Metric",
            Self::Prometheus => "Prometheus",
            Self::JsonEncap => "JSONEncap",
            Self::JsonDecap => "JSONDecap",
            Self::L7mpController => "L7mpController",
        }
    }

    /// Finds a protocol by its name in any case.
    pub fn find(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.as_str().eq_ignore_ascii_case(word))
    }

    /// Whether a listener can use it.
    pub const fn listens(self) -> bool {
        matches!(self, Self::Udp | Self::Tcp | Self::WebSocket | Self::Http | Self::UnixDomainSocket | Self::JsonSocket)
    }

    /// Whether a cluster of this protocol has no endpoints.
    pub const fn is_virtual(self) -> bool {
        !self.listens()
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The spec of a listener or cluster, in the flat form of the REST API.
#[derive(Debug, Clone, PartialEq)]
pub struct Socket {
    /// Its protocol.
    pub protocol: Protocol,
    /// The rest, without `protocol` and `transport`.
    pub fields: Map<String, Value>,
    /// The transport of a JSONSocket.
    pub transport: Option<Box<Socket>>,
}

impl Socket {
    /// A spec of a protocol and a port.
    pub fn at_port(protocol: Protocol, port: u16) -> Self {
        Self { protocol, fields: Map::from_iter([("port".to_owned(), port.into())]), transport: None }
    }

    /// The spec of the actual socket: the transport of a JSONSocket, else itself.
    pub fn opened(&self) -> &Self {
        self.transport.as_deref().unwrap_or(self)
    }

    /// The port, of the transport for a JSONSocket.
    pub fn port(&self) -> Option<u16> {
        self.opened().fields.get("port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok())
    }

    /// The socket file, of the transport for a JSONSocket.
    pub fn filename(&self) -> Option<&str> {
        self.opened().fields.get("filename").and_then(Value::as_str)
    }

    /// The address it is bound to; none is all.
    pub fn address(&self) -> Option<IpAddr> {
        self.opened().fields.get("address").and_then(Value::as_str).and_then(|text| text.parse().ok())
    }

    /// The spec as the wire has it.
    pub fn to_value(&self) -> Value {
        let mut fields = self.fields.clone();
        fields.insert("protocol".to_owned(), self.protocol.as_str().into());
        if let Some(transport) = &self.transport {
            fields.insert("transport".to_owned(), transport.to_value());
        }
        Value::Object(fields)
    }
}

/// A listener and its rules.
#[derive(Debug, Clone, PartialEq)]
pub struct VirtualService {
    /// The pods.
    pub selector: Selector,
    /// The listener.
    pub listener: Socket,
    /// The rules for its sessions.
    pub rules: Rules,
    /// `track`, `removeOrphanSessions` and what else a listener takes.
    pub options: Map<String, Value>,
    /// Owners of an `l7mp.io` kind show its state in their status.
    pub update_owners: bool,
    /// Fields that only a Portolan proxy supports.
    pub extensions: Extensions,
}

impl VirtualService {
    /// Whether it has rules, so that its pods need a proxy.
    pub fn is_proxy_type(&self) -> bool {
        self.rules != Rules::Stub
    }

    /// Whether sessions end when the object is deleted.
    pub fn removes_orphan_sessions(&self) -> bool {
        self.options.get("removeOrphanSessions") == Some(&Value::Bool(true))
    }
}

/// The rules of a VirtualService.
#[derive(Debug, Clone, PartialEq)]
pub enum Rules {
    /// None: it only describes where an application listens.
    Stub,
    /// The first rule that matches applies.
    List(Vec<Rule>),
    /// A rulelist in the configuration file of the proxy.
    Named(String),
}

/// Fields that only a Portolan proxy supports, in snake case as in its REST API.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extensions {
    /// TLS settings of the spec.
    pub tls: Option<Value>,
    /// Members of the options.
    pub options: Map<String, Value>,
}

impl Extensions {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tls.is_none() && self.options.is_empty()
    }
}

/// One rule.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rule {
    /// The predicate; absent matches always.
    pub matching: Option<Value>,
    /// Path and value of each change of the metadata, in order.
    pub rewrite: Vec<(String, Value)>,
    /// The route to take.
    pub route: Option<RouteRef>,
    /// The rulelist of the proxy to continue with instead.
    pub apply: Option<String>,
}

/// A Route by name, or inline.
#[derive(Debug, Clone, PartialEq)]
pub enum RouteRef {
    /// A Route object.
    Name(String),
    /// A Route inside the object.
    Inline(Box<Route>),
}

/// A route through clusters.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// The cluster where it ends.
    pub destination: Hop,
    /// Clusters on the way to the destination, in order.
    pub ingress: Vec<Hop>,
    /// Clusters on the way back, in order.
    pub egress: Vec<Hop>,
    /// What happens when a connection fails.
    pub retry: Retry,
}

impl Route {
    /// Every hop with its path below the route: destination, ingress, egress.
    pub fn hops(&self) -> impl Iterator<Item = (String, &Hop)> {
        let chain = |word: &'static str, hops: &'_ [Hop]| {
            (0..hops.len()).map(move |place| format!("{word}[{place}]")).collect::<Vec<_>>()
        };
        let chains = chain("ingress", &self.ingress).into_iter().zip(&self.ingress);
        let back = chain("egress", &self.egress).into_iter().zip(&self.egress);
        std::iter::once(("destination".to_owned(), &self.destination)).chain(chains).chain(back)
    }
}

/// A hop of a route.
#[derive(Debug, Clone, PartialEq)]
pub enum Hop {
    /// A Target, VirtualService or Service.
    Name(String),
    /// An inline Target.
    Inline(Box<Target>),
}

/// What happens when a connection fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// `never`, `connect-failure`, `disconnect` or `always`.
    pub retry_on: &'static str,
    /// Number of retries.
    pub num_retries: u64,
    /// Milliseconds between attempts.
    pub timeout: u64,
}

impl Default for Retry {
    fn default() -> Self {
        Self { retry_on: "never", num_retries: 1, timeout: 2000 }
    }
}

impl Retry {
    /// Always all three fields: without `timeout` l7mp makes all attempts at once.
    pub fn to_value(&self) -> Value {
        json!({"retry_on": self.retry_on, "num_retries": self.num_retries, "timeout": self.timeout})
    }

    /// Whether a session moves to another endpoint when its endpoint is lost.
    pub fn moves_sessions(&self) -> bool {
        matches!(self.retry_on, "disconnect" | "always")
    }
}

/// A cluster that proxies connect to.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// The pods that connect to it; none on inline Targets.
    pub selector: Option<Selector>,
    /// The spec; none if `linked` gives it.
    pub spec: Option<Socket>,
    /// The endpoints.
    pub endpoints: Vec<EndpointSource>,
    /// The load balancer; absent is Trivial.
    pub balancer: Option<Balancer>,
    /// Spec and endpoints are those of this VirtualService.
    pub linked: Option<String>,
    /// Fields that only a Portolan proxy supports.
    pub extensions: Extensions,
}

/// One entry of an endpoint list.
#[derive(Debug, Clone, PartialEq)]
pub enum EndpointSource {
    /// A fixed address.
    Static {
        /// `address` and further fields.
        spec: Map<String, Value>,
        /// Absent is 1.
        weight: Option<u64>,
    },
    /// The addresses of pods.
    Dynamic(Selector),
}

/// How an endpoint is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Balancer {
    /// The policy's name on the wire.
    pub name: &'static str,
    /// The path of the hash key.
    pub key: Option<String>,
    /// Whether only a Portolan proxy supports it.
    pub is_ours: bool,
}

impl Balancer {
    /// As JSON of the REST API.
    pub fn to_value(&self) -> Value {
        match &self.key {
            Some(key) => json!({"policy": self.name, "key": key}),
            None => json!({"policy": self.name}),
        }
    }
}

/// The spec of a Rule object.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleObject {
    /// The pods.
    pub selector: Selector,
    /// The rulelist on the proxy.
    pub rulelist: String,
    /// The position in it.
    pub position: u64,
    /// The rule.
    pub rule: Rule,
    /// Owners of an `l7mp.io` kind show its state in their status.
    pub update_owners: bool,
}
