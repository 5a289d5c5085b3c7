//! Eight operators at once, none of them elected, with faults between them and a real API server, killed at any moment.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use kube::api::ListParams;
use portolan_api::gateway::{Account, Egw};
use portolan_testkit::bench::{Bench, Goal};
use tokio::runtime::Runtime;

use crate::observer::Observer;
use crate::operators::{Unelected, any_port};
use crate::site::{Site, names};

/// How many load balancers; the larger number is measured when it is asked for by name.
const SIZES: [(&str, usize); 2] = [("8 operators, 500 load balancers, kill -9", 500), (LARGE, 5_000)];
const LARGE: &str = "8 operators, 5,000 load balancers, kill -9";
const OPERATORS: usize = 8;
const ACCOUNTS: usize = 20;
/// One operator is killed, and another one started, this often.
const BETWEEN_KILLS: Duration = Duration::from_secs(1);
/// Killed within the deletions; then they end in peace.
const KILLS_WHILE_DELETED: usize = 10;

pub(crate) fn measure(bench: &mut Bench, runtime: &Runtime) -> anyhow::Result<()> {
    for (name, count) in SIZES {
        let [twice, left] = [format!("{name}: held twice"), format!("{name}: left over")];
        let asked = if name == LARGE { bench.names(&twice) || bench.names(&left) } else { bench.wants(&twice) };
        if !asked {
            continue;
        }
        let outcome = runtime.block_on(fought(count))?;
        let Outcome { taken, deleted, kills, held_twice, left_over } = outcome;
        crate::note(&format!(
            "{name}: {kills} kills; all allocated after {:.0} s, {:.1} a second; all gone after {:.0} s more",
            taken.as_secs_f64(),
            count as f64 / taken.as_secs_f64(),
            deleted.as_secs_f64(),
        ));
        bench.count(&twice, "keys, addresses, tunnel ids", Goal::value(0.0), held_twice as f64)?;
        bench.count(&left, "claims, endpoints, reservations", Goal::value(0.0), left_over as f64)?;
    }
    Ok(())
}

struct Outcome {
    taken: Duration,
    deleted: Duration,
    kills: usize,
    held_twice: usize,
    left_over: usize,
}

async fn fought(count: usize) -> anyhow::Result<Outcome> {
    let site = Site::real().await?;
    site.provider("172.16.0.0/12", ACCOUNTS).await?;
    site.load_balancers(names(count, ACCOUNTS)).await?;
    site.endpoints(names(count, ACCOUNTS).zip(0..), 1).await?;
    let observer = Observer::start(&site.client);
    let mut fleet = Fleet::start(&site)?;
    let began = Instant::now();
    fleet.kill_until(usize::MAX, observer.until_allocated(count, true)).await?;
    let taken = began.elapsed();
    let distinct = observer.distinct();
    ensure!(distinct == [count; 3], "of {count}: keys, addresses and tunnels {distinct:?}");
    let began = Instant::now();
    let gone = async {
        site.delete_load_balancers().await?;
        observer.until_gone().await
    };
    fleet.kill_until(KILLS_WHILE_DELETED, gone).await?;
    let left_over = settled(&site).await?;
    let deleted = began.elapsed();
    let twice = observer.twice();
    for problem in &twice {
        crate::note(problem);
    }
    let kills = fleet.kills;
    drop((fleet, observer));
    site.stop().await;
    Ok(Outcome { taken, deleted, kills, held_twice: twice.len(), left_over })
}

/// Waits until nothing is left of the load balancers, but not for ever; gives what is left.
async fn settled(site: &Site) -> anyhow::Result<usize> {
    let began = Instant::now();
    loop {
        let mut left = site.all_claims().await?.len() + site.all_endpoints().await?.len();
        let accounts = site.of::<Account>("egw").list(&ListParams::default()).await?;
        left +=
            accounts.iter().filter_map(|account| account.status.as_ref()).map(|one| one.pending.len()).sum::<usize>();
        let egw = site.of::<Egw>("egw").get("egw").await?;
        left += egw.status.context("it has one")?.pending.len();
        if left == 0 || began.elapsed() > Duration::from_mins(5) {
            return Ok(left);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

struct Fleet<'a> {
    site: &'a Site,
    operators: Vec<Unelected>,
    seed: u64,
    kills: usize,
}

impl<'a> Fleet<'a> {
    fn start(site: &'a Site) -> anyhow::Result<Self> {
        let mut fleet = Self { site, operators: Vec::new(), seed: 0, kills: 0 };
        for _ in 0..OPERATORS {
            fleet.add()?;
        }
        Ok(fleet)
    }

    fn add(&mut self) -> anyhow::Result<()> {
        self.seed += 1;
        self.operators.push(Unelected::start(&self.site.kubeconfig, any_port(), Some(self.seed))?);
        Ok(())
    }

    /// Kills one after the other until something is done.
    async fn kill_until(&mut self, most: usize, done: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
        let mut done = std::pin::pin!(done);
        for _ in 0..most {
            tokio::select! {
                done = &mut done => return done,
                () = tokio::time::sleep(BETWEEN_KILLS) => {}
            }
            // the oldest: each lives equally long, at whatever it is then
            self.operators.remove(0).kill()?;
            self.kills += 1;
            self.add()?;
            for operator in &mut self.operators {
                operator.check()?;
            }
        }
        done.await
    }
}
