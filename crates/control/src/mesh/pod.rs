//! Pods as the mesh reads them: a whole `Pod` takes kilobytes, and there are many.

use std::net::IpAddr;
use std::sync::Arc;

use kube::api::ObjectMeta;
use kube::core::NamespaceResourceScope;
use portolan_core::mesh::control as mesh;
use portolan_core::mesh::control::Transport;
use serde::{Deserialize, Serialize};

/// A pod: who it is, what it runs, and how it is.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(default)]
pub struct Pod {
    pub metadata: ObjectMeta,
    pub spec: PodSpec,
    pub status: PodStatus,
}

portolan_api::resource!(Pod, "", "v1", "Pod", "pods", NamespaceResourceScope);

/// What a pod runs, and where.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    pub node_name: String,
    pub service_account_name: String,
    pub host_network: bool,
    pub containers: Vec<Container>,
    pub init_containers: Vec<Container>,
}

/// A container and the ports it declares.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    pub name: String,
    pub restart_policy: String,
    pub ports: Vec<ContainerPort>,
}

/// A port that a container declares.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerPort {
    pub name: String,
    pub protocol: String,
    pub container_port: u16,
}

/// How a pod is.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    pub phase: String,
    #[serde(rename = "podIPs")]
    pub pod_ips: Vec<Address>,
    #[serde(rename = "hostIPs")]
    pub host_ips: Vec<Address>,
    pub conditions: Vec<PodCondition>,
    pub container_statuses: Vec<ContainerStatus>,
    pub init_container_statuses: Vec<ContainerStatus>,
}

/// One address.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default)]
pub struct Address {
    pub ip: String,
}

/// A condition of a pod, of which only `Ready` counts here.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default)]
pub struct PodCondition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
}

/// Tells one run of a container from the next.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    pub name: String,
    #[serde(rename = "containerID")]
    pub container_id: String,
    pub restart_count: i64,
}

impl Pod {
    /// Drops what is not read.
    pub(super) fn trim(&mut self) {
        let ObjectMeta { name, namespace, uid, labels, annotations, resource_version, deletion_timestamp, .. } =
            std::mem::take(&mut self.metadata);
        let annotations = annotations.map(|mut annotations| {
            annotations.retain(|name, _| name.starts_with("l7mp.io/"));
            annotations
        });
        self.metadata = ObjectMeta {
            name,
            namespace,
            uid,
            labels,
            annotations: annotations.filter(|annotations| !annotations.is_empty()),
            resource_version,
            deletion_timestamp,
            ..ObjectMeta::default()
        };
        self.spec.init_containers.retain(|container| container.restart_policy == "Always");
        self.status.conditions.retain(|condition| condition.kind == "Ready");
        let is_proxy = self.plain().proxy_role() != mesh::ProxyRole::Naked;
        let statuses = [&mut self.status.container_statuses, &mut self.status.init_container_statuses];
        statuses.into_iter().filter(|_| !is_proxy).for_each(Vec::clear);
    }

    /// Which run of its containers this is: another one has lost what it was told.
    pub(super) fn run(&self) -> String {
        let statuses = self.status.container_statuses.iter().chain(&self.status.init_container_statuses);
        let runs = statuses.map(|one| format!("{}={}#{}", one.name, one.container_id, one.restart_count));
        runs.collect::<Vec<_>>().join(" ")
    }

    /// As the resolver reads it.
    pub(super) fn plain(&self) -> mesh::Pod {
        let addresses = |list: &[Address]| list.iter().filter_map(|one| one.ip.parse::<IpAddr>().ok()).collect();
        let labels = |map: &Option<std::collections::BTreeMap<String, String>>| {
            map.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str())).collect()
        };
        let container = |one: &Container| mesh::Container {
            name: Arc::from(one.name.as_str()),
            ports: one.ports.iter().map(port).collect(),
        };
        let ready = |condition: &PodCondition| condition.kind == "Ready" && condition.status == "True";
        mesh::Pod {
            labels: labels(&self.metadata.labels),
            annotations: labels(&self.metadata.annotations),
            node: Arc::from(self.spec.node_name.as_str()),
            service_account: Arc::from(self.spec.service_account_name.as_str()),
            addresses: addresses(&self.status.pod_ips),
            host_addresses: addresses(&self.status.host_ips),
            host_network: self.spec.host_network,
            ready: self.status.conditions.iter().any(ready),
            terminating: self.metadata.deletion_timestamp.is_some(),
            ended: matches!(self.status.phase.as_str(), "Succeeded" | "Failed"),
            containers: self.spec.containers.iter().chain(&self.spec.init_containers).map(container).collect(),
        }
    }
}

fn port(port: &ContainerPort) -> mesh::ContainerPort {
    let transport = if port.protocol == "UDP" { Transport::Udp } else { Transport::Tcp };
    mesh::ContainerPort { name: Arc::from(port.name.as_str()), transport, port: port.container_port }
}
