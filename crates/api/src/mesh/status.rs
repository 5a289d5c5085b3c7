//! What the controller says of an object of the mesh.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Status of an object of the mesh.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MeshStatus {
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Accepted, ResolvedRefs and Programmed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Proxies that this object applies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxies: Option<ProxyCounts>,
    /// Objects that were generated because this one refers to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub generated: Vec<String>,
    /// Endpoints of a Target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<i64>,
    /// Targets of a Route, including its destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hops: Option<i64>,
    /// Objects that use it, at most 20, then the number of further ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used_by: Vec<String>,
    /// Objects with updateOwners that this one owns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children: Option<Children>,
}

/// How many proxies have an object.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
pub struct ProxyCounts {
    /// programmed/matched.
    pub summary: String,
    /// Proxies that should have it.
    pub matched: i64,
    /// Proxies that have it.
    pub programmed: i64,
    /// Proxies that do not respond.
    pub unreachable: i64,
    /// Selected pods that run no proxy.
    pub naked: i64,
}

/// State of the objects that this one owns.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
pub struct Children {
    /// The generation of each that is in effect.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub applied: BTreeMap<String, i64>,
}
