//! A view that is cut, expired and fed rubbish still equals a fresh list, and all views of a process share one watch.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, CustomResource};
use portolan_control::runtime::app::{Options, Process};
use portolan_control::runtime::metrics::{KindLabel, Metrics};
use portolan_control::runtime::ready::Readiness;
use portolan_control::runtime::store::{Key, Store};
use portolan_control::runtime::tasks::Tasks;
use portolan_control::runtime::watch::{Kind, Selection, WatchRegistry, Watches};
use portolan_control::{egress, install, mesh};
use portolan_simulator::agents;
use portolan_testkit::{Exchange, FaultProxy, Faults, WatchStep};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::harness::{Backend, Server, World, eventually, on_both_servers, proxy, ticket};

on_both_servers! {
    a_watch_cut_and_expired_at_every_event_equals_a_fresh_list,
    a_malformed_object_is_left_out_and_reported_and_the_others_go_on,
    managed_fields_are_not_kept,
    subscribers_share_one_list_and_one_watch,
    each_subscriber_waits_for_its_own_writes_only,
    a_subscriber_that_joins_later_sees_what_was_there,
    an_object_that_one_subscriber_cannot_decode_is_fine_for_another,
}

/// A process that watches through a proxy.
struct Watching {
    registry: WatchRegistry,
    readiness: Readiness,
    metrics: Metrics,
    tasks: Tasks,
}

impl Watching {
    fn new(proxy: &FaultProxy) -> Self {
        let (tasks, readiness) = (Tasks::new(), Readiness::new());
        let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
        let registry = WatchRegistry::new(proxy.client(), tasks.clone(), readiness.clone(), metrics.clone());
        Self { registry, readiness, metrics, tasks }
    }

    /// Subscribes one loop to the labelled objects of a kind.
    fn subscribe<K: Kind>(&self, world: &World) -> (Store<K>, Watches) {
        let mut watches = self.registry.watches();
        let (namespace, labels) = (world.namespace.clone(), Some("view".into()));
        (watches.add(Selection { namespace, labels, ..Selection::default() }), watches)
    }

    async fn synced(&self) -> anyhow::Result<()> {
        eventually("every watch has synced", async || Ok(self.readiness.is_ready())).await
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.tasks.stop().cancel();
    }
}

/// One watch of a kind through a proxy.
struct View<K> {
    store: Store<K>,
    watches: Watches,
    watching: Watching,
}

fn view<K: Kind>(proxy: &FaultProxy, world: &World) -> View<K> {
    let watching = Watching::new(proxy);
    let (store, watches) = watching.subscribe(world);
    watching.registry.start();
    View { store, watches, watching }
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
            view.watching.synced().await?;
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
    view.watching.synced().await?;
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

/// Lists and watches of a resource that the API server answered.
fn requests(proxy: &FaultProxy, resource: &str) -> (usize, usize) {
    let trace = proxy.trace();
    let of_resource = trace.iter().filter(|exchange| exchange.resource() == Some(resource));
    let (mut lists, mut watches) = (0, 0);
    for exchange in of_resource {
        lists += usize::from(exchange.is_list());
        watches += usize::from(exchange.is_watch());
    }
    (lists, watches)
}

async fn subscribers_share_one_list_and_one_watch(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, "shared", 0).await?;
    let proxy = proxy(&world, Faults::default()).await?;
    let watching = Watching::new(&proxy);
    let (one, _of_one) = watching.subscribe::<ConfigMap>(&world);
    let (other, _of_other) = watching.subscribe::<ConfigMap>(&world);
    watching.registry.start();
    watching.synced().await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.namespace);
    run_script(&maps).await?;
    let truth = listed(&maps).await?;
    eventually("both see the same", async || Ok(shown(&one) == truth && shown(&other) == truth)).await?;
    assert_eq!(requests(&proxy, "configmaps"), (1, 1));
    assert_eq!(one.take_changes(), other.take_changes(), "each is told of every change");
    Ok(())
}

async fn each_subscriber_waits_for_its_own_writes_only(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, "writes", 0).await?;
    let proxy = proxy(&world, Faults::default()).await?;
    let watching = Watching::new(&proxy);
    let (writer, of_writer) = watching.subscribe::<ConfigMap>(&world);
    let (reader, of_reader) = watching.subscribe::<ConfigMap>(&world);
    watching.registry.start();
    watching.synced().await?;

    proxy.hold_watch_events(Some("configmaps"));
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.namespace);
    let mut map = ConfigMap::default();
    map.metadata.name = Some("written".to_owned());
    map.metadata.labels = Some([("view".to_owned(), "x".to_owned())].into());
    writer.wrote(&maps.create(&PostParams::default(), &map).await?);
    assert!(!of_writer.settled() && of_reader.settled(), "only who wrote waits");
    proxy.hold_watch_events(None);
    eventually("the writer sees its write", async || Ok(of_writer.settled())).await?;
    assert!(shown(&writer).contains_key("written"));
    eventually("the other sees it as well", async || Ok(shown(&reader).contains_key("written"))).await?;

    // A lost answer: one of them needs a new list, which is taken for both, and the other need not wait for it.
    writer.invalidate();
    assert!(!of_writer.settled() && of_reader.settled());
    eventually("the writer is settled again", async || Ok(of_writer.settled())).await?;
    assert!(of_reader.settled());
    assert_eq!(requests(&proxy, "configmaps").0, 2);
    Ok(())
}

