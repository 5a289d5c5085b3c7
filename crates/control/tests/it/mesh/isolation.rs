//! VirtualServices whose status cannot be written delay no other.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use portolan_testkit::{FaultProxy, Interference};

use super::harness::{ECHO, SIDECAR, World};
use super::traffic::{endpoints, gateway};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(a_status_that_always_fails_delays_no_endpoint_and_no_other_status);

/// So often a write has failed that it is retried only after several seconds.
const FAILURES: usize = 6;

/// Longer than any test waits, in seconds.
const HOUR: u32 = 3600;

/// A VirtualService on the gateway, with a port of its own, that leads to the workers.
fn virtual_service(name: &str, port: u16) -> String {
    format!(
        "{{apiVersion: l7mp.io/v1, kind: VirtualService, metadata: {{name: {name}}}, spec: {{\
         selector: {{matchLabels: {{app: gateway}}}}, listener: {{protocol: UDP, port: {port}}}, \
         rules: [{{action: {{route: {{destination: workers}}}}}}]}}}}"
    )
}

const WORKERS: &str = "
{apiVersion: l7mp.io/v1, kind: Target, metadata: {name: workers}, spec: {selector: {matchLabels: {app: gateway}}, \
 linkedVirtualService: worker-svc, cluster: {loadbalancer: {policy: RoundRobin}}}}
";

/// Loses a worker, as when its node is lost, and adds a VirtualService; gives how long it took until the gateway had left
/// the worker and the VirtualService was said to be programmed.
async fn lose(
    world: &mut World,
    at: Ipv4Addr,
    (worker, lost): (&str, Ipv4Addr),
    port: u16,
) -> anyhow::Result<Duration> {
    let began = Instant::now();
    world.remove(worker).await?;
    let name = format!("after-{worker}");
    world.apply(&virtual_service(&name, port)).await?;
    eventually(&format!("the gateway has left {worker}"), async || {
        Ok(!endpoints(&world.held(at, "clusters").await?).contains(&lost.to_string()))
    })
    .await?;
    world.until(&name, "Programmed", "True", "Programmed").await?;
    Ok(began.elapsed())
}

/// How often the status of a VirtualService was sent.
fn sent(seen: &FaultProxy, name: &str) -> usize {
    let end = format!("virtualservices/{name}/status");
    seen.writes().iter().filter(|exchange| exchange.path.ends_with(&end)).count()
}

async fn a_status_that_always_fails_delays_no_endpoint_and_no_other_status(backend: Backend) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    let at = world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    let mut workers = Vec::new();
    for name in ["worker-0", "worker-1", "worker-2"] {
        workers.push((name, world.pod(name, &[("app", "worker")], ECHO).await?));
    }
    let operator = world.operator().await?;
    // the VirtualService of the workers, which names them
    let stub = gateway(backend).split("---").next().unwrap_or_default().to_owned();
    world.apply(&stub).await?;
    world.apply(WORKERS).await?;
    world.apply(&virtual_service("first", 9003)).await?;
    world.until("first", "Programmed", "True", "Programmed").await?;
    let undisturbed = lose(&mut world, at, workers[0], 9004).await?;

    operator.seen.interfere(|exchange| match exchange.path.rsplit('/').nth(1) {
        Some("invalid") if exchange.is_write() => Some(Interference::Status(422)),
        Some("broken") if exchange.is_write() => Some(Interference::Status(500)),
        Some("throttled") if exchange.is_write() => Some(Interference::Throttle(HOUR)),
        _ => None,
    });
    for (name, port) in [("invalid", 9005), ("broken", 9006), ("throttled", 9008)] {
        world.apply(&virtual_service(name, port)).await?;
    }
    for (name, failures) in [("invalid", FAILURES), ("broken", FAILURES), ("throttled", 1)] {
        let what = format!("the status of {name} has failed {failures} times");
        eventually(&what, async || Ok(sent(&operator.seen, name) >= failures)).await?;
    }
    let disturbed = lose(&mut world, at, workers[1], 9007).await?;
    let most = 3 * undisturbed + Duration::from_secs(30);
    assert!(disturbed <= most, "it took {disturbed:?} beside failing writes, and {undisturbed:?} without");

    // they are written once they can be
    operator.seen.interfere(|_| None);
    for name in ["invalid", "broken"] {
        world.until(name, "Programmed", "True", "Programmed").await?;
    }
    Ok(operator.process.stop().await?)
}
