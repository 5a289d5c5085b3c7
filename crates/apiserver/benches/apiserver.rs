//! What the embedded API server costs, next to kube-apiserver and etcd: creates, lists, watches, memory, and the time
//! to be ready.
//!
//! Both sides are processes of their own, reached over TLS on loopback by the same client; only the servers' CPU time
//! counts. Ours keeps its data on disk, as etcd does.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::{AsyncBufReadExt as _, StreamExt as _, TryStreamExt as _, stream};
use http::Request;
use kube::Client;
use portolan_testkit::ControlPlane;
use portolan_testkit::bench::{Bench, Goal, Side};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use self::child::{Child, client, memory};

#[path = "../tests/it/child.rs"]
mod child;

const THEIRS: &str = "kube-apiserver + etcd";
/// How many requests are under way at a time.
const AT_ONCE: usize = 16;
/// How many objects a turn creates.
const CREATES: u64 = 300;
const LISTED: u64 = 5_000;
/// How often a turn lists them: one list is too short to time.
const LISTS: u64 = 40;
const WATCHERS: u64 = 100;
/// How many objects a turn creates before the eyes of all watchers.
const SHOWN: u64 = 50;
const KEPT: u64 = 20_000;
const MIB: f64 = 1024.0 * 1024.0;
/// How long all watchers may take to see an event.
const LIMIT: Duration = Duration::from_mins(1);

fn main() -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut bench = Bench::with_arguments("apiserver", std::env::args().skip(1))?;
    if let Some(program) = bench.against().map(Path::to_owned) {
        against_other_build(&mut bench, &runtime, &program)?;
        return bench.finish();
    }
    against_kubernetes(&mut bench, &runtime)?;
    memory_with_objects(&mut bench, &runtime)?;
    ready(&mut bench, &runtime)?;
    bench.finish()
}

fn against_kubernetes(bench: &mut Bench, runtime: &Runtime) -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let (mut child, _) = Child::start(Some(data.path()))?;
    let plane = ControlPlane::start()?;
    let ours = runtime.block_on(Server::new(vec![child.program().id()], &child.kubeconfig()))?;
    let theirs = runtime.block_on(Server::new(etcd_and_apiserver(&plane), plane.kubeconfig_path()))?;
    costs(bench, runtime, &ours, (THEIRS, &theirs), [0.2, 1.0, 1.0].map(Goal::ratio))
}

/// `program` is the example `serve` of another build, such as an older commit's.
fn against_other_build(bench: &mut Bench, runtime: &Runtime, program: &Path) -> anyhow::Result<()> {
    let folders = [tempfile::tempdir()?, tempfile::tempdir()?];
    let (mut child, _) = Child::start(Some(folders[0].path()))?;
    let mut other = Child::launch_program(program, Some(folders[1].path()))?;
    other.ready()?;
    let ours = runtime.block_on(Server::new(vec![child.program().id()], &child.kubeconfig()))?;
    let others = runtime.block_on(Server::new(vec![other.program().id()], &other.kubeconfig()))?;
    costs(bench, runtime, &ours, ("other build", &others), [1.03; 3].map(Goal::ratio))
}

/// CPU time of the servers, one kind of work after the other.
fn costs(
    bench: &mut Bench,
    runtime: &Runtime,
    ours: &Server,
    (name, other): (&str, &Server),
    [creates, lists, watches]: [Goal; 3],
) -> anyhow::Result<()> {
    let create = |server: &Server| runtime.block_on(server.fill("creates", CREATES)).map(|()| CREATES);
    bench.compare(
        "creates",
        "create",
        creates,
        Side::new("portolan", || create(ours)).of_processes(ours.processes.clone()),
        Side::new(name, || create(other)).of_processes(other.processes.clone()),
    )?;

    for server in [ours, other] {
        runtime.block_on(server.fill("lists", LISTED))?;
    }
    let list = |server: &Server| {
        (0..LISTS).try_fold(0, |listed, _| anyhow::Ok(listed + runtime.block_on(server.list("lists", LISTED))?))
    };
    bench.compare(
        "list of 5,000 objects",
        "object",
        lists,
        Side::new("portolan", || list(ours)).of_processes(ours.processes.clone()),
        Side::new(name, || list(other)).of_processes(other.processes.clone()),
    )?;

    let mut watched = [runtime.block_on(Watched::new(ours))?, runtime.block_on(Watched::new(other))?];
    let [by_ours, by_other] = &mut watched;
    bench.compare(
        "watch fan-out to 100 watchers",
        "event at a watcher",
        watches,
        Side::new("portolan", || runtime.block_on(by_ours.show())).of_processes(ours.processes.clone()),
        Side::new(name, || runtime.block_on(by_other.show())).of_processes(other.processes.clone()),
    )
}

/// What fresh servers hold in memory once they keep 20,000 objects.
fn memory_with_objects(bench: &mut Bench, runtime: &Runtime) -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let (mut child, _) = Child::start(Some(data.path()))?;
    let ours = runtime.block_on(resident(vec![child.program().id()], &child.kubeconfig()))?;
    let plane = ControlPlane::start()?;
    let theirs = runtime.block_on(resident(etcd_and_apiserver(&plane), plane.kubeconfig_path()))?;
    let name = format!("resident memory with 20,000 objects ({THEIRS}: {theirs:.0} MiB)");
    bench.count(&name, "MiB", Goal::value(theirs * 0.2), ours)
}

