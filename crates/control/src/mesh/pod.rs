//! Pods, cut down to the fields that the mesh reads: a whole `Pod` takes kilobytes, and there are many.

use std::net::IpAddr;

use kube::api::ObjectMeta;
use kube::core::NamespaceResourceScope;
use portolan_core::mesh::control as mesh;
use portolan_core::mesh::control::Transport;
use serde::{Deserialize, Serialize};

use super::intern::Interner;
use crate::runtime::pack::Phrases;

/// A pod: who it is, what it runs, and how it is.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(default)]
pub struct Pod {
    pub metadata: ObjectMeta,
    #[serde(skip_serializing_if = "is_default")]
    pub spec: PodSpec,
    #[serde(skip_serializing_if = "is_default")]
    pub status: PodStatus,
}

portolan_api::resource!(Pod, "", "v1", "Pod", "pods", NamespaceResourceScope);

/// What a pod runs, and where.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    #[serde(skip_serializing_if = "is_default")]
    pub node_name: String,
    #[serde(skip_serializing_if = "is_default")]
    pub service_account_name: String,
    #[serde(skip_serializing_if = "is_default")]
    pub host_network: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub containers: Vec<Container>,
    #[serde(skip_serializing_if = "is_default")]
    pub init_containers: Vec<Container>,
}

/// A container and the ports it declares.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    pub name: String,
    #[serde(skip_serializing_if = "is_default")]
    pub restart_policy: String,
    #[serde(skip_serializing_if = "is_default")]
    pub ports: Vec<ContainerPort>,
}

/// A port that a container declares.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerPort {
    #[serde(skip_serializing_if = "is_default")]
    pub name: String,
    #[serde(skip_serializing_if = "is_default")]
    pub protocol: String,
    pub container_port: u16,
}

/// How a pod is.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    #[serde(skip_serializing_if = "is_default")]
    pub phase: String,
    #[serde(rename = "podIPs", skip_serializing_if = "is_default")]
    pub pod_ips: Vec<Address>,
    #[serde(rename = "hostIPs", skip_serializing_if = "is_default")]
    pub host_ips: Vec<Address>,
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<PodCondition>,
    #[serde(skip_serializing_if = "is_default")]
    pub container_statuses: Vec<ContainerStatus>,
    #[serde(skip_serializing_if = "is_default")]
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
    #[serde(skip_serializing_if = "is_default")]
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
        if self.plain(&mut Interner::default()).proxy_role() == mesh::ProxyRole::Naked {
            // Which run of its containers it is, and events, matter for proxies only.
            self.metadata.uid = None;
            (self.status.container_statuses, self.status.init_container_statuses) = (Vec::new(), Vec::new());
        }
    }

    /// Which run of its containers this is: another one has lost what it was told.
    pub(super) fn run(&self) -> String {
        let statuses = self.status.container_statuses.iter().chain(&self.status.init_container_statuses);
        let runs = statuses.map(|one| format!("{}={}#{}", one.name, one.container_id, one.restart_count));
        runs.collect::<Vec<_>>().join(" ")
    }

    /// As the resolver reads it.
    pub(super) fn plain(&self, strings: &mut Interner) -> mesh::Pod {
        let addresses = |list: &[Address]| list.iter().filter_map(|one| one.ip.parse::<IpAddr>().ok()).collect();
        let mut labels = |map: &Option<std::collections::BTreeMap<String, String>>| {
            map.iter().flatten().map(|(key, value)| (strings.get(key), strings.get(value))).collect()
        };
        let (labels, annotations) = (labels(&self.metadata.labels), labels(&self.metadata.annotations));
        let mut container = |one: &Container| mesh::Container {
            name: strings.get(&one.name),
            ports: one.ports.iter().map(|one| port(one, strings)).collect(),
        };
        let containers = self.spec.containers.iter().chain(&self.spec.init_containers);
        let containers = containers.map(&mut container).collect();
        let ready = |condition: &PodCondition| condition.kind == "Ready" && condition.status == "True";
        mesh::Pod {
            labels,
            annotations,
            node: strings.get(&self.spec.node_name),
            service_account: strings.get(&self.spec.service_account_name),
            addresses: addresses(&self.status.pod_ips),
            host_addresses: addresses(&self.status.host_ips),
            host_network: self.spec.host_network,
            ready: self.status.conditions.iter().any(ready),
            terminating: self.metadata.deletion_timestamp.is_some(),
            ended: matches!(self.status.phase.as_str(), "Succeeded" | "Failed"),
            containers,
        }
    }
}

