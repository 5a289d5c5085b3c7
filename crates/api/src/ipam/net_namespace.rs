//! NetNamespace of OpenShift SDN: the virtual network of a namespace, and the addresses that it leaves with.

use k8s_openapi::ClusterResourceScope;
use kube::api::{ObjectMeta, TypeMeta};
use serde::{Deserialize, Serialize};

/// The virtual network of the namespace of the same name. Its fields stand at top level; it has no status.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NetNamespace {
    /// Version and kind.
    #[serde(flatten, default)]
    pub types: Option<TypeMeta>,
    /// Its name is that of the namespace.
    pub metadata: ObjectMeta,
    /// The namespace.
    pub netname: String,
    /// Number of the virtual network; namespaces that were joined share one.
    pub netid: u32,
    /// Addresses that pods of the namespace leave with.
    #[serde(default, rename = "egressIPs", skip_serializing_if = "Vec::is_empty")]
    pub egress_ips: Vec<String>,
}

crate::resource!(NetNamespace, "network.openshift.io", "v1", "NetNamespace", "netnamespaces", ClusterResourceScope);
