//! Keeps stores true: list, then watch from there; resume after a cut, list again after 410.
//!
//! Objects that cannot be read as their kind are set aside and reported, never a reason to stop. Lists ask for
//! the newest state, so that a list begun after a write shows it.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info_span, warn};

use super::backoff::{Backoff, Delays};
use super::decode::Guarded;
use super::endpoint::Endpoint;
use super::metrics::{KindLabel, Metrics};
use super::pack::Pack;
use super::ready::Readiness;
use super::store::{Decoded, Key, Store, Undecodable, WentBack, revision};
use super::tasks::Tasks;

/// A kind that can be watched: known at compile time and readable.
pub trait Kind:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static
{
}
impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static> Kind for K {}

/// Which objects of a kind to watch, and what to keep of them.
#[derive(Debug, Clone)]
pub struct Selection<K> {
    /// Empty: all namespaces, or a cluster-scoped kind.
    pub namespace: String,
    pub labels: Option<String>,
    pub fields: Option<String>,
    /// Drops what the capability does not read, before the object is kept. managedFields are dropped always.
    pub trim: fn(&mut K),
    /// Keeps objects as text: for a kind with very many objects, each of which is looked at rarely.
    pub pack: Option<Pack<K>>,
    /// The kind may not be served at all: then there are no such objects, and it is looked for again and again.
    pub optional: bool,
}

impl<K> Default for Selection<K> {
    fn default() -> Self {
        Self { namespace: String::new(), labels: None, fields: None, trim: |_| {}, pack: None, optional: false }
    }
}

/// The watches of one loop: they settle together and wake it together.
pub struct Watches {
    client: Client,
    tasks: Tasks,
    readiness: Readiness,
    metrics: Metrics,
    changed: Arc<Notify>,
    stores: Vec<Watched>,
}

struct Watched {
    kind: String,
    settled: Box<dyn Fn() -> bool + Send + Sync>,
    doubt: Box<dyn Fn() + Send + Sync>,
}

impl Watches {
    /// No watch yet; those added run on `tasks` and hold `readiness` until they have synced.
    pub fn new(client: Client, tasks: Tasks, readiness: Readiness, metrics: Metrics) -> Self {
        Self { client, tasks, readiness, metrics, changed: Arc::new(Notify::new()), stores: Vec::new() }
    }

    /// Starts watching a kind.
    pub fn add<K: Kind>(&mut self, selection: Selection<K>) -> Store<K> {
        let store = Store::new(self.changed.clone(), selection.pack);
        let kind = K::kind(&()).into_owned();
        let watch = Watch {
            endpoint: Endpoint::<K>::new(&self.client, &selection.namespace).read_as(),
            label: KindLabel { kind: kind.clone() },
            selection,
            store: store.clone(),
            metrics: self.metrics.clone(),
            guard: Some(self.readiness.hold(format!("watch {kind}"))),
        };
        let stop = self.tasks.stop();
        self.tasks.spawn("watch", watch.run(stop).instrument(info_span!("watch", kind)));
        let (settled, doubt) = (store.clone(), store.clone());
        self.stores.push(Watched {
            kind,
            settled: Box::new(move || settled.settled()),
            doubt: Box::new(move || doubt.uncertain()),
        });
        store
    }

    /// True when every watch is whole and shows our own last writes.
    pub fn settled(&self) -> bool {
        self.stores.iter().all(|watched| (watched.settled)())
    }

    /// Kinds that have not settled, for logs and `/debug/state`.
    pub fn unsettled(&self) -> Vec<&str> {
        self.stores.iter().filter(|watched| !(watched.settled)()).map(|watched| watched.kind.as_str()).collect()
    }

    /// Lists every kind again before anything is planned: whoever wrote before us is then seen.
    pub fn refresh(&self) {
        self.stores.iter().for_each(|watched| (watched.doubt)());
    }

