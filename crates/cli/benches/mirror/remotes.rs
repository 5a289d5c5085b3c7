//! Five remotes: from nothing, started again, and while sources change.

use std::time::Duration;

use anyhow::ensure;
use portolan_testkit::bench::{Bench, Goal};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::by_hand;
use crate::changes::{Changes, percentile};
use crate::clusters::{self, RemotePlane};
use crate::operator::{Metrics, Operator};

const REMOTES: u8 = 5;
const SOURCES: usize = 2_000;
const NODES: u32 = 100;
const MIRRORS: f64 = 10_000.0;
const MIB: f64 = 1024.0 * 1024.0;
/// Changes in one round.
const CHANGES: usize = 1_000;
/// Rounds with and without a remote that does not answer.
const ROUNDS: usize = 5;

const COLD: &str = "cold start, 5 remotes x 2,000 sources x 100 nodes";
const BY_HAND: &str = "cold start: until converged, against a plain client that makes the same objects";
const AGAIN: &str = "the same, started again";
const CHANGE: &str = "one of 10,000 sources changed, 50 a second";
const FROZEN: &str = "one of 5 remotes does not answer";

pub(crate) fn measure(bench: &mut Bench, runtime: &Runtime) -> anyhow::Result<()> {
    if ![COLD, BY_HAND, AGAIN, CHANGE, FROZEN].iter().any(|row| bench.wants(row)) {
        return Ok(());
    }
    let (plane, local) = runtime.block_on(clusters::local())?;
    let mut remotes = Vec::new();
    for number in 0..REMOTES {
        remotes.push(runtime.block_on(RemotePlane::start(number, SOURCES, NODES))?);
    }
    let idle = Operator::start(plane.kubeconfig_path(), &[])?;
    idle.until("led", |metrics| metrics.sum("portolan_runtime_leads", &[]) > 0.5)?;
    std::thread::sleep(Duration::from_secs(2));
    let (empty, _) = idle.resident()?;
    idle.stop()?;
    for remote in &remotes {
        runtime.block_on(remote.declare(&local, &json!({})))?;
    }
    let operator = Operator::start(plane.kubeconfig_path(), &[])?;
    let took = operator.until("wrote all slices", |metrics| {
        metrics.sum("portolan_runtime_writes_total", &["kind=\"EndpointSlice\"", "outcome=\"ok\""]) >= MIRRORS
    })?;
    let cpu = operator.cpu_seconds()?;
    let metrics = operator.at_rest(Duration::from_secs(10))?;
    let (resident, most) = operator.resident()?;
    let needed = 2.0 * MIRRORS + f64::from(REMOTES);
    bench.count(&format!("{COLD}: until converged"), "s", Goal::value(90.0), took.as_secs_f64())?;
    bench.count(&format!("{COLD}: CPU time of the operator"), "s", Goal::value(90.0), cpu)?;
    bench.count(&format!("{COLD}: writes made for one needed"), "", Goal::value(1.0), metrics.writes() / needed)?;
    bench.count(&format!("{COLD}: memory of the operator"), "MiB", Goal::value(300.0), resident / MIB)?;
    bench.count(&format!("{COLD}: most memory on the way"), "MiB", Goal::value(300.0), most / MIB)?;
    let each = (resident - empty) / MIRRORS / 1024.0;
    bench.count(&format!("{COLD}: memory for one mirror"), "KiB", Goal::value(30.0), each)?;
    operator.stop()?;
    if bench.wants(BY_HAND) {
        let namespaces: Vec<String> = remotes.iter().map(|remote| remote.name.clone()).collect();
        let by_hand = runtime.block_on(by_hand::copy(&local, &namespaces))?;
        bench.count(BY_HAND, "", Goal::value(1.2), took.as_secs_f64() / by_hand.as_secs_f64())?;
    }
    if ![AGAIN, CHANGE, FROZEN].iter().any(|row| bench.wants(row)) {
        return Ok(());
    }
    started_again(bench, &plane)?;
    let operator = Operator::start(plane.kubeconfig_path(), &[])?;
    operator.until("read all remotes", is_read)?;
    operator.at_rest(Duration::from_secs(5))?;
    let mut changes = runtime.block_on(Changes::start(&local))?;
    runtime.block_on(changed(bench, &operator, &mut changes, &remotes))?;
    runtime.block_on(one_frozen(bench, &mut changes, &remotes))?;
    operator.stop()
}

