//! What happens to a pod next, and what is written for it.

use std::net::{Ipv4Addr, Ipv6Addr};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::node::FakeNode;

const SCHEDULER: &str = "default-scheduler";

/// What a pod waits for.
#[derive(Debug)]
pub(super) enum Step<'a> {
    Nothing,
    Bind,
    Run(&'a FakeNode),
    End,
}

pub(super) fn step<'a>(pod: &Pod, nodes: &'a [FakeNode]) -> Step<'a> {
    let Some(spec) = &pod.spec else { return Step::Nothing };
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let Some(node) = &spec.node_name else {
        let ours = spec.scheduler_name.as_deref().is_none_or(|name| name == SCHEDULER);
        let gated = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
        let alive = pod.metadata.deletion_timestamp.is_none();
        return if ours && alive && !gated { Step::Bind } else { Step::Nothing };
    };
    let Some(node) = nodes.iter().find(|known| known.name == *node) else { return Step::Nothing };
    match phase {
        _ if pod.metadata.deletion_timestamp.is_some() => Step::End,
        None | Some("Pending") => Step::Run(node),
        Some(_) => Step::Nothing,
    }
}

/// The body that binds a pod, and no other of its name.
pub(super) fn binding(pod: &Pod, node: &FakeNode) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": { "name": pod.name_any(), "namespace": pod.namespace(), "uid": pod.uid() },
        "target": { "apiVersion": "v1", "kind": "Node", "name": node.name },
    })
}

/// The status of a pod that runs, as a patch. The UID in it keeps it from another pod of the same name.
pub(super) fn running(pod: &Pod, node: &FakeNode, addresses: (Ipv4Addr, Ipv6Addr)) -> Value {
    let spec = pod.spec.as_ref();
    let now = Timestamp::now();
    let host = node.addresses();
    let (v4, v6) = if spec.is_some_and(|spec| spec.host_network == Some(true)) { host } else { addresses };
    let conditions = ["PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"]
        .map(|kind| json!({ "type": kind, "status": "True", "lastTransitionTime": now }));
    let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default().iter().map(|container| {
        json!({
            "name": container.name,
            "image": container.image,
            "imageID": "",
            "containerID": format!("fake://{}/{}", pod.uid().unwrap_or_default(), container.name),
            "ready": true,
            "started": true,
            "restartCount": 0,
            "state": { "running": { "startedAt": now } },
        })
    });
    json!({
        "metadata": { "uid": pod.uid() },
        "status": {
            "phase": "Running",
            "startTime": now,
            "hostIP": host.0,
            "hostIPs": [{ "ip": host.0 }, { "ip": host.1 }],
            "podIP": v4,
            "podIPs": [{ "ip": v4 }, { "ip": v6 }],
            "conditions": conditions,
            "containerStatuses": containers.collect::<Vec<_>>(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builders;
    use k8s_openapi::{api::core::v1::PodSchedulingGate, apimachinery::pkg::apis::meta::v1::Time};

    fn shown(pod: &Pod) -> String {
        let nodes = [FakeNode::new(7, 1)];
        match step(pod, &nodes) {
            Step::Run(node) => format!("run on {}", node.name),
            other @ (Step::Nothing | Step::Bind | Step::End) => format!("{other:?}"),
        }
    }

    #[test]
    fn a_pod_is_bound_then_run_then_left_alone_until_it_is_deleted() {
        let waiting = builders::pod("shop", "a").phase("Pending");
        assert_eq!(shown(&waiting.clone().build()), "Bind");
        let mut gated = waiting.clone().build();
        gated.spec.get_or_insert_default().scheduling_gates = Some(vec![PodSchedulingGate { name: "later".into() }]);
        assert_eq!(shown(&gated), "Nothing");
        assert_eq!(shown(&waiting.clone().on("fake-7-1").build()), "run on fake-7-1");
        assert_eq!(shown(&waiting.on("another").build()), "Nothing");

        let mut running = builders::pod("shop", "a").on("fake-7-1").build();
        assert_eq!(shown(&running), "Nothing");
        running.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert_eq!(shown(&running), "End");
    }
}