async fn resident(processes: Vec<u32>, kubeconfig: &Path) -> anyhow::Result<f64> {
    let server = Server::new(processes, kubeconfig).await?;
    server.fill("kept", KEPT).await?;
    let held = server.processes.iter().map(|process| memory(*process, "VmRSS"));
    Ok(f64::from(u32::try_from(held.sum::<anyhow::Result<u64>>()? / 1024)?) * 1024.0 / MIB)
}

/// From the start of the process until it has answered, with an empty data folder; the middle one of several.
fn ready(bench: &mut Bench, runtime: &Runtime) -> anyhow::Result<()> {
    let mut times = Vec::new();
    for _ in 0..7 {
        let data = tempfile::tempdir()?;
        let (child, took) = Child::start(Some(data.path()))?;
        let asked = std::time::Instant::now();
        let answer = runtime.block_on(async {
            let ready = Request::get("/readyz").body(Vec::new())?;
            anyhow::Ok(client(&child.kubeconfig()).await?.request_text(ready).await?)
        })?;
        ensure!(answer == "ok", "the server is not ready: {answer}");
        times.push(took + asked.elapsed());
    }
    times.sort();
    bench.count("from nothing to ready", "s", Goal::value(0.2), times[times.len() / 2].as_secs_f64())
}

/// The programs that do what ours does: not the controller manager.
fn etcd_and_apiserver(plane: &ControlPlane) -> Vec<u32> {
    plane.process_ids().into_iter().take(2).collect()
}

/// One side: its processes, a client, and a count that names objects.
struct Server {
    processes: Vec<u32>,
    client: Client,
    made: AtomicU64,
}

impl Server {
    async fn new(processes: Vec<u32>, kubeconfig: &Path) -> anyhow::Result<Self> {
        let server = Self { processes, client: client(kubeconfig).await?, made: AtomicU64::new(0) };
        for name in ["creates", "lists", "watches", "kept"] {
            let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            server.post("/api/v1/namespaces", namespace.to_string().into_bytes()).await?;
        }
        Ok(server)
    }

    /// Creates that many more objects in a namespace, some at a time.
    async fn fill(&self, namespace: &str, count: u64) -> anyhow::Result<()> {
        let path = maps(namespace);
        let creates = (0..count).map(|_| {
            let name = format!("map-{}", self.made.fetch_add(1, Ordering::Relaxed));
            let map = json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": { "name": name, "labels": { "app": "bench", "tier": "store" } },
                "data": { "first": "x".repeat(100), "second": "y".repeat(200) },
            });
            self.post(&path, map.to_string().into_bytes())
        });
        stream::iter(creates).buffer_unordered(AT_ONCE).try_for_each(async |()| Ok(())).await
    }

    async fn post(&self, path: &str, body: Vec<u8>) -> anyhow::Result<()> {
        let request = Request::post(path).header("Content-Type", "application/json").body(body)?;
        self.client.request_text(request).await.with_context(|| format!("posting to {path} failed"))?;
        Ok(())
    }

    /// Lists a namespace and gives how many objects came.
    async fn list(&self, namespace: &str, count: u64) -> anyhow::Result<u64> {
        let list = self.client.request_text(Request::get(maps(namespace)).body(Vec::new())?).await?;
        // counting beats parsing: this process runs on the same machine
        let found = u64::try_from(list.matches("\"name\":\"map-").count())?;
        ensure!(found == count, "{found} of {count} objects came");
        Ok(found)
    }
}

fn maps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

/// A server with many watchers of one namespace.
struct Watched<'a> {
    server: &'a Server,
    seen: Arc<Seen>,
    expected: u64,
}

/// How many events all watchers together have seen.
#[derive(Default)]
struct Seen {
    events: AtomicU64,
    more: Notify,
}

impl<'a> Watched<'a> {
    async fn new(server: &'a Server) -> anyhow::Result<Self> {
        let (seen, tasks) = (Arc::new(Seen::default()), TaskTracker::new());
        for _ in 0..WATCHERS {
            let watch = Request::get(format!("{}?watch=1", maps("watches"))).body(Vec::new())?;
            let mut lines = Box::pin(server.client.request_stream(watch).await?);
            let seen = seen.clone();
            // ends with the server
            tasks.spawn(async move {
                let mut line = Vec::new();
                while lines.read_until(b'\n', &mut line).await.is_ok_and(|length| length > 0) {
                    line.clear();
                    seen.events.fetch_add(1, Ordering::Release);
                    seen.more.notify_one();
                }
            });
        }
        Ok(Self { server, seen, expected: 0 })
    }

    /// Creates some objects and waits until every watcher has seen all of them.
    async fn show(&mut self) -> anyhow::Result<u64> {
        self.server.fill("watches", SHOWN).await?;
        self.expected += SHOWN * WATCHERS;
        let all = async {
            while self.seen.events.load(Ordering::Acquire) < self.expected {
                self.seen.more.notified().await;
            }
        };
        tokio::time::timeout(LIMIT, all).await.context("the watchers did not see every event in time")?;
        Ok(SHOWN * WATCHERS)
    }
}
