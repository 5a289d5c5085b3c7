//! CloudPrivateIPConfig of OpenShift: an address on the primary interface of a node's instance.

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{ObjectMeta, TypeMeta};
use serde::{Deserialize, Serialize};

/// The network plugin asks by `spec` for an address on a node; cloud-network-config-controller attaches it.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
pub struct CloudPrivateIpConfig {
    /// Version and kind.
    #[serde(flatten, default)]
    pub types: Option<TypeMeta>,
    /// Its name is the address; of an IPv6 address all eight groups, joined by dots.
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default)]
    pub spec: CloudPrivateIpConfigSpec,
    /// What was done. Empty: nothing yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<CloudPrivateIpConfigStatus>,
}

/// What is wanted.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
pub struct CloudPrivateIpConfigSpec {
    /// The node that should have the address.
    #[serde(default)]
    pub node: String,
}

/// What was done.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
pub struct CloudPrivateIpConfigStatus {
    /// The node that has the address, or is about to.
    #[serde(default)]
    pub node: String,
    /// One condition, `Assigned`.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

crate::resource!(
    CloudPrivateIpConfig,
    "cloud.network.openshift.io",
    "v1",
    "CloudPrivateIPConfig",
    "cloudprivateipconfigs",
    ClusterResourceScope
);
