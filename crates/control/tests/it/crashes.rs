//! A crash at every write, in every phase, heals on restart.

use portolan_testkit::{Faults, Phase};

use crate::harness::{Backend, Replica, World, eventually, on_both_servers, proxy};

on_both_servers! {
    a_crash_at_every_write_converges_without_duplicate_or_leak,
}

async fn a_crash_at_every_write_converges_without_duplicate_or_leak(backend: Backend) -> anyhow::Result<()> {
    // Counted once without a crash, then every write of that run is a place to die at.
    let writes = writes_of_one_run(backend).await?;
    assert!(writes >= 5, "the run must write something to crash at: {writes}");
    for phase in [Phase::BeforeSend, Phase::AfterCommit, Phase::AfterAnswer] {
        for write in 1..=writes {
            crash_at(backend, write, phase)
                .await
                .map_err(|cause| cause.context(format!("crash at write {write}, {phase:?}")))?;
        }
    }
    Ok(())
}

async fn writes_of_one_run(backend: Backend) -> anyhow::Result<u64> {
    let world = two_tickets(backend).await?;
    let proxy = proxy(&world, Faults::default()).await?;
    let replica = Replica::start(&proxy, &world)?;
    world.converged(2).await?;
    replica.process.stop().await?;
    Ok(proxy.writes_but_leases().len() as u64)
}

async fn two_tickets(backend: Backend) -> anyhow::Result<World> {
    let world = World::new(backend, "crash", 2).await?;
    world.add_ticket("a").await?;
    world.add_ticket("b").await?;
    Ok(world)
}

async fn crash_at(backend: Backend, write: u64, phase: Phase) -> anyhow::Result<()> {
    let world = two_tickets(backend).await?;
    let proxy = proxy(&world, Faults::default()).await?;
    let killed = proxy.kill_at_write(write, phase);
    let replica = Replica::start(&proxy, &world)?;
    killed.await?;
    // Cut off as it is it can do nothing more; but left running it would be back with the proxy.
    replica.process.stop().await?;
    proxy.revive();

    let replica = Replica::start(&proxy, &world)?;
    world.converged(2).await?;
    eventually("it rests", async || Ok(replica.turns() >= 1)).await?;
    replica.process.stop().await?;
    let written = proxy.writes_but_leases().len();
    let replica = Replica::start(&proxy, &world)?;
    eventually("it has looked again", async || Ok(replica.turns() >= 1)).await?;
    replica.process.stop().await?;
    let more = proxy.writes_but_leases().split_off(written);
    assert!(more.is_empty(), "it wrote although nothing was left to do: {more:#?}");
    Ok(())
}
