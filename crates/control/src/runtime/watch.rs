//! Subscribes loops to watches: one watch per kind and selection in the whole process, however many loops need it.
//!
//! Every subscriber has a [`Store`] of its own type, cut down to the fields it reads, with its own read-your-writes
//! state. An object that one subscriber cannot decode is set aside there and reported, and the others still see it.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Client;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::{Instrument, info_span};

use super::decode::RawObject;
use super::metrics::Metrics;
use super::pack::Packing;
use super::ready::{Guard, Readiness};
use super::shared_watch::{Listing, SharedWatch, Source, Subscriber};

pub use super::shared_watch::WatchHealth;
use super::store::{Batch, Decoded, Key, Store, Undecodable};
use super::tasks::Tasks;

pub use super::kind::Kind;

/// Which objects of a kind to watch, and what to keep of them.
#[derive(Debug, Clone)]
pub struct Selection<K> {
    /// Empty: all namespaces, or a cluster-scoped kind.
    pub namespace: String,
    pub labels: Option<String>,
    pub fields: Option<String>,
    /// Drops what the subscriber does not read, before the object is kept. managedFields are always dropped.
    pub trim: fn(&mut K),
    /// Keeps objects as short text: for a kind with very many objects, each of which is read rarely.
    pub packing: Option<Packing<K>>,
    /// The kind may not be served at all: then there are no such objects, and it is looked for again and again.
    pub optional: bool,
}

impl<K> Default for Selection<K> {
    fn default() -> Self {
        Self { namespace: String::new(), labels: None, fields: None, trim: |_| {}, packing: None, optional: false }
    }
}

/// All watches of a process. Clones share them.
#[derive(Clone)]
pub struct WatchRegistry {
    client: Client,
    tasks: Tasks,
    readiness: Readiness,
    metrics: Metrics,
    watches: Arc<Mutex<Registered>>,
}

#[derive(Default)]
struct Registered {
    by_source: BTreeMap<Source, Arc<SharedWatch>>,
    started: bool,
}

impl WatchRegistry {
    /// No watch yet; those that are added run on `tasks` and hold `readiness` until they have synced.
    pub fn new(client: Client, tasks: Tasks, readiness: Readiness, metrics: Metrics) -> Self {
        Self { client, tasks, readiness, metrics, watches: Arc::default() }
    }

    /// Subscriptions for one loop.
    pub fn watches(&self) -> Watches {
        self.watches_that_wake(Arc::default())
    }

    /// Subscriptions for a loop that others wake as well.
    pub fn watches_that_wake(&self, changed: Arc<Notify>) -> Watches {
        Watches { registry: self.clone(), changed, subscribers: Vec::new(), shared: Vec::new() }
    }

    /// Starts the watches. Whoever subscribed before shares their first list; later subscribers cause another one.
    pub fn start(&self) {
        let mut registered = self.watches.lock();
        if !std::mem::replace(&mut registered.started, true) {
            registered.by_source.values().for_each(|watch| self.spawn(watch));
        }
    }

    fn subscribe<K: Kind>(
        &self,
        selection: Selection<K>,
        changed: Arc<Notify>,
    ) -> (Arc<Subscription<K>>, Arc<SharedWatch>) {
        let Selection { namespace, labels, fields, trim, packing, optional } = selection;
        let kind = K::kind(&()).into_owned();
        let path = K::url_path(&(), Some(namespace.as_str()).filter(|namespace| !namespace.is_empty()));
        let source = Source { path, labels, fields };
        let mut registered = self.watches.lock();
        let is_new = !registered.by_source.contains_key(&source);
        let watch = registered.by_source.entry(source).or_insert_with_key(|source| {
            Arc::new(SharedWatch::new(self.client.clone(), source.clone(), kind.clone(), self.metrics.clone()))
        });
        let watch = watch.clone();
        let subscription = Arc::new(Subscription {
            store: Store::new(changed, watch.relist(), packing),
            guard: Arc::new(Mutex::new(Some(self.readiness.hold(format!("watch {kind}"))))),
            kind,
            trim,
            optional,
        });
        watch.join(subscription.clone());
        if is_new && registered.started {
            self.spawn(&watch);
        }
        (subscription, watch)
    }

    fn spawn(&self, watch: &Arc<SharedWatch>) {
        let span = info_span!("watch", kind = watch.kind());
        self.tasks.spawn("watch", watch.clone().run(self.tasks.stop()).instrument(span));
    }
}

