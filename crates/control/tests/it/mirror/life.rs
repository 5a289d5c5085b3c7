//! The life of a remote: away and back, with new credentials, under operators that crash.

use anyhow::ensure;
use k8s_openapi::api::core::v1::{Endpoints, Service};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use portolan_control::runtime::app::Process;
use portolan_control::runtime::lease;
use portolan_testkit::{FaultProxy, Faults, Interference, Phase};
use serde_json::json;

use super::harness::{Operator, World};
use crate::egress::harness::options;
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    remote_down_at_start_is_a_condition,
    two_replicas_one_writer,
    mirrors_of_barrelman_are_taken_over_without_a_gap,
    a_service_that_names_no_remote_gets_the_only_one_and_with_two_the_default,
}

async fn one_source(backend: Backend) -> anyhow::Result<World> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    world.source("web", 30080).await?;
    Ok(world)
}

async fn remote_down_at_start_is_a_condition(backend: Backend) -> anyhow::Result<()> {
    let world = one_source(backend).await?;
    world.east(json!({})).await?;
    let view = world.remote_view().await?;
    view.proxy.kill().await;
    // Another remote, with a Service of its own, is not held up.
    let other = World::new(Backend::Embedded).await?;
    other.remote_namespace(&world.namespace).await?;
    let source = json!({ "metadata": { "name": "other" }, "spec": { "type": "NodePort", "ports": [{ "port": 80 }] } });
    let sources = Api::<Service>::namespaced(other.remote.clone(), &world.namespace);
    sources.create(&PostParams::default(), &serde_json::from_value(source)?).await?;
    world.secret("west", "kubeconfig", &std::fs::read_to_string(&other.remote_server.kubeconfig)?).await?;
    world.remote_cluster("west", json!({})).await?;
    let operator = world.operator().await?;
    world.condition("east", "Connected", "False", "Unreachable").await?;
    world.mirror("other").await?;
    view.proxy.revive();
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    operator.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ca_endpoint_and_key_rotate_live() -> anyhow::Result<()> {
    let world = one_source(Backend::Embedded).await?;
    world.east(json!({})).await?;
    let view = world.remote_view().await?;
    let operator = world.operator().await?;
    world.mirror("web").await?;
    world.ready("east").await?;
    // Another authority signs the server's certificate: until the Secret has it, nothing is lost.
    view.front.rotate()?;
    view.proxy.cut_watches();
    view.proxy.interfere(|_| Some(Interference::Drop));
    world.condition("east", "Connected", "False", "TLSFailed").await?;
    view.proxy.interfere(|_| None);
    let renewed = view.front.kubeconfig("another-token").to_string();
    world.secret("east", "kubeconfig", &renewed).await?;
    world.ready("east").await?;
    world.event("CAChanged", "east").await?;
    // Another server of the same cluster.
    let second = world.remote_view().await?;
    world.event("EndpointChanged", "east").await?;
    view.proxy.kill().await;
    world.source("late", 30090).await?;
    world.mirror("late").await?;
    drop(second);
    operator.stop().await
}

async fn two_replicas_one_writer(backend: Backend) -> anyhow::Result<()> {
    let world = one_source(backend).await?;
    world.east(json!({})).await?;
    let mut replicas = Vec::new();
    for number in 0..2 {
        let seen = FaultProxy::start(world.local.clone(), Faults::default()).await?;
        let election = Some(lease::Options::of_operator(world.home.clone(), format!("replica-{number}")));
        let app = portolan_control::runtime::app::Options { election, ..options() };
        let mirror = world.options();
        let process = Process::start(seen.client(), app, |ctx, registry| {
            drop(portolan_control::mirror::start(ctx, registry, mirror));
        })?;
        replicas.push(Operator { process, seen, namespace: world.namespace.clone() });
    }
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    world.caught_up().await?;
    let writes: Vec<usize> = replicas.iter().map(Operator::writes).collect();
    ensure!(writes.iter().filter(|writes| **writes > 0).count() == 1, "both wrote: {writes:?}");
    for replica in replicas {
        replica.stop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_of_a_remote_that_is_away_follow_its_stale_policy() -> anyhow::Result<()> {
    let world = one_source(Backend::Embedded).await?;
    world.east(json!({ "stale": { "policy": "Keep", "after": "3s" } })).await?;
    let view = world.remote_view().await?;
    let operator = world.operator().await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    let uid = world.mirror("web").await?.uid();
    for (policy, endpoints) in
        [("Keep", vec!["10.1.0.1:30080/TCP"]), ("NotReady", vec!["!10.1.0.1:30080/TCP"]), ("Remove", vec![])]
    {
        let patch = Patch::Merge(json!({ "spec": { "stale": { "policy": policy } } }));
        world.remotes().patch("east", &PatchParams::default(), &patch).await?;
        world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
        view.proxy.kill().await;
        world.condition("east", "Connected", "False", "Stale").await?;
        world.endpoints_are("web", &endpoints).await?;
        ensure!(world.mirror("web").await?.uid() == uid, "{policy}: the mirror stays");
        // While it is away a source goes: that is seen when it is back.
        view.proxy.revive();
        world.ready("east").await?;
        world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    }
    operator.stop().await
}

/// One of four changes of the remote, and how it ends here.
async fn change(world: &World, number: u64) -> anyhow::Result<()> {
    let sources = world.sources();
    match number {
        1 | 2 => world.source("web", 30080).await,
        3 => {
            let ports = json!([{ "port": 81, "nodePort": 30080 }]);
            let patch = Patch::Merge(json!({ "spec": { "ports": ports } }));
            sources.patch("web", &PatchParams::default(), &patch).await?;
            Ok(())
        }
        _ => {
            sources.delete("web", &DeleteParams::default()).await?;
            Ok(())
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_every_write_heals_without_a_second_slice() -> anyhow::Result<()> {
    let world = World::new(Backend::Embedded).await?;
    world.node("n1", "10.1.0.1").await?;
    world.east(json!({})).await?;
    for phase in [Phase::BeforeSend, Phase::AfterCommit, Phase::AfterAnswer] {
        // Making a mirror is two writes, the Service and its slice; changing and deleting it one each.
        for write in 1..=4 {
            let operator = world.operator().await?;
            world.caught_up().await?;
            if write == 2 {
                world.sources().delete("web", &DeleteParams::default()).await?;
                world.gone("web").await?;
            }
            let (namespace, nth) = (format!("/namespaces/{}/", world.namespace), if write == 2 { 2 } else { 1 });
            let dead = operator.seen.kill_at(nth, phase, move |one| one.is_write() && one.path.contains(&namespace));
            change(&world, write).await?;
            dead.await?;
            operator.stop().await?;
            let operator = world.operator().await?;
            if write == 4 {
                world.gone("web").await?;
            } else {
                let port = if write == 3 { 81 } else { 80 };
                eventually("the mirror is as its source", async || {
                    let spec = world.mirror("web").await?.spec.unwrap_or_default();
                    Ok(spec.ports.unwrap_or_default().first().is_some_and(|first| first.port == port))
                })
                .await?;
                world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
                ensure!(world.slices("web").await?.len() == 1, "write {write}, {phase:?}");
            }
            operator.stop().await?;
        }
    }
    Ok(())
}

async fn mirrors_of_barrelman_are_taken_over_without_a_gap(backend: Backend) -> anyhow::Result<()> {
    let world = one_source(backend).await?;
    let labels = json!({ "tfw.io/barrelman": "managed-resource" });
    let mirror = json!({
        "metadata": { "name": "web", "labels": labels },
        "spec": { "ports": [{ "port": 80, "targetPort": 30080 }] },
    });
    let before = world.local_service(mirror).await?;
    let endpoints = Api::<Endpoints>::namespaced(world.local.clone(), &world.namespace);
    let old = json!({
        "metadata": { "name": "web", "labels": { "tfw.io/barrelman": "true" } },
        "subsets": [{ "addresses": [{ "ip": "10.1.0.1" }], "ports": [{ "port": 30080 }] }],
    });
    endpoints.create(&PostParams::default(), &serde_json::from_value(old)?).await?;
    world.east(json!({})).await?;
    let operator = world.operator().await?;
    world.caught_up().await?;
    ensure!(world.slices("web").await?.is_empty(), "without adoptBarrelman it is not ours");
    let patch = Patch::Merge(json!({ "spec": { "adoptBarrelman": true } }));
    world.remotes().patch("east", &PatchParams::default(), &patch).await?;
    eventually("the old Endpoints are gone", async || Ok(endpoints.get_opt("web").await?.is_none())).await?;
    ensure!(world.endpoints("web").await? == ["10.1.0.1:30080/TCP"], "before they went, our slices were there");
    let after = world.mirror("web").await?;
    ensure!(after.uid() == before.uid() && after.labels()["mirror.portolan.dev/remote"] == "east");
    world.event("Adopted", "web").await?;
    operator.stop().await
}

async fn a_service_that_names_no_remote_gets_the_only_one_and_with_two_the_default(
    backend: Backend,
) -> anyhow::Result<()> {
    let world = one_source(backend).await?;
    world.east(json!({})).await?;
    let spec = json!({ "ports": [{ "port": 80, "targetPort": 30500 }] });
    let labels = json!({ "tfw.io/barrelman": "true" });
    world.local_service(json!({ "metadata": { "name": "hand", "labels": labels }, "spec": spec })).await?;
    let operator = world.operator().await?;
    world.endpoints_are("hand", &["10.1.0.1:30500/TCP"]).await?;
    let other = World::new(Backend::Embedded).await?;
    other.node("m1", "10.2.0.1").await?;
    world.secret("west", "kubeconfig", &std::fs::read_to_string(&other.remote_server.kubeconfig)?).await?;
    world.remote_cluster("west", json!({})).await?;
    world.event("RemoteAmbiguous", "hand").await?;
    let patch = Patch::Merge(json!({ "spec": { "default": true } }));
    world.remotes().patch("west", &PatchParams::default(), &patch).await?;
    world.endpoints_are("hand", &["10.2.0.1:30500/TCP"]).await?;
    let both = json!({ "metadata": { "annotations": { "mirror.portolan.dev/remotes": "east, west" } } });
    world.services().patch("hand", &PatchParams::default(), &Patch::Merge(both)).await?;
    world.endpoints_are("hand", &["10.1.0.1:30500/TCP", "10.2.0.1:30500/TCP"]).await?;
    operator.stop().await
}
