//! Webhooks: an API server calls them, checks their certificates and obeys their answers.

mod world;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use portolan_control::runtime::webhook::{Config, Schedule};
use portolan_testkit::{ControlPlane, Faults, Phase};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::world::{DENIAL, FAST, Replica, SECRET, World, handshake, map, service};
use crate::harness::{Backend, Server, eventually, on_both_servers};

on_both_servers! {
    a_webhook_that_denies_defaults_and_rotates_while_requests_run_fails_no_request,
    a_webhook_that_is_down_stops_nothing_else,
    a_bundle_that_someone_removes_comes_back_and_a_converged_webhook_writes_nothing,
    a_secret_that_is_not_ours_is_left_alone,
    a_keeper_killed_at_any_write_heals_when_started_anew,
}

/// Two replicas share the authority, one validates and one defaults; both lose writes to conflicts.
async fn a_webhook_that_denies_defaults_and_rotates_while_requests_run_fails_no_request(
    backend: Backend,
) -> anyhow::Result<()> {
    // Serving certificates live a few seconds, so they are renewed between the authority's rotations too.
    let settle = Duration::from_secs(3);
    let schedule = Schedule { serving: Duration::from_secs(12), settle, retire: settle, ..FAST };
    let world = World::new(backend, "hooks").await?;
    let mut replicas = Vec::new();
    for seed in [1, 2] {
        let faults = Faults { seed, conflict: 0.3, ..Faults::default() };
        replicas.push(Replica::start(&world, faults, Config { schedule, ..world.config() }).await?);
    }
    let [validates, defaults] = &replicas[..] else { bail!("two replicas") };
    world.install("Fail", validates.address(), defaults.address()).await?;
    world.in_force().await?;

    let stop = Arc::new(AtomicBool::new(false));
    let requests = Arc::new(AtomicUsize::new(0));
    let mut callers = JoinSet::new();
    for writer in 0..3 {
        let (stop, requests, maps) = (stop.clone(), requests.clone(), world.maps());
        callers.spawn(async move {
            let mut round = 0;
            while !stop.load(Ordering::Relaxed) {
                let name = format!("w{writer}-{round}");
                requests.fetch_add(write_round(&maps, &name).await.with_context(|| name)?, Ordering::Relaxed);
                round += 1;
            }
            anyhow::Ok(())
        });
    }

    let handshakes = Arc::new(AtomicUsize::new(0));
    for address in [validates.address(), defaults.address()] {
        let (stop, handshakes, world) = (stop.clone(), handshakes.clone(), world.clone());
        callers.spawn(async move {
            let mut seen = VecDeque::new();
            while !stop.load(Ordering::Relaxed) {
                seen.push_back((Instant::now(), world.bundle().await?));
                // An API server that is late still trusts what was published this long ago.
                while seen.len() > 1 && seen[0].0.elapsed() > settle / 2 {
                    seen.pop_front();
                }
                for (at, bundle) in [&seen[0], &seen[seen.len() - 1]] {
                    let since = at.elapsed();
                    handshake(address, bundle).await.with_context(|| format!("a bundle of {since:?} ago"))?;
                    handshakes.fetch_add(1, Ordering::Relaxed);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            anyhow::Ok(())
        });
    }

    let mut authorities = BTreeSet::from([validates.status().authority]);
    for replica in [validates, defaults, validates] {
        let before = replica.status().authority;
        replica.handle.rotate_now();
        for each in &replicas {
            each.settled("the rotation is over", |status| status.authority != before).await?;
        }
        authorities.insert(replica.status().authority);
    }
    // Deleting the Secret is asking for a rotation, too.
    let before = validates.status().authority;
    world.secrets().delete(SECRET, &DeleteParams::default()).await?;
    for each in &replicas {
        each.settled("the Secret's loss is repaired", |status| status.authority != before).await?;
    }
    authorities.insert(validates.status().authority);

    stop.store(true, Ordering::Relaxed);
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    assert_eq!(authorities.len(), 5, "{authorities:?}");
    assert_eq!(validates.status().authority, defaults.status().authority);
    let requests = requests.load(Ordering::Relaxed);
    assert!(requests >= 200, "only {requests} requests ran meanwhile");
    let handshakes = handshakes.load(Ordering::Relaxed);
    assert!(handshakes >= 200, "only {handshakes} handshakes were made meanwhile");
    for replica in replicas {
        replica.stop().await?;
    }
    world.remove().await
}

async fn a_webhook_that_is_down_stops_nothing_else(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, "down").await?;
    let replica = Replica::start(&world, Faults::default(), world.config_at_reserved_address()).await?;
    let address = replica.address();
    world.install("Ignore", address, address).await?;
    world.in_force().await?;
    ensure!(world.services().create(&PostParams::default(), &service("one")).await.is_ok(), "a service is admitted");
    let versions = world.versions().await?;
    replica.stop().await?;

    // What is marked Ignore is admitted unchecked, what is marked Fail waits for us, the rest notices nothing.
    let admitted = world.maps().create(&PostParams::default(), &map("two", Some("none"))).await?;
    assert_eq!(admitted.data.unwrap_or_default().get("size").map(String::as_str), Some("none"));
    let refused = world.services().create(&PostParams::default(), &service("two")).await;
    let refused = refused.expect_err("what is marked Fail is refused");
    assert!(refused.to_string().contains("failed calling webhook"), "{refused}");
    world.services().delete("one", &DeleteParams::default()).await?;
    let secret = Secret { metadata: map("two", None).metadata, ..Secret::default() };
    world.secrets().create(&PostParams::default(), &secret).await?;
    let elsewhere = world.server.namespace("elsewhere").await?;
    let elsewhere: Api<Service> = Api::namespaced(world.client.clone(), &elsewhere);
    elsewhere.create(&PostParams::default(), &service("two")).await?;

    // Started anew it finds its authority in the Secret: nothing needs to be published again.
    let replica = Replica::start(&world, Faults::default(), world.config_at_reserved_address()).await?;
    replica.settled("the webhook is back", |_| true).await?;
    world.in_force().await?;
    assert_eq!(world.versions().await?, versions);
    assert!(replica.proxy.writes().is_empty(), "{:?}", replica.proxy.writes());
    replica.stop().await?;
    world.remove().await
}

/// Ours shows no certificate when it calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_servers_client_certificate_is_checked_when_configured() -> anyhow::Result<()> {
    let plane = ControlPlane::shared();
    let world = World::new(Backend::Real, "client").await?;
    let config =
        Config { client_ca: Some(plane.webhook_client_ca_pem().to_owned()), ..world.config_at_reserved_address() };
    let replica = Replica::start(&world, Faults::default(), config).await?;
    let address = replica.address();
    world.install("Fail", address, address).await?;
    world.in_force().await?;
    replica.stop().await?;

    // An authority that signs other clients, but not the one that calls webhooks.
    let config = Config { client_ca: Some(plane.ca_pem().to_owned()), ..world.config_at_reserved_address() };
    let replica = Replica::start(&world, Faults::default(), config).await?;
    replica.settled("another authority is asked for", |_| true).await?;
    let refused = world.maps().create(&PostParams::default(), &map("one", Some("1"))).await.unwrap_err();
    assert!(refused.to_string().contains("failed calling webhook"), "{refused}");
    let none = "portolan_webhook_handshake_failures_total 0";
    eventually("the failed handshake is counted", async || Ok(!replica.metrics().contains(none))).await?;
    replica.stop().await?;
    world.remove().await
}

