//! A crash at every write, in every phase, heals on restart.

use portolan_testkit::{Faults, Phase};

use crate::harness::{Replica, World, eventually, proxy};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_every_write_converges_without_duplicate_or_leak() -> anyhow::Result<()> {
    // Counted once without a crash, then every write of that run is a place to die at.
    let writes = writes_of_one_run().await?;
    assert!(writes >= 5, "the run must write something to crash at: {writes}");
    for phase in [Phase::BeforeSend, Phase::AfterCommit, Phase::AfterAnswer] {
        for write in 1..=writes {
            crash_at(write, phase)
                .await
                .map_err(|cause| cause.context(format!("crash at write {write}, {phase:?}")))?;
        }
    }
    Ok(())
}

async fn writes_of_one_run() -> anyhow::Result<u64> {
    let world = two_tickets().await?;
    let proxy = proxy(&world, Faults::default()).await?;
    let replica = Replica::start(&proxy, &world)?;
    world.converged(2).await?;
    replica.process.stop().await?;
    Ok(proxy.writes_but_leases().len() as u64)
}

async fn two_tickets() -> anyhow::Result<World> {
    let world = World::new("crash", 2).await?;
    world.add_ticket("a").await?;
    world.add_ticket("b").await?;
    Ok(world)
}

async fn crash_at(write: u64, phase: Phase) -> anyhow::Result<()> {
    let world = two_tickets().await?;
    let proxy = proxy(&world, Faults::default()).await?;
    let killed = proxy.kill_at_write(write, phase);
    let replica = Replica::start(&proxy, &world)?;
    killed.await?;
    drop(replica);
    proxy.revive();

    let replica = Replica::start(&proxy, &world)?;
    world.converged(2).await?;
    eventually("it rests", async || Ok(replica.turns() >= 1)).await?;
    replica.process.stop().await?;
    let written = proxy.writes_but_leases().len();
    let replica = Replica::start(&proxy, &world)?;
    eventually("it has looked again", async || Ok(replica.turns() >= 1)).await?;
    replica.process.stop().await?;
    assert_eq!(proxy.writes_but_leases().len(), written, "it wrote although nothing was left to do");
    Ok(())
}
