//! Built-in kinds cut down to the fields that controllers and simulated kubelets read, named as in k8s-openapi.
//!
//! Reading the whole of a Pod is by far the most code that these crates would have. Never write one of these back: the
//! rest of the object would be lost.

use std::collections::BTreeMap;

use k8s_openapi::api::{apps, core};
use kube::Resource;
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Resource, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[resource(inherit = "core::v1::Pod")]
#[serde(default)]
pub struct Pod {
    pub metadata: ObjectMeta,
    pub spec: Option<PodSpec>,
    pub status: Option<PodStatus>,
}

#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    pub node_name: Option<String>,
    pub host_network: Option<bool>,
    pub hostname: Option<String>,
    pub subdomain: Option<String>,
    pub init_containers: Option<Vec<Container>>,
    pub containers: Vec<Container>,
    pub volumes: Option<Vec<Volume>>,
}

#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    pub name: String,
    pub image: Option<String>,
    pub command: Option<Vec<String>>,
    pub args: Option<Vec<String>>,
    pub env: Option<Vec<EnvVar>>,
    pub ports: Option<Vec<ContainerPort>>,
    pub volume_mounts: Option<Vec<VolumeMount>>,
}

#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct EnvVar {
    pub name: String,
    pub value: Option<String>,
    pub value_from: Option<Value>,
}

#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerPort {
    pub name: Option<String>,
    pub container_port: i32,
    pub protocol: Option<String>,
}

#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeMount {
    pub name: String,
    pub mount_path: String,
    pub sub_path: Option<String>,
    pub sub_path_expr: Option<String>,
}

#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct Volume {
    pub name: String,
    pub empty_dir: Option<Value>,
    pub secret: Option<SecretVolume>,
}

#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct SecretVolume {
    pub secret_name: Option<String>,
    pub optional: Option<bool>,
    pub items: Option<Vec<KeyToPath>>,
}

#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default)]
pub struct KeyToPath {
    pub key: String,
    pub path: String,
}

#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    pub phase: Option<String>,
    #[serde(rename = "podIP")]
    pub pod_ip: Option<String>,
    #[serde(rename = "podIPs")]
    pub pod_ips: Option<Vec<PodIp>>,
    pub conditions: Option<Vec<Condition>>,
    pub container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default)]
pub struct PodIp {
    pub ip: String,
}

#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
}

#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    pub name: String,
    #[serde(rename = "containerID")]
    pub container_id: Option<String>,
    pub restart_count: i32,
}

#[derive(Resource, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[resource(inherit = "core::v1::Node")]
#[serde(default)]
pub struct Node {
    pub metadata: ObjectMeta,
    pub status: NodeStatus,
}

#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default)]
pub struct NodeStatus {
    pub conditions: Vec<Condition>,
}

impl Node {
    /// Whether the node says that it is ready.
    pub fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(Condition::is_ready)
    }
}

impl Pod {
    /// Whether the pod says that it is ready.
    pub fn is_ready(&self) -> bool {
        self.status.iter().flat_map(|status| status.conditions.iter().flatten()).any(Condition::is_ready)
    }
}

impl Condition {
    fn is_ready(&self) -> bool {
        self.type_ == "Ready" && self.status == "True"
    }
}

#[derive(Resource, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[resource(inherit = "apps::v1::Deployment")]
#[serde(default)]
pub struct Deployment {
    pub metadata: ObjectMeta,
    pub spec: WorkloadSpec,
    pub status: Value,
}

#[derive(Resource, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[resource(inherit = "apps::v1::ReplicaSet")]
#[serde(default)]
pub struct ReplicaSet {
    pub metadata: ObjectMeta,
    pub spec: WorkloadSpec,
    pub status: Value,
}

#[derive(Resource, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[resource(inherit = "core::v1::ReplicationController")]
#[serde(default)]
pub struct ReplicationController {
    pub metadata: ObjectMeta,
    pub spec: WorkloadSpec,
    pub status: Value,
}

#[derive(Resource, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[resource(inherit = "apps::v1::DaemonSet")]
#[serde(default)]
pub struct DaemonSet {
    pub metadata: ObjectMeta,
    pub spec: WorkloadSpec,
    pub status: Value,
}

#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(default)]
pub struct WorkloadSpec {
    pub replicas: Option<i32>,
    pub selector: Value,
    pub template: PodTemplate,
}

/// The pods of a workload, as they are written.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(default)]
pub struct PodTemplate {
    pub metadata: TemplateMetadata,
    pub spec: Value,
}

#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(default)]
pub struct TemplateMetadata {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}
