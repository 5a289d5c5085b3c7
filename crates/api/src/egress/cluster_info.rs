//! EgressClusterInfo: which addresses are inside the cluster.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the IP ranges inside the cluster are detected. There is one object, named `default`.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[kube(
    group = "egressgateway.spidernet.io",
    version = "v1beta1",
    kind = "EgressClusterInfo",
    plural = "egressclusterinfos",
    shortname = "egci",
    category = "egressclusterinfo",
    status = "EgressClusterInfoStatus",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct EgressClusterInfoSpec {
    /// Which ranges are detected automatically.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_detect: Option<AutoDetect>,
    /// Extra ranges that are treated as inside the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::subnets")]
    pub extra_cidr: Vec<String>,
}

/// Which ranges are detected automatically.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AutoDetect {
    /// Where pod ranges come from: `k8s` (the nodes' podCIDRs), `calico` (its IPPools), or `auto` (Calico if it is
    /// there, else the nodes). Empty means `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["auto", "k8s", "calico", ""]))]
    pub pod_cidr_mode: Option<String>,
    /// Treat the service ranges as inside the cluster. Empty means true.
    #[serde(default, rename = "clusterIP", skip_serializing_if = "Option::is_none")]
    pub cluster_ip: Option<bool>,
    /// Treat the nodes' addresses as inside the cluster. Empty means true.
    #[serde(default, rename = "nodeIP", skip_serializing_if = "Option::is_none")]
    pub node_ip: Option<bool>,
}

/// The detected ranges.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EgressClusterInfoStatus {
    /// Where pod ranges come from: `k8s` or `calico`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_cidr_mode: Option<String>,
    /// Addresses of each node.
    #[serde(default, rename = "nodeIP", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub node_ip: BTreeMap<String, IpLists>,
    /// Service ranges.
    #[serde(default, rename = "clusterIP", skip_serializing_if = "Option::is_none")]
    pub cluster_ip: Option<IpLists>,
    /// Pod ranges, by node or by Calico pool.
    #[serde(default, rename = "podCIDR", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub pod_cidr: BTreeMap<String, IpLists>,
    /// The extra ranges in effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub extra_cidr: Vec<String>,
}

/// Addresses or ranges, by family.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
pub struct IpLists {
    /// IPv4.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub ipv4: Vec<String>,
    /// IPv6.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub ipv6: Vec<String>,
}
