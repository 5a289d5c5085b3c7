//! An operator that crashes at any of its writes, to the API server or to EC2, is healed by the next one.

use anyhow::ensure;
use portolan_testkit::{Exchange, Phase};
use serde_json::{Value, json};

use super::harness::{PREFIX, World};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    an_operator_that_dies_at_a_write_is_healed,
}

/// A namespace gets an address and gives it back, under an operator that dies once.
async fn lives_through(world: &World, nth: u64, phase: Phase) -> anyhow::Result<bool> {
    let mut operator = world.operator().await?;
    let counts = |one: &Exchange| one.is_write() && !one.path.contains("/events");
    let mut dead = Some(operator.seen.kill_at(nth, phase, counts));
    let name = world.asking(None).await?;
    let mut asks = true;
    eventually("it was served and everything is given back", async || {
        if dead.as_mut().is_some_and(|dead| dead.try_recv().is_ok()) {
            dead = None;
            let next = world.operator().await?;
            std::mem::replace(&mut operator, next).stop().await?;
        }
        if asks && world.service(&name).await?.is_some() {
            asks = false;
            world.annotate(&name, json!({ format!("{PREFIX}egressipam"): Value::Null })).await?;
        }
        Ok(!asks && world.claims_of(&name).await?.is_empty())
    })
    .await?;
    let left: Vec<_> = world.instances.keys().flat_map(|node| world.secondary(node)).collect();
    ensure!(left.is_empty() && world.ec2.violations().is_empty(), "{left:?} {:?}", world.ec2.violations());
    ensure!(world.net_namespaces().get(&name).await?.egress_ips.is_empty());
    operator.stop().await?;
    Ok(dead.is_none())
}

async fn an_operator_that_dies_at_a_write_is_healed(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, &[1]).await?;
    let mut deaths = 0;
    for nth in 1.. {
        let phase = [Phase::BeforeSend, Phase::AfterCommit, Phase::AfterAnswer][usize::try_from(nth % 3)?];
        if !lives_through(&world, nth, phase).await? {
            break;
        }
        deaths += 1;
    }
    ensure!(deaths >= 10, "a life has {deaths} writes");
    Ok(())
}
