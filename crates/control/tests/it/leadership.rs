//! Several operators, one of which writes.

use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use portolan_testkit::program::example;
use portolan_testkit::{Exchange, FaultProxy, Faults, Program, Signal};
use tokio::time::sleep;

use crate::harness::{Backend, World, eventually, on_both_servers, proxy};

on_both_servers! {
    when_the_leader_is_killed_the_other_leads_and_never_did_both_write,
    a_leader_that_slept_past_its_lease_writes_nothing_when_it_wakes,
    a_leader_that_is_cut_off_stops_writing_before_its_lease_can_be_taken,
    a_leader_told_to_stop_finishes_and_gives_the_lease_back,
}

/// An operator process of its own, and all it says to the API server.
struct Operator {
    identity: &'static str,
    proxy: FaultProxy,
    program: Program,
}

impl Operator {
    async fn start(world: &World, identity: &'static str, folder: &Path) -> anyhow::Result<Self> {
        let proxy = proxy(world, Faults::default()).await?;
        let kubeconfig = folder.join(format!("{identity}.kubeconfig"));
        proxy.write_kubeconfig(&kubeconfig)?;
        let arguments = [&kubeconfig.to_string_lossy(), world.namespace.as_str(), identity].map(ToOwned::to_owned);
        let program = Program::start(identity, &example("portolan-control", "tickets")?, &arguments, folder)?;
        Ok(Self { identity, proxy, program })
    }

    fn writes(&self) -> Vec<Exchange> {
        self.proxy.writes_but_leases()
    }
}

async fn holder(world: &World) -> anyhow::Result<String> {
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), &world.namespace);
    let lease = leases.get_opt("tickets").await?;
    Ok(lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default())
}

async fn leads(world: &World, identity: &str) -> anyhow::Result<()> {
    eventually(&format!("{identity} leads"), async || Ok(holder(world).await? == identity)).await
}

/// Adds tickets, slower than they are numbered, while `meanwhile` runs, so that there is always something to write.
async fn under_load(world: &World, meanwhile: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<usize> {
    let mut tickets = 0;
    tokio::pin!(meanwhile);
    loop {
        tokio::select! {
            ended = &mut meanwhile => return ended.map(|()| tickets),
            () = sleep(Duration::from_millis(100)) => {}
        }
        // Not within the select: a request that is given up may have been carried out, and would not be counted.
        world.add_ticket(&format!("t{tickets}")).await?;
        tickets += 1;
    }
}

/// Panics unless every write of `earlier` was over before the first of `later` came.
fn never_wrote_at_once(earlier: &Operator, later: &Operator) {
    let over = |write: &Exchange| write.finished.unwrap_or(write.received);
    let last: Instant = earlier.writes().iter().map(over).max().expect("the first leader wrote");
    let first: Instant = later.writes().iter().map(|write| write.received).min().expect("the second leader wrote");
    assert!(last < first, "{} wrote {:?} after {} had begun", earlier.identity, last - first, later.identity);
}

async fn when_the_leader_is_killed_the_other_leads_and_never_did_both_write(backend: Backend) -> anyhow::Result<()> {
    let (world, folder) = (World::new(backend, "killed", 10_000).await?, tempfile::tempdir()?);
    let first = Operator::start(&world, "first", folder.path()).await?;
    leads(&world, "first").await?;
    let second = Operator::start(&world, "second", folder.path()).await?;
    let tickets = under_load(&world, async {
        eventually("the first writes", async || Ok(first.writes().len() > 20)).await?;
        first.program.signal(Signal::KILL)?;
        leads(&world, "second").await?;
        eventually("the second writes", async || Ok(second.writes().len() > 20)).await
    })
    .await?;
    world.converged(tickets).await?;
    never_wrote_at_once(&first, &second);
    Ok(())
}

async fn a_leader_that_slept_past_its_lease_writes_nothing_when_it_wakes(backend: Backend) -> anyhow::Result<()> {
    let (world, folder) = (World::new(backend, "asleep", 10_000).await?, tempfile::tempdir()?);
    let first = Operator::start(&world, "first", folder.path()).await?;
    leads(&world, "first").await?;
    let second = Operator::start(&world, "second", folder.path()).await?;
    let tickets = under_load(&world, async {
        eventually("the first writes", async || Ok(first.writes().len() > 20)).await?;
        first.program.signal(Signal::STOP)?;
        leads(&world, "second").await?;
        eventually("the second writes", async || Ok(second.writes().len() > 20)).await?;
        let asked = first.proxy.trace().len();
        first.program.signal(Signal::CONT)?;
        // It is awake when it asks for something again.
        eventually("the first is awake", async || Ok(first.proxy.trace().len() > asked + 1)).await
    })
    .await?;
    world.converged(tickets).await?;
    never_wrote_at_once(&first, &second);
    Ok(())
}

async fn a_leader_that_is_cut_off_stops_writing_before_its_lease_can_be_taken(backend: Backend) -> anyhow::Result<()> {
    let (world, folder) = (World::new(backend, "cut", 10_000).await?, tempfile::tempdir()?);
    let first = Operator::start(&world, "first", folder.path()).await?;
    leads(&world, "first").await?;
    let second = Operator::start(&world, "second", folder.path()).await?;
    let tickets = under_load(&world, async {
        eventually("the first writes", async || Ok(first.writes().len() > 20)).await?;
        // Its renewals are refused, everything else goes through: only the fence can hold it back.
        first.proxy.refuse(Exchange::is_lease);
        leads(&world, "second").await?;
        eventually("the second writes", async || Ok(second.writes().len() > 20)).await
    })
    .await?;
    world.converged(tickets).await?;
    never_wrote_at_once(&first, &second);
    Ok(())
}

async fn a_leader_told_to_stop_finishes_and_gives_the_lease_back(backend: Backend) -> anyhow::Result<()> {
    let (world, folder) = (World::new(backend, "stopped", 10_000).await?, tempfile::tempdir()?);
    let mut first = Operator::start(&world, "first", folder.path()).await?;
    world.add_ticket("one").await?;
    world.converged(1).await?;
    first.program.signal(Signal::TERM)?;
    let ended = first.program.wait()?;
    assert!(ended.success(), "{ended}\n{}", first.program.log_tail());
    assert_eq!(holder(&world).await?, "");
    let _second = Operator::start(&world, "second", folder.path()).await?;
    leads(&world, "second").await
}
