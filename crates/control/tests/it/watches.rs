//! A view that is cut, expired and fed rubbish still equals a fresh list.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, CustomResource};
use portolan_control::runtime::metrics::Metrics;
use portolan_control::runtime::ready::Readiness;
use portolan_control::runtime::store::{Key, Store};
use portolan_control::runtime::tasks::Tasks;
use portolan_control::runtime::watch::{Selection, Watches};
use portolan_testkit::{FaultProxy, Faults, WatchStep};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::harness::{Backend, World, eventually, on_both_servers, proxy, ticket};

on_both_servers! {
    a_watch_cut_and_expired_at_every_event_equals_a_fresh_list,
    a_malformed_object_is_left_out_and_reported_and_the_others_go_on,
    managed_fields_are_not_kept,
}

/// One watch of a kind through a proxy.
struct View<K> {
    store: Store<K>,
    watches: Watches,
    readiness: Readiness,
    tasks: Tasks,
}

fn view<K: portolan_control::runtime::watch::Kind>(proxy: &FaultProxy, world: &World) -> View<K> {
    let (tasks, readiness) = (Tasks::new(), Readiness::new());
    let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
    let mut watches = Watches::new(proxy.client(), tasks.clone(), readiness.clone(), metrics);
    let store = watches.add(Selection {
        namespace: world.namespace.clone(),
        labels: Some("view".into()),
        ..Selection::default()
    });
    View { store, watches, readiness, tasks }
}

impl<K> Drop for View<K> {
    fn drop(&mut self) {
        self.tasks.stop().cancel();
    }
}

/// Names and versions: equal means equal objects.
type Versions = BTreeMap<String, String>;

fn shown(store: &Store<ConfigMap>) -> Versions {
    let version =
        |(key, object): (Key, Arc<ConfigMap>)| (key.name, object.metadata.resource_version.clone().unwrap_or_default());
    store.all().into_iter().map(version).collect()
}

async fn listed(maps: &Api<ConfigMap>) -> anyhow::Result<Versions> {
    let listed = maps.list(&ListParams::default().labels("view")).await?;
    let version = |object: ConfigMap| {
        (object.metadata.name.unwrap_or_default(), object.metadata.resource_version.unwrap_or_default())
    };
    Ok(listed.items.into_iter().map(version).collect())
}

/// The scripted run: creations, changes, deletions, a namesake, and an object that leaves the selection.
const EVENTS: u32 = 10;
async fn run_script(maps: &Api<ConfigMap>) -> anyhow::Result<()> {
    let map = |name: &str| ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.into()),
            labels: Some([("view".into(), "x".into())].into()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    let (post, patch) = (PostParams::default(), PatchParams::default());
    for name in ["a", "b", "c"] {
        maps.create(&post, &map(name)).await?;
    }
    maps.patch("a", &patch, &Patch::Merge(json!({ "data": { "k": "1" } }))).await?;
    maps.delete("b", &DeleteParams::default()).await?;
    maps.create(&post, &map("b")).await?;
    maps.patch("c", &patch, &Patch::Merge(json!({ "metadata": { "labels": { "view": null } } }))).await?;
    maps.patch("a", &patch, &Patch::Merge(json!({ "data": { "k": "2" } }))).await?;
    maps.patch("c", &patch, &Patch::Merge(json!({ "metadata": { "labels": { "view": "y" } } }))).await?;
    maps.delete("a", &DeleteParams::default()).await?;
    Ok(())
}

async fn a_watch_cut_and_expired_at_every_event_equals_a_fresh_list(backend: Backend) -> anyhow::Result<()> {
    use WatchStep::{Cut, End, ExpireInStream, ExpireOnOpen, Lose, Pass};
    for at in 0..=EVENTS {
        for script in [
            vec![Pass(at), Cut],
            vec![Pass(at), End],
            vec![Pass(at), Cut, ExpireOnOpen],
            vec![Pass(at), ExpireInStream],
            vec![Pass(at), Lose((EVENTS - at).min(2)), ExpireInStream],
        ] {
            let world = World::new(backend, "watch", 0).await?;
            let proxy = proxy(&world, Faults::default()).await?;
            proxy.script_watch("configmaps", script.clone());
            let view = view::<ConfigMap>(&proxy, &world);
            eventually("the view has synced", async || Ok(view.readiness.is_ready())).await?;
            let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.namespace);
            run_script(&maps).await?;
            let truth = listed(&maps).await?;
            let expired = script.iter().any(|step| matches!(step, ExpireInStream | ExpireOnOpen));
            let expected = if expired { 2 } else { 1 };
            let lists = || proxy.trace().iter().filter(|exchange| exchange.is_list()).count();
            eventually(&format!("the view equals a fresh list after {script:?}"), async || {
                Ok(shown(&view.store) == truth && proxy.script_left("configmaps") == 0 && lists() >= expected)
            })
            .await?;
            eventually("the view has settled", async || Ok(view.watches.settled())).await?;
            assert_eq!(lists(), expected, "only an expired history is listed anew: {script:?}");
        }
    }
    Ok(())
}

/// Tickets as someone would read them who expects desks to be numbers.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone)]
#[kube(group = "testkit.portolan.dev", version = "v1", kind = "Ticket", plural = "tickets", namespaced)]
#[kube(schema = "disabled")]
struct NumberedDeskSpec {
    desk: Option<u64>,
}

async fn a_malformed_object_is_left_out_and_reported_and_the_others_go_on(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, "malformed", 0).await?;
    let proxy = proxy(&world, Faults::default()).await?;
    let labelled = |name: &str, desk: Option<&str>| {
        let mut ticket = ticket(name, desk);
        ticket.metadata.labels = Some([("view".into(), "x".into())].into());
        ticket
    };
    let (tickets, post) = (world.tickets(), PostParams::default());
    tickets.create(&post, &labelled("listed-bad", Some("west"))).await?;
    tickets.create(&post, &labelled("listed-good", None)).await?;

    let view = view::<Ticket>(&proxy, &world);
    eventually("the view has synced", async || Ok(view.readiness.is_ready())).await?;
    tickets.create(&post, &labelled("watched-bad", Some("east"))).await?;
    tickets.create(&post, &labelled("watched-good", None)).await?;

    let names = || view.store.all().into_keys().map(|key| key.name).collect::<Vec<_>>();
    let bad = || view.store.undecodable().into_iter().map(|bad| bad.key.name).collect::<Vec<_>>();
    eventually("good ones are shown, bad ones reported", async || {
        Ok(names() == ["listed-good", "watched-good"] && bad() == ["listed-bad", "watched-bad"])
    })
    .await?;
    assert!(view.store.undecodable()[0].problem.contains("west"), "{:?}", view.store.undecodable());

    let mend = Patch::Merge(json!({ "spec": { "desk": null } }));
    tickets.patch("watched-bad", &PatchParams::default(), &mend).await?;
    tickets.delete("listed-bad", &DeleteParams::default()).await?;
    eventually("a mended one is back, a deleted one is gone", async || {
        Ok(names() == ["listed-good", "watched-bad", "watched-good"] && bad().is_empty())
    })
    .await
}

async fn managed_fields_are_not_kept(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, "managed", 0).await?;
    let proxy = proxy(&world, Faults::default()).await?;
    let view = view::<ConfigMap>(&proxy, &world);
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.namespace);
    run_script(&maps).await?;
    eventually("the view shows b", async || Ok(shown(&view.store) == listed(&maps).await?)).await?;
    assert!(maps.get("b").await?.metadata.managed_fields.is_some());
    assert!(view.store.all().values().all(|map| map.metadata.managed_fields.is_none()));
    Ok(())
}
