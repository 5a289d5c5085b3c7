//! What is told as events, once each, and what clients of the shipped operator wait for.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use portolan_api::mesh::{Route, Target, VirtualService};
use serde_json::json;

use super::harness::{ECHO, SIDECAR, World};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    what_happens_to_objects_is_told_once_and_a_restart_repeats_nothing,
    a_proxy_that_is_away_and_back_is_told_on_its_pod,
    what_a_proxy_refuses_is_told_on_its_pod_and_in_the_condition,
    a_port_in_use_is_taken_once_it_is_free,
    clients_of_the_shipped_operator_are_told_what_they_wait_for,
}

/// A gateway with a way to workers by their labels, which both servers have.
const GATEWAY: &str = "
{apiVersion: l7mp.io/v1, kind: VirtualService, metadata: {name: workers}, spec: {selector: {matchLabels: {app: worker}}, listener: {protocol: UDP, port: 9999}}}
---
{apiVersion: l7mp.io/v1, kind: Route, metadata: {name: way}, spec: {destination: workers}}
---
{apiVersion: l7mp.io/v1, kind: VirtualService, metadata: {name: gateway}, spec: {selector: {matchLabels: {app: gateway}}, listener: {protocol: UDP, port: 9001}, rules: [{action: {route: way}}]}}
";

fn listening(name: &str, app: &str) -> String {
    format!(
        "{{apiVersion: l7mp.io/v1, kind: VirtualService, metadata: {{name: {name}}}, spec: {{selector: {{matchLabels: {{app: {app}}}}}, listener: {{protocol: UDP, port: 9001}}, rules: []}}}}"
    )
}

/// How often each reason was told, of all objects.
async fn all_told(world: &World) -> anyhow::Result<BTreeMap<String, usize>> {
    let mut told = BTreeMap::new();
    for event in world.api::<Event>().list(&ListParams::default()).await? {
        let about = event.regarding.unwrap_or_default();
        let what = format!(
            "{} {} {}",
            about.kind.unwrap_or_default(),
            about.name.unwrap_or_default(),
            event.reason.unwrap_or_default()
        );
        *told.entry(what).or_default() += 1;
    }
    Ok(told)
}

/// What was told, once nothing has been added for a second.
async fn told_at_rest(world: &World) -> anyhow::Result<BTreeMap<String, usize>> {
    let mut last = all_told(world).await?;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let told = all_told(world).await?;
        if told == last {
            return Ok(told);
        }
        last = told;
    }
}

async fn what_happens_to_objects_is_told_once_and_a_restart_repeats_nothing(backend: Backend) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    world.pod("worker", &[("app", "worker")], ECHO).await?;
    let operator = world.operator().await?;
    world.apply(GATEWAY).await?;
    world.told("VirtualService", "gateway", "Programmed").await?;
    world.told("Route", "way", "GeneratedObjectCreated").await?;
    world.told("Route", "way", "Programmed").await?;
    world.told("VirtualService", "workers", "Programmed").await?;
    world.apply(&listening("late", "gateway")).await?;
    world.told("VirtualService", "late", "PortConflict").await?;
    world.apply(&listening("naked", "worker")).await?;
    world.told("VirtualService", "naked", "NakedService").await?;

    let before = told_at_rest(&world).await?;
    operator.process.stop().await?;
    let operator = world.operator().await?;
    eventually("it has looked at everything", async || Ok(operator.process.ctx().readiness.is_ready())).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(all_told(&world).await?, before, "a restart is no news");
    let twice: Vec<_> = before.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");

    // the generated Target becomes the user's, and then goes
    let port = Patch::Merge(json!({ "spec": { "cluster": { "spec": { "port": 9998 } } } }));
    world.api::<Target>().patch("workers", &PatchParams::default(), &port).await?;
    world.told("Target", "workers", "GeneratedObjectTaken").await?;
    eventually("its marks are off", async || {
        Ok(!world.api::<Target>().get("workers").await?.labels().contains_key("l7mp.io/generated"))
    })
    .await?;
    world.api::<Target>().delete("workers", &DeleteParams::default()).await?;
    eventually("it is generated anew", async || {
        let target = world.api::<Target>().get_opt("workers").await?;
        Ok(target.is_some_and(|target| target.labels().contains_key("l7mp.io/generated")))
    })
    .await?;

    // a Route that is still named goes: its users are listed, and what was generated for it goes as well
    world.api::<Route>().delete("way", &DeleteParams::default()).await?;
    world.told("Route", "way", "CascadeWithdrawn").await?;
    world.told("VirtualService", "gateway", "RefNotFound").await?;
    // by the operator, which tells it, or by the garbage collector, if that one is first
    eventually("what was generated for it is gone", async || {
        Ok(world.api::<Target>().get_opt("workers").await?.is_none())
    })
    .await?;
    let listed = world.api::<Event>().list(&ListParams::default()).await?.items.into_iter();
    let cascade = listed.into_iter().find(|event| event.reason.as_deref() == Some("CascadeWithdrawn"));
    let note = cascade.and_then(|event| event.note).unwrap_or_default();
    assert!(note.contains(&format!("VirtualService {}/gateway still refer to it", world.namespace)), "{note}");
    operator.process.stop().await?;
    Ok(())
}

