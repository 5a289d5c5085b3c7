//! What the controller says of an object of the mesh.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// What became of an object.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MeshStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Accepted, ResolvedRefs and Programmed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Proxies that this object is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxies: Option<ProxyCounts>,
    /// Objects that were generated because this one names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub generated: Vec<String>,
    /// Endpoints of a Target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<i64>,
    /// What a Route passes, its destination included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hops: Option<i64>,
    /// Who uses it, 20 at most, then how many more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used_by: Vec<String>,
    /// Objects that this one owns and that asked for it with updateOwners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children: Option<Children>,
}

/// How many proxies hold an object.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
pub struct ProxyCounts {
    /// programmed/matched.
    pub summary: String,
    /// Proxies that should hold it.
    pub matched: i64,
    /// Proxies that hold it.
    pub programmed: i64,
    /// Proxies that do not answer.
    pub unreachable: i64,
    /// Selected pods that run no proxy.
    pub naked: i64,
}

/// What became of the objects that this one owns.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
pub struct Children {
    /// The generation of each that is in force.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub applied: BTreeMap<String, i64>,
}
