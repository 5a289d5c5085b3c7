//! EGW: the object that account keys and tunnel ids come from.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::parts;
use crate::schema;

// `egw` is what kubectl calls EgressGateways, by their short name; the singular of this kind would take it from them
/// The gateway as a whole. There is one, `egw` in namespace `egw`; the operator creates it. Account keys and tunnel ids are
/// reserved in its status.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[kube(
    group = "egw.acnodal.io",
    version = "v1",
    kind = "EGW",
    root = "Egw",
    plural = "egws",
    singular = "egwsingleton",
    category = "portolan",
    namespaced,
    status = "EgwStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Account-Key", type_ = "integer", json_path = ".status.current-account-gue-key"),
    printcolumn(name = "Tunnel-Id", type_ = "integer", json_path = ".status.current-tunnel-id"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct EgwSpec {}

/// Numbers that were handed out.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "kebab-case")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(oldSelf.current__dash__account__dash__gue__dash__key) || (has(self.current__dash__account__dash__gue__dash__key) && self.current__dash__account__dash__gue__dash__key >= oldSelf.current__dash__account__dash__gue__dash__key)",
        "message": "current-account-gue-key never decreases: numbers would be given twice"
    },
    {
        "rule": "!has(oldSelf.current__dash__tunnel__dash__id) || (has(self.current__dash__tunnel__dash__id) && self.current__dash__tunnel__dash__id >= oldSelf.current__dash__tunnel__dash__id)",
        "message": "current-tunnel-id never decreases: numbers would be given twice"
    }
]))]
pub struct EgwStatus {
    /// The highest account key that was ever assigned.
    #[serde(default)]
    #[schemars(schema_with = "parts::u16_number")]
    pub current_account_gue_key: u16,
    /// The highest tunnel id that was ever assigned.
    #[serde(default)]
    #[schemars(schema_with = "parts::u32_number")]
    pub current_tunnel_id: u32,
    /// Numbers that are reserved for objects which do not carry them yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512), extend("x-kubernetes-list-type" = "atomic"))]
    pub pending: Vec<PendingNumber>,
    /// Accepted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// A number that is reserved.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub struct PendingNumber {
    /// What it is.
    pub space: Space,
    /// The number.
    #[schemars(schema_with = "parts::u32_number")]
    pub key: u32,
    /// Namespace and name of the Account or LoadBalancer that gets it.
    #[schemars(length(max = 320))]
    pub holder: String,
    /// Its uid.
    #[schemars(length(max = 64))]
    pub uid: String,
    /// The client's node that the tunnel goes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 45))]
    pub node_address: Option<String>,
}

/// Where a number is from.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "kebab-case")]
pub enum Space {
    /// Account keys.
    Account,
    /// Tunnel ids.
    Tunnel,
}
