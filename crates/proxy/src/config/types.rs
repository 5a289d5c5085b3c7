//! The objects as the engine sees them: checked, with every default filled in.
//!
//! Field names on the wire are l7mp's. What a client wrote is kept beside the typed form (`given`), because it is
//! what the client gets to read again.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json::Json;
pub use super::options::{
    Addresses, Admin, ClusterOptions, Dns, DropPolicy, EndpointPolicy, Evict, Limits, ListenerOptions, LogLevel,
    Monitoring, Outlier, Qos,
};

/// A name of an object; cheap to copy.
pub type Name = Arc<str>;

/// Tells objects apart for the life of the process: names come back, ids do not. Zero is nobody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub struct ObjectId(pub u64);

/// Takes in sessions on one protocol.
#[derive(Debug, Clone)]
pub struct Listener {
    pub id: ObjectId,
    pub name: Name,
    pub spec: ListenerSpec,
    /// The rulelist that decides over its sessions; it may not exist.
    pub rules: Name,
    pub options: ListenerOptions,
    /// It leads to the API and the API has no authentication: bind to loopback, whatever `spec` says.
    pub loopback_only: bool,
    /// The spec as it was given, for dumps.
    pub given: Json,
}

/// What a listener listens on.
#[derive(Debug, Clone, PartialEq)]
pub enum ListenerSpec {
    Udp(UdpListener),
    Tcp(TcpListener),
    Uds(UdsListener),
    WebSocket(WsListener),
    Http(HttpListener),
    /// The transport is any of the others but HTTP.
    JsonSocket(Box<ListenerSpec>),
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct UdpListener {
    pub port: u16,
    #[serde(default, deserialize_with = "super::parse::address")]
    pub address: Option<IpAddr>,
    #[serde(default)]
    pub connect: Peer,
    #[serde(default)]
    pub options: UdpOptions,
}

/// The one peer that a UDP listener talks to, as far as it is named.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Peer {
    #[serde(default, deserialize_with = "super::parse::address")]
    pub address: Option<IpAddr>,
    #[serde(default)]
    pub port: Option<u16>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct UdpOptions {
    #[serde(default)]
    pub mode: Option<UdpMode>,
}

/// Whether a UDP listener makes a session per peer, or has the one session with its one peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UdpMode {
    Server,
    Singleton,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct TcpListener {
    pub port: u16,
    #[serde(default, deserialize_with = "super::parse::address")]
    pub address: Option<IpAddr>,
    #[serde(default)]
    pub framing: Framing,
}

/// How message boundaries survive on a byte stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Framing {
    #[default]
    None,
    /// A big-endian length of two bytes before each message.
    Len16,
    /// A big-endian length of four bytes before each message.
    Len32,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct UdsListener {
    pub filename: PathBuf,
    #[serde(default, rename = "type")]
    pub kind: UdsType,
    /// Permissions of the socket file.
    #[serde(default, deserialize_with = "super::parse::file_mode")]
    pub mode: Option<u32>,
    #[serde(default)]
    pub framing: Framing,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UdsType {
    #[default]
    Stream,
    Seqpacket,
    Datagram,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct WsListener {
    pub port: u16,
    #[serde(default, deserialize_with = "super::parse::address")]
    pub address: Option<IpAddr>,
    /// Only requests whose path begins so are taken.
    #[serde(default, deserialize_with = "super::parse::url_path")]
    pub path: Option<String>,
    #[serde(default, deserialize_with = "super::parse::tokens")]
    pub subprotocols: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct HttpListener {
    pub port: u16,
    #[serde(default, deserialize_with = "super::parse::address")]
    pub address: Option<IpAddr>,
    #[serde(default, deserialize_with = "super::parse::url_path")]
    pub path: Option<String>,
}

/// A stage that sessions go through or to.
#[derive(Debug, Clone)]
pub struct Cluster {
    pub id: ObjectId,
    pub name: Name,
    pub spec: ClusterSpec,
    /// In insertion order; always empty for virtual clusters.
    pub endpoints: Vec<Arc<Endpoint>>,
    pub balancer: Balancer,
    pub options: ClusterOptions,
}

/// What a cluster speaks to its endpoints, or what it does itself (then it is virtual and has none).
#[derive(Debug, Clone, PartialEq)]
pub enum ClusterSpec {
    Udp(UdpCluster),
    Tcp(TcpCluster),
    Uds(UdsCluster),
    WebSocket(WsCluster),
    JsonSocket(JsonSocketCluster),
    Echo,
    Discard,
    Logger(LoggerCluster),
    Stdio,
    Sync(SyncCluster),
    Metric(MetricCluster),
    Prometheus,
    JsonEncap,
    JsonDecap,
    /// The REST API itself.
    Controller,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct UdpCluster {
    #[serde(default)]
    pub port: Option<u16>,
    #[serde(default)]
    pub bind: Bind,
}

/// Where sockets to endpoints are bound. Several addresses give several times the ports.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Bind {
    #[serde(default, rename = "address", deserialize_with = "super::parse::addresses")]
    pub addresses: Vec<IpAddr>,
    #[serde(default)]
    pub port: Option<u16>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct TcpCluster {
    #[serde(default)]
    pub port: Option<u16>,
    #[serde(default)]
    pub bind: Bind,
    #[serde(default)]
    pub framing: Framing,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct UdsCluster {
    /// Used where the endpoint names no path.
    #[serde(default)]
    pub filename: Option<PathBuf>,
    #[serde(default, rename = "type")]
    pub kind: UdsType,
    #[serde(default)]
    pub framing: Framing,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct WsCluster {
    #[serde(default)]
    pub port: Option<u16>,
    #[serde(default)]
    pub bind: Bind,
    #[serde(default, deserialize_with = "super::parse::url_path")]
    pub path: Option<String>,
    #[serde(default, deserialize_with = "super::parse::tokens")]
    pub subprotocols: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct JsonSocketCluster {
    /// UDP, TCP, WebSocket or UDS; endpoints and balancer are of this one.
    pub transport: Box<ClusterSpec>,
    /// Absent: `/labels` travels, if there are any; empty: nothing does.
    pub header: Option<Vec<HeaderItem>>,
    /// Zero: the header is sent once.
    pub retransmit_ms: u64,
}

/// One step of building the header that a JSONSocket client sends.
#[derive(Debug, Clone, PartialEq)]
pub enum HeaderItem {
    /// Copies a subtree of the metadata; to `/` replaces the header built so far.
    Copy {
        from: String,
        to: String,
    },
    Set {
        key: String,
        value: Value,
    },
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct LoggerCluster {
    /// `-` is standard output.
    #[serde(default = "super::parse::dash")]
    pub log_file: String,
    #[serde(default)]
    pub log_prefix: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct SyncCluster {
    /// Path of the value that members have in common; absent finds nothing.
    #[serde(default)]
    pub query: String,
    #[serde(default = "super::parse::max_members")]
    pub max_members: usize,
    #[serde(default)]
    pub pair: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct MetricCluster {
    #[serde(default, rename = "byteCounterName")]
    pub byte_counter_name: Option<String>,
    #[serde(default, rename = "packetCounterName")]
    pub packet_counter_name: Option<String>,
}

/// One address that a cluster leads to.
#[derive(Debug, Clone)]
pub struct Endpoint {
    pub id: ObjectId,
    pub name: Name,
    /// An IP address, a DNS name, or the path of a socket file.
    pub address: String,
    /// Stands in for the cluster's port.
    pub port: Option<u16>,
    /// Zero takes no further sessions.
    pub weight: u32,
    pub state: EndpointState,
    /// The spec as it was given, for dumps.
    pub given: Json,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndpointState {
    #[default]
    Active,
    /// Keeps its sessions, takes no further ones.
    Draining,
}

/// How a cluster picks an endpoint for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Balancer {
    /// The first endpoint in insertion order. `None` on the wire is this as well.
    Trivial,
    /// Without a key: at random for each session.
    HashRing {
        key: Option<String>,
    },
    RoundRobin,
    Random2,
    LeastSessions,
    /// Without a key: the client's address and port.
    Maglev {
        key: Option<String>,
    },
}

/// One decision: if it matches, rewrite the metadata and take the route, or go on in another rulelist.
#[derive(Debug, Clone)]
pub struct Rule {
    pub id: ObjectId,
    pub name: Name,
    pub matching: Matching,
    pub action: Action,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Matching {
    Always,
    /// The predicate is invalid somewhere: whatever it was meant to keep out stays out.
    Never,
    When(Value),
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Action {
    pub rewrite: Vec<RewriteStep>,
    /// Goes on in this rulelist instead; rewrite and route are not used then.
    pub apply: Option<Name>,
    pub route: Option<Name>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct RewriteStep {
    pub path: String,
    #[serde(default)]
    pub value: Value,
}

/// Rules in the order in which they are tried.
#[derive(Debug, Clone)]
pub struct RuleList {
    pub id: ObjectId,
    pub name: Name,
    pub rules: Vec<Name>,
}

/// A way through clusters: source, ingress in order, destination, egress in order, back to the source.
#[derive(Debug, Clone)]
pub struct Route {
    pub id: ObjectId,
    pub name: Name,
    pub destination: Name,
    pub ingress: Vec<Name>,
    pub egress: Vec<Name>,
    pub retry: Retry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Retry {
    #[serde(deserialize_with = "super::parse::retry_on")]
    pub retry_on: RetryOn,
    pub num_retries: u32,
    /// Milliseconds: how long an attempt may last, and how far two of them are apart.
    #[serde(deserialize_with = "super::parse::millis")]
    pub timeout: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RetryOn {
    #[default]
    Never,
    ConnectFailure,
    Disconnect,
    Always,
}

impl Default for Retry {
    fn default() -> Self {
        Self { retry_on: RetryOn::Never, num_retries: 1, timeout: 2000 }
    }
}

impl ListenerSpec {
    /// The protocol's name on the wire.
    pub const fn protocol(&self) -> &'static str {
        match self {
            Self::Udp(_) => "UDP",
            Self::Tcp(_) => "TCP",
            Self::Uds(_) => "UnixDomainSocket",
            Self::WebSocket(_) => "WebSocket",
            Self::Http(_) => "HTTP",
            Self::JsonSocket(_) => "JSONSocket",
        }
    }

    /// The spec whose socket is bound: the transport of a JSONSocket, else itself.
    pub fn transport(&self) -> &Self {
        match self {
            Self::JsonSocket(transport) => transport,
            Self::Udp(_) | Self::Tcp(_) | Self::Uds(_) | Self::WebSocket(_) | Self::Http(_) => self,
        }
    }
}

impl ClusterSpec {
    /// Whether sessions leave by UDP sockets.
    pub fn is_over_udp(&self) -> bool {
        let transport = if let Self::JsonSocket(socket) = self { &socket.transport } else { self };
        matches!(transport, Self::Udp(_))
    }

    /// The protocol's name on the wire.
    pub const fn protocol(&self) -> &'static str {
        match self {
            Self::Udp(_) => "UDP",
            Self::Tcp(_) => "TCP",
            Self::Uds(_) => "UnixDomainSocket",
            Self::WebSocket(_) => "WebSocket",
            Self::JsonSocket(_) => "JSONSocket",
            Self::Echo => "Echo",
            Self::Discard => "Discard",
            Self::Logger(_) => "Logger",
            Self::Stdio => "Stdio",
            Self::Sync(_) => "Sync",
            Self::Metric(_) => "Metric",
            Self::Prometheus => "Prometheus",
            Self::JsonEncap => "JSONEncap",
            Self::JsonDecap => "JSONDecap",
            Self::Controller => "L7mpController",
        }
    }

    /// Whether it has no endpoints and does the work itself.
    pub const fn is_virtual(&self) -> bool {
        !matches!(self, Self::Udp(_) | Self::Tcp(_) | Self::Uds(_) | Self::WebSocket(_) | Self::JsonSocket(_))
    }
}

impl UdpListener {
    /// The mode in force: a peer that is named in full makes a singleton.
    pub fn mode(&self) -> UdpMode {
        let named = self.connect.address.is_some() && self.connect.port.is_some();
        self.options.mode.unwrap_or(if named { UdpMode::Singleton } else { UdpMode::Server })
    }
}
