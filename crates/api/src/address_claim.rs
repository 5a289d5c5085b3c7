//! AddressClaim: the one ledger of every address at the edge.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::gateway::GatewayClaim;
use crate::ipam::{CloudAttachment, CloudClaim};
use crate::schema;

/// Records the owner of an address. The object's name is the address (IPv6: eight groups of four hexadecimal digits,
/// joined by dots), so the API server guarantees that no address is given twice. Each use has a section of its own,
/// written by its capability alone.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[kube(
    group = "portolan.dev",
    version = "v1alpha1",
    kind = "AddressClaim",
    plural = "addressclaims",
    shortname = "addr",
    category = "portolan",
    status = "AddressClaimStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Use", type_ = "string", json_path = r".metadata.labels['portolan\.dev/use']"),
    printcolumn(name = "Load Balancer", type_ = "string", json_path = ".spec.gateway.holders[*].name"),
    printcolumn(name = "Gateway", type_ = "string", json_path = ".spec.egress.gateway"),
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.egress.node"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.egress.state"),
    printcolumn(name = "Owner", type_ = "string", json_path = ".spec.cloud.owner.name"),
    printcolumn(name = "Zone", type_ = "string", json_path = ".spec.cloud.zone"),
    printcolumn(name = "Attached To", type_ = "string", json_path = ".status.cloud.node"),
    printcolumn(name = "Cloud", type_ = "string", json_path = ".status.cloud.state"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Pair", type_ = "string", json_path = ".spec.egress.pair", priority = 1),
    printcolumn(name = "Slot", type_ = "integer", json_path = ".spec.egress.slot", priority = 1),
    printcolumn(name = "Epoch", type_ = "integer", json_path = ".spec.egress.epoch", priority = 1)
)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.gateway) || !has(self.egress)",
    "message": "an address is either a way in or a way out: gateway and egress exclude each other"
}]))]
pub struct AddressClaimSpec {
    /// Use as the public address of load balancers. Empty when the address has another use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayClaim>,
    /// Use as an egress address. Empty when the address has another use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressClaim>,
    /// Attachment to a node on a cloud. Empty when it is not attached by us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud: Option<CloudClaim>,
}

/// Assignment of an egress address.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct EgressClaim {
    /// The EgressGateway whose pool it comes from.
    pub gateway: String,
    /// The address of the other family that goes with it. Empty when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair: Option<String>,
    /// The number that identifies it in packet marks: 2 to 16383.
    #[schemars(range(min = 2, max = 16383))]
    pub slot: u16,
    /// The node that holds it. Empty while no gateway node is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The node that held it before, until that node has withdrawn it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_node: Option<String>,
    /// Nodes that take over if the node is lost, first choice first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3), extend("x-kubernetes-list-type" = "atomic"))]
    pub standby: Vec<String>,
    /// Incremented with each move; the highest is the latest.
    #[schemars(range(min = 1))]
    pub epoch: u64,
}

/// What nodes report about an address.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
pub struct AddressClaimStatus {
    /// Report of the node that holds the egress address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressHolding>,
    /// What happened on the cloud so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud: Option<CloudAttachment>,
    /// Held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// Report of the node that holds an egress address.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
pub struct EgressHolding {
    /// The reporting node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The epoch of the assignment that it reports on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Progress on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<HoldingState>,
}

/// Progress of a node in setting up or withdrawing an address.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldingState {
    /// Nothing was done yet.
    Pending,
    /// The rules are being loaded.
    Preparing,
    /// The node announces the address.
    Held,
    /// The node no longer announces the address, but still translates.
    Withdrawing,
    /// Running connections are being handed over.
    Draining,
    /// The node lost its lease and was cut off by its own kernel.
    Fenced,
    /// The node has removed all state of the address.
    Released,
}
