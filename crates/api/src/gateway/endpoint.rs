//! Endpoint: a pod behind a load balancer.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::parts::{self, EndpointPort};
use crate::schema;

/// A pod behind a load balancer. It is in the account's namespace.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[kube(
    group = "egw.acnodal.io",
    version = "v1",
    kind = "Endpoint",
    plural = "endpoints",
    category = "portolan",
    namespaced,
    status = "EndpointStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "LB", type_ = "string", json_path = ".spec.load-balancer"),
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.address"),
    printcolumn(name = "Port", type_ = "integer", json_path = ".spec.port.port"),
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.node-address"),
    printcolumn(name = "Tunnel", type_ = "integer", json_path = ".status.tunnel-id"),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Accepted")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "kebab-case")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.load__dash__balancer == oldSelf.load__dash__balancer && self.address == oldSelf.address && self.node__dash__address == oldSelf.node__dash__address",
        "message": "load-balancer, address and node-address cannot be changed: create another endpoint"
    },
    {
        "rule": "self.port.port == oldSelf.port.port && (has(self.port.protocol) ? self.port.protocol.upperAscii() : 'TCP') == (has(oldSelf.port.protocol) ? oldSelf.port.protocol.upperAscii() : 'TCP')",
        "message": "number and protocol of the port cannot be changed: create another endpoint"
    }
]))]
pub struct EndpointSpec {
    /// The LoadBalancer, in the same namespace. It cannot be changed.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub load_balancer: String,
    /// Address of the pod. It cannot be changed.
    #[schemars(schema_with = "parts::ip")]
    pub address: String,
    /// Address of the client's node that the pod is on. It cannot be changed.
    #[schemars(schema_with = "parts::ip")]
    pub node_address: String,
    /// Port of the pod.
    pub port: EndpointPort,
}

/// Values of its load balancer.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub struct EndpointStatus {
    /// Index of the host's end of Envoy's interface. It is kept as it is.
    #[serde(default, skip_serializing_if = "parts::is_zero")]
    pub proxy_ifindex: i64,
    /// Key of the load balancer.
    #[serde(default, skip_serializing_if = "parts::is_zero")]
    #[schemars(schema_with = "parts::u32_number")]
    pub gue_key: u32,
    /// Id of the tunnel to its node.
    #[serde(default, skip_serializing_if = "parts::is_zero")]
    #[schemars(schema_with = "parts::u32_number")]
    pub tunnel_id: u32,
    /// Accepted, ResolvedRefs, Programmed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