    /// Wakes the loop of these watches for a reason that none of them shows.
    pub fn waker(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Returns once something moved since the last call. For one waiter.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

struct Watch<K: Kind> {
    endpoint: Endpoint<Guarded<K>>,
    label: KindLabel,
    selection: Selection<K>,
    store: Store<K>,
    metrics: Metrics,
    guard: Option<super::ready::Guard>,
}

/// Why the inner loop of a watch ended.
enum Ended {
    /// The history we wanted to go on from is gone.
    Expired,
    /// A lost answer put the view in doubt.
    InDoubt,
}

impl<K: Kind> Watch<K> {
    async fn run(mut self, stop: CancellationToken) {
        let mut delays = Backoff::REQUESTS.delays();
        let work = async {
            loop {
                self.store.list_begins();
                match self.list().await {
                    Ok(()) => {
                        self.guard = None;
                        match self.follow(&mut delays).await {
                            Ended::Expired => debug!("history expired, listing again"),
                            Ended::InDoubt => debug!("the answer to a write was lost, listing again"),
                        }
                    }
                    Err(ListError::Request(kube::Error::Api(status)))
                        if self.selection.optional && status.code == 404 =>
                    {
                        self.store.none_served();
                        self.guard = None;
                        tokio::select! {
                            () = tokio::time::sleep(UNSERVED_MAY_APPEAR_AFTER) => {}
                            () = self.store.refresh.notified() => {}
                        }
                    }
                    Err(problem) => {
                        warn!(%problem, "list failed");
                        tokio::time::sleep(delays.pause()).await;
                    }
                }
            }
        };
        tokio::select! { () = stop.cancelled() => {} () = work => {} }
    }

    async fn list(&self) -> Result<(), ListError> {
        let mut params = ListParams { limit: Some(PAGE), ..ListParams::default() };
        params.label_selector.clone_from(&self.selection.labels);
        params.field_selector.clone_from(&self.selection.fields);
        let mut decoded = Vec::new();
        loop {
            let page = self.endpoint.list(&params).await?;
            let at = page.metadata.resource_version.as_deref().and_then(|text| text.parse().ok());
            decoded.extend(page.items.into_iter().map(|guard| self.decode(guard)));
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_some() {
                continue;
            }
            let at = at.ok_or(ListError::NoRevision)?;
            self.metrics.relists.get_or_create(&self.label).inc();
            self.report(decoded.iter().filter_map(|decoded| decoded.as_ref().err()));
            self.store.reset(decoded, at)?;
            self.count_undecodable();
            return Ok(());
        }
    }

    /// Follows the watch from the store's position, over as many connections as it takes.
    async fn follow(&self, delays: &mut Delays) -> Ended {
        let mut params = WatchParams::default().timeout(SERVER_ENDS_WATCH_AFTER);
        params.label_selector.clone_from(&self.selection.labels);
        params.field_selector.clone_from(&self.selection.fields);
        loop {
            if self.store.in_doubt() {
                return Ended::InDoubt;
            }
            match self.follow_one(&params, delays).await {
                Ok(Some(ended)) => return ended,
                Ok(None) => {}
                Err(problem) => {
                    debug!(%problem, "watch broke, resuming");
                    let pause = delays.pause();
                    tokio::select! { () = tokio::time::sleep(pause) => {} () = self.store.refresh.notified() => {} }
                }
            }
        }
    }

    async fn follow_one(&self, params: &WatchParams, delays: &mut Delays) -> Result<Option<Ended>, kube::Error> {
        let from = self.store.position().to_string();
        let events = match self.endpoint.watch(params, &from).await {
            Err(kube::Error::Api(status)) if status.code == GONE => return Ok(Some(Ended::Expired)),
            events => events?,
        };
        pin_mut!(events);
        let mut seen_any = false;
        loop {
            let event = tokio::select! {
                () = self.store.refresh.notified() => return Ok(Some(Ended::InDoubt)),
                event = tokio::time::timeout(SILENCE_MEANS_DEAD, events.next()) => event,
            };
            let event = match event {
                Err(_elapsed) => return Ok(None),
                Ok(None) if seen_any => return Ok(None),
                // Ended at once: wait a little, or a server that accepts and closes would be hammered.
                Ok(None) => {
                    tokio::time::sleep(delays.pause()).await;
                    return Ok(None);
                }
                Ok(Some(event)) => event?,
            };
            seen_any = true;
            match event {
                WatchEvent::Added(guard) | WatchEvent::Modified(guard) => {
                    let at = revision(guard.metadata()).unwrap_or_default();
                    let decoded = self.decode(guard);
                    self.report(decoded.as_ref().err());
                    self.store.apply(decoded, at);
                    self.count_undecodable();
                }
                WatchEvent::Deleted(guard) => {
                    self.store.delete(Key::from(guard.metadata()), revision(guard.metadata()).unwrap_or_default());
                    self.count_undecodable();
                }
                WatchEvent::Bookmark(bookmark) => {
                    if let Ok(at) = bookmark.metadata.resource_version.parse() {
                        self.store.bookmark(at);
                    }
                }
                WatchEvent::Error(status) if status.code == GONE => return Ok(Some(Ended::Expired)),
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            }
            delays.reset();
        }
    }

    fn decode(&self, Guarded(object): Guarded<K>) -> Decoded<K> {
        let mut object = object?;
        object.meta_mut().managed_fields = None;
        (self.selection.trim)(&mut object);
        Ok(self.store.shown(object))
    }

    fn report<'a>(&self, undecodable: impl IntoIterator<Item = &'a Undecodable>) {
        for Undecodable { key, problem, .. } in undecodable {
            warn!(kind = self.label.kind, object = %key, problem, "object cannot be read and is left out: mend it");
        }
    }

    fn count_undecodable(&self) {
        let count = i64::try_from(self.store.undecodable().len()).unwrap_or(i64::MAX);
        self.metrics.undecodable.get_or_create(&self.label).set(count);
    }
}

#[derive(Debug, thiserror::Error)]
enum ListError {
    #[error(transparent)]
    Request(#[from] kube::Error),
    #[error("the API server gave a list without a numeric resourceVersion")]
    NoRevision,
    #[error(
        "the API server listed revision {listed}, older than {shown} seen before: it is behind, or was restored \
         from a backup (then restart this process)"
    )]
    WentBack { shown: u64, listed: u64 },
}

impl From<WentBack> for ListError {
    fn from(WentBack { shown, listed }: WentBack) -> Self {
        Self::WentBack { shown, listed }
    }
}

/// Objects per list request: as client-go pages.
const PAGE: u32 = 500;
/// Seconds; the API server ends a watch after this, so that clients spread over servers anew.
const SERVER_ENDS_WATCH_AFTER: u32 = 290;
/// A connection that outlives the server's own limit without a word is dead.
const SILENCE_MEANS_DEAD: Duration = Duration::from_mins(5);
/// How often a kind that is not served is looked for.
const UNSERVED_MAY_APPEAR_AFTER: Duration = Duration::from_secs(10);
const GONE: u16 = 410;
