//! EgressGateway: the nodes over which a pool of egress addresses floats.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Selects the nodes that traffic may leave through, and the addresses it leaves with. The addresses float over the
/// nodes: when one is lost, the others take its addresses over.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[kube(
    group = "egressgateway.spidernet.io",
    version = "v1beta1",
    kind = "EgressGateway",
    plural = "egressgateways",
    shortname = "egw",
    category = "egressgateway",
    status = "EgressGatewayStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "ipv4DefaultEIP", type_ = "string", json_path = ".spec.ippools.ipv4DefaultEIP"),
    printcolumn(name = "ipv6DefaultEIP", type_ = "string", json_path = ".spec.ippools.ipv6DefaultEIP"),
    printcolumn(name = "clusterDefault", type_ = "boolean", json_path = ".spec.clusterDefault"),
    printcolumn(name = "ipv4Total", type_ = "integer", json_path = ".status.ipUsage.ipv4Total"),
    printcolumn(name = "ipv4Free", type_ = "integer", json_path = ".status.ipUsage.ipv4Free"),
    printcolumn(name = "ipv6Total", type_ = "integer", json_path = ".status.ipUsage.ipv6Total"),
    printcolumn(name = "ipv6Free", type_ = "integer", json_path = ".status.ipUsage.ipv6Free"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.status=="False")].reason"#),
    printcolumn(name = "Message", type_ = "string", json_path = r#".status.conditions[?(@.status=="False")].message"#),
    printcolumn(name = "Nodes", type_ = "string", json_path = ".status.nodeList[*].name", priority = 1),
    printcolumn(name = "Policies", type_ = "integer", json_path = ".status.policyCount", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.nodeSelector) && has(self.nodeSelector.selector) && \
             ((has(self.nodeSelector.selector.matchLabels) && self.nodeSelector.selector.matchLabels.size() > 0) || \
              (has(self.nodeSelector.selector.matchExpressions) && self.nodeSelector.selector.matchExpressions.size() > 0))",
    "message": "spec.nodeSelector.selector is empty: say with matchLabels or matchExpressions which nodes are gateway nodes"
}]))]
pub struct EgressGatewaySpec {
    /// Use this gateway for policies that name none and whose namespace names none. At most one gateway can be the
    /// default. Empty means false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_default: Option<bool>,
    /// The egress addresses. Empty means that only policies with `useNodeIP` can use this gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ippools: Option<IpPools>,
    /// Which nodes are gateway nodes, and how one is chosen for a policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
}

/// Egress addresses. An item is one address (`10.6.1.55`), a range with both ends (`10.6.1.60-10.6.1.65`) or a CIDR
/// (`10.6.1.70/28`, all 16 addresses of the block). Empty items are ignored.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct IpPools {
    /// IPv4 items. With both families given, each must hold as many addresses: the first IPv4 address goes with the
    /// first IPv6 address, and so on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub ipv4: Vec<String>,
    /// IPv6 items, written like the IPv4 ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub ipv6: Vec<String>,
    /// The address that policies with the allocator policy `default` share. Empty means the first of the pool.
    #[serde(default, rename = "ipv4DefaultEIP", skip_serializing_if = "Option::is_none")]
    pub ipv4_default_eip: Option<String>,
    /// The same for IPv6.
    #[serde(default, rename = "ipv6DefaultEIP", skip_serializing_if = "Option::is_none")]
    pub ipv6_default_eip: Option<String>,
}

/// Which nodes, and how one of them is chosen.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelector {
    /// The labels of gateway nodes. Must not be empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::selector")]
    pub selector: Option<LabelSelector>,
    /// How a gateway node is chosen for a policy: `Average` (the node that serves the fewest policies), `FewestNodes`
    /// (fill one node first) or `Limit` (fill a node up to `limit` policies, then the next). Upper and lower case are
    /// the same. Empty or any other word means `Average`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// How many policies a node serves at most before the next is taken, with policy `Limit`. Empty means 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub limit: Option<u16>,
}

/// Which node holds each address, and which policies use it.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EgressGatewayStatus {
    /// The gateway nodes, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub node_list: Vec<NodeEntry>,
    /// How many addresses there are, and how many are free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_usage: Option<IpUsage>,
    /// How many policies the gateway serves, also those that `nodeList` leaves out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_count: Option<i64>,
    /// True when `nodeList` names only the first 1,000 policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated: Option<bool>,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Accepted, Programmed and Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// A gateway node.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeEntry {
    /// The node's name.
    #[serde(default)]
    pub name: String,
    /// The phase of the node's EgressTunnel.
    #[serde(default)]
    pub status: String,
    /// The addresses assigned to the node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub eips: Vec<EipEntry>,
    /// An older name of `eips`: read when `eips` is empty, never written.
    #[serde(default, skip_serializing)]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub epis: Vec<EipEntry>,
}

/// An address on a node.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EipEntry {
    /// The IPv4 address. With both addresses empty, the entry is the node's own address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ipv4: String,
    /// The IPv6 address that goes with it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ipv6: String,
    /// The policies that use it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub policies: Vec<PolicyReference>,
}

/// A policy; one without namespace is an EgressClusterPolicy.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
pub struct PolicyReference {
    /// The policy's name.
    #[serde(default)]
    pub name: String,
    /// The policy's namespace. Empty for an EgressClusterPolicy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// How many addresses there are and how many are free.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
pub struct IpUsage {
    /// IPv4 addresses in the pool.
    #[serde(default, rename = "ipv4Total")]
    pub ipv4_total: i64,
    /// IPv4 addresses that no policy uses.
    #[serde(default, rename = "ipv4Free")]
    pub ipv4_free: i64,
    /// IPv6 addresses in the pool.
    #[serde(default, rename = "ipv6Total")]
    pub ipv6_total: i64,
    /// IPv6 addresses that no policy uses.
    #[serde(default, rename = "ipv6Free")]
    pub ipv6_free: i64,
}
