//! A thousand load balancers with ten endpoints each in one operator.
//!
//! Everything is as users have it but for the Envoys: the processes that the operator starts do nothing, and clients of
//! this benchmark speak to it in their place.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::ensure;
use futures::future::try_join_all;
use kube::api::DeleteParams;
use portolan_api::gateway::Endpoint;
use portolan_testkit::bench::{Bench, Goal};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::operator::Operator;
use crate::rest;
use crate::site::{Name, Site, names};
use crate::xds::Client;

const FIRST: &str = "first configuration of 1,000 units: until the last one has it";
const MEMORY: &str = "operator memory with 1,000 load balancers x 10 endpoints";
const AFTER: &str = "operator memory after they are deleted, against before";
const CHANGE: &str = "endpoint change among 1,000 load balancers: p99 until Envoy's answer";
const LOAD_BALANCERS: usize = 1_000;
const ENDPOINTS: usize = 10;
const ACCOUNTS: usize = 20;
const CHANGES: usize = 300;
/// Between two changes.
const PAUSE: Duration = Duration::from_millis(50);
const QUIET: Duration = Duration::from_secs(3);

pub(crate) fn measure(bench: &mut Bench, runtime: &Runtime) -> anyhow::Result<()> {
    let own = [FIRST, MEMORY, AFTER, CHANGE];
    if !own.iter().chain(&rest::ROWS).any(|row| bench.wants(row)) {
        return Ok(());
    }
    let site = runtime.block_on(async {
        let site = Site::embedded().await?;
        site.provider("172.16.0.0/12", ACCOUNTS).await?;
        anyhow::Ok(site)
    })?;
    let stand_in = StandIn::new()?;
    let operator = Operator::start(&site.kubeconfig, &stand_in.program())?;
    operator.at_rest(QUIET)?;
    let before = operator.resident()?;
    runtime.block_on(async {
        site.load_balancers(names(LOAD_BALANCERS, ACCOUNTS)).await?;
        site.endpoints(names(LOAD_BALANCERS, ACCOUNTS).zip(0..), ENDPOINTS).await
    })?;
    operator.until("started all units", || stand_in.bootstraps().len() == LOAD_BALANCERS)?;
    operator.at_rest(QUIET)?;
    let (mut clients, seconds) = runtime.block_on(connect(&stand_in))?;
    bench.count_beside(FIRST, "s", Goal::value(2.0), seconds, ("Envoy AI Gateway, 2,000 routes", 5.0))?;
    operator.at_rest(QUIET)?;
    let beside = ("Envoy Gateway 1.9, 1,000 routes", 256.0);
    bench.count_beside(MEMORY, "MiB", Goal::value(60.0), operator.resident()?, beside)?;
    if bench.wants(CHANGE) {
        let mut times = runtime.block_on(changes(&site, &mut clients))?;
        let median = crate::quantile(&mut times, 0.5);
        crate::note(&format!("endpoint changes: median {median:.1} ms"));
        bench.count(CHANGE, "ms", Goal::value(50.0), crate::quantile(&mut times, 0.99))?;
    }
    rest::measure_get(bench, &operator)?;
    if bench.wants(AFTER) {
        runtime.block_on(site.delete_load_balancers())?;
        operator.until("deleted all", || runtime.block_on(site.all_claims()).is_ok_and(|claims| claims.is_empty()))?;
        drop(clients);
        operator.at_rest(QUIET)?;
        let after = operator.resident()?;
        crate::note(&format!("operator memory: {before:.1} MiB before, {after:.1} MiB after all are deleted"));
        bench.count(AFTER, "ratio", Goal::value(1.1), after / before)?;
    }
    rest::measure_watches(bench, runtime, &site, &operator)?;
    operator.stop()?;
    runtime.block_on(site.stop());
    Ok(())
}

/// Connects a client for each unit at once; gives the seconds until the last one could serve traffic.
async fn connect(stand_in: &StandIn) -> anyhow::Result<(Vec<Client>, f64)> {
    let bootstraps = stand_in.bootstraps();
    let began = Instant::now();
    let mut clients = Vec::new();
    for bootstrap in &bootstraps {
        clients.push(Client::start(bootstrap)?);
    }
    let served = clients.iter_mut().map(|client| client.until(|held| held.serves(ENDPOINTS)));
    let last = try_join_all(served).await?.into_iter().max();
    Ok((clients, last.map_or(f64::NAN, |last| (last - began).as_secs_f64())))
}

/// Adds and deletes endpoints, one after the other; the milliseconds from the request to the client's answer.
async fn changes(site: &Site, clients: &mut [Client]) -> anyhow::Result<Vec<f64>> {
    let mut times = Vec::new();
    let count = clients.len();
    for number in 0..CHANGES / 2 {
        // spread over all of them
        let client = &mut clients[number * 7 % count];
        let (namespace, name) = client.id.split_once('/').unwrap_or_default();
        let of = Name { namespace: namespace.to_owned(), name: name.to_owned() };
        let place = 1_000_000 + number;
        let began = Instant::now();
        let (endpoint, at) = site.endpoint(&of, place).await?;
        let at = at.ip().to_string();
        times.push(client.until_endpoint(&at).await?.duration_since(began).as_secs_f64() * 1e3);
        tokio::time::sleep(PAUSE).await;
        let began = Instant::now();
        site.of::<Endpoint>(&of.namespace).delete(&endpoint, &DeleteParams::default()).await?;
        times.push(client.until_no_endpoint(&at).await?.duration_since(began).as_secs_f64() * 1e3);
        tokio::time::sleep(PAUSE).await;
    }
    ensure!(times.len() == CHANGES, "{} changes", times.len());
    Ok(times)
}

/// A program that the operator takes for Envoy. It notes its bootstrap, and sleeps.
struct StandIn {
    folder: TempDir,
}

const SCRIPT: &str = "#!/bin/sh
case \"$1\" in
--version) echo \"stand-in  version: 0/1.40.0/Clean/RELEASE/none\" ;;
*) echo \"$2\" >> \"${0%/*}/bootstraps\"; exec /bin/sleep 1000000 ;;
esac
";

impl StandIn {
    fn new() -> anyhow::Result<Self> {
        let stand_in = Self { folder: tempfile::tempdir()? };
        std::fs::write(stand_in.program(), SCRIPT)?;
        std::fs::set_permissions(stand_in.program(), std::fs::Permissions::from_mode(0o755))?;
        Ok(stand_in)
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("envoy")
    }

    /// Those of all units that were started.
    fn bootstraps(&self) -> Vec<PathBuf> {
        let text = std::fs::read_to_string(self.folder.path().join("bootstraps")).unwrap_or_default();
        text.lines().map(PathBuf::from).collect()
    }
}
