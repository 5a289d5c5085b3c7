//! ServiceGroup: what the load balancers of an account have in common.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::schema;

/// What load balancers of an account have in common. It is in the account's namespace and written by the provider.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Default, Clone, PartialEq)]
#[kube(
    group = "egw.acnodal.io",
    version = "v1",
    kind = "ServiceGroup",
    plural = "servicegroups",
    category = "portolan",
    namespaced,
    status = "ServiceGroupStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Prefix", type_ = "string", json_path = ".spec.service-prefix"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "kebab-case")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.auth__dash__creds) != has(self.auth__dash__creds__dash__secret)",
    "message": "set exactly one of spec.auth-creds and spec.auth-creds-secret"
}]))]
pub struct ServiceGroupSpec {
    /// The ServicePrefix that addresses come from, as `egw/NAME`.
    #[serde(default = "prefix")]
    #[schemars(schema_with = "prefixes")]
    pub service_prefix: String,
    /// What clients' nodes prove themselves with in tunnels: 1 to 16 bytes. Prefer `auth-creds-secret`. It is kept for
    /// the tunnel drivers; the `direct` driver has no tunnels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16))]
    pub auth_creds: Option<String>,
    /// A Secret of this namespace whose key `auth-creds` has it instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub auth_creds_secret: Option<String>,
    /// The image of Envoy pods, one that the operator allows. This version runs Envoys as processes and allows none: leave
    /// it empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub envoy_image: Option<String>,
}

/// Credentials are not shown.
impl std::fmt::Debug for ServiceGroupSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { service_prefix, auth_creds, auth_creds_secret, envoy_image } = self;
        f.debug_struct("ServiceGroupSpec")
            .field("service_prefix", service_prefix)
            .field("auth_creds", &auth_creds.as_ref().map(|_| "***"))
            .field("auth_creds_secret", auth_creds_secret)
            .field("envoy_image", envoy_image)
            .finish()
    }
}

fn prefix() -> String {
    "egw/default".to_owned()
}

fn prefixes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 320,
        "default": "egw/default",
        "x-kubernetes-validations": [{
            "rule": "self.matches('^egw/[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')",
            "message": "write it like egw/NAME: ServicePrefixes are in namespace egw"
        }]
    })
}

/// What became of it.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub struct ServiceGroupStatus {
    /// For each load balancer, how often its listeners or clusters changed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub proxy_snapshot_versions: BTreeMap<String, i64>,
    /// Accepted, ResolvedRefs, Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