async fn a_proxy_that_is_away_and_back_is_told_on_its_pod(backend: Backend) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    let at = world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    let operator = world.operator().await?;
    world.apply(&listening("v", "gateway")).await?;
    world.until("v", "Programmed", "True", "Programmed").await?;
    world.kill("gateway");
    world.told("Pod", "gateway", "ProxyUnreachable").await?;
    world.start("gateway", at, SIDECAR)?;
    world.told("Pod", "gateway", "ProxyBack").await?;
    assert_eq!(world.events("Pod", "gateway").await?, ["ProxyBack", "ProxyUnreachable"]);
    operator.process.stop().await?;
    Ok(())
}

async fn what_a_proxy_refuses_is_told_on_its_pod_and_in_the_condition(backend: Backend) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    let operator = world.operator().await?;
    world.apply("{apiVersion: l7mp.io/v1, kind: VirtualService, metadata: {name: v}, spec: {selector: {matchLabels: {app: gateway}}, listener: {protocol: UDP, port: 9001}, rules: [{action: {route: {destination: {spec: {protocol: Logger, log_file: /etc/passwd}}}}}]}}").await?;
    world.until("v", "Programmed", "False", "Rejected").await?;
    world.told("Pod", "gateway", "ProxyRejected").await?;
    world.apply("{apiVersion: l7mp.io/v1, kind: VirtualService, metadata: {name: other}, spec: {selector: {matchLabels: {app: gateway}}, listener: {protocol: UDP, port: 9002}, rulesRef: nowhere}}").await?;
    eventually("the missing rulelist is named", async || {
        let status = world.api::<VirtualService>().get("other").await?.status;
        let conditions = status.map(|status| status.conditions).unwrap_or_default();
        Ok(conditions
            .iter()
            .any(|one| one.type_ == "Programmed" && one.status == "False" && one.message.contains("nowhere")))
    })
    .await?;
    operator.process.stop().await?;
    Ok(())
}

async fn a_port_in_use_is_taken_once_it_is_free(backend: Backend) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    let at = world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    let operator = world.operator().await?;
    let used = std::net::TcpListener::bind((at, 9003))?;
    world.apply("{apiVersion: l7mp.io/v1, kind: VirtualService, metadata: {name: v}, spec: {selector: {matchLabels: {app: gateway}}, listener: {protocol: TCP, port: 9003}, rules: [{action: {route: {destination: {spec: {protocol: Echo}}}}}]}}").await?;
    world.until("v", "Programmed", "False", "Rejected").await?;
    drop(used);
    world.until("v", "Programmed", "True", "Programmed").await?;
    operator.process.stop().await?;
    Ok(())
}

async fn clients_of_the_shipped_operator_are_told_what_they_wait_for(backend: Backend) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    world.pod("worker", &[("app", "worker")], ECHO).await?;
    let operator = world.operator().await?;
    world.apply(GATEWAY).await?;
    let applied = async |name: &str| -> anyhow::Result<Option<String>> {
        let seen = world.api::<VirtualService>().get(name).await?;
        Ok(seen.annotations().get("operator.l7mp.io/applied").cloned())
    };
    eventually("the gateway is annotated", async || Ok(applied("gateway").await?.as_deref() == Some("1"))).await?;
    let owner = world.api::<VirtualService>().get("gateway").await?;
    let route = world.api::<Route>().get("way").await?;
    assert_eq!(route.status.and_then(|status| status.hops), Some(1));

    let owned = json!({
        "apiVersion": "l7mp.io/v1", "kind": "Target",
        "metadata": { "name": "child", "ownerReferences": [{
            "apiVersion": "l7mp.io/v1", "kind": "VirtualService", "name": "gateway", "uid": owner.uid(),
        }] },
        "spec": {
            "selector": { "matchLabels": { "app": "gateway" } }, "updateOwners": true,
            "cluster": { "spec": { "protocol": "Echo" } },
        },
    });
    world.apply(&owned.to_string()).await?;
    let child = format!("/l7mp.io/v1/Target/{}/child", world.namespace);
    eventually("its owner says that it is in force", async || {
        let status = world.api::<VirtualService>().get("gateway").await?.status.unwrap_or_default();
        Ok(status.children.and_then(|children| children.applied.get(&child).copied()) == Some(1))
    })
    .await?;
    operator.process.stop().await?;
    Ok(())
}
