//! Account: a tenant.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::parts;
use crate::schema;

/// A tenant. It is in namespace `egw`; its load balancers are in namespace `egw-NAME`, which is created for it.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[kube(
    group = "egw.acnodal.io",
    version = "v1",
    kind = "Account",
    plural = "accounts",
    category = "portolan",
    namespaced,
    status = "AccountStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Gue-Key", type_ = "integer", json_path = ".spec.gue-key"),
    printcolumn(name = "Service-Key", type_ = "integer", json_path = ".status.current-service-gue-key"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#,
        priority = 1
    )
)]
#[serde(rename_all = "kebab-case")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(oldSelf.gue__dash__key) || oldSelf.gue__dash__key == 0 || (has(self.gue__dash__key) && self.gue__dash__key == oldSelf.gue__dash__key)",
    "message": "spec.gue-key cannot be changed: packets carry it"
}]))]
pub struct AccountSpec {
    /// Key of the account, the upper half of the keys of its load balancers. Set by the operator; set it yourself only to
    /// restore an account.
    #[serde(default, skip_serializing_if = "parts::is_zero")]
    #[schemars(schema_with = "parts::u16_number")]
    pub gue_key: u16,
    /// How much the account may have. Empty means what the operator's flags say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

/// How much an account may have.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub struct Limits {
    /// LoadBalancers. 0 means none; empty means what the operator's flags say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65535))]
    pub load_balancers: Option<u32>,
    /// Distinct public addresses, in the same way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65535))]
    pub addresses: Option<u32>,
    /// Endpoints of one LoadBalancer, in the same way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65535))]
    pub endpoints_per_load_balancer: Option<u32>,
}

/// Keys that were handed out.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "kebab-case")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(oldSelf.current__dash__service__dash__gue__dash__key) || (has(self.current__dash__service__dash__gue__dash__key) && self.current__dash__service__dash__gue__dash__key >= oldSelf.current__dash__service__dash__gue__dash__key)",
    "message": "current-service-gue-key never decreases: keys would be given twice"
}]))]
pub struct AccountStatus {
    /// The highest key that was ever assigned to a load balancer of the account.
    #[serde(default)]
    #[schemars(schema_with = "parts::u16_number")]
    pub current_service_gue_key: u16,
    /// Keys that are reserved for load balancers which do not carry them yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub pending: Vec<PendingService>,
    /// Accepted, Allocated, Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// A key that is reserved.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub struct PendingService {
    /// The key.
    #[schemars(schema_with = "parts::u16_number")]
    pub key: u16,
    /// Namespace and name of the LoadBalancer that gets it.
    #[schemars(length(max = 320))]
    pub holder: String,
    /// Its uid.
    #[schemars(length(max = 64))]
    pub uid: String,
}
