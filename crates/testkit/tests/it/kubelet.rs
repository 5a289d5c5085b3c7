//! Pods on nodes without machines.

use std::collections::BTreeSet;

use k8s_openapi::api::{
    apps::v1::Deployment,
    coordination::v1::Lease,
    core::v1::{Node, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use portolan_testkit::{ControlPlane, FakeKubelet, control_plane::Options, kubelet};
use serde_json::json;

use super::setting::until;

#[tokio::test]
async fn a_deployment_becomes_available_and_its_slices_have_both_families() -> anyhow::Result<()> {
    let plane = ControlPlane::start_with(Options { dual_stack: true, ..Options::default() })?;
    let client = plane.client();
    let _kubelet = FakeKubelet::start(client.clone(), kubelet::Options { nodes: 2, network: 7 }).await?;
    for node in Api::<Node>::all(client.clone()).list(&ListParams::default()).await? {
        let lease = Api::<Lease>::namespaced(client.clone(), "kube-node-lease").get(&node.name_any()).await?;
        assert!(lease.spec.is_some_and(|spec| spec.renew_time.is_some()));
    }

    let namespace = plane.namespace("pods").await?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    let deployment = serde_json::from_value(json!({
        "metadata": { "name": "shop" },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "shop" } },
            "template": {
                "metadata": { "labels": { "app": "shop" } },
                "spec": { "containers": [{ "name": "shop", "image": "shop:1" }] },
            },
        },
    }))?;
    deployments.create(&PostParams::default(), &deployment).await?;
    let service = serde_json::from_value(json!({
        "metadata": { "name": "shop" },
        "spec": {
            "selector": { "app": "shop" },
            "ports": [{ "name": "http", "port": 80 }],
            "ipFamilyPolicy": "RequireDualStack",
        },
    }))?;
    Api::<Service>::namespaced(client.clone(), &namespace).create(&PostParams::default(), &service).await?;

    until("two replicas are available", || async {
        let status = deployments.get("shop").await.unwrap().status.unwrap_or_default();
        (status.available_replicas == Some(2)).then_some(())
    })
    .await;
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), &namespace);
    let endpoints = until("both families have two ready endpoints", || async {
        let slices = slices.list(&ListParams::default()).await.unwrap().items;
        let ready: BTreeSet<(String, String)> = slices
            .iter()
            .flat_map(|slice| slice.endpoints.iter().flatten().map(move |endpoint| (slice, endpoint)))
            .filter(|(_, endpoint)| endpoint.conditions.as_ref().is_some_and(|now| now.ready == Some(true)))
            .map(|(slice, endpoint)| (slice.address_type.clone(), endpoint.addresses[0].clone()))
            .collect();
        (ready.len() == 4).then_some(ready)
    })
    .await;
    let expected = [("IPv4", "10.7.1.2"), ("IPv4", "10.7.2.2"), ("IPv6", "fd00:7:1::2"), ("IPv6", "fd00:7:2::2")];
    assert_eq!(endpoints, expected.map(|(family, address)| (family.to_owned(), address.to_owned())).into());

    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    let name = pods.list(&ListParams::default()).await?.items[0].name_any();
    let logs = pods.logs(&name, &kube::api::LogParams::default()).await.unwrap_err().to_string();
    assert!(logs.contains("connection refused"), "the kubelet refuses at once: {logs}");

    deployments.delete("shop", &DeleteParams::background()).await?;
    until("its pods are gone", || async {
        pods.list(&ListParams::default()).await.unwrap().items.is_empty().then_some(())
    })
    .await;
    Ok(())
}

#[tokio::test]
async fn a_dropped_kubelet_leaves_pods_alone_and_the_next_one_takes_them_up() -> anyhow::Result<()> {
    let plane = ControlPlane::start()?;
    let (client, namespace) = (plane.client(), plane.namespace("pods").await?);
    let options = kubelet::Options { nodes: 1, network: 8 };
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let pod = |name: &str| -> Pod {
        let container = json!({ "name": "main", "image": "main:1" });
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": { "containers": [container] } })).unwrap()
    };
    let address = |name: &'static str| {
        let pods = pods.clone();
        until("the pod has an address", move || {
            let pods = pods.clone();
            async move { pods.get(name).await.unwrap().status.and_then(|status| status.pod_ip) }
        })
    };
    let first = FakeKubelet::start(client.clone(), options).await?;
    pods.create(&PostParams::default(), &pod("stays")).await?;
    assert_eq!(address("stays").await, "10.8.1.2");
    pods.create(&PostParams::default(), &pod("deleted")).await?;
    assert_eq!(address("deleted").await, "10.8.1.3");

    drop(first);
    pods.create(&PostParams::default(), &pod("later")).await?;
    pods.delete("deleted", &DeleteParams::default()).await?;
    assert!(pods.get("deleted").await?.metadata.deletion_timestamp.is_some(), "nobody ends it");

    let _second = FakeKubelet::start(client, options).await?;
    let later = address("later").await;
    assert_ne!(later, "10.8.1.2", "another pod has it");
    until("the deleted one is gone", || async { pods.get_opt("deleted").await.unwrap().is_none().then_some(()) }).await;
    Ok(())
}
