//! What changed, for those who watch.
//!
//! Every change has a place in a log of bounded length, from which a client that was away reads on. Services and
//! endpoints come by two watches, each in the order of its revisions: the one may be a moment ahead of the other, so a
//! client that resumes is sent what the other kind changed in the moments before, perhaps once more.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kube::Resource;
use parking_lot::Mutex;
use portolan_api::gateway::{Endpoint, LoadBalancer};
use portolan_core::gateway::account_of;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backlog::Backlog;
use super::metrics::Metrics;
use super::views;
use crate::gateway::observe::Cache;
use crate::runtime::store::{Follower, Key, Store};
use crate::runtime::watch::Kind;

/// Changes that are remembered.
const REMEMBERED: usize = 4096;
/// One kind is at most this far ahead of the other.
const AHEAD: Duration = Duration::from_secs(2);

#[derive(Debug, Clone)]
pub(super) enum Object {
    Service(Arc<LoadBalancer>),
    Endpoint(Arc<Endpoint>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Service,
    Endpoint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Added,
    Modified,
    Deleted,
}

/// One change.
#[derive(Clone)]
pub(super) struct Event {
    change: Change,
    revision: u64,
    object: Object,
    at: Instant,
}

/// Where a watch begins.
pub(super) enum Opening {
    /// What changed since.
    Since(Vec<Event>),
    /// Everything; after a gap, if the client was away too long.
    Everything { after_gap: bool, objects: Vec<Event> },
}

pub(super) struct Feed {
    cache: Cache,
    followers: (Follower, Follower),
    state: Mutex<State>,
    metrics: Metrics,
    watches: usize,
}

#[derive(Default)]
struct State {
    has_begun: bool,
    /// By namespace.
    shown: BTreeMap<String, BTreeMap<(What, String), Object>>,
    log: VecDeque<Event>,
    /// What changed up to this revision is no longer in the log.
    floor: u64,
    newest: u64,
    watchers: BTreeMap<String, BTreeMap<u64, Watcher>>,
    next: u64,
}

struct Watcher {
    service: Option<String>,
    backlog: Arc<Backlog>,
    hang_up: CancellationToken,
}

/// A watch that ends with this value.
pub(super) struct Subscription {
    feed: Arc<Feed>,
    namespace: String,
    id: u64,
    pub(super) backlog: Arc<Backlog>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = self.feed.state.lock();
        if let Some(watchers) = state.watchers.get_mut(&self.namespace) {
            watchers.remove(&self.id);
            if watchers.is_empty() {
                state.watchers.remove(&self.namespace);
            }
        }
        drop(state);
        self.feed.metrics.watches.dec();
    }
}

impl Feed {
    pub(super) fn new(cache: Cache, followers: (Follower, Follower), metrics: Metrics, watches: usize) -> Self {
        Self { cache, followers, state: Mutex::default(), metrics, watches }
    }

    /// True once everything is known.
    pub(super) fn has_begun(&self) -> bool {
        self.state.lock().has_begun
    }

    /// Takes what changed, and sends it to those who watch.
    pub(super) fn follow(&self) {
        let Cache { load_balancers, endpoints, .. } = &self.cache;
        let mut state = self.state.lock();
        let (services, pods) = (self.followers.0.take_changes(), self.followers.1.take_changes());
        if !state.has_begun {
            if load_balancers.synced() && endpoints.synced() {
                state.begin(&self.cache);
            }
            return;
        }
        for key in &services {
            let now = load_balancers.get(key).map(Object::Service);
            state.take(key, What::Service, now, load_balancers.position());
        }
        for key in &pods {
            let now = endpoints.get(key).map(Object::Endpoint);
            state.take(key, What::Endpoint, now, endpoints.position());
        }
    }

    /// Begins a watch; none if the namespace has as many as it may have.
    pub(super) fn subscribe(
        self: &Arc<Self>,
        namespace: &str,
        service: Option<&str>,
        since: Option<u64>,
        hang_up: CancellationToken,
    ) -> Option<(Opening, Subscription)> {
        let mut state = self.state.lock();
        let opening = state.opening(namespace, service, since);
        let id = state.next;
        state.next += 1;
        let watchers = state.watchers.entry(namespace.to_owned()).or_default();
        if watchers.len() >= self.watches {
            return None;
        }
        let backlog = Arc::new(Backlog::default());
        let watcher = Watcher { service: service.map(str::to_owned), backlog: Arc::clone(&backlog), hang_up };
        watchers.insert(id, watcher);
        drop(state);
        self.metrics.watches.inc();
        Some((opening, Subscription { feed: Arc::clone(self), namespace: namespace.to_owned(), id, backlog }))
    }
}