async fn a_bundle_that_someone_removes_comes_back_and_a_converged_webhook_writes_nothing(
    backend: Backend,
) -> anyhow::Result<()> {
    let world = World::new(backend, "steady-hooks").await?;
    let replica = Replica::start(&world, Faults::default(), world.config()).await?;
    assert_eq!(replica.readiness.waiting(), ["webhook certificates"]);
    world.install("Fail", replica.address(), replica.address()).await?;
    replica.settled("all is published", |_| true).await?;
    let expected = ["a Secret", "two bundles"];
    assert_eq!(replica.proxy.writes().len(), expected.len() + 1, "{expected:?}");

    let looks = replica.proxy.trace().len();
    eventually("ten more looks", async || Ok(replica.proxy.trace().len() >= looks + 30)).await?;
    assert_eq!(replica.proxy.writes().len(), 3, "a look at a converged world wrote");

    let empty = json!({"webhooks": [{"name": "maps.portolan.dev", "clientConfig": {"caBundle": ""}}]});
    let configurations = Api::<MutatingWebhookConfiguration>::all(world.client.clone());
    configurations.patch(&world.namespace, &PatchParams::default(), &Patch::Strategic(empty)).await?;
    eventually("the bundle is back", async || Ok(replica.proxy.writes().len() == 4)).await?;
    replica.settled("all is as before", |_| true).await?;
    world.in_force().await?;
    replica.stop().await?;
    world.remove().await
}

