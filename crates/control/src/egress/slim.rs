//! Kinds of others, cut down to the fields that egress reads: a whole `Pod` takes kilobytes, and there are many.

use kube::api::ObjectMeta;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::{Deserialize, Serialize};

use crate::runtime::pack::Phrases;

/// A pod: who it is, where it runs, and its addresses.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(default)]
pub struct Pod {
    pub metadata: ObjectMeta,
    pub spec: PodSpec,
    pub status: PodStatus,
}

/// Where a pod runs.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    pub node_name: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub host_network: bool,
    /// After trimming, only containers that are told the service range.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<Container>,
}

/// How a container is started.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default)]
pub struct Container {
    pub command: Vec<String>,
    pub args: Vec<String>,
}

/// The addresses of a pod.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    pub phase: String,
    #[serde(rename = "podIPs")]
    pub pod_ips: Vec<PodIp>,
}

/// One address of a pod.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default)]
pub struct PodIp {
    pub ip: String,
}

impl Pod {
    /// True when it has ended: its addresses may be another's by now.
    pub fn ended(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// The service ranges that a control-plane pod is told on its command line.
    pub fn service_ranges(&self) -> impl Iterator<Item = &str> {
        let words = self.spec.containers.iter().flat_map(|container| container.command.iter().chain(&container.args));
        words.filter_map(|word| word.strip_prefix(SERVICE_RANGE)).flat_map(|ranges| ranges.split(','))
    }

    /// Keeps what names pods and selects them, and the service range if it is there.
    pub fn trim(&mut self) {
        for container in &mut self.spec.containers {
            let Container { command, args } = container;
            command.append(args);
            command.retain(|word| word.starts_with(SERVICE_RANGE));
        }
        self.spec.containers.retain(|container| !container.command.is_empty());
        self.spec.containers.shrink_to_fit();
        let ObjectMeta { name, namespace, labels, resource_version, deletion_timestamp, .. } =
            std::mem::take(&mut self.metadata);
        self.metadata =
            ObjectMeta { name, namespace, labels, resource_version, deletion_timestamp, ..ObjectMeta::default() };
    }
}

/// The flag of kube-apiserver and kube-controller-manager.
const SERVICE_RANGE: &str = "--service-cluster-ip-range=";

/// A node: its labels, its addresses, its pods' ranges, and whether it is ready.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(default)]
pub struct Node {
    pub metadata: ObjectMeta,
    pub spec: NodeSpec,
    pub status: NodeStatus,
}

/// The ranges of a node's pods.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default)]
pub struct NodeSpec {
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Vec<String>,
}

/// What a node says of itself.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default)]
pub struct NodeStatus {
    pub addresses: Vec<NodeAddress>,
    pub conditions: Vec<NodeCondition>,
}

/// An address of a node, or a name.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default)]
pub struct NodeAddress {
    #[serde(rename = "type")]
    pub type_: String,
    pub address: String,
}

/// A condition of a node.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default)]
pub struct NodeCondition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
}

impl Node {
    /// Whether it says that it is ready.
    pub fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    }

    /// Keeps what names the node and selects it, and the condition that counts.
    pub fn trim(&mut self) {
        self.status.conditions.retain(|condition| condition.type_ == "Ready");
        let ObjectMeta { name, uid, labels, resource_version, creation_timestamp, .. } =
            std::mem::take(&mut self.metadata);
        self.metadata = ObjectMeta { name, uid, labels, resource_version, creation_timestamp, ..ObjectMeta::default() };
    }
}

/// A Calico address pool, of which only the range counts here.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(default)]
pub struct CalicoPool {
    pub metadata: ObjectMeta,
    pub spec: CalicoPoolSpec,
}

/// The range of a Calico address pool.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default)]
pub struct CalicoPoolSpec {
    pub cidr: String,
    pub disabled: bool,
}

portolan_api::resource!(Pod, "", "v1", "Pod", "pods", NamespaceResourceScope);
portolan_api::resource!(Node, "", "v1", "Node", "nodes", ClusterResourceScope);
portolan_api::resource!(CalicoPool, "crd.projectcalico.org", "v1", "IPPool", "ippools", ClusterResourceScope);

/// What packed policies, slices and pods repeat.
pub(super) const PHRASES: Phrases = Phrases::new(&[
    r#""apiVersion":"egressgateway.spidernet.io/v1beta1","#,
    r#""kind":"Egress"#,
    r#""metadata":{"#,
    r#""annotations":{"portolan.dev/applied":""#,
    r#""creationTimestamp":""#,
    r#""generation":"#,
    r#""labels":{""#,
    r#""spidernet.io/policy-name":""#,
    r#""ownerReferences":[{"#,
    r#""blockOwnerDeletion":true,"controller":true,"#,
    r#""name":""#,
    r#""uid":""#,
    r#""spec":{"#,
    r#""status":{"#,
    r#""status":"True","type":""#,
    r#""status":"False","type":""#,
    r#""conditions":[{"lastTransitionTime":""#,
    r#""lastTransitionTime":""#,
    r#""message":"","observedGeneration":"#,
    r#""message":""#,
    r#""observedGeneration":"#,
    r#""reason":""#,
    r#""appliedTo":{"podSelector":{"matchLabels":{""#,
    r#""egressGatewayName":""#,
    r#""egressIP":{"allocatorPolicy":""#,
    r#""eip":{"ipv4":""#,
    r#""endpoints":[{"#,
    r#""ipv4":[""#,
    r#""ipv6":[""#,
    r#""nodeName":""#,
    r#""phase":"Running","podIPs":[{"ip":""#,
    r#""pod":""#,
]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phrase_can_match() {
        assert_eq!(PHRASES.unusable(), None);
    }
}
