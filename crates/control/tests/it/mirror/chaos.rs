//! Seeded runs: both sides lose, refuse and cut as the dice say, while users and remotes change things.
//!
//! `PORTOLAN_MIRROR_SEEDS=N` sets how many seeds are run (2), `PORTOLAN_SEED=N` which one is the first.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use fastrand::Rng;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use portolan_testkit::Faults;
use serde_json::json;

use super::harness::{Operator, RemoteView, World, is_mirror, status};
use crate::harness::{Backend, eventually};

const STEPS: usize = 40;
const NAMES: u16 = 5;
const NODES: u8 = 3;

fn faults(seed: u64) -> Faults {
    Faults {
        seed,
        delay: Some((0.1, Duration::from_millis(50))),
        drop_before: 0.04,
        drop_after: 0.04,
        cut_answer: 0.02,
        conflict: 0.06,
        gone: 0.06,
        throttle: 0.02,
        server_error: 0.04,
        cut_watch: 0.05,
    }
}

/// A run, and what must never happen in it.
struct Run {
    world: World,
    view: RemoteView,
    operator: Operator,
    rng: Rng,
    seed: u64,
    /// Writes of operators that ended.
    written: Vec<portolan_testkit::Exchange>,
    /// Names that the remote lacked at some time: only their mirrors may be deleted.
    missed: BTreeSet<String>,
}

impl Run {
    async fn start(seed: u64) -> anyhow::Result<Self> {
        let world = World::new(Backend::Embedded).await?;
        world.node("n1", "10.1.0.1").await?;
        let budget = json!({ "maxPercent": 100, "floor": 1_000 });
        world.east(json!({ "deletionBudget": budget })).await?;
        let view = world.remote_view().await?;
        let operator = world.operator().await?;
        let (rng, missed) = (Rng::with_seed(seed), BTreeSet::new());
        let run = Self { world, view, operator, rng, seed, written: Vec::new(), missed };
        run.upset();
        Ok(run)
    }

    fn upset(&self) {
        self.operator.seen.set_faults(faults(self.seed));
        self.view.proxy.set_faults(faults(!self.seed));
    }

    /// One thing that somebody does. What is not there cannot be changed, and that is fine.
    async fn step(&mut self) -> anyhow::Result<()> {
        let (params, number) = (PatchParams::default(), self.rng.u16(..NAMES));
        let (name, sources, services) = (name(number), self.world.sources(), self.world.services());
        let node = format!("n{}", self.rng.u8(1..=NODES));
        match self.rng.u8(..12) {
            0..=2 => drop(self.world.source(&name, 30_080 + number).await),
            3 | 4 => {
                let port = json!({ "port": self.rng.u16(80..90), "nodePort": 30_080 + number });
                sources.patch(&name, &params, &Patch::Merge(json!({ "spec": { "ports": [port] } }))).await.ok();
            }
            5 => {
                self.missed.insert(name.clone());
                sources.delete(&name, &DeleteParams::default()).await.ok();
            }
            6 => {
                let address = format!("10.1.0.{}", &node[1..]);
                let status = status(self.rng.bool(), &[&address]);
                self.world.node_with(&node, json!({}), status).await?;
            }
            7 => drop(Api::<Node>::all(self.world.remote.clone()).delete(&node, &DeleteParams::default()).await),
            8 => drop(services.delete(&name, &DeleteParams::default()).await),
            9 => {
                let edit = json!({ "spec": { "ports": [{ "port": 99, "targetPort": 1 }] } });
                services.patch(&name, &params, &Patch::Merge(edit)).await.ok();
            }
            10 => {
                let slices = Api::<EndpointSlice>::namespaced(self.world.local.clone(), &self.world.namespace);
                for slice in self.world.slices(&name).await? {
                    slices.delete(&slice.name_any(), &DeleteParams::default()).await.ok();
                }
            }
            _ => {
                self.operator.seen.kill().await;
                self.written.extend(self.operator.seen.writes());
                let next = self.world.operator().await?;
                std::mem::replace(&mut self.operator, next).stop().await?;
                self.upset();
            }
        }
        Ok(())
    }