async fn a_subscriber_that_joins_later_sees_what_was_there(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, "late", 0).await?;
    let proxy = proxy(&world, Faults::default()).await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.namespace);
    run_script(&maps).await?;
    let view = view::<ConfigMap>(&proxy, &world);
    view.watching.synced().await?;
    let (late, of_late) = view.watching.subscribe::<ConfigMap>(&world);
    eventually("the late one has settled", async || Ok(of_late.settled())).await?;
    assert_eq!(shown(&late), listed(&maps).await?);
    assert_eq!(shown(&view.store), shown(&late));
    assert!(view.watches.settled());
    Ok(())
}

async fn an_object_that_one_subscriber_cannot_decode_is_fine_for_another(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, "types", 0).await?;
    let proxy = proxy(&world, Faults::default()).await?;
    let watching = Watching::new(&proxy);
    let (numbered, _of_numbered) = watching.subscribe::<Ticket>(&world);
    let (plain, _of_plain) = watching.subscribe::<portolan_testkit::ticket::Ticket>(&world);
    let labelled = |name: &str| {
        let mut ticket = ticket(name, Some("west"));
        ticket.metadata.labels = Some([("view".into(), "x".into())].into());
        ticket
    };
    world.tickets().create(&PostParams::default(), &labelled("listed")).await?;
    watching.registry.start();
    watching.synced().await?;
    world.tickets().create(&PostParams::default(), &labelled("watched")).await?;
    eventually("one sees both", async || Ok(plain.all().len() == 2)).await?;
    eventually("the other cannot", async || Ok(numbered.undecodable().len() == 2)).await?;
    assert!(plain.undecodable().is_empty() && numbered.all().is_empty());
    let label = KindLabel { kind: "Ticket".to_owned() };
    // The object is set aside first and counted then.
    let counted = || watching.metrics.undecodable.get_or_create(&label).get();
    eventually("each object is counted", async || Ok(counted() >= 2)).await?;
    assert_eq!(counted(), 2, "each object counts once");
    assert_eq!(watching.metrics.relists.get_or_create(&label).get(), 1);
    assert_eq!(requests(&proxy, "tickets"), (1, 1));
    Ok(())
}

/// Not on the shared server, where capabilities of other tests run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn capabilities_share_one_watch_per_kind_on_the_embedded_server() -> anyhow::Result<()> {
    let server = Server::start(Backend::Embedded).await?;
    install::definitions(&server.client).await?;
    let proxy = FaultProxy::start(server.client.clone(), Faults::default()).await?;
    let options = Options {
        election: None,
        admin_listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        drain: Duration::from_secs(10),
        instance: "test".into(),
    };
    let process = Process::start(proxy.client(), options, |ctx, registry| {
        drop(egress::start(ctx, registry, egress::Options::default()));
        drop(mesh::start(ctx, registry, mesh::Options::default()));
        agents::start(ctx);
    })?;
    eventually("every watch has synced", async || Ok(process.ctx().readiness.is_ready())).await?;
    // A kind is ready with its list, and its watch may come after that.
    let requested = |is: fn(&Exchange) -> bool| -> BTreeSet<String> {
        let answered = proxy.trace().into_iter().filter(|exchange| exchange.answered == Some(200) && is(exchange));
        answered.filter_map(|exchange| exchange.resource().map(str::to_owned)).collect()
    };
    eventually("what was listed is watched", async || {
        let watched = requested(Exchange::is_watch);
        Ok(watched.contains("pods") && watched == requested(Exchange::is_list))
    })
    .await?;
    process.stop().await?;
    let mut by_resource: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for exchange in proxy.trace().iter().filter(|exchange| exchange.answered == Some(200)) {
        let Some(resource) = exchange.resource() else { continue };
        let (lists, watches) = by_resource.entry(resource.to_owned()).or_default();
        *lists += usize::from(exchange.is_list());
        *watches += usize::from(exchange.is_watch());
    }
    by_resource.retain(|_, requests| *requests != (0, 0));
    assert!(by_resource.values().all(|requests| *requests == (1, 1)), "{by_resource:#?}");
    Ok(())
}
