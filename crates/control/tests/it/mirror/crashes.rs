//! Between two real control planes: an operator that crashes at any of its writes is healed by the next one.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use portolan_testkit::{Exchange, Phase};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::harness::{Operator, World};
use super::pair::only;
use crate::harness::eventually;

/// One life of a mirror and of a hand-labelled Service, under an operator that dies once.
struct Life<'a> {
    world: &'a World,
    operator: Operator,
    dead: Option<oneshot::Receiver<()>>,
}

impl Life<'_> {
    /// Waits for a state; an operator that has died is replaced.
    async fn until(
        &mut self,
        what: &str,
        mut reached: impl AsyncFnMut() -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        eventually(what, async || {
            if self.dead.as_mut().is_some_and(|dead| dead.try_recv().is_ok()) {
                self.dead = None;
                let next = self.world.operator().await?;
                std::mem::replace(&mut self.operator, next).stop().await?;
            }
            reached().await
        })
        .await
    }

    /// Waits until a Service has these ports, and exactly one slice with the endpoints that they need.
    async fn served(&mut self, service: &str, ports: &[i32], targets: &[i32]) -> anyhow::Result<()> {
        let world = self.world;
        let mut wanted: Vec<String> = targets.iter().map(|port| format!("10.1.0.1:{port}/TCP")).collect();
        wanted.sort();
        let what = format!("{service} has the ports {ports:?} and the endpoints {wanted:?}");
        self.until(&what, async || {
            let Some(found) = world.services().get_opt(service).await? else { return Ok(false) };
            let found = found.spec.and_then(|spec| spec.ports).unwrap_or_default();
            let is_right = found.iter().map(|port| port.port).eq(ports.iter().copied())
                && world.endpoints(service).await? == wanted;
            ensure!(world.slices(service).await?.len() <= 1, "{service} has two slices");
            Ok(is_right)
        })
        .await
    }
}

/// Writes about this test's Services, and those that make namespaces. When others come is a matter of time.
fn counts(namespace: &str) -> impl Fn(&Exchange) -> bool + Send + use<> {
    let namespace = format!("/namespaces/{namespace}");
    move |one| {
        let is_ours = one.path.contains(&namespace) || one.path == "/api/v1/namespaces";
        one.is_write() && is_ours && !one.path.contains("/events")
    }
}

fn node_ports(service: Service) -> Vec<i32> {
    let ports = service.spec.and_then(|spec| spec.ports).unwrap_or_default();
    ports.into_iter().filter_map(|port| port.node_port).collect()
}

/// Lets an operator die at its n-th write; false if it makes fewer.
async fn lives_through(world: &World, nth: u64, phase: Phase) -> anyhow::Result<bool> {
    world.remote_namespace(&world.namespace).await?;
    let operator = world.operator().await?;
    let dead = operator.seen.kill_at(nth, phase, counts(&world.namespace));
    let mut life = Life { world, operator, dead: Some(dead) };
    // Its namespace is missing here: that, the Service and a slice are made.
    let one_port = json!({ "type": "NodePort", "ports": [{ "name": "a", "port": 80 }] });
    world.source_with("web", one_port).await?;
    let first = node_ports(world.sources().get("web").await?);
    life.served("web", &[80], &first).await?;
    // The Service and its slice are changed.
    let ports = json!([{ "name": "a", "port": 81, "nodePort": first[0] }, { "name": "b", "port": 90 }]);
    let edit = Patch::Merge(json!({ "spec": { "ports": ports } }));
    let both = node_ports(world.sources().patch("web", &PatchParams::default(), &edit).await?);
    life.served("web", &[81, 90], &both).await?;
    // A user's Service gets a slice and a condition.
    let labels = json!({ "tfw.io/barrelman": "true" });
    let spec = json!({ "ports": [{ "port": 80, "targetPort": 31_000 }] });
    world.local_service(json!({ "metadata": { "name": "hand", "labels": labels }, "spec": spec })).await?;
    life.served("hand", &[80], &[31_000]).await?;
    life.until("the Service has its condition", async || {
        let conditions = world.services().get("hand").await?.status.and_then(|status| status.conditions);
        Ok(conditions.is_some_and(|conditions| conditions.iter().any(|one| one.status == "True")))
    })
    .await?;
    // Both go.
    let unlabelled: Value = json!({ "metadata": { "labels": { "tfw.io/barrelman": null } } });
    world.services().patch("hand", &PatchParams::default(), &Patch::Merge(unlabelled)).await?;
    life.until("the user's Service has no slice", async || Ok(world.slices("hand").await?.is_empty())).await?;
    world.sources().delete("web", &DeleteParams::default()).await?;
    life.until("the mirror is gone", async || Ok(world.services().get_opt("web").await?.is_none())).await?;
    ensure!(world.services().get("hand").await?.uid().is_some(), "the user's Service stays");
    let is_counted = counts(&world.namespace);
    let made = life.operator.seen.trace().iter().filter(|one| is_counted(one)).count();
    let died = life.dead.is_none() || made >= usize::try_from(nth)?;
    life.operator.stop().await?;
    Ok(died)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_every_write_heals_between_real_control_planes() -> anyhow::Result<()> {
    let mut world = World::pair().await?;
    world.node("n1", "10.1.0.1").await?;
    world.east(only(&world)).await?;
    let base = world.namespace.clone();
    for phase in [Phase::BeforeSend, Phase::AfterCommit, Phase::AfterAnswer] {
        let mut writes = 0;
        for nth in 1.. {
            world.namespace = format!("{base}-{}{nth}", format!("{phase:?}").to_lowercase());
            let died = lives_through(&world, nth, phase).await;
            if !died.with_context(|| format!("crash at write {nth}, {phase:?}"))? {
                break;
            }
            writes = nth;
        }
        ensure!(writes >= 9, "{phase:?}: the operator died at {writes} writes only");
    }
    Ok(())
}
