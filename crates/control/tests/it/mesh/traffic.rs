//! Objects in, packets through.

use std::net::Ipv4Addr;
use std::time::Duration;

use kube::api::DeleteParams;
use portolan_api::mesh::{Target, VirtualService};
use serde_json::Value;

use super::harness::{Caller, ECHO, Operator, SIDECAR, World};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(
    a_gateway_leads_to_a_naked_service_and_follows_its_pods,
    cascade_and_return,
    an_operator_that_starts_again_writes_nothing,
);

/// A gateway that leads to workers: a Service of Kubernetes, or pods by their labels. A real server has no slices with
/// loopback addresses, which is where pods live here.
pub(super) fn gateway(backend: Backend) -> String {
    let worker = match backend {
        Backend::Embedded => {
            "{apiVersion: v1, kind: Service, metadata: {name: worker-svc}, \
             spec: {selector: {app: worker}, ports: [{protocol: UDP, port: 9999}]}}"
        }
        Backend::Real => {
            "{apiVersion: l7mp.io/v1, kind: VirtualService, metadata: {name: worker-svc}, \
             spec: {selector: {matchLabels: {app: worker}}, listener: {protocol: UDP, port: 9999}}}"
        }
    };
    let gateway = "{apiVersion: l7mp.io/v1, kind: VirtualService, metadata: {name: gateway-vsvc}, spec: {\
                   selector: {matchLabels: {app: gateway}}, listener: {protocol: UDP, port: 9001}, \
                   rules: [{action: {route: {destination: worker-svc}}}]}}";
    format!("{worker}\n---\n{gateway}\n")
}

/// A proxy, a worker and an operator, with the way from one to the other in force; gives the proxy's address.
pub(super) async fn programmed(backend: Backend) -> anyhow::Result<(World, Ipv4Addr, Operator)> {
    let mut world = World::new(backend).await?;
    let at = world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    world.pod("worker-1", &[("app", "worker")], ECHO).await?;
    let operator = world.operator().await?;
    world.apply(&gateway(backend)).await?;
    world.until("gateway-vsvc", "Programmed", "True", "Programmed").await?;
    // a Service may have no endpoints yet when it is first programmed
    eventually("the worker is an endpoint", async || Ok(endpoints(&world.held(at, "clusters").await?).len() == 1))
        .await?;
    Ok((world, at, operator))
}

const SOON: Duration = Duration::from_millis(200);

pub(super) async fn answers(caller: &Caller) -> anyhow::Result<()> {
    eventually("the gateway leads to the worker", async || Ok(caller.call("hello", SOON)?.as_deref() == Some("hello")))
        .await
}

pub(super) fn endpoints(clusters: &Value) -> Vec<String> {
    let all = clusters.as_array().into_iter().flatten().filter_map(|cluster| cluster["endpoints"].as_array());
    let mut addresses: Vec<String> =
        all.flatten().filter_map(|one| Some(one["spec"]["address"].as_str()?.to_owned())).collect();
    addresses.sort();
    addresses
}

async fn a_gateway_leads_to_a_naked_service_and_follows_its_pods(backend: Backend) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    let at = world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    let first = world.pod("worker-1", &[("app", "worker")], ECHO).await?;
    let operator = world.operator().await?;
    world.apply(&gateway(backend)).await?;
    let caller = Caller::new(at, 9001)?;
    answers(&caller).await?;
    world.until("gateway-vsvc", "Programmed", "True", "Programmed").await?;
    assert_eq!(world.targets().await?, ["worker-svc"], "generated because it is named");

    // another worker comes, and the session on the first goes on
    let second = world.pod("worker-2", &[("app", "worker")], ECHO).await?;
    let mut both = vec![first.to_string(), second.to_string()];
    both.sort();
    eventually("both workers are endpoints", async || Ok(endpoints(&world.held(at, "clusters").await?) == both))
        .await?;
    assert_eq!(caller.call("still", Duration::from_secs(5))?.as_deref(), Some("still"));

    world.remove("worker-2").await?;
    eventually("only the first is left", async || {
        Ok(endpoints(&world.held(at, "clusters").await?) == [first.to_string()])
    })
    .await?;
    assert_eq!(caller.call("and on", Duration::from_secs(5))?.as_deref(), Some("and on"));

    // without the VirtualService nothing is left, neither on the proxy nor of what was generated
    world.api::<VirtualService>().delete("gateway-vsvc", &DeleteParams::default()).await?;
    eventually("nothing is left", async || {
        let listeners = world.held(at, "listeners").await?;
        let clusters = world.held(at, "clusters").await?;
        Ok(listeners == Value::Array(Vec::new())
            && clusters == Value::Array(Vec::new())
            && world.targets().await?.is_empty())
    })
    .await?;
    operator.process.stop().await?;
    Ok(())
}

async fn cascade_and_return(backend: Backend) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    let at = world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    let worker = world.pod("worker-1", &[("app", "worker")], ECHO).await?;
    let operator = world.operator().await?;
    let target = format!(
        "{{apiVersion: l7mp.io/v1, kind: Target, metadata: {{name: t}}, spec: {{selector: {{matchLabels: {{app: gateway}}}}, \
         cluster: {{spec: {{UDP: {{port: 9999}}}}, endpoints: [{{spec: {{address: {worker}}}}}]}}}}}}"
    );
    world.apply(&target).await?;
    world
        .apply("{apiVersion: l7mp.io/v1, kind: VirtualService, metadata: {name: v}, spec: {selector: {matchLabels: {app: gateway}}, listener: {protocol: UDP, port: 9002}, rules: [{action: {route: {destination: t}}}]}}")
        .await?;
    let caller = Caller::new(at, 9002)?;
    answers(&caller).await?;

    world.api::<Target>().delete("t", &DeleteParams::default()).await?;
    world.until("v", "ResolvedRefs", "False", "RefNotFound").await?;
    eventually(
        "the listener is withdrawn",
        async || Ok(world.held(at, "listeners").await? == Value::Array(Vec::new())),
    )
    .await?;

    world.apply(&target).await?;
    answers(&Caller::new(at, 9002)?).await?;
    world.until("v", "Programmed", "True", "Programmed").await?;
    operator.process.stop().await?;
    Ok(())
}

async fn an_operator_that_starts_again_writes_nothing(backend: Backend) -> anyhow::Result<()> {
    let (world, at, operator) = programmed(backend).await?;
    operator.process.stop().await?;
    let before = world.generation(at).await?;

    let operator = world.operator().await?;
    eventually("it has looked at everything", async || Ok(operator.process.ctx().readiness.is_ready())).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let writes = operator.seen.writes();
    assert!(writes.is_empty(), "{writes:?}");
    assert_eq!(world.generation(at).await?, before);
    operator.process.stop().await?;
    Ok(())
}
