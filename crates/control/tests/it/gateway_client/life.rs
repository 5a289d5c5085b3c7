//! A Service gets an address, its endpoints follow its pods, and nothing is left of it afterwards.

use anyhow::ensure;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{Patch, PatchParams};
use portolan_api::well_known::gateway_client::{ANNOUNCED, CLASS, FINALIZER};
use serde_json::json;

use super::harness::{World, address_of, condition_of, is_held};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(
    a_service_gets_an_address_and_leaves_nothing,
    a_service_whose_type_changes_away_is_withdrawn_and_what_others_wrote_stays,
    endpoints_follow_with_one_call_per_node_and_change,
    ports_follow_and_named_target_ports_are_resolved,
    unready_and_terminating_endpoints_get_nothing,
);

async fn a_service_gets_an_address_and_leaves_nothing(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let operator = world.operator().await?;
    world.service("web").await?;
    world.pods("web", &[("10.1.0.1", "n1"), ("10.1.0.2", "n2")]).await?;
    let address = world.announced("web").await?;
    ensure!(address == "192.0.2.1" && is_held(&world.get("web").await?), "{address}");
    world.endpoints_are("web", &["10.1.0.1:8080/TCP@10.0.0.1", "10.1.0.2:8080/TCP@10.0.0.2"]).await?;
    world.event("AddressAssigned", "web").await?;
    let service = world.get("web").await?;
    let spec = service.spec.unwrap_or_default();
    ensure!(spec.allocate_load_balancer_node_ports == Some(false), "it is left as it was");
    ensure!(spec.ports.iter().flatten().all(|port| port.node_port.is_none()), "no node port is needed");
    // Services of other classes, and without one, are none of our business.
    world.service_with("other", &json!({ "loadBalancerClass": "example.com/other" })).await?;
    world.delete("web").await?;
    world.gone("web").await?;
    ensure!(world.gateway.is_empty(), "{:?}", world.gateway.endpoints("web"));
    let other = world.get("other").await?;
    ensure!(!is_held(&other) && condition_of(&other, ANNOUNCED).is_none());
    operator.process.stop().await?;
    Ok(())
}

