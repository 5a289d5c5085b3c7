//! Several operators, one of which speaks to proxies.

use std::time::Duration;

use portolan_control::mesh;
use portolan_control::runtime::{app, lease};

use super::away::echo;
use super::harness::{Operator, SIDECAR, World};
use crate::egress::harness::options;
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(two_replicas_one_writer);

async fn replica(world: &World, identity: &str) -> anyhow::Result<Operator> {
    let election = lease::Options {
        namespace: world.namespace.clone(),
        name: "mesh".to_owned(),
        identity: identity.to_owned(),
        duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_millis(200),
    };
    let mesh = mesh::Options { namespace: world.namespace.clone(), ..mesh::Options::default() };
    world.replica(app::Options { election: Some(election), ..options() }, mesh).await
}

async fn two_replicas_one_writer(backend: Backend) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    let at = world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    let first = replica(&world, "first").await?;
    world.apply(&echo("one", "gateway", 7001)).await?;
    world.until("one", "Programmed", "True", "Programmed").await?;
    let told = world.generation(at).await?;
    let second = replica(&world, "second").await?;
    eventually("the second has seen everything", async || Ok(second.process.ctx().readiness.is_ready())).await?;
    world.apply(&echo("two", "gateway", 7002)).await?;
    world.until("two", "Programmed", "True", "Programmed").await?;
    let writes = second.seen.writes_but_leases();
    assert!(writes.is_empty(), "only the first leads: {writes:?}");
    assert_eq!(world.generation(at).await?, told + 1, "each change was told once");

    // the next one finds everything in place, and goes on
    first.process.stop().await?;
    world.apply(&echo("three", "gateway", 7003)).await?;
    world.until("three", "Programmed", "True", "Programmed").await?;
    assert_eq!(world.generation(at).await?, told + 2, "nothing was told again");
    second.process.stop().await?;
    Ok(())
}