/// The subscriptions of one loop: they settle together and wake it together.
pub struct Watches {
    registry: WatchRegistry,
    changed: Arc<Notify>,
    subscribers: Vec<Arc<dyn Subscriber>>,
    shared: Vec<Arc<SharedWatch>>,
}

impl Watches {
    /// Subscribes to a kind.
    pub fn add<K: Kind>(&mut self, selection: Selection<K>) -> Store<K> {
        let (subscription, watch) = self.registry.subscribe(selection, self.changed.clone());
        let store = subscription.store.clone();
        self.subscribers.push(subscription);
        self.shared.push(watch);
        store
    }

    /// How the watches fare, in the order in which they were added.
    pub fn health(&self) -> impl Iterator<Item = WatchHealth> {
        self.shared.iter().map(|watch| watch.health())
    }

    /// True when every store is complete and shows our own last writes.
    pub fn settled(&self) -> bool {
        self.subscribers.iter().all(|subscriber| subscriber.settled())
    }

    /// Kinds that have not settled, for logs and `/debug/state`.
    pub fn unsettled(&self) -> Vec<&str> {
        let unsettled = self.subscribers.iter().filter(|subscriber| !subscriber.settled());
        unsettled.map(|subscriber| subscriber.kind()).collect()
    }

    /// Lists every kind again before anything is planned: whoever wrote before us is then seen.
    pub fn refresh(&self) {
        self.subscribers.iter().for_each(|subscriber| subscriber.invalidate());
    }

    /// Wakes the loop for a reason that none of the stores shows.
    pub fn waker(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Returns once something changed since the last call. For one waiter.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// One store that a shared watch keeps up to date.
struct Subscription<K> {
    kind: String,
    store: Store<K>,
    trim: fn(&mut K),
    optional: bool,
    /// Held until the first list.
    guard: Arc<Mutex<Option<Guard>>>,
}

impl<K: Kind> Subscriber for Subscription<K> {
    fn kind(&self) -> &str {
        &self.kind
    }

    fn begin_list(&self) -> Box<dyn Listing> {
        self.store.list_begins();
        let (store, guard) = (self.store.clone(), self.guard.clone());
        Box::new(TypedListing { store, trim: self.trim, guard, batch: Batch::new() })
    }

    fn needs_list(&self) -> bool {
        self.store.needs_list()
    }

    fn invalidate(&self) {
        self.store.invalidate();
    }

    fn apply(&self, object: &RawObject<'_>) -> Result<(), Undecodable> {
        let decoded = decode(&self.store, self.trim, object);
        let problem = decoded.as_ref().err().cloned();
        self.store.apply(decoded, object.revision);
        problem.map_or(Ok(()), Err)
    }

    fn delete(&self, object: &RawObject<'_>) {
        self.store.remove(&object.key, object.revision);
    }

    fn bookmark(&self, revision: u64) {
        self.store.bookmark(revision);
    }

    fn not_served(&self) -> bool {
        if self.optional {
            self.store.clear();
            drop(self.guard.lock().take());
        }
        self.optional
    }

    fn settled(&self) -> bool {
        self.store.settled()
    }

    fn undecodable(&self) -> Vec<Key> {
        self.store.undecodable().into_iter().map(|bad| bad.key).collect()
    }

    fn health_changed(&self) {
        self.store.wake();
    }
}

struct TypedListing<K> {
    store: Store<K>,
    trim: fn(&mut K),
    guard: Arc<Mutex<Option<Guard>>>,
    batch: Batch<K>,
}

impl<K: Kind> Listing for TypedListing<K> {
    fn push(&mut self, object: &RawObject<'_>) -> Result<(), Undecodable> {
        if let Some(key) = self.store.known(&object.key, object.revision) {
            self.batch.push_known(key);
            return Ok(());
        }
        let decoded = decode(&self.store, self.trim, object);
        let problem = decoded.as_ref().err().cloned();
        self.batch.push(decoded);
        problem.map_or(Ok(()), Err)
    }

    fn complete(self: Box<Self>, revision: u64) {
        self.store.reset(self.batch, revision);
        drop(self.guard.lock().take());
    }
}

fn decode<K: Kind>(store: &Store<K>, trim: fn(&mut K), object: &RawObject<'_>) -> Decoded<K> {
    let mut decoded = object.decode()?;
    trim(&mut decoded);
    Ok(store.entry(object.key.clone(), decoded))
}
