//! What changes between a decision and its write, and remotes of which one half is known.

use std::time::Duration;

use anyhow::ensure;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use portolan_control::mirror::Options;
use portolan_testkit::Interference;
use serde_json::json;

use super::harness::{World, stays};
use crate::harness::{Backend, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mirror_that_a_user_takes_before_it_is_written_is_not_written() -> anyhow::Result<()> {
    let world = World::new(Backend::Embedded).await?;
    world.node("n1", "10.1.0.1").await?;
    world.source("first", 30080).await?;
    world.source("second", 30081).await?;
    world.east(json!({})).await?;
    let view = world.remote_view().await?;
    // One write at a time: while that of the first is under way, the second is decided about and not yet written.
    let operator = world.operator_with(Options { service_writes: 1, ..world.options() }).await?;
    world.endpoints_are("first", &["10.1.0.1:30080/TCP"]).await?;
    world.endpoints_are("second", &["10.1.0.1:30081/TCP"]).await?;
    let slow = |name: &str| name.ends_with("/services/first");
    operator.seen.interfere(move |one| {
        (one.is_write() && slow(&one.path)).then_some(Interference::Delay(Duration::from_millis(450)))
    });
    view.proxy.hold_watch_events(Some("services"));
    for (name, node_port) in [("first", 30080), ("second", 30081)] {
        let edit = json!({ "spec": { "ports": [{ "port": 81, "nodePort": node_port }] } });
        world.sources().patch(name, &PatchParams::default(), &Patch::Merge(edit)).await?;
    }
    view.proxy.hold_watch_events(None);
    eventually("the first is being written", async || {
        Ok(operator.seen.writes().iter().any(|one| one.method == "PATCH" && slow(&one.path)))
    })
    .await?;
    let taken = json!({ "metadata": { "labels": { "tfw.io/barrelman": null } } });
    let taken = world.services().patch("second", &PatchParams::default(), &Patch::Merge(taken)).await?;
    eventually("our slices are gone from the second", async || Ok(world.slices("second").await?.is_empty())).await?;
    world.caught_up().await?;
    let now = world.services().get("second").await?;
    ensure!(!now.labels().contains_key("tfw.io/barrelman"), "the Service is the user's");
    ensure!(now.spec == taken.spec, "and nobody wrote to it");
    operator.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_whose_nodes_are_not_listed_yet_empties_nothing() -> anyhow::Result<()> {
    let world = World::new(Backend::Embedded).await?;
    world.node("n1", "10.1.0.1").await?;
    world.source("web", 30080).await?;
    world.east(json!({})).await?;
    let view = world.remote_view().await?;
    let operator = world.operator().await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    operator.stop().await?;
    // Looks at the connection list one node; that goes through, so all but the list of nodes is known.
    view.proxy.interfere(|one| {
        (one.path.ends_with("/nodes") && one.parameter("limit") != Some("1")).then_some(Interference::Drop)
    });
    let before = view.proxy.trace().len();
    let operator = world.operator().await?;
    eventually("the Services are watched, and the cluster is known", async || {
        let trace = view.proxy.trace().split_off(before);
        let answered = |one: &&portolan_testkit::Exchange| one.answered == Some(200);
        let watched = |one: &portolan_testkit::Exchange| one.is_watch() && one.path.ends_with("/services");
        Ok(trace.iter().filter(answered).any(watched)
            && trace.iter().filter(answered).any(|one| one.path.ends_with("/namespaces/kube-system"))
            && trace.iter().any(|one| one.path.ends_with("/nodes") && one.fault.is_some()))
    })
    .await?;
    stays("nothing is written without the nodes", async || Ok(operator.writes() == 0)).await?;
    ensure!(world.endpoints("web").await? == ["10.1.0.1:30080/TCP"]);
    view.proxy.interfere(|_| None);
    world.node("n2", "10.1.0.2").await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP", "10.1.0.2:30080/TCP"]).await?;
    operator.stop().await
}