impl State {
    fn begin(&mut self, cache: &Cache) {
        let Cache { load_balancers, endpoints, .. } = cache;
        let mut put = |key: &Key, what, object| {
            self.shown.entry(key.namespace.clone()).or_default().insert((what, key.name.clone()), object);
        };
        load_balancers.for_each(|key, object| put(key, What::Service, Object::Service(Arc::clone(object))));
        endpoints.for_each(|key, object| put(key, What::Endpoint, Object::Endpoint(Arc::clone(object))));
        self.floor = position(load_balancers).max(position(endpoints));
        self.newest = self.floor;
        self.has_begun = true;
    }

    fn take(&mut self, key: &Key, what: What, now: Option<Object>, position: u64) {
        let of_namespace = self.shown.entry(key.namespace.clone()).or_default();
        let id = (what, key.name.clone());
        let before = of_namespace.get(&id);
        let (change, object) = match (before, now) {
            (None, None) => return,
            (Some(before), Some(now)) if before.revision() == now.revision() => return,
            (None, Some(now)) => (Change::Added, now),
            (Some(_), Some(now)) => (Change::Modified, now),
            (Some(before), None) => (Change::Deleted, before.clone()),
        };
        let revision = match change {
            Change::Added | Change::Modified => {
                of_namespace.insert(id, object.clone());
                object.revision()
            }
            Change::Deleted => {
                of_namespace.remove(&id);
                position
            }
        };
        if of_namespace.is_empty() {
            self.shown.remove(&key.namespace);
        }
        self.newest = self.newest.max(revision);
        let event = Event { change, revision, object, at: Instant::now() };
        self.send(&key.namespace, &event);
        self.log.push_back(event);
        if self.log.len() > REMEMBERED
            && let Some(oldest) = self.log.pop_front()
        {
            self.floor = self.floor.max(oldest.revision);
        }
    }

    fn send(&mut self, namespace: &str, event: &Event) {
        let Some(watchers) = self.watchers.get_mut(namespace) else { return };
        let mut frame = None;
        watchers.retain(|_, watcher| {
            if !event.object.is_of(watcher.service.as_deref()) {
                return true;
            }
            let frame: &Bytes = frame.get_or_insert_with(|| event.frame());
            let takes = watcher.backlog.push(frame.clone());
            if !takes {
                watcher.hang_up.cancel();
            }
            takes
        });
    }

    fn opening(&self, namespace: &str, service: Option<&str>, since: Option<u64>) -> Opening {
        if let Some(since) = since.filter(|since| (self.floor..=self.newest).contains(since)) {
            let last = self.log.iter().find(|event| event.revision >= since);
            let last = last.map(|event| (event.object.what(), event.at, event.revision == since));
            let is_missed = |event: &&Event| {
                let may_be = last.is_some_and(|(what, at, is_it)| {
                    (!is_it || event.object.what() != what) && event.revision != since && event.at + AHEAD >= at
                });
                event.object.namespace() == namespace
                    && event.object.is_of(service)
                    && (event.revision > since || may_be)
            };
            return Opening::Since(self.log.iter().filter(is_missed).cloned().collect());
        }
        let all = self.shown.get(namespace).into_iter().flat_map(BTreeMap::values);
        let added = |object: &Object| Event {
            change: Change::Added,
            revision: object.revision(),
            object: object.clone(),
            at: Instant::now(),
        };
        let objects = all.filter(|object| object.is_of(service)).map(added).collect();
        Opening::Everything { after_gap: since.is_some(), objects }
    }
}

impl Event {
    /// As it is sent.
    pub(super) fn frame(&self) -> Bytes {
        let change = match self.change {
            Change::Added => "added",
            Change::Modified => "modified",
            Change::Deleted => "deleted",
        };
        format!("event: {change}\nid: {}\ndata: {}\n\n", self.revision, self.object.view()).into()
    }
}

impl Object {
    const fn what(&self) -> What {
        match self {
            Self::Service(_) => What::Service,
            Self::Endpoint(_) => What::Endpoint,
        }
    }

    fn namespace(&self) -> &str {
        let meta = match self {
            Self::Service(object) => object.meta(),
            Self::Endpoint(object) => object.meta(),
        };
        meta.namespace.as_deref().unwrap_or_default()
    }

    fn revision(&self) -> u64 {
        let version = match self {
            Self::Service(object) => object.meta().resource_version.as_ref(),
            Self::Endpoint(object) => object.meta().resource_version.as_ref(),
        };
        version.and_then(|version| version.parse().ok()).unwrap_or_default()
    }

    /// True if it belongs to the service, or to any.
    fn is_of(&self, service: Option<&str>) -> bool {
        service.is_none_or(|service| match self {
            Self::Service(object) => object.meta().name.as_deref() == Some(service),
            Self::Endpoint(object) => object.spec.load_balancer == service,
        })
    }

    fn view(&self) -> Value {
        let account = account_of(self.namespace()).unwrap_or_default();
        match self {
            Self::Service(object) => views::service(account, object),
            Self::Endpoint(object) => views::endpoint(account, object),
        }
    }
}

fn position<K: Kind>(store: &Store<K>) -> u64 {
    store.position()
}
