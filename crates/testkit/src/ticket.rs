//! Two small custom kinds to try a controller runtime on: a [`Ticket`] wants a number, and the [`Office`] of
//! its namespace hands numbers out, each once. They have what real kinds have: a rule, a status of their
//! own, conditions, and a number that must never be given twice.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// What the holder of a ticket wants.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[kube(
    group = "testkit.portolan.dev",
    version = "v1",
    kind = "Ticket",
    namespaced,
    status = "TicketStatus",
    derive = "PartialEq",
    printcolumn(name = "Number", type_ = "integer", json_path = ".status.number")
)]
#[serde(rename_all = "camelCase")]
pub struct TicketSpec {
    /// What the ticket is for, in words. Must not be empty.
    #[schemars(extend("x-kubernetes-validations" = [
        { "rule": "self != ''", "message": "text is empty: say what the ticket is for" }
    ]))]
    pub text: String,
    /// The desk that should serve the ticket. Empty means any desk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desk: Option<String>,
}

/// What has become of a ticket.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct TicketStatus {
    /// The number given to the ticket. Empty until there is one; never changes afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// The ticket's conditions, one for each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}

/// How many tickets an office can serve.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[kube(
    group = "testkit.portolan.dev",
    version = "v1",
    kind = "Office",
    namespaced,
    status = "OfficeStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct OfficeSpec {
    /// The highest number the office gives out; the lowest is 1. With 0 it gives out none.
    pub last: u64,
}

/// Which numbers an office has given out.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct OfficeStatus {
    /// The number each ticket holds, by the ticket's name. Empty means that none was given out.
    // Atomic, or the API server keeps an owner for every key: with 2,000 keys a write cost it half a second.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub taken: BTreeMap<String, u64>,
    /// The number to try first for the next ticket. 0 means that no ticket has come yet.
    #[serde(default)]
    pub next: u64,
}

/// The schema of conditions: k8s-openapi has it only behind a feature that makes the whole crate slow to build.
fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": { "type": "string", "description": "What the condition is about, in CamelCase." },
                "status": { "type": "string", "enum": ["True", "False", "Unknown"], "description": "Whether it holds." },
                "reason": { "type": "string", "minLength": 1, "description": "Why, as one word in CamelCase." },
                "message": { "type": "string", "description": "Why, and what to do, for people." },
                "lastTransitionTime": { "type": "string", "format": "date-time", "description": "When status last changed." },
                "observedGeneration": { "type": "integer", "format": "int64", "description": "The generation judged." },
            },
        },
    })
}
