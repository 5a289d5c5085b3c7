//! Two real control planes: many Services on many nodes, and a remote that restarts, forgets, refuses or freezes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Node, Secret, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use portolan_control::mirror;
use portolan_testkit::WatchStep;
use serde_json::{Value, json};
use tokio::task::{JoinSet, block_in_place};

use super::harness::{Operator, World, remote_plane, status};
use crate::harness::eventually;

const SERVICES: usize = 1_000;
const NODES: usize = 100;

/// Only the Services of this test: the remote is shared.
pub(super) fn only(world: &World) -> Value {
    json!({ "namespaces": { "allow": [format!("{}*", world.namespace)] } })
}

async fn one_source() -> anyhow::Result<World> {
    let world = World::pair().await?;
    world.node("n1", "10.1.0.1").await?;
    world.source("web", 30080).await?;
    Ok(world)
}

/// Writes that went through, by method and resource.
fn tally(operator: &Operator) -> BTreeMap<String, usize> {
    let mut tally = BTreeMap::new();
    let namespace = format!("/namespaces/{}/", operator.namespace);
    for write in operator.seen.writes_but_leases() {
        if write.path.contains(&namespace) && !write.path.contains("/events") {
            let what = format!("{} {} {:?}", write.method, write.resource().unwrap_or_default(), write.upstream);
            *tally.entry(what).or_default() += 1;
        }
    }
    tally
}

fn made(writes: &[(&str, usize)]) -> BTreeMap<String, usize> {
    writes.iter().map(|(what, count)| ((*what).to_owned(), *count)).collect()
}

