//! The one model of the user's objects, whichever dialect they are written in.

use std::cmp::Ordering;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::selector::Selector;

/// Kinds of `l7mp.io/v1`, and Services, which names may stand for as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MeshKind {
    /// A server socket and what happens to its sessions.
    VirtualService,
    /// A way.
    Route,
    /// Client behaviour.
    Target,
    /// One rule in a rulelist of the proxy's own.
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
    /// Joins both.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl Ord for ObjectName {
    /// Everything here is found by such names, most of them clones of one another: those need not be read.
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

/// What sockets speak, or what a cluster does itself.
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

    /// Whether a listener may speak it.
    pub const fn listens(self) -> bool {
        matches!(self, Self::Udp | Self::Tcp | Self::WebSocket | Self::Http | Self::UnixDomainSocket | Self::JsonSocket)
    }

    /// Whether a cluster of it has no endpoints and does the work itself.
    pub const fn is_virtual(self) -> bool {
        !self.listens()
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A listener's or cluster's spec in the flat form of the wire.
#[derive(Debug, Clone, PartialEq)]
pub struct Socket {
    /// What it speaks.
    pub protocol: Protocol,
    /// The rest, without `protocol` and `transport`.
    pub fields: Map<String, Value>,
    /// What a JSONSocket runs over.
    pub transport: Option<Box<Socket>>,
}

impl Socket {
    /// A spec of a protocol and a port.
    pub fn at_port(protocol: Protocol, port: u16) -> Self {
        Self { protocol, fields: Map::from_iter([("port".to_owned(), port.into())]), transport: None }
    }

    /// The spec whose socket is opened: the transport of a JSONSocket, else itself.
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

/// A server socket and what happens to its sessions.
#[derive(Debug, Clone, PartialEq)]
pub struct VirtualService {
    /// The pods.
    pub selector: Selector,
    /// The server socket.
    pub listener: Socket,
    /// What happens to sessions.
    pub rules: Rules,
    /// `track`, `removeOrphanSessions` and what else a listener takes.
    pub options: Map<String, Value>,
    /// Owners of an `l7mp.io` kind are told.
    pub update_owners: bool,
    /// What only our proxy does, in the wire's words.
    pub extensions: Extensions,
}

impl VirtualService {
    /// Whether it has rules, so that its pods must run a proxy.
    pub fn is_proxy_type(&self) -> bool {
        self.rules != Rules::Stub
    }

    /// Sessions end when the object is deleted.
    pub fn removes_orphan_sessions(&self) -> bool {
        self.options.get("removeOrphanSessions") == Some(&Value::Bool(true))
    }
}

/// What a VirtualService does with sessions.
#[derive(Debug, Clone, PartialEq)]
pub enum Rules {
    /// It only says where others reach something.
    Stub,
    /// The first that matches decides.
    List(Vec<Rule>),
    /// A rulelist in the proxy's own file.
    Named(String),
}

/// Fields that only our proxy acts on, in snake case and in their places on the wire.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extensions {
    /// Goes into the spec.
    pub tls: Option<Value>,
    /// Goes into the options.
    pub options: Map<String, Value>,
}

impl Extensions {
    /// Whether there is anything that a real l7mp would not do.
    pub fn is_empty(&self) -> bool {
        self.tls.is_none() && self.options.is_empty()
    }
}

/// One decision.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rule {
    /// When; absent is always.
    pub matching: Option<Value>,
    /// Path and value of each change of the metadata, in order.
    pub rewrite: Vec<(String, Value)>,
    /// Where to.
    pub route: Option<RouteRef>,
    /// Goes on in a rulelist of the proxy instead.
    pub apply: Option<String>,
}

/// A way, by name or in place.
#[derive(Debug, Clone, PartialEq)]
pub enum RouteRef {
    /// A Route object.
    Name(String),
    /// It shares the fate of the object it stands in.
    Inline(Box<Route>),
}

/// A way through clusters.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// The sink.
    pub destination: Hop,
    /// Middlepoints on the way there, in order.
    pub ingress: Vec<Hop>,
    /// Middlepoints on the way back, in order.
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

/// A place on a way.
#[derive(Debug, Clone, PartialEq)]
pub enum Hop {
    /// A Target, VirtualService or Service.
    Name(String),
    /// A complete unnamed Target.
    Inline(Box<Target>),
}

/// What happens when a connection fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// `never`, `connect-failure`, `disconnect` or `always`.
    pub retry_on: &'static str,
    /// Further attempts.
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
    /// Always all three fields: without `timeout` a real l7mp fires every attempt at once.
    pub fn to_value(&self) -> Value {
        json!({"retry_on": self.retry_on, "num_retries": self.num_retries, "timeout": self.timeout})
    }

    /// Whether a session whose endpoint goes away is led to another one.
    pub fn moves_sessions(&self) -> bool {
        matches!(self.retry_on, "disconnect" | "always")
    }
}

/// Client behaviour.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// The callers; none on inline Targets.
    pub selector: Option<Selector>,
    /// Where to and how; none when `linked` says it.
    pub spec: Option<Socket>,
    /// Whom.
    pub endpoints: Vec<EndpointSource>,
    /// Which of them; absent is Trivial.
    pub balancer: Option<Balancer>,
    /// Spec and endpoints are those of this VirtualService.
    pub linked: Option<String>,
    /// What only our proxy does, in the wire's words.
    pub extensions: Extensions,
}

/// One entry of an endpoint list.
#[derive(Debug, Clone, PartialEq)]
pub enum EndpointSource {
    /// Written down; never touched.
    Static {
        /// `address` and what else stands beside it.
        spec: Map<String, Value>,
        /// Absent is 1.
        weight: Option<u64>,
    },
    /// The pods.
    Dynamic(Selector),
}

/// How an endpoint is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Balancer {
    /// The policy's name on the wire.
    pub policy: &'static str,
    /// What is hashed.
    pub key: Option<String>,
}

impl Balancer {
    /// As the wire has it.
    pub fn to_value(&self) -> Value {
        match &self.key {
            Some(key) => json!({"policy": self.policy, "key": key}),
            None => json!({"policy": self.policy}),
        }
    }

    /// Whether only our proxy has it.
    pub fn is_ours(&self) -> bool {
        !matches!(self.policy, "Trivial" | "ConsistentHash" | "HashRing")
    }
}

/// A rule of its own object, in a rulelist of the proxy.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleObject {
    /// The pods.
    pub selector: Selector,
    /// The rulelist on the proxy.
    pub rulelist: String,
    /// Where in it.
    pub position: u64,
    /// The rule.
    pub rule: Rule,
    /// Owners of an `l7mp.io` kind are told.
    pub update_owners: bool,
}
