//! EgressIP of OVN-Kubernetes: addresses that the pods of selected namespaces leave with.

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{ObjectMeta, TypeMeta};
use serde::{Deserialize, Serialize};

/// Addresses of namespaces. OVN-Kubernetes chooses a node for each; the status is its own, and no subresource.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
pub struct EgressIp {
    /// Version and kind.
    #[serde(flatten, default)]
    pub types: Option<TypeMeta>,
    /// Any name will do.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: EgressIpSpec,
    /// What was done. Empty: nothing yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<EgressIpStatus>,
}

/// What is wanted.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EgressIpSpec {
    /// The addresses, each on a node of its own.
    #[serde(rename = "egressIPs")]
    pub egress_ips: Vec<String>,
    /// Namespaces whose pods leave with them.
    pub namespace_selector: LabelSelector,
    /// Pods that leave with them. Empty: all of these namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
}

/// What was done.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
pub struct EgressIpStatus {
    /// Addresses that are assigned.
    #[serde(default)]
    pub items: Vec<EgressIpItem>,
}

/// An address that is assigned.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
pub struct EgressIpItem {
    /// The node.
    pub node: String,
    /// The address.
    #[serde(rename = "egressIP")]
    pub egress_ip: String,
}

crate::resource!(EgressIp, "k8s.ovn.org", "v1", "EgressIP", "egressips", ClusterResourceScope);