async fn tally_is(operator: &Operator, writes: &[(&str, usize)]) -> anyhow::Result<()> {
    let waited = eventually("all is written", async || Ok(tally(operator) == made(writes))).await;
    waited.with_context(|| format!("wanted {writes:?}, was {:?}", tally(operator)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_services_on_a_hundred_nodes_cost_exactly_the_writes_they_need() -> anyhow::Result<()> {
    let world = World::pair().await?;
    let nodes = (0..NODES).map(async |number| world.node(&format!("n{number}"), &format!("10.1.0.{number}")).await);
    stream::iter(nodes).buffer_unordered(16).try_collect::<()>().await?;
    let ports = json!([{ "port": 80 }]);
    let sources = (0..SERVICES).map(async |number| {
        world.source_with(&format!("s{number}"), json!({ "type": "NodePort", "ports": ports })).await
    });
    stream::iter(sources).buffer_unordered(16).try_collect::<()>().await?;
    world.east(only(&world)).await?;
    let options = mirror::Options { write_qps: 100_000, service_writes: 16, slice_writes: 16, ..world.options() };
    let operator = world.operator_with(options.clone()).await?;
    let (services, slices) = (("POST services Some(201)", SERVICES), ("POST endpointslices Some(201)", SERVICES));
    tally_is(&operator, &[services, slices]).await?;
    world.ready("east").await?;
    let status_of_east = world.remote_status("east").await?;
    let (mirrored, nodes) = (status_of_east.services.unwrap_or_default(), status_of_east.nodes.unwrap_or_default());
    // Other tests may have left Services of their own in the shared cluster.
    let unmet = status_of_east.unmet.iter().filter(|unmet| unmet.namespace == world.namespace).count();
    assert_eq!((mirrored.mirrored, unmet, nodes.usable), (1_000, 0, 100));
    let written = Api::<EndpointSlice>::namespaced(world.local.clone(), &world.namespace);
    let written_slices = written.list(&ListParams::default()).await?.items;
    ensure!(written_slices.iter().all(|slice| slice.endpoints.as_ref().map(Vec::len) == Some(NODES)));

    // One node goes: each Service has one slice with it.
    world.node_with("n7", json!({}), status(false, &["10.1.0.7"])).await?;
    let replaced = ("PUT endpointslices Some(200)", SERVICES);
    tally_is(&operator, &[services, slices, replaced]).await?;
    operator.stop().await?;

    // Started again and resynced, it looks at everything and writes nothing.
    let options = mirror::Options { resync_period: Duration::from_secs(1), ..options };
    let operator = world.operator_with(options).await?;
    eventually("every Service was looked at three times", async || {
        Ok(operator.metric("barrelman_service_update_total", &["None"]).await? >= 3_000.0)
    })
    .await?;
    assert_eq!(tally(&operator), made(&[]));
    operator.stop().await?;
    world.remotes().delete("east", &DeleteParams::default()).await?;
    let (all, params) = (ListParams::default(), DeleteParams::default());
    world.sources().delete_collection(&params, &all).await?;
    world.services().delete_collection(&params, &all).await?;
    written.delete_collection(&params, &all).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_that_restarts_is_followed_on() -> anyhow::Result<()> {
    let world = one_source().await?;
    world.east(only(&world)).await?;
    let operator = world.operator().await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    world.ready("east").await?;
    let writes = operator.writes();
    block_in_place(|| remote_plane().kill_api_server());
    world.condition("east", "Connected", "False", "Unreachable").await?;
    block_in_place(|| remote_plane().start_api_server())?;
    world.ready("east").await?;
    assert_eq!(operator.writes(), writes, "nothing changed, so nothing is written");
    world.source("late", 30090).await?;
    world.endpoints_are("late", &["10.1.0.1:30090/TCP"]).await?;
    operator.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happened_beyond_the_remotes_memory_is_found_by_a_list() -> anyhow::Result<()> {
    let world = one_source().await?;
    world.source("edited", 30081).await?;
    world.east(only(&world)).await?;
    let view = world.remote_view().await?;
    let operator = world.operator().await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    world.endpoints_are("edited", &["10.1.0.1:30081/TCP"]).await?;
    view.proxy.kill().await;
    world.sources().delete("web", &DeleteParams::default()).await?;
    let ports = json!([{ "port": 80, "nodePort": 30082 }]);
    let edit = Patch::Merge(json!({ "spec": { "ports": ports } }));
    world.sources().patch("edited", &PatchParams::default(), &edit).await?;
    world.source("new", 30083).await?;
    world.node("n2", "10.1.0.2").await?;
    Api::<Node>::all(world.remote.clone()).delete("n1", &DeleteParams::default()).await?;
    // etcd has no history left, and a new API server has none either: watches cannot be resumed.
    block_in_place(|| {
        let mut plane = remote_plane();
        plane.compact()?;
        plane.kill_api_server();
        plane.start_api_server()
    })?;
    let passed = view.proxy.trace().len();
    view.proxy.revive();
    world.gone("web").await?;
    world.endpoints_are("edited", &["10.1.0.2:30082/TCP"]).await?;
    world.endpoints_are("new", &["10.1.0.2:30083/TCP"]).await?;
    let lists = view.proxy.trace().split_off(passed);
    let lists = lists.iter().filter(|one| one.is_list() && one.parameter("limit") != Some("1"));
    ensure!(lists.filter(|one| one.path.ends_with("/services")).count() >= 1, "a watch was resumed nevertheless");
    operator.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_lost_before_a_watch_expires_are_made_up_for() -> anyhow::Result<()> {
    use WatchStep::{Cut, ExpireInStream, ExpireOnOpen, Lose};
    let world = one_source().await?;
    world.east(only(&world)).await?;
    let view = world.remote_view().await?;
    let operator = world.operator().await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    for (number, steps) in [vec![Lose(2), ExpireInStream], vec![Lose(2), Cut, ExpireOnOpen]].into_iter().enumerate() {
        view.proxy.script_watch("services", steps);
        let (gone, new) = (["web", "new0"][number], format!("new{number}"));
        world.sources().delete(gone, &DeleteParams::default()).await?;
        world.source(&new, 30081 + u16::try_from(number)?).await?;
        world.gone(gone).await?;
        world.mirror(&new).await?;
        ensure!(view.proxy.script_left("services") == 0, "the events were lost, and the watch expired");
    }
    operator.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_rotated_and_one_that_is_revoked_is_reported() -> anyhow::Result<()> {
    let world = one_source().await?;
    reader(&world.remote, &world.namespace).await?;
    let kubeconfig: Value = serde_json::from_str(&std::fs::read_to_string(&world.remote_server.kubeconfig)?)?;
    let give = async |name: &str| {
        let mut kubeconfig = kubeconfig.clone();
        kubeconfig["users"][0]["user"] = json!({ "token": token(&world, name).await? });
        world.secret("east", "kubeconfig", &kubeconfig.to_string()).await
    };
    give("first").await?;
    world.remote_cluster("east", only(&world)).await?;
    let operator = world.operator().await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    world.ready("east").await?;
    let (uid, writes) = (world.mirror("web").await?.uid(), operator.writes());
    give("second").await?;
    revoke(&world, "first").await?;
    world.source("late", 30090).await?;
    world.endpoints_are("late", &["10.1.0.1:30090/TCP"]).await?;
    // Without its old connections it depends on a token that is no longer good.
    revoke(&world, "second").await?;
    block_in_place(|| {
        let mut plane = remote_plane();
        plane.kill_api_server();
        plane.start_api_server()
    })?;
    world.condition("east", "Connected", "False", "CredentialsRefused").await?;
    give("third").await?;
    world.ready("east").await?;
    world.source("later", 30091).await?;
    world.endpoints_are("later", &["10.1.0.1:30091/TCP"]).await?;
    ensure!(world.mirror("web").await?.uid() == uid);
    assert_eq!(operator.writes(), writes + 4, "two mirrors and their slices");
    operator.stop().await
}

/// A ServiceAccount that may do in the remote what an operator has to, and no more.
async fn reader(remote: &Client, namespace: &str) -> anyhow::Result<()> {
    let account = json!({ "metadata": { "name": "portolan" } });
    let accounts = Api::<ServiceAccount>::namespaced(remote.clone(), namespace);
    accounts.create(&PostParams::default(), &serde_json::from_value(account)?).await?;
    let name = format!("portolan-{namespace}");
    let rules = json!([
        { "apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch"] },
        { "apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"] },
        { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"] },
        { "apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["kube-system"], "verbs": ["get"] },
    ]);
    let role = json!({ "metadata": { "name": name }, "rules": rules });
    let roles = Api::<ClusterRole>::all(remote.clone());
    roles.create(&PostParams::default(), &serde_json::from_value(role)?).await?;
    let binding = json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": "portolan", "namespace": namespace }],
    });
    let bindings = Api::<ClusterRoleBinding>::all(remote.clone());
    bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    Ok(())
}

/// A token that is good as long as a Secret of this name exists.
async fn token(world: &World, name: &str) -> anyhow::Result<String> {
    let secret = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
    let secrets = Api::<Secret>::namespaced(world.remote.clone(), &world.namespace);
    let uid = secrets.create(&PostParams::default(), &secret).await?.uid();
    let bound_object_ref = Some(BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Secret".to_owned()),
        name: Some(name.to_owned()),
        uid,
    });
    let spec = TokenRequestSpec { bound_object_ref, ..TokenRequestSpec::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let accounts = Api::<ServiceAccount>::namespaced(world.remote.clone(), &world.namespace);
    let granted = accounts.create_token_request("portolan", &PostParams::default(), &request).await?;
    granted.status.and_then(|status| status.token).context("a token")
}

async fn revoke(world: &World, name: &str) -> anyhow::Result<()> {
    let secrets = Api::<Secret>::namespaced(world.remote.clone(), &world.namespace);
    secrets.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_of_a_frozen_remote_follow_its_stale_policy() -> anyhow::Result<()> {
    let world = one_source().await?;
    let mut spec = only(&world);
    spec["stale"] = json!({ "policy": "Keep", "after": "3s" });
    world.east(spec).await?;
    let mut beating = JoinSet::new();
    beating.spawn(heartbeat(world.remote.clone(), world.namespace.clone()));
    let operator = world.operator().await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    let uid = world.mirror("web").await?.uid();
    for (policy, endpoints) in
        [("Keep", vec!["10.1.0.1:30080/TCP"]), ("NotReady", vec!["!10.1.0.1:30080/TCP"]), ("Remove", vec![])]
    {
        let patch = Patch::Merge(json!({ "spec": { "stale": { "policy": policy } } }));
        world.remotes().patch("east", &PatchParams::default(), &patch).await?;
        world.ready("east").await?;
        // Its connections stay, and nothing comes.
        remote_plane().freeze_api_server(true)?;
        let stale = async {
            world.condition("east", "Connected", "False", "Stale").await?;
            world.endpoints_are("web", &endpoints).await
        };
        let stale = stale.await;
        remote_plane().freeze_api_server(false)?;
        stale.with_context(|| format!("under the policy {policy}"))?;
        ensure!(world.mirror("web").await?.uid() == uid, "{policy}: the mirror stays");
        world.ready("east").await?;
        world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    }
    operator.stop().await
}

/// Keeps both watches of the remote from falling silent while it answers.
async fn heartbeat(remote: Client, namespace: String) {
    let (nodes, services) = (Api::<Node>::all(remote.clone()), Api::namespaced(remote, &namespace));
    let params = PatchParams::default();
    for number in 0_u64.. {
        let beat = Patch::Merge(json!({ "metadata": { "annotations": { "beat": number.to_string() } } }));
        // The other side may be frozen: then the next beat is late.
        nodes.patch_metadata("n1", &params, &beat).await.ok();
        let services: &Api<k8s_openapi::api::core::v1::Service> = &services;
        services.patch_metadata("web", &params, &beat).await.ok();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}
