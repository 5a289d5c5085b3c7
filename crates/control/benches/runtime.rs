//! What the runtime costs, next to kube's own: objects into a cache from a list and from a watch, keys through a queue,
//! and how long a real control plane takes to be ready for a test.

use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use kube::core::DeserializeGuard;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, ResourceExt};
use portolan_control::runtime::metrics::Metrics;
use portolan_control::runtime::ready::Readiness;
use portolan_control::runtime::schedule::{Order, Schedule};
use portolan_control::runtime::tasks::Tasks;
use portolan_control::runtime::watch::{Selection, WatchRegistry};
use portolan_testkit::ControlPlane;
use portolan_testkit::bench::{Bench, Goal, Side};
use serde_json::json;
use tokio::runtime::Runtime;

/// Objects in the list, and as many events in the watch.
const OBJECTS: u64 = 5_000;

fn main() -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .thread_keep_alive(Duration::from_hours(1))
        .enable_all()
        .build()?;
    let canned = Arc::new(Canned::new());
    let mut bench = Bench::from_arguments("runtime")?;
    bench.compare(
        "list and watch into a cache",
        "object",
        Goal::ratio(0.8),
        Side::new("portolan", || ours(&runtime, &canned)),
        Side::new("kube-runtime", || theirs(&runtime, &canned)),
    )?;
    bench.growth(
        "keys through the schedule of due writes",
        &[1_000, 10_000, 100_000],
        Goal::exponent(1.2),
        |keys| {
            queue(keys);
            Ok(())
        },
    )?;
    let ready = ControlPlane::start()?.ready_after();
    bench.count("control plane from nothing to ready", "s", Goal::value(15.0), ready.as_secs_f64())?;
    bench.finish()
}

fn ours(runtime: &Runtime, canned: &Arc<Canned>) -> anyhow::Result<u64> {
    runtime.block_on(async {
        let tasks = Tasks::new();
        let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
        let registry = WatchRegistry::new(canned.client(), tasks.clone(), Readiness::new(), metrics);
        let mut watches = registry.watches();
        let store = watches.add(Selection::<ConfigMap>::default());
        registry.start();
        while store.position() < Canned::LAST {
            watches.changed().await;
        }
        anyhow::ensure!(store.all().len() as u64 == OBJECTS, "every object is cached");
        tasks.drain(Duration::from_secs(1)).await;
        Ok(2 * OBJECTS)
    })
}

fn theirs(runtime: &Runtime, canned: &Arc<Canned>) -> anyhow::Result<u64> {
    runtime.block_on(async {
        let maps: Api<DeserializeGuard<ConfigMap>> = Api::all(canned.client());
        let writer = reflector::store::Writer::<ConfigMap>::default();
        let reader = writer.as_reader();
        let decoded = watcher(maps, watcher::Config::default()).try_filter_map(async |event| Ok(good(event)));
        let events = reflector::reflector(writer, decoded.modify(|map| map.managed_fields_mut().clear()));
        let last = events.try_filter(|event| {
            let last = matches!(event, watcher::Event::Apply(map) if map.resource_version().as_deref() == Some(&Canned::LAST.to_string()));
            async move { last }
        });
        std::pin::pin!(last).try_next().await?;
        anyhow::ensure!(reader.len() as u64 == OBJECTS, "every object is cached");
        Ok(2 * OBJECTS)
    })
}

/// The same care as ours: an object that cannot be read is left out.
fn good(event: watcher::Event<DeserializeGuard<ConfigMap>>) -> Option<watcher::Event<ConfigMap>> {
    Some(match event {
        watcher::Event::Apply(guard) => watcher::Event::Apply(guard.0.ok()?),
        watcher::Event::Delete(guard) => watcher::Event::Delete(guard.0.ok()?),
        watcher::Event::InitApply(guard) => watcher::Event::InitApply(guard.0.ok()?),
        watcher::Event::Init => watcher::Event::Init,
        watcher::Event::InitDone => watcher::Event::InitDone,
    })
}

fn queue(keys: u64) {
    let now = tokio::time::Instant::now();
    let mut schedule = Schedule::new(Duration::ZERO, Order::OfKeys);
    (0..keys).for_each(|key| schedule.add(key, None, now));
    while let Some((key, _)) = schedule.take(now) {
        schedule.succeeded(&key, now);
    }
}

/// Answers of an API server, made beforehand: what is measured is the client's side alone.
struct Canned {
    list: Bytes,
    events: Vec<Bytes>,
}

impl Canned {
    const LISTED: u64 = 1_000_000;
    const LAST: u64 = Self::LISTED + OBJECTS;

    fn new() -> Self {
        let items: Vec<_> = (0..OBJECTS).map(|index| object(index, index + 1)).collect();
        let version = Self::LISTED.to_string();
        let list = json!({ "kind": "ConfigMapList", "apiVersion": "v1", "metadata": { "resourceVersion": version }, "items": items });
        // A watch sends the type first; a map would sort the object before it.
        let event =
            |index| format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", object(index, Self::LISTED + index + 1));
        Self { list: list.to_string().into(), events: (0..OBJECTS).map(|index| event(index).into()).collect() }
    }

    fn client(self: &Arc<Self>) -> Client {
        let canned = self.clone();
        let answer = move |request: Request<Body>| {
            let answer = canned.answer(request.uri().query().unwrap_or_default());
            async move { Ok::<_, Infallible>(answer) }
        };
        Client::new(tower::service_fn(answer), "default")
    }

    fn answer(&self, query: &str) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        if !query.contains("watch=true") {
            return Response::new(Full::new(self.list.clone()).boxed_unsync());
        }
        let events = stream::iter(self.events.clone()).map(|event| Ok::<_, Infallible>(Frame::data(event)));
        Response::new(StreamBody::new(events.chain(stream::pending())).boxed_unsync())
    }
}

/// A ConfigMap as large as they are: data, labels and the managedFields of two managers.
fn object(index: u64, version: u64) -> serde_json::Value {
    let fields = json!({ "f:data": { ".": {}, "f:one": {}, "f:two": {} }, "f:metadata": { "f:labels": { ".": {}, "f:app": {} } } });
    let manager = |name: &str| json!({ "manager": name, "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields });
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": format!("map-{index}"), "namespace": format!("ns-{}", index % 50), "uid": format!("uid-{index}"),
            "resourceVersion": version.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": { "app": "edge", "tier": "front" },
            "managedFields": [manager("kubectl"), manager("portolan")],
        },
        "data": { "one": "x".repeat(100), "two": "y".repeat(300) },
    })
}