/// Every mirror was looked at, and nothing is missing of any remote.
fn is_read(metrics: &Metrics) -> bool {
    metrics.sum("portolan_mirror_remote_synced", &[]) > f64::from(REMOTES) - 0.5
        && metrics.sum("barrelman_service_update_total", &["action=\"None\""]) >= MIRRORS
}

fn started_again(bench: &mut Bench, plane: &portolan_testkit::ControlPlane) -> anyhow::Result<()> {
    let operator = Operator::start(plane.kubeconfig_path(), &[])?;
    let took = operator.until("read all remotes", is_read)?;
    std::thread::sleep(Duration::from_secs(10));
    let before = operator.cpu_seconds()?;
    std::thread::sleep(Duration::from_secs(30));
    let idle = (operator.cpu_seconds()? - before) / 30.0 * 100.0;
    let writes = operator.metrics()?.all_writes();
    operator.stop()?;
    bench.count(&format!("{AGAIN}: until all is read"), "s", Goal::value(10.0), took.as_secs_f64())?;
    bench.count(&format!("{AGAIN}: writes, status included"), "", Goal::value(0.0), writes)?;
    bench.count(&format!("{AGAIN}: CPU when idle"), "% of a processor", Goal::value(2.0), idle)?;
    let operator = Operator::start(plane.kubeconfig_path(), &["--resync-period=2s"])?;
    operator.until("resynced five times", |metrics| {
        metrics.sum("barrelman_service_update_total", &["action=\"None\""]) >= 6.0 * MIRRORS
    })?;
    let writes = operator.metrics()?.all_writes();
    operator.stop()?;
    bench.count(&format!("{AGAIN} and resynced five times: writes, status included"), "", Goal::value(0.0), writes)
}

async fn changed(
    bench: &mut Bench,
    operator: &Operator,
    changes: &mut Changes,
    remotes: &[RemotePlane],
) -> anyhow::Result<()> {
    let all: Vec<&RemotePlane> = remotes.iter().collect();
    changes.make(&all, 100).await?;
    let before = (operator.metrics()?, operator.cpu_seconds()?);
    let took = changes.make(&all, CHANGES).await?;
    let after = operator.metrics()?;
    let cpu = (operator.cpu_seconds()? - before.1) * 1_000.0 / CHANGES as f64;
    let converged = |metrics: &Metrics| metrics.sum("portolan_mirror_convergence_seconds_count", &[]);
    ensure!(converged(&after) > converged(&before.0), "the operator measures no convergence");
    let writes = (after.writes() - before.0.writes()) / CHANGES as f64;
    bench.count(&format!("{CHANGE}: until written, p50"), "ms", Goal::value(40.0), percentile(&took, 50))?;
    bench.count(&format!("{CHANGE}: until written, p99"), "ms", Goal::value(200.0), percentile(&took, 99))?;
    bench.count(&format!("{CHANGE}: writes for one needed"), "", Goal::value(1.0), writes)?;
    bench.count(&format!("{CHANGE}: CPU of the operator for one"), "ms", Goal::value(20.0), cpu)
}

async fn one_frozen(bench: &mut Bench, changes: &mut Changes, remotes: &[RemotePlane]) -> anyhow::Result<()> {
    let Some((last, others)) = remotes.split_last() else { return Ok(()) };
    let others: Vec<&RemotePlane> = others.iter().collect();
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        without.push(changes.make(&others, CHANGES).await?);
        last.plane.freeze_api_server(true)?;
        let made = changes.make(&others, CHANGES).await;
        last.plane.freeze_api_server(false)?;
        with.push(made?);
    }
    // the median of rounds: a pause of one API server makes the p99 of a whole round
    let middle = |rounds: &[Vec<Duration>], share| {
        let mut all: Vec<f64> = rounds.iter().map(|round| percentile(round, share)).collect();
        all.sort_unstable_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let ratio = |share| middle(&with, share) / middle(&without, share);
    bench.count(&format!("{FROZEN}: p50 of the others, against all answering"), "", Goal::value(1.1), ratio(50))?;
    bench.count(&format!("{FROZEN}: p99 of the others, against all answering"), "", Goal::value(1.1), ratio(99))
}
