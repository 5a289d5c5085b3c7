//! The cloud section of an AddressClaim: the journal of an address that is attached to a node on a cloud.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Whom an address on a cloud serves, and where it belongs.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CloudClaim {
    /// Whom it serves.
    pub owner: CloudOwner,
    /// The user named the address, so it is never replaced by another one. Empty: it was drawn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub requested: bool,
    /// The availability zone that it belongs to.
    pub zone: String,
    /// The subnet that it belongs to.
    #[serde(rename = "subnetID")]
    pub subnet_id: String,
    /// The node that should host it.
    pub node: String,
}

/// Whom an address serves.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
pub struct CloudOwner {
    /// Kind of the owner, such as Namespace.
    pub kind: String,
    /// Name of the owner.
    pub name: String,
    /// UID of the owner: an object made again under its name is another owner.
    pub uid: String,
}

/// What happened to an address on a cloud so far. Written before each call to the cloud and after it.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CloudAttachment {
    /// How far it is.
    #[serde(default)]
    pub state: CloudState,
    /// Where the cloud last showed it. Empty: nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The interface of the last call. Empty: there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<CloudTarget>,
    /// Interfaces of calls before the last one that may have had an effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub earlier_targets: Vec<CloudTarget>,
    /// Failed calls since the state changed.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub attempts: u32,
    /// Why the last call failed. Empty: it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<CloudFailure>,
    /// Why the assignment was given up. Empty: it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back: Option<CloudFailure>,
    /// When the state changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// It was in service.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub served: bool,
    /// The cloud no longer shows it; it is kept from being drawn for a while.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
    /// `Attached`: the cloud shows it where it should be. `Published`: HostSubnet, NetNamespace and Namespace have it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// An interface that a call names.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
pub struct CloudTarget {
    /// The node.
    pub node: String,
    /// Its instance.
    #[serde(rename = "instanceID")]
    pub instance_id: String,
    /// The primary interface of the instance.
    #[serde(rename = "interfaceID")]
    pub interface_id: String,
}

/// Why a call failed.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
pub struct CloudFailure {
    /// The class of the failure, as conditions and events name it.
    pub reason: String,
    /// What the failure is about: the cloud's own code, the action that is not allowed, or who has the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The cloud's own message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
}

/// How far an address on a cloud is.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum CloudState {
    /// Chosen; no call was made.
    #[default]
    Reserved,
    /// A call to put it on an interface is under way.
    Assigning,
    /// The cloud shows it where it should be.
    Attached,
    /// HostSubnet, NetNamespace and Namespace have it.
    Published,
    /// On the way to another interface.
    Moving,
    /// On the way out; once it is gone it cools down.
    Releasing,
    /// Somebody else has it.
    Blocked,
}