async fn endpoints_follow_with_one_call_per_node_and_change(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let operator = world.operator().await?;
    world.service("web").await?;
    world.pods("web", &[("10.1.0.1", "n1"), ("10.1.0.2", "n1"), ("10.1.0.3", "n2")]).await?;
    world.announced("web").await?;
    let three = ["10.1.0.1:8080/TCP@10.0.0.1", "10.1.0.2:8080/TCP@10.0.0.1", "10.1.0.3:8080/TCP@10.0.0.2"];
    world.endpoints_are("web", &three).await?;
    // Two more on n1 and one on n3 are one call for each; n2 is not called.
    let before = world.at_rest().await?;
    let more = [("10.1.0.1", "n1"), ("10.1.0.2", "n1"), ("10.1.0.3", "n2"), ("10.1.0.4", "n1"), ("10.1.0.5", "n3")];
    world.pods("web", &more).await?;
    eventually("five endpoints are there", async || Ok(world.gateway.endpoints("web").len() == 5)).await?;
    let after = world.at_rest().await?;
    let nodes = |since| -> Vec<String> {
        let changes = world.gateway.changes_since(since).into_iter();
        changes.map(|one| one.rsplit('/').nth(1).unwrap_or_default().to_owned()).collect()
    };
    ensure!(nodes(before) == ["10.0.0.1", "10.0.0.3"], "{:?}", world.gateway.changes_since(before));
    // The last one of a node goes, and one moves to another node with its address.
    world.pods("web", &[("10.1.0.1", "n2"), ("10.1.0.2", "n1"), ("10.1.0.3", "n2")]).await?;
    let want = ["10.1.0.1:8080/TCP@10.0.0.2", "10.1.0.2:8080/TCP@10.0.0.1", "10.1.0.3:8080/TCP@10.0.0.2"];
    world.endpoints_are("web", &want).await?;
    let last = world.at_rest().await?;
    ensure!(nodes(after) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"], "{:?}", world.gateway.changes_since(after));
    // A node gets another address.
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(world.client.clone());
    let status = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": "10.0.0.99" }] } });
    nodes.patch_status("n1", &PatchParams::default(), &Patch::Merge(status)).await?;
    let want = ["10.1.0.1:8080/TCP@10.0.0.2", "10.1.0.2:8080/TCP@10.0.0.99", "10.1.0.3:8080/TCP@10.0.0.2"];
    world.endpoints_are("web", &want).await?;
    ensure!(world.gateway.changes_since(last).len() == 2, "{:?}", world.gateway.changes_since(last));
    operator.process.stop().await?;
    Ok(())
}

async fn ports_follow_and_named_target_ports_are_resolved(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let operator = world.operator().await?;
    let ports = json!([
        { "name": "web", "port": 80, "targetPort": "http", "protocol": "TCP" },
        { "name": "dns", "port": 53, "targetPort": 5353, "protocol": "UDP" },
    ]);
    world.service_with("web", &json!({ "ports": ports })).await?;
    let of = |number: u16| json!([{ "name": "web", "port": number, "protocol": "TCP" }, { "name": "dns", "port": 5353, "protocol": "UDP" }]);
    let on = |address: &str, node: &str| json!([{ "addresses": [address], "nodeName": node }]);
    world.slice("web-old", "web", &of(8080), &on("10.1.0.1", "n1")).await?;
    world.slice("web-new", "web", &of(8081), &on("10.1.0.2", "n1")).await?;
    world.announced("web").await?;
    let want = [
        "10.1.0.1:5353/UDP@10.0.0.1",
        "10.1.0.1:8080/TCP@10.0.0.1",
        "10.1.0.2:5353/UDP@10.0.0.1",
        "10.1.0.2:8081/TCP@10.0.0.1",
    ];
    world.endpoints_are("web", &want).await?;
    let before = world.at_rest().await?;
    world
        .change(
            "web",
            &json!({ "spec": { "ports": [{ "name": "web", "port": 81, "targetPort": "http", "protocol": "TCP" }] } }),
        )
        .await?;
    let is_changed =
        || world.gateway.service("web").is_some_and(|stored| stored.ports.len() == 1 && stored.ports[0]["port"] == 81);
    eventually("the gateway has the new port", async || Ok(is_changed())).await?;
    world.endpoints_are("web", &["10.1.0.1:8080/TCP@10.0.0.1", "10.1.0.2:8081/TCP@10.0.0.1"]).await?;
    let changes = world.gateway.changes_since(before);
    ensure!(changes.len() == 2, "the ports, and the endpoints of the node: {changes:?}");
    ensure!(world.announced("web").await? == "192.0.2.1");
    operator.process.stop().await?;
    Ok(())
}

async fn unready_and_terminating_endpoints_get_nothing(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let operator = world.operator().await?;
    world.service("web").await?;
    let endpoints = |third: bool| {
        json!([
            { "addresses": ["10.1.0.1"], "nodeName": "n1", "conditions": { "ready": true } },
            { "addresses": ["10.1.0.2"], "nodeName": "n1", "conditions": { "ready": false, "serving": true } },
            { "addresses": ["10.1.0.3"], "nodeName": "n1", "conditions": { "ready": true, "terminating": third } },
        ])
    };
    let ports = json!([{ "port": 8080, "protocol": "TCP" }]);
    world.slice("web-1", "web", &ports, &endpoints(false)).await?;
    world.announced("web").await?;
    world.endpoints_are("web", &["10.1.0.1:8080/TCP@10.0.0.1", "10.1.0.3:8080/TCP@10.0.0.1"]).await?;
    world.slice("web-1", "web", &ports, &endpoints(true)).await?;
    world.endpoints_are("web", &["10.1.0.1:8080/TCP@10.0.0.1"]).await?;
    // A Service without endpoints stays announced.
    world.slice("web-1", "web", &ports, &json!([])).await?;
    world.endpoints_are("web", &[]).await?;
    ensure!(world.announced("web").await? == "192.0.2.1");
    operator.process.stop().await?;
    Ok(())
}

async fn a_service_whose_type_changes_away_is_withdrawn_and_what_others_wrote_stays(
    backend: Backend,
) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let operator = world.operator().await?;
    world.service("web").await?;
    world.announced("web").await?;
    // Another controller has a finalizer, and a condition in the status.
    let theirs = json!({ "metadata": { "finalizers": [FINALIZER, "example.com/theirs"], "labels": { "a": "b" } } });
    world.change("web", &theirs).await?;
    let condition = json!({
        "type": "example.com/Theirs", "status": "True", "reason": "Theirs", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let status = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" }, "status": { "conditions": [condition] },
    });
    let params = PatchParams::apply("theirs").force();
    world.services().patch_status("web", &params, &Patch::Apply(status)).await?;
    world.change("web", &json!({ "spec": { "type": "ClusterIP", "loadBalancerClass": null, "allocateLoadBalancerNodePorts": null } })).await?;
    let is_left = |service: &Service| {
        !is_held(service) && condition_of(service, ANNOUNCED).is_none() && address_of(service).is_none()
    };
    eventually("nothing of ours is left", async || Ok(is_left(&world.get("web").await?))).await?;
    ensure!(world.gateway.is_empty());
    let service = world.get("web").await?;
    ensure!(condition_of(&service, "example.com/Theirs").is_some(), "{:?}", service.status);
    ensure!(service.metadata.finalizers == Some(vec!["example.com/theirs".to_owned()]));
    ensure!(service.metadata.labels.is_some_and(|labels| labels["a"] == "b"));
    // And back again.
    world.change("web", &json!({ "spec": { "type": "LoadBalancer", "loadBalancerClass": CLASS } })).await?;
    world.announced("web").await?;
    world.change("web", &json!({ "metadata": { "finalizers": [FINALIZER] } })).await?;
    world.delete("web").await?;
    world.gone("web").await?;
    ensure!(world.gateway.is_empty());
    operator.process.stop().await?;
    Ok(())
}
