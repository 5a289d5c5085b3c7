//! NodeConfig: where clients' nodes send their tunnels to.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::parts::{GueEndpoint, gue_port};
use crate::schema;

/// How gateway nodes are reached. There is one, `default` in namespace `egw`.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[kube(
    group = "egw.acnodal.io",
    version = "v1",
    kind = "NodeConfig",
    plural = "nodeconfigs",
    category = "portolan",
    namespaced,
    status = "NodeConfigStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.base.gue-endpoint.egw-address"),
    printcolumn(name = "Port", type_ = "integer", json_path = ".spec.base.gue-endpoint.egw-port.port"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "kebab-case")]
pub struct NodeConfigSpec {
    /// What holds for all nodes.
    pub base: NodeBase,
}

/// What holds for all nodes.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "kebab-case")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.gue__dash__endpoint) || !has(self.gue__dash__endpoint.egw__dash__address) || self.gue__dash__endpoint.egw__dash__address == '' || isIP(self.gue__dash__endpoint.egw__dash__address)",
    "message": "gue-endpoint.egw-address is an address like 192.0.2.1, or empty"
}]))]
pub struct NodeBase {
    /// Interfaces that tunnels arrive at. It is kept for the tunnel drivers; the `direct` driver has no tunnels.
    #[serde(default = "nics")]
    #[schemars(schema_with = "nic_names")]
    pub gue_ingress_nics: Vec<String>,
    /// Where tunnels end.
    #[serde(default = "endpoint")]
    pub gue_endpoint: GueEndpoint,
}

impl Default for NodeBase {
    fn default() -> Self {
        Self { gue_ingress_nics: nics(), gue_endpoint: endpoint() }
    }
}

fn nics() -> Vec<String> {
    vec!["eth0".to_owned()]
}

fn endpoint() -> GueEndpoint {
    GueEndpoint { egw_port: gue_port(), ..GueEndpoint::default() }
}

fn nic_names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "atomic",
        "items": { "type": "string", "pattern": "^[A-Za-z0-9._-]{1,15}$", "maxLength": 15 }
    })
}

/// Whether it is used.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub struct NodeConfigStatus {
    /// Accepted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