    /// Whether every source is mirrored as it is now, and nothing else.
    async fn is_settled(&self) -> anyhow::Result<bool> {
        let nodes = Api::<Node>::all(self.world.remote.clone()).list(&ListParams::default()).await?;
        let is_ready = |node: &&Node| {
            let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
        };
        let ready: Vec<String> = nodes.iter().filter(is_ready).map(ResourceExt::name_any).collect();
        let ports = |service: &Service| -> Vec<i32> {
            let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
            ports.map(|port| port.port).collect()
        };
        let sources = self.world.sources().list(&ListParams::default()).await?;
        let wanted: BTreeMap<String, Vec<i32>> =
            sources.iter().map(|source| (source.name_any(), ports(source))).collect();
        let services = self.world.services().list(&ListParams::default()).await?;
        let mirrors = services.iter().filter(|service| is_mirror(service));
        if mirrors.map(|mirror| (mirror.name_any(), ports(mirror))).collect::<BTreeMap<_, _>>() != wanted {
            return Ok(false);
        }
        for source in &sources {
            let port = source.spec.iter().flat_map(|spec| spec.ports.iter().flatten()).next();
            let port = port.and_then(|port| port.node_port).context("a nodePort")?;
            let mut wanted: Vec<String> =
                ready.iter().map(|node| format!("10.1.0.{}:{port}/TCP", &node[1..])).collect();
            wanted.sort();
            let slices = self.world.slices(&source.name_any()).await?;
            if slices.len() != 1 || self.world.endpoints(&source.name_any()).await? != wanted {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn name(number: u16) -> String {
    format!("s{number}")
}

async fn run(seed: u64) -> anyhow::Result<()> {
    let mut run = Run::start(seed).await?;
    // A user's Service, and a source of the same name: it is nobody else's business.
    let own = json!({ "metadata": { "name": "own" }, "spec": { "ports": [{ "port": 7 }] } });
    let own = run.world.local_service(own).await?;
    run.world.source("own", 30_200).await?;
    for _ in 0..STEPS {
        run.step().await?;
        tokio::time::sleep(Duration::from_millis(run.rng.u64(..60))).await;
    }
    run.operator.seen.set_faults(Faults::default());
    run.view.proxy.set_faults(Faults::default());
    run.world.sources().delete("own", &DeleteParams::default()).await?;
    eventually("the mirrors are as their sources", async || run.is_settled().await).await?;
    let now = run.world.services().get("own").await?;
    ensure!((now.uid(), now.spec) == (own.uid(), own.spec), "a Service that is not ours was touched");
    eventually("nothing is left to write", async || {
        let seen = run.operator.seen.writes_but_leases().len();
        run.world.caught_up().await?;
        let more = run.operator.seen.writes_but_leases().split_off(seen);
        let more = more.iter().filter(|one| one.path.contains(&run.world.namespace) && !one.path.contains("/events"));
        // To catch up, a marker was made, with a slice, and deleted.
        let (made, others): (Vec<_>, Vec<_>) = more.partition(|one| one.method == "POST");
        Ok(made.len() <= 2 && others.iter().all(|one| one.path.contains("/marker-")))
    })
    .await?;
    run.written.extend(run.operator.seen.writes());
    let prefix = format!("/namespaces/{}/services/", run.world.namespace);
    for write in run.written.iter().filter(|write| write.method == "DELETE") {
        let Some((_, name)) = write.path.split_once(&prefix) else { continue };
        ensure!(run.missed.contains(name) || name.starts_with("marker"), "{name} was deleted, and has a source");
    }
    run.operator.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_lost_mirrors_end_as_their_sources() -> anyhow::Result<()> {
    let number = |name| -> Option<u64> { std::env::var_os(name)?.to_str()?.parse().ok() };
    let (first, seeds) = (number("PORTOLAN_SEED").unwrap_or(1), number("PORTOLAN_MIRROR_SEEDS").unwrap_or(2));
    for seed in first..first + seeds {
        Box::pin(run(seed)).await.with_context(|| format!("PORTOLAN_SEED={seed}"))?;
    }
    Ok(())
}
