//! Network of OpenShift's configuration: which network plugin the cluster has.

use k8s_openapi::ClusterResourceScope;
use kube::api::{ObjectMeta, TypeMeta};
use serde::{Deserialize, Serialize};

/// The network of the cluster, in the one object `cluster`. Only what ipam reads.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
pub struct NetworkConfig {
    /// Version and kind.
    #[serde(flatten, default)]
    pub types: Option<TypeMeta>,
    /// Its name is `cluster`.
    pub metadata: ObjectMeta,
    /// What is in force. Empty: nothing yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<NetworkConfigStatus>,
}

/// What is in force.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct NetworkConfigStatus {
    /// The network plugin, such as `OpenShiftSDN` or `OVNKubernetes`.
    #[serde(default)]
    pub network_type: String,
}

crate::resource!(NetworkConfig, "config.openshift.io", "v1", "Network", "networks", ClusterResourceScope);
