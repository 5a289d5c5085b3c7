//! HostSubnet of OpenShift SDN: the pod range of a node, and the egress addresses that it hosts.

use k8s_openapi::ClusterResourceScope;
use kube::api::{ObjectMeta, TypeMeta};
use serde::{Deserialize, Serialize};

/// The part of the cluster network on the node of the same name. Its fields stand at top level; it has no status.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct HostSubnet {
    /// Version and kind.
    #[serde(flatten, default)]
    pub types: Option<TypeMeta>,
    /// Its name is that of the node.
    pub metadata: ObjectMeta,
    /// The node.
    pub host: String,
    /// The node's address.
    #[serde(rename = "hostIP")]
    pub host_ip: String,
    /// Range of the node's pods.
    pub subnet: String,
    /// Egress addresses that the node hosts.
    #[serde(default, rename = "egressIPs", skip_serializing_if = "Vec::is_empty")]
    pub egress_ips: Vec<String>,
    /// Ranges from which the SDN itself fills `egressIPs`.
    #[serde(default, rename = "egressCIDRs", skip_serializing_if = "Vec::is_empty")]
    pub egress_cidrs: Vec<String>,
}

crate::resource!(HostSubnet, "network.openshift.io", "v1", "HostSubnet", "hostsubnets", ClusterResourceScope);
