//! The section of an AddressClaim that gateway writes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Use as the public address of load balancers.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct GatewayClaim {
    /// The address, as it is usually written.
    #[schemars(length(max = 45))]
    pub address: String,
    /// The ServicePrefix that it comes from, as `egw/NAME`.
    #[schemars(length(max = 320))]
    pub prefix_ref: String,
    /// Load balancers with this key may share it. Empty means that it has one holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub sharing_key: Option<String>,
    /// Who has it. Empty means that it was released.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["uid"]))]
    pub holders: Vec<ClaimHolder>,
    /// When its last holder was deleted. It is given again a while later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<MicroTime>,
}

/// A load balancer that has the address.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
pub struct ClaimHolder {
    /// LoadBalancer.
    #[schemars(length(max = 63))]
    pub kind: String,
    /// Its namespace.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(max = 63))]
    pub name: String,
    /// Its uid.
    #[schemars(length(max = 64))]
    pub uid: String,
    /// Its ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub ports: Vec<ClaimPort>,
}

/// A port that a load balancer has of an address.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
pub struct ClaimPort {
    /// TCP or UDP.
    #[schemars(length(max = 8))]
    pub protocol: String,
    /// Its number.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
}
