//! ServiceExport of the Multi-Cluster Services API: a Service that other clusters may import.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Exports the Service of the same namespace and name to the other clusters of the clusterset.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[kube(
    group = "multicluster.x-k8s.io",
    version = "v1beta1",
    kind = "ServiceExport",
    plural = "serviceexports",
    namespaced,
    shortname = "svcex",
    shortname = "svcexport",
    status = "ServiceExportStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Valid", type_ = "string", json_path = r#".status.conditions[?(@.type=="Valid")].status"#),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(
        name = "Conflict",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Conflict")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ServiceExportSpec {
    /// Labels that the ServiceImport gets. Empty means none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exported_labels: BTreeMap<String, String>,
    /// Annotations that the ServiceImport gets. Empty means none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exported_annotations: BTreeMap<String, String>,
}

/// Whether the Service is exported.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
pub struct ServiceExportStatus {
    /// `Valid`: there is a Service that can be exported. `Ready`: other clusters can import it. `Conflict`: exports of
    /// other clusters differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
