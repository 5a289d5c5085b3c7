//! LoadBalancer: a service of a tenant, with a public address.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::parts::{self, GueEndpoint, ServicePort};
use crate::schema;

/// A service of a tenant with a public address. It is in the account's namespace.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[kube(
    group = "egw.acnodal.io",
    version = "v1",
    kind = "LoadBalancer",
    plural = "loadbalancers",
    category = "portolan",
    namespaced,
    status = "LoadBalancerStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Group", type_ = "string", json_path = ".spec.service-group"),
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.public-address"),
    printcolumn(name = "Ports", type_ = "string", json_path = ".spec.public-ports[*].port"),
    printcolumn(name = "Key", type_ = "integer", json_path = ".spec.gue-key"),
    printcolumn(
        name = "Programmed",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Programmed")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#,
        priority = 1
    )
)]
#[serde(rename_all = "kebab-case")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.service__dash__group == oldSelf.service__dash__group",
        "message": "spec.service-group cannot be changed: delete the LoadBalancer and create it again"
    },
    {
        "rule": "!has(oldSelf.public__dash__address) || oldSelf.public__dash__address == '' || (has(self.public__dash__address) && self.public__dash__address == oldSelf.public__dash__address)",
        "message": "spec.public-address cannot be changed: delete the LoadBalancer and create it again"
    },
    {
        "rule": "!has(oldSelf.gue__dash__key) || oldSelf.gue__dash__key == 0 || (has(self.gue__dash__key) && self.gue__dash__key == oldSelf.gue__dash__key)",
        "message": "spec.gue-key cannot be changed: packets carry it"
    }
]))]
pub struct LoadBalancerSpec {
    /// The ServiceGroup that it belongs to. It cannot be changed.
    #[schemars(length(min = 1, max = 253))]
    pub service_group: String,
    /// Its public address. Empty means that the operator assigns one; an address that is set is a request for that one. Once
    /// set it cannot be changed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "parts::optional_ip")]
    pub public_address: String,
    /// Its public ports.
    #[schemars(schema_with = "ports")]
    pub public_ports: Vec<ServicePort>,
    /// Its key, with that of the account in the upper 16 bits. Set by the operator; set it yourself only to restore a load
    /// balancer. Once set it cannot be changed.
    #[serde(default, skip_serializing_if = "parts::is_zero")]
    #[schemars(schema_with = "parts::u32_number")]
    pub gue_key: u32,
    /// Load balancers of an account and a ServicePrefix with the same key share an address, if their ports differ. Empty
    /// means an address of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub sharing_key: Option<String>,
}

fn ports(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = generator.subschema_for::<Vec<ServicePort>>();
    schema.insert("minItems".to_owned(), 1.into());
    schema.insert("maxItems".to_owned(), 100.into());
    schema.insert("x-kubernetes-list-type".to_owned(), "atomic".into());
    let protocol = |port: &str| format!("(has({port}.protocol) ? {port}.protocol.upperAscii() : 'TCP')");
    let rule = serde_json::json!([{
        "rule": format!("self.all(p, self.exists_one(q, q.port == p.port && {} == {}))", protocol("q"), protocol("p")),
        "message": "two ports have the same number and protocol: remove one of them",
    }]);
    schema.insert("x-kubernetes-validations".to_owned(), rule);
    schema
}

/// What became of it.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub struct LoadBalancerStatus {
    /// Tunnels, by the address of the client's node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 65535))]
    pub gue_tunnel_endpoints: BTreeMap<String, GueEndpoint>,
    /// Index of the host's end of Envoy's interface. It is kept as it is.
    #[serde(default, skip_serializing_if = "parts::is_zero")]
    pub proxy_ifindex: i64,
    /// Name of that interface. It is kept as it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub proxy_ifname: String,
    /// Accepted, ResolvedRefs, Allocated, AddressInPool, Programmed, TunnelsUp, Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
