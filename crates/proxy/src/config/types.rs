//! The objects as the engine sees them: checked, with every default filled in.
//!
//! Field names on the wire are l7mp's. What a client wrote is kept beside the typed form (`given`), because it is
//! what the client gets to read again.

use std::sync::Arc;

use portolan_core::mesh::LbPolicy;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::json::Json;
pub use super::options::{
    Addresses, Admin, ClusterOptions, Dns, DropPolicy, EndpointPolicy, Evict, Limits, ListenerOptions, LogLevel,
    Monitoring, Outlier, Qos,
};

pub use super::socket::{Bind, Framing};
pub use crate::transport::json_socket::config::{HeaderItem, JsonSocketCluster};
pub use crate::transport::spec::{ListenerSpec, TransportCluster};
pub use crate::transport::udp::config::UdpMode;
pub use crate::transport::unix::config::UdsType;

/// A name of an object; cheap to copy.
pub type Name = Arc<str>;

/// Identifies an object for the life of the process: names are reused, ids are not. Zero is unused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub struct ObjectId(pub u64);

/// Accepts sessions on one protocol.
#[derive(Debug, Clone)]
pub struct Listener {
    pub id: ObjectId,
    pub name: Name,
    pub spec: ListenerSpec,
    /// The rulelist for its sessions; it may not exist.
    pub rules: Name,
    pub options: ListenerOptions,
    /// It routes to the API, which has no authentication: bind to loopback, regardless of `spec`.
    pub loopback_only: bool,
    /// The spec as it was given, for dumps.
    pub given: Json,
}

/// A stage that sessions go through or to.
#[derive(Debug, Clone)]
pub struct Cluster {
    pub id: ObjectId,
    pub name: Name,
    pub spec: ClusterSpec,
    /// In insertion order; always empty for virtual clusters.
    pub endpoints: Vec<Arc<Endpoint>>,
    pub balancer: LbPolicy,
    pub options: ClusterOptions,
}

/// The protocol of a cluster; virtual clusters have no endpoints.
#[derive(Debug, Clone, PartialEq)]
pub enum ClusterSpec {
    Transport(TransportCluster),
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

/// One address of a cluster.
#[derive(Debug, Clone)]
pub struct Endpoint {
    pub id: ObjectId,
    pub name: Name,
    /// An IP address, a DNS name, or the path of a socket file.
    pub address: String,
    /// Overrides the cluster's port.
    pub port: Option<u16>,
    /// Zero gets no new sessions.
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
    /// Keeps its sessions, gets no new ones.
    Draining,
}

/// If it matches: rewrite the metadata and use the route, or continue in another rulelist.
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
    /// The predicate is invalid, so it matches nothing.
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
    #[serde(deserialize_with = "retry_on")]
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

/// Unknown words mean never, as in l7mp.
fn retry_on<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RetryOn, D::Error> {
    let word = Option::<String>::deserialize(deserializer)?;
    Ok(match word.as_deref() {
        Some("always") => RetryOn::Always,
        Some("connect-failure") => RetryOn::ConnectFailure,
        Some("disconnect") => RetryOn::Disconnect,
        Some(_) | None => RetryOn::Never,
    })
}

impl Default for Retry {
    fn default() -> Self {
        Self { retry_on: RetryOn::Never, num_retries: 1, timeout: 2000 }
    }
}

impl ClusterSpec {
    /// How it connects; nothing for virtual clusters.
    pub const fn transport(&self) -> Option<&TransportCluster> {
        match self {
            Self::Transport(transport) | Self::JsonSocket(JsonSocketCluster { transport, .. }) => Some(transport),
            Self::Echo
            | Self::Discard
            | Self::Logger(_)
            | Self::Stdio
            | Self::Sync(_)
            | Self::Metric(_)
            | Self::Prometheus
            | Self::JsonEncap
            | Self::JsonDecap
            | Self::Controller => None,
        }
    }

    /// Whether sessions leave by UDP sockets.
    pub fn is_over_udp(&self) -> bool {
        matches!(self.transport(), Some(TransportCluster::Udp(_)))
    }

    /// The protocol's name on the wire.
    pub const fn protocol(&self) -> &'static str {
        match self {
            Self::Transport(transport) => transport.protocol(),
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

    /// Whether it is virtual: without endpoints.
    pub const fn is_virtual(&self) -> bool {
        self.transport().is_none()
    }
}
