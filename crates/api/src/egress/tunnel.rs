//! EgressTunnel: a node's end of the tunnel between source and gateway nodes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Empty: there is one tunnel for each node, with the node's name.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[kube(
    group = "egressgateway.spidernet.io",
    version = "v1beta1",
    kind = "EgressTunnel",
    plural = "egresstunnels",
    shortname = "egt",
    category = "egresstunnel",
    status = "EgressTunnelStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "tunnelMac", type_ = "string", json_path = ".status.tunnel.mac"),
    printcolumn(name = "tunnelIPv4", type_ = "string", json_path = ".status.tunnel.ipv4"),
    printcolumn(name = "tunnelIPv6", type_ = "string", json_path = ".status.tunnel.ipv6"),
    printcolumn(name = "mark", type_ = "string", json_path = ".status.mark"),
    printcolumn(name = "phase", type_ = "string", json_path = ".status.phase")
)]
pub struct EgressTunnelSpec {}

/// State of the node's tunnel endpoint.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EgressTunnelStatus {
    /// The tunnel's own addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<Tunnel>,
    /// Whether traffic can go through. Empty means Pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The node's number, as a mark: `0x26` and six hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// When the phase changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub last_heartbeat_time: Option<Time>,
    /// Nodes that monitor this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub watchers: Vec<String>,
    /// Incremented with each change of the watchers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watcher_version: Option<i64>,
}

/// Addresses of a tunnel endpoint.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
pub struct Tunnel {
    /// IPv4 address inside the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<String>,
    /// IPv6 address inside the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<String>,
    /// MAC address inside the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// The link that carries the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
}

/// The link that carries a tunnel.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
pub struct Parent {
    /// Name of the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its IPv4 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<String>,
    /// Its IPv6 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<String>,
}

/// Whether traffic can go through a tunnel.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was reported yet.
    #[default]
    Pending,
    /// The agent is setting it up.
    Init,
    /// It cannot be set up.
    Failed,
    /// Traffic can go through.
    Ready,
    /// The node's agent has stopped reporting.
    HeartbeatTimeout,
    /// The node is not ready.
    NodeNotReady,
}

impl Phase {
    /// The value in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Init => "Init",
            Self::Failed => "Failed",
            Self::Ready => "Ready",
            Self::HeartbeatTimeout => "HeartbeatTimeout",
            Self::NodeNotReady => "NodeNotReady",
        }
    }
}

fn time(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "string", "format": "date-time" })
}
