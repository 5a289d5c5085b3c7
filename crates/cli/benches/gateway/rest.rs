//! The REST API under load: requests at a fixed rate, and many who watch.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use kube::api::{Patch, PatchParams};
use portolan_api::gateway::LoadBalancer;
use portolan_testkit::bench::{Bench, Goal};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::http::{self, Connection};
use crate::operator::Operator;
use crate::site::{Name, Site, account};

const GET: &str = "REST: GET of a service, p99 at 1,000 a second";
const WATCHES: &str = "REST: one change to 10,000 watchers, until the last one has it";
pub(crate) const ROWS: [&str; 2] = [GET, WATCHES];
const THREADS: u32 = 4;
/// Of each thread: 250 a second for ten seconds.
const REQUESTS: u32 = 2_500;
const INTERVAL: Duration = Duration::from_millis(4);
const WATCHERS: usize = 10_000;
const ROUNDS: usize = 7;

/// Sends requests when they are due, whatever became of those before; a late one has waited.
pub(crate) fn measure_get(bench: &mut Bench, operator: &Operator) -> anyhow::Result<()> {
    if !bench.wants(GET) {
        return Ok(());
    }
    let path = format!("/api/egw/accounts/{}/services/lb0", account(0));
    operator.get(&path)?.is(200)?;
    let (at, request) = (operator.rest.address(), http::request("GET", &path, "", "keep-alive"));
    let mut rounds = Vec::new();
    for _ in 0..3 {
        let mut times = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| requests(at, &request))).collect();
            let each = threads.into_iter().map(|thread| thread.join().ok().context("a thread panicked")?);
            Ok::<_, anyhow::Error>(each.collect::<anyhow::Result<Vec<_>>>()?.concat())
        })?;
        rounds.push(crate::quantile(&mut times, 0.99));
        crate::note(&format!("REST GET: median {:.2} ms", crate::quantile(&mut times, 0.5)));
    }
    bench.count(GET, "ms", Goal::value(5.0), crate::quantile(&mut rounds, 0.5))
}

fn requests(at: SocketAddr, request: &str) -> anyhow::Result<Vec<f64>> {
    let mut connection = Connection::open(at)?;
    let began = Instant::now();
    let mut times = Vec::new();
    for number in 0..REQUESTS {
        let due = began + INTERVAL * number;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        connection.ok(request)?;
        times.push(due.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

pub(crate) fn measure_watches(
    bench: &mut Bench,
    runtime: &Runtime,
    site: &Site,
    operator: &Operator,
) -> anyhow::Result<()> {
    if !bench.wants(WATCHES) {
        return Ok(());
    }
    let mut times = runtime.block_on(watched(site, operator.rest.address()))?;
    bench.count(WATCHES, "s", Goal::value(0.3), crate::quantile(&mut times, 0.5))
}

/// The seconds of each round, from the change to the last watcher.
async fn watched(site: &Site, at: SocketAddr) -> anyhow::Result<Vec<f64>> {
    let of = Name { namespace: format!("egw-{}", account(1)), name: "watched".to_owned() };
    site.load_balancers(std::iter::once(of.clone())).await?;
    let services = site.of::<LoadBalancer>(&of.namespace);
    let (seen, mut all) = mpsc::channel(WATCHERS);
    let mut opened = Vec::new();
    for _ in 0..WATCHERS / 100 {
        // not all at once: what is measured is the change
        opened.extend(try_join_all((0..100).map(|_| watch(at))).await?);
    }
    let mut tasks = tokio::task::JoinSet::new();
    for stream in opened {
        tasks.spawn(follow(stream, seen.clone()));
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let marks = json!({ "metadata": { "annotations": { "bench": mark(round) } } });
        let began = Instant::now();
        services.patch(&of.name, &PatchParams::default(), &Patch::Merge(marks)).await?;
        let mut last = began;
        for _ in 0..WATCHERS {
            let received = tokio::time::timeout(Duration::from_secs(30), all.recv()).await;
            let (of, when) = received.context("a watcher never saw it")?.context("all watches have ended")?;
            ensure!(of == round, "a watcher saw round {of} in round {round}");
            last = last.max(when);
        }
        times.push((last - began).as_secs_f64());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(times)
}

fn mark(round: usize) -> String {
    format!("round-{round:04}")
}

async fn watch(at: SocketAddr) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(at).await?;
    let request = http::request("GET", &format!("/api/egw/accounts/{}/watch", account(1)), "", "keep-alive");
    stream.write_all(request.as_bytes()).await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    ensure!(&head == b"HTTP/1.1 200", "{}", String::from_utf8_lossy(&head));
    Ok(stream)
}

/// Reports each round when it comes.
async fn follow(mut stream: TcpStream, seen: mpsc::Sender<(usize, Instant)>) -> anyhow::Result<()> {
    let mut buffer = vec![0; 8 << 10];
    let (mut kept, mut round) = (0, 0);
    loop {
        let read = stream.read(&mut buffer[kept..]).await?;
        ensure!(read > 0, "the watch ended");
        let when = Instant::now();
        let text = &buffer[..kept + read];
        let sign = mark(round);
        if text.windows(sign.len()).any(|part| part == sign.as_bytes()) {
            seen.send((round, when)).await?;
            round += 1;
            kept = 0;
            continue;
        }
        // the sign may come in two parts
        let length = kept + read;
        kept = length.min(sign.len());
        buffer.copy_within(length - kept..length, 0);
    }
}
