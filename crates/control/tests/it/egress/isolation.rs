//! One object that cannot be written, or an API server that is slow to take events, delays nothing else.

use std::time::{Duration, Instant};

use portolan_testkit::{Exchange, FaultProxy, Faults, Interference};
use serde_json::json;

use super::harness::{Operator, World, agents, running};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(a_write_that_always_fails_delays_no_failover, slow_events_delay_no_failover,);

/// So often a write has failed that it is retried only after more than ten seconds.
const FAILURES: usize = 9;

/// Longer than any test waits, in seconds.
const HOUR: u32 = 3600;

/// Requests that wrote an object, or its status.
fn writes(proxy: &FaultProxy, end: &str) -> usize {
    proxy.writes().iter().filter(|exchange| exchange.path.ends_with(end)).count()
}

/// Loses a node and waits until every one of these policies is ready elsewhere; gives how long that took.
async fn lose(world: &World, node: &str, policies: &[String]) -> anyhow::Result<Duration> {
    let lost = Instant::now();
    world.set_ready(node, false).await?;
    for policy in policies {
        eventually(&format!("{policy} is ready elsewhere"), async || {
            let status = world.status(policy).await?;
            Ok(super::harness::is_ready(&status) && status.node.as_deref().is_some_and(|now| now != node))
        })
        .await?;
    }
    Ok(lost.elapsed())
}

async fn a_write_that_always_fails_delays_no_failover(backend: Backend) -> anyhow::Result<()> {
    let (world, proxy, operator, agents) = running(backend).await?;
    for node in ["n1", "n2", "n3", "n4"] {
        world.node(node).await?;
    }
    world.gateway("eg1", &["10.6.1.60-10.6.1.99"]).await?;
    let policies: Vec<String> = (0..12).map(|number| format!("p{number}")).collect();
    for policy in &policies {
        world.policy(policy, "eg1", json!({ "allocatorPolicy": "rr" })).await?;
    }
    for policy in &policies {
        world.granted(policy).await?;
    }
    let undisturbed = lose(&world, "n1", &policies).await?;

    // statuses that are refused for good, one as invalid and one by a broken server, one that is to be retried only when
    // all this is over, and a tunnel that gets no number
    proxy.interfere(|exchange| match exchange.path.rsplit('/').nth(1) {
        Some("invalid") => Some(Interference::Status(422)),
        Some("throttled") => Some(Interference::Throttle(HOUR)),
        Some("broken" | "n9") if exchange.is_write() => Some(Interference::Status(500)),
        _ => None,
    });
    for policy in ["invalid", "broken", "throttled"] {
        world.policy(policy, "eg1", json!({ "allocatorPolicy": "rr" })).await?;
    }
    world.node("n9").await?;
    let refused = ["egresspolicies/invalid/status", "egresspolicies/broken/status", "egresstunnels/n9/status"];
    for object in refused {
        let what = format!("{object} has failed {FAILURES} times");
        eventually(&what, async || Ok(writes(&proxy, object) >= FAILURES)).await?;
    }

    let what = "the status of throttled has failed";
    eventually(what, async || Ok(writes(&proxy, "egresspolicies/throttled/status") > 0)).await?;

    let disturbed = lose(&world, "n2", &policies).await?;
    let most = 3 * undisturbed + Duration::from_secs(30);
    assert!(disturbed <= most, "a failover took {disturbed:?} beside failing writes, and {undisturbed:?} without");
    world.policy("late", "eg1", json!({ "allocatorPolicy": "rr" })).await?;
    world.granted("late").await?;

    // they are written once they can be
    proxy.interfere(|_| None);
    for policy in ["invalid", "broken"] {
        world.granted(policy).await?;
    }
    operator.stop().await?;
    Ok(agents.stop().await?)
}

async fn slow_events_delay_no_failover(backend: Backend) -> anyhow::Result<()> {
    /// Addresses on the node that is lost; more with `PORTOLAN_FAILOVER=N`.
    const ADDRESSES: usize = 300;
    /// An event takes so long that a busy machine is still faster with its statuses.
    const SLOW: Duration = Duration::from_secs(5);
    #[expect(clippy::disallowed_methods, reason = "a knob of this test alone")]
    let addresses = std::env::var("PORTOLAN_FAILOVER").ok().map_or(Ok(ADDRESSES), |number| number.parse())?;

    let world = World::new(backend).await?;
    let agents = agents(&world)?;
    let proxy = FaultProxy::start(world.client.clone(), Faults::default()).await?;
    let operator = Operator::start(&proxy)?;
    world.node("n1").await?;
    world.gateway("eg1", &["10.7.0.0/16"]).await?;
    let policies: Vec<String> = (0..addresses).map(|number| format!("p{number}")).collect();
    for policy in &policies {
        world.policy(policy, "eg1", json!({ "allocatorPolicy": "rr" })).await?;
    }
    for policy in &policies {
        world.granted(policy).await?;
    }
    world.node("n2").await?;
    world.set_phase("n2", "Ready").await?;

    proxy.interfere(|exchange| is_event(exchange).then_some(Interference::Delay(SLOW)));
    let sent = || proxy.trace().iter().filter(|one| is_event(one) && one.finished.is_some()).count();
    let before = sent();
    lose(&world, "n1", &policies).await?;
    let meanwhile = sent() - before;
    // every address that moves has an event: if statuses waited for them, all of them would have come first
    assert!(meanwhile < addresses, "{meanwhile} events were sent before {addresses} statuses were written");
    operator.process.stop().await?;
    Ok(agents.stop().await?)
}

fn is_event(exchange: &Exchange) -> bool {
    exchange.is_write() && exchange.resource() == Some("events")
}