fn port(port: &ContainerPort, strings: &mut Interner) -> mesh::ContainerPort {
    let transport = if port.protocol == "UDP" { Transport::Udp } else { Transport::Tcp };
    mesh::ContainerPort { name: strings.get(&port.name), transport, port: port.container_port }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What packed pods repeat.
pub(super) const PHRASES: Phrases = Phrases::new(&[
    r#""metadata":{"labels":{""#,
    r#""metadata":{"#,
    r#""annotations":{""#,
    r#""deletionTimestamp":""#,
    r#""labels":{""#,
    r#""uid":""#,
    r#""app":""#,
    r#""app.kubernetes.io/"#,
    r#""pod-template-hash":""#,
    r#""spec":{"nodeName":""#,
    r#""spec":{"#,
    r#""nodeName":""#,
    r#""serviceAccountName":"default","containers":[{"name":""#,
    r#""serviceAccountName":""#,
    r#""hostNetwork":true"#,
    r#""containers":[{"name":""#,
    r#""initContainers":[{"name":""#,
    r#""restartPolicy":"Always""#,
    r#""ports":[{"name":""#,
    r#""ports":[{"#,
    r#""protocol":"TCP","containerPort":"#,
    r#""protocol":"UDP","containerPort":"#,
    r#""containerPort":"#,
    r#""name":""#,
    r#""status":{"phase":"Running","podIPs":[{"ip":""#,
    r#""status":{"#,
    r#""phase":""#,
    r#""podIPs":[{"ip":""#,
    r#""hostIPs":[{"ip":""#,
    r#""ip":""#,
    r#""conditions":[{"type":"Ready","status":"True"}]"#,
    r#""conditions":[{"type":"Ready","status":"False"}]"#,
]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phrase_can_match() {
        assert_eq!(PHRASES.unusable(), None);
    }

    #[test]
    fn a_pod_without_a_proxy_keeps_what_the_resolver_reads() {
        let pod = serde_json::json!({
            "metadata": { "name": "a", "namespace": "ns", "uid": "u", "labels": { "app": "a" },
                "annotations": { "l7mp.io/x": "y", "other": "z" } },
            "spec": { "nodeName": "n1", "containers": [{ "name": "main", "ports": [{ "containerPort": 80 }] }] },
            "status": { "phase": "Running", "podIPs": [{ "ip": "10.0.0.1" }],
                "containerStatuses": [{ "name": "main", "containerID": "c", "restartCount": 1 }] },
        });
        let mut pod: Pod = serde_json::from_value(pod).unwrap();
        let before = pod.plain(&mut Interner::default());
        pod.trim();
        assert_eq!(pod.plain(&mut Interner::default()).addresses, before.addresses);
        assert_eq!((pod.run().as_str(), pod.metadata.uid), ("", None));
        assert_eq!(pod.metadata.annotations.map(|annotations| annotations.len()), Some(1));
        let proxy = serde_json::json!({ "metadata": { "name": "p", "uid": "u" }, "spec": { "containers": [{ "name": "l7mp" }] },
            "status": { "containerStatuses": [{ "name": "l7mp", "containerID": "c", "restartCount": 1 }] } });
        let mut proxy: Pod = serde_json::from_value(proxy).unwrap();
        proxy.trim();
        assert_eq!((proxy.run().as_str(), proxy.metadata.uid.as_deref()), ("l7mp=c#1", Some("u")));
    }
}