async fn a_secret_that_is_not_ours_is_left_alone(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, "foreign").await?;
    let secret = Secret {
        metadata: map(SECRET, None).metadata,
        string_data: Some(BTreeMap::from([("password".to_owned(), "hunter2".to_owned())])),
        ..Secret::default()
    };
    world.secrets().create(&PostParams::default(), &secret).await?;
    let replica = Replica::start(&world, Faults::default(), world.config()).await?;
    let reads = || replica.proxy.trace().iter().filter(|exchange| exchange.resource() == Some("secrets")).count();
    eventually("it was looked at three times", async || Ok(reads() >= 3)).await?;
    assert!(replica.proxy.writes().is_empty(), "{:?}", replica.proxy.writes());
    assert!(!replica.readiness.is_ready());

    world.secrets().delete(SECRET, &DeleteParams::default()).await?;
    world.install("Fail", replica.address(), replica.address()).await?;
    replica.settled("it uses the name once it is free", |_| true).await?;
    replica.stop().await?;
    world.remove().await
}

/// A first start and a rotation make eleven writes; each of them may be the last of a process.
async fn a_keeper_killed_at_any_write_heals_when_started_anew(backend: Backend) -> anyhow::Result<()> {
    let server = Arc::new(Server::start(backend).await?);
    let mut runs = Vec::new();
    for write in 1..=11 {
        for phase in [Phase::BeforeSend, Phase::AfterCommit, Phase::AfterAnswer] {
            let run = killed_at(server.clone(), write, phase);
            runs.push(async move { run.await.with_context(|| format!("killed at write {write}, {phase:?}")) });
        }
    }
    futures::future::try_join_all(runs).await?;
    Ok(())
}

async fn killed_at(server: Arc<Server>, write: u64, phase: Phase) -> anyhow::Result<()> {
    let world = World::on(server, "killed").await?;
    let replica = Replica::start(&world, Faults::default(), world.config_at_reserved_address()).await?;
    let address = replica.address();
    let killed = replica.proxy.kill_at_write(write, phase);
    world.install("Fail", address, address).await?;
    let is_killed = || !replica.proxy.is_alive();
    eventually("a first authority or the kill", async || Ok(replica.readiness.is_ready() || is_killed())).await?;
    // on a busy machine a rotation may find less to write: the next one makes up for it
    let rotations = async {
        loop {
            replica.handle.rotate_now();
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    };
    tokio::select! {
        () = rotations => {}
        killed = eventually("the kill", async || Ok(is_killed())) => killed?,
    }
    killed.await?;
    replica.stop().await?;

    let replica = Replica::start(&world, Faults::default(), world.config_at_reserved_address()).await?;
    replica.settled("the successor is ready", |_| true).await?;
    world.in_force().await?;
    replica.stop().await?;
    world.remove().await
}

/// Writes an object in every way there is; returns how many requests went as they should, all or an error.
async fn write_round(maps: &Api<ConfigMap>, name: &str) -> anyhow::Result<usize> {
    let size = |map: ConfigMap| map.data.and_then(|data| data.get("size").cloned());
    let created = maps.create(&PostParams::default(), &map(name, None)).await.context("creating")?;
    ensure!(size(created).as_deref() == Some("1"), "it was not defaulted");

    let params = PatchParams::default();
    let change = |size: Value| Patch::Merge(json!({"data": {"size": size}}));
    let changed = maps.patch(name, &params, &change(json!("5"))).await.context("changing")?;
    ensure!(size(changed).as_deref() == Some("5"), "it was not changed");
    let emptied = maps.patch(name, &params, &change(Value::Null)).await.context("emptying")?;
    ensure!(size(emptied).as_deref() == Some("1"), "it was not defaulted again");

    for denied in [
        maps.patch(name, &params, &change(json!("none"))).await,
        maps.create(&PostParams::default(), &map(&format!("{name}-denied"), Some("none"))).await,
    ] {
        match denied {
            Err(kube::Error::Api(status)) if status.code == 422 && status.message.contains(DENIAL) => {}
            other => bail!("expected a denial, got {other:?}"),
        }
    }
    maps.delete(name, &DeleteParams::default()).await.context("deleting")?;
    Ok(6)
}
