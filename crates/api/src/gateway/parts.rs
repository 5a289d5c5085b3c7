//! What several kinds of gateway have.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The port of an endpoint.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct EndpointPort {
    /// Its name. Empty means that only number and protocol matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub name: Option<String>,
    /// Its number.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// TCP or UDP, in any case. Empty means TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    pub protocol: Option<String>,
    /// The application protocol. It is kept and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub app_protocol: Option<String>,
}

/// A public port, as Services have them.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// Its name: endpoints with a port of the same name feed it. Empty means that numbers decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub name: Option<String>,
    /// TCP or UDP, in any case. Empty means TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    pub protocol: Option<String>,
    /// The application protocol. It is kept and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub app_protocol: Option<String>,
    /// Where clients connect to.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// Where pods listen: a number, or the name of a port that only the tenant's cluster knows. Empty means `port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "int_or_string")]
    pub target_port: Option<IntOrString>,
    /// The tenant's node port. It is kept and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65535))]
    pub node_port: Option<u16>,
}

/// Where a tunnel ends on the gateway's side.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub struct GueEndpoint {
    /// Its address. Empty means that no tunnel can be offered.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 45))]
    pub egw_address: String,
    /// Its port.
    #[serde(default = "gue_port")]
    pub egw_port: EndpointPort,
    /// Id of the tunnel. It is ignored in a NodeConfig.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "u32_number")]
    pub tunnel_id: u32,
}

/// The port of tunnels, unless another one is given.
pub(super) fn gue_port() -> EndpointPort {
    EndpointPort { name: None, port: 6080, protocol: Some("UDP".to_owned()), app_protocol: Some("gue".to_owned()) }
}

/// Zero means not set.
pub(super) fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// A number of 16 bits.
pub(super) fn u16_number(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "format": "int32", "minimum": 0, "maximum": 65535 })
}

/// A number of 32 bits: int32 would refuse those above 2147483647.
pub(super) fn u32_number(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "format": "int64", "minimum": 0, "maximum": 4_294_967_295_u32 })
}

/// An address.
pub(super) fn ip(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 45,
        "x-kubernetes-validations": [
            { "rule": "isIP(self)", "message": "not an address: write it like 192.0.2.1 or 2001:db8::1, without a mask" }
        ]
    })
}

/// An address, or nothing.
pub(super) fn optional_ip(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 45,
        "x-kubernetes-validations": [{
            "rule": "self == '' || isIP(self)",
            "message": "not an address: write it like 192.0.2.1 or 2001:db8::1, without a mask, or leave it empty"
        }]
    })
}

fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] })
}
