//! ServicePrefix: the public addresses that load balancers get.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::parts;
use crate::schema;

/// A pool of public addresses. It is in namespace `egw`.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[kube(
    group = "egw.acnodal.io",
    version = "v1",
    kind = "ServicePrefix",
    plural = "serviceprefixes",
    category = "portolan",
    namespaced,
    status = "ServicePrefixStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Subnet", type_ = "string", json_path = ".spec.subnet"),
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.pool"),
    printcolumn(name = "In-Use", type_ = "integer", json_path = ".status.addresses.in-use"),
    printcolumn(name = "Capacity", type_ = "integer", json_path = ".status.addresses.capacity"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#,
        priority = 1
    )
)]
#[serde(rename_all = "kebab-case")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!isCIDR(self.subnet) || (self.pool.contains('/') ? isCIDR(self.pool) && cidr(self.subnet).containsCIDR(self.pool) : self.pool.split('-').size() == 2 && self.pool.split('-').all(a, isIP(a.trim()) && cidr(self.subnet).containsIP(a.trim())))",
        "message": "spec.pool is a CIDR or a range like 192.0.2.2-192.0.2.9 inside spec.subnet"
    },
    {
        "rule": "!has(self.gateway) || self.gateway == '' || !isIP(self.gateway) || !isCIDR(self.subnet) || cidr(self.subnet).containsIP(self.gateway)",
        "message": "spec.gateway is an address inside spec.subnet"
    }
]))]
pub struct ServicePrefixSpec {
    /// The subnet of the addresses.
    #[schemars(schema_with = "subnet")]
    pub subnet: String,
    /// The addresses that are given to load balancers: a CIDR, or `from-to`. Network, broadcast and gateway are never given.
    #[schemars(length(max = 96))]
    pub pool: String,
    /// The router of the subnet: never given. Empty means that there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "parts::optional_ip")]
    pub gateway: Option<String>,
    /// What is announced: `default` is the subnet, `/N` the part of that length around each address. It is kept for
    /// announcements, which this version does not make.
    #[serde(default = "aggregation")]
    #[schemars(schema_with = "aggregations")]
    pub aggregation: String,
    /// The bridge that Envoy pods are attached to, if the operator runs with --gateway-multus.
    #[serde(default = "bridge")]
    #[schemars(length(max = 15), regex(pattern = r"^[A-Za-z0-9._-]{1,15}$"))]
    pub multus_bridge: String,
    /// More pools. Empty means none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "ranges")]
    pub extra_pools: Vec<String>,
    /// Addresses of the pools that are never given. Empty means none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "ranges")]
    pub reserved: Vec<String>,
    /// Accounts that may use it. Absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "accounts")]
    pub accounts: Option<Vec<String>>,
}

fn aggregation() -> String {
    "default".to_owned()
}

fn bridge() -> String {
    "multus0".to_owned()
}

fn subnet(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 49,
        "x-kubernetes-validations": [
            { "rule": "isCIDR(self)", "message": "not a CIDR: write it like 192.0.2.0/24" },
            {
                "rule": "!isCIDR(self) || cidr(self) == cidr(self).masked()",
                "message": "the CIDR has host bits: write the network's own address, like 192.0.2.0/24"
            }
        ]
    })
}

fn aggregations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": 7, "pattern": "^(default|/[0-9]{1,3})$", "default": "default" })
}

fn ranges(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 100,
        "x-kubernetes-list-type": "atomic",
        "items": { "type": "string", "maxLength": 96 }
    })
}

fn accounts(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 1000,
        "x-kubernetes-list-type": "set",
        "items": { "type": "string", "maxLength": 59 }
    })
}

/// How many addresses are used.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub struct ServicePrefixStatus {
    /// Counts of addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<AddressCounts>,
    /// Accepted, Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// Counts of addresses.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub struct AddressCounts {
    /// Addresses that can be given, at most 9223372036854775807.
    pub capacity: i64,
    /// Addresses that load balancers have.
    pub in_use: i64,
    /// Addresses that were released a short time ago.
    pub quarantined: i64,
}
