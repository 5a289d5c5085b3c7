//! ServiceImport of the Multi-Cluster Services API: a Service that clusters of the clusterset export.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// A Service that clusters of the clusterset export under this namespace and name. It is made from their ServiceExports.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[kube(
    group = "multicluster.x-k8s.io",
    version = "v1beta1",
    kind = "ServiceImport",
    plural = "serviceimports",
    namespaced,
    shortname = "svcim",
    shortname = "svcimport",
    status = "ServiceImportStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "IP", type_ = "string", json_path = ".spec.ips"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ServiceImportSpec {
    /// Its ports.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub ports: Vec<ImportPort>,
    /// Its addresses here, one for each family. Empty for headless Services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2), extend("x-kubernetes-list-type" = "atomic"))]
    pub ips: Vec<String>,
    /// How it is reachable.
    #[serde(rename = "type")]
    pub import_type: ImportType,
    /// `ClientIP` keeps a client with one endpoint. Empty means `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_affinity: Option<String>,
    /// For how long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_affinity_config: Option<SessionAffinityConfig>,
    /// IP families, in the order of the addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2), extend("x-kubernetes-list-type" = "atomic"))]
    pub ip_families: Vec<String>,
    /// `Local`: only endpoints on the client's node. Empty means `Cluster`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internal_traffic_policy: Option<String>,
    /// Which endpoints are preferred. Empty means that all are alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_distribution: Option<String>,
}

/// How an imported Service is reachable.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum ImportType {
    /// By an address of the importing cluster.
    #[default]
    ClusterSetIP,
    /// By the addresses of its endpoints.
    Headless,
}

/// A port of an imported Service.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ImportPort {
    /// Its name. Empty only where it is the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// TCP, UDP or SCTP. Empty means TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// What is spoken on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
    /// Its number.
    pub port: i32,
}

/// How clients are kept with endpoints.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
pub struct SessionAffinityConfig {
    /// By the client's address.
    #[serde(default, rename = "clientIP", skip_serializing_if = "Option::is_none")]
    pub client_ip: Option<ClientIpAffinity>,
}

/// How clients are kept with endpoints by their address.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClientIpAffinity {
    /// For how long after the last connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
}

/// Where an imported Service comes from, and whether it can be used.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
pub struct ServiceImportStatus {
    /// Clusters that export it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["cluster"]))]
    pub clusters: Vec<ClusterStatus>,
    /// `Ready`: it can be used here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// A cluster that exports a Service.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
pub struct ClusterStatus {
    /// Its cluster id.
    pub cluster: String,
}
