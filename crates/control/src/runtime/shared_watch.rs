//! One list and watch of a kind, shared by everything in the process that asks for the same objects.
//!
//! Lists, then watches from there; resumes after a cut, lists again after 410. This part handles undecoded text only;
//! each [`Subscriber`] decodes it into its own type. Lists ask for the newest state, so that a list begun after a write
//! shows it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use kube::Client;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::Request;
use parking_lot::{Mutex, RwLock};
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::backoff::{Backoff, Delays};
use super::decode::{Page, RawObject};
use super::metrics::{KindLabel, Metrics};
use super::problem::RequestProblem;
use super::reachability::is_unreachable;
use super::store::{Key, Undecodable};

/// Who receives the objects of a watch.
pub(super) trait Subscriber: Send + Sync {
    /// The kind, for logs and `/debug/state`.
    fn kind(&self) -> &str;
    /// A list begins, before its first request is sent.
    fn begin_list(&self) -> Box<dyn Listing>;
    /// True when only a new list can show what this subscriber must see.
    fn needs_list(&self) -> bool;
    /// Asks for a new list.
    fn invalidate(&self);
    /// An object was added or modified; gives back why it could not be decoded.
    fn apply(&self, object: &RawObject<'_>) -> Result<(), Undecodable>;
    /// An object was deleted.
    fn delete(&self, object: &RawObject<'_>);
    /// Nothing else happened up to this revision.
    fn bookmark(&self, revision: u64);
    /// The API server does not serve the kind; false if that is an error to this subscriber.
    fn not_served(&self) -> bool;
    /// True when everything up to this process's last write is shown.
    fn settled(&self) -> bool;
    /// Keys of the objects that could not be decoded.
    fn undecodable(&self) -> Vec<Key>;
    /// Lets the subscriber's loop look at the health of the watch.
    fn health_changed(&self);
}

/// How a watch fares.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchHealth {
    /// When the API server last sent something.
    pub contact: Option<Instant>,
    /// Why it does not run, since its last contact.
    pub problem: Option<RequestProblem>,
}

/// A list on its way to one subscriber: it replaces everything there when it is complete.
pub(super) trait Listing: Send {
    /// The next object; gives back why it could not be decoded.
    fn push(&mut self, object: &RawObject<'_>) -> Result<(), Undecodable>;
    /// All objects as of this revision were pushed.
    fn complete(self: Box<Self>, revision: u64);
}

/// What is listed and watched: two subscriptions with an equal source share one watch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Source {
    /// Group, version, resource and namespace.
    pub(super) path: String,
    pub(super) labels: Option<String>,
    pub(super) fields: Option<String>,
}

/// One list and watch with its subscribers.
pub(super) struct SharedWatch {
    client: Client,
    source: Source,
    label: KindLabel,
    metrics: Metrics,
    subscribers: RwLock<Vec<Arc<dyn Subscriber>>>,
    /// Subscribers ask for a new list by this.
    relist: Arc<Notify>,
    /// How many undecodable objects this watch has added to the metric of its kind.
    undecodable: Mutex<i64>,
    health: Mutex<WatchHealth>,
}

/// Why following a list ended.
enum Ended {
    /// The history to resume from is gone.
    Expired,
    /// A subscriber needs a new list.
    Invalidated,
}

impl SharedWatch {
    pub(super) fn new(client: Client, source: Source, kind: String, metrics: Metrics) -> Self {
        Self {
            client,
            source,
            label: KindLabel { kind },
            metrics,
            subscribers: RwLock::default(),
            relist: Arc::default(),
            undecodable: Mutex::default(),
            health: Mutex::default(),
        }
    }

    /// How it fares.
    pub(super) fn health(&self) -> WatchHealth {
        self.health.lock().clone()
    }

    /// The API server sent something.
    fn in_contact(&self) {
        let problem = {
            let mut health = self.health.lock();
            health.contact = Some(Instant::now());
            health.problem.take()
        };
        if problem.is_some() {
            self.subscribers.read().iter().for_each(|subscriber| subscriber.health_changed());
        }
    }

    /// A request failed; true if it is another problem than before.
    fn failed(&self, error: &kube::Error) -> bool {
        let problem = Some(RequestProblem::of(error));
        let before = std::mem::replace(&mut self.health.lock().problem, problem.clone());
        if before != problem {
            self.subscribers.read().iter().for_each(|subscriber| subscriber.health_changed());
        }
        before != problem
    }

    pub(super) fn kind(&self) -> &str {
        &self.label.kind
    }

    /// Wakes the watch when a subscriber needs a new list.
    pub(super) fn relist(&self) -> Arc<Notify> {
        self.relist.clone()
    }

    /// Adds a subscriber. One that joins a running watch is served by a new list.
    pub(super) fn join(&self, subscriber: Arc<dyn Subscriber>) {
        self.subscribers.write().push(subscriber);
        self.relist.notify_one();
    }

    /// Lists and watches until stopped.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        tokio::select! { () = stop.cancelled() => {} () = self.run_forever() => {} }
    }

    async fn run_forever(&self) {
        let mut delays = Backoff::REQUESTS.delays();
        let mut position = 0;
        loop {
            match self.list(&mut position).await {
                Ok(()) => match self.follow(&mut position, &mut delays).await {
                    Ended::Expired => debug!("history expired, listing again"),
                    Ended::Invalidated => {
                        debug!("a subscriber needs a new list");
                        tokio::time::sleep(GATHER).await;
                    }
                },
                Err(ListError::Request(kube::Error::Api(status))) if status.code == NOT_FOUND && self.not_served() => {
                    self.pause(UNSERVED_MAY_APPEAR_AFTER).await;
                }
                Err(problem) => {
                    let is_reported = match &problem {
                        ListError::Request(error) => !self.failed(error) || is_unreachable(error),
                        ListError::NoRevision | ListError::StaleList(_) => false,
                    };
                    if is_reported {
                        debug!(%problem, "list failed");
                    } else {
                        warn!(%problem, "list failed");
                    }
                    tokio::time::sleep(delays.pause()).await;
                }
            }
        }
    }

    async fn list(&self, position: &mut u64) -> Result<(), ListError> {
        let mut params = ListParams { limit: Some(PAGE), ..ListParams::default() };
        params.label_selector.clone_from(&self.source.labels);
        params.field_selector.clone_from(&self.source.fields);
        let request = Request::new(&self.source.path);
        let mut listings: Vec<_> = self.subscribers.read().iter().map(|subscriber| subscriber.begin_list()).collect();
        let revision = loop {
            let page = request.list(&params).map_err(kube::Error::BuildRequest)?;
            let text = self.client.request_text(page).await?;
            self.in_contact();
            let page: Page = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
            for object in page.objects() {
                let object = object.map_err(kube::Error::SerdeError)?;
                for listing in &mut listings {
                    self.report(listing.push(&object));
                }
            }
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                break page.metadata.resource_version.and_then(|version| version.parse().ok());
            }
        };
        let revision = not_stale(*position, revision.ok_or(ListError::NoRevision)?)?;
        *position = revision;
        self.metrics.relists.get_or_create(&self.label).inc();
        for listing in listings {
            listing.complete(revision);
        }
        self.count_undecodable();
        Ok(())
    }

    /// Watches from `position`, over as many connections as it takes.
    async fn follow(&self, position: &mut u64, delays: &mut Delays) -> Ended {
        let mut params = WatchParams::default().timeout(SERVER_ENDS_WATCH_AFTER);
        params.label_selector.clone_from(&self.source.labels);
        params.field_selector.clone_from(&self.source.fields);
        loop {
            if self.needs_list() {
                return Ended::Invalidated;
            }
            match self.follow_one(&params, position, delays).await {
                Ok(Some(ended)) => return ended,
                Ok(None) => {}
                Err(problem) => {
                    debug!(%problem, "watch broke, resuming");
                    self.failed(&problem);
                    self.pause(delays.pause()).await;
                }
            }
        }
    }

    /// Watches over one connection; none when it ended and can be resumed.
    async fn follow_one(
        &self,
        params: &WatchParams,
        position: &mut u64,
        delays: &mut Delays,
    ) -> Result<Option<Ended>, kube::Error> {
        let request = Request::new(&self.source.path).watch(params, &position.to_string());
        let request = request.map_err(kube::Error::BuildRequest)?;
        let events = match self.client.request_events::<Box<RawValue>>(request).await {
            Err(kube::Error::Api(status)) if status.code == GONE => return Ok(Some(Ended::Expired)),
            events => events?,
        };
        // An API server where nothing happens sends its first bookmark after a minute: it is back before that.
        self.in_contact();
        pin_mut!(events);
        let mut seen_any = false;
        loop {
            let event = tokio::select! {
                () = self.relist.notified() => {
                    if self.needs_list() {
                        return Ok(Some(Ended::Invalidated));
                    }
                    continue;
                }
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
            self.in_contact();
            match event {
                WatchEvent::Added(text) | WatchEvent::Modified(text) => {
                    let object = RawObject::new(text.get()).map_err(kube::Error::SerdeError)?;
                    self.subscribers.read().iter().for_each(|subscriber| self.report(subscriber.apply(&object)));
                    *position = object.revision.max(*position);
                    self.count_undecodable();
                }
                WatchEvent::Deleted(text) => {
                    let object = RawObject::new(text.get()).map_err(kube::Error::SerdeError)?;
                    self.subscribers.read().iter().for_each(|subscriber| subscriber.delete(&object));
                    *position = object.revision.max(*position);
                    self.count_undecodable();
                }
                WatchEvent::Bookmark(bookmark) => {
                    if let Ok(revision) = bookmark.metadata.resource_version.parse() {
                        self.subscribers.read().iter().for_each(|subscriber| subscriber.bookmark(revision));
                        *position = revision.max(*position);
                    }
                }
                WatchEvent::Error(status) if status.code == GONE => return Ok(Some(Ended::Expired)),
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            }
            delays.reset();
        }
    }

    fn needs_list(&self) -> bool {
        self.subscribers.read().iter().any(|subscriber| subscriber.needs_list())
    }

    /// Tells all subscribers that the kind is not served; true if each of them expects that it may not be.
    fn not_served(&self) -> bool {
        // every subscriber must hear of it, so this does not stop at the first
        let expected: Vec<bool> = self.subscribers.read().iter().map(|subscriber| subscriber.not_served()).collect();
        expected.into_iter().all(|expected| expected)
    }

    /// Waits, but not once a subscriber asks for a new list.
    async fn pause(&self, at_most: Duration) {
        tokio::select! { () = tokio::time::sleep(at_most) => {} () = self.relist.notified() => {} }
    }

    fn report(&self, decoded: Result<(), Undecodable>) {
        if let Err(Undecodable { key, problem, .. }) = decoded {
            warn!(kind = self.label.kind, object = %key, problem, "object cannot be decoded and is ignored: fix it");
        }
    }

    /// Several watches of one kind add up in its metric.
    fn count_undecodable(&self) {
        let subscribers = self.subscribers.read();
        let keys: BTreeSet<Key> = subscribers.iter().flat_map(|subscriber| subscriber.undecodable()).collect();
        let count = i64::try_from(keys.len()).unwrap_or(i64::MAX);
        let before = std::mem::replace(&mut *self.undecodable.lock(), count);
        self.metrics.undecodable.get_or_create(&self.label).inc_by(count - before);
    }
}

#[derive(Debug, thiserror::Error)]
enum ListError {
    #[error(transparent)]
    Request(#[from] kube::Error),
    #[error("the API server sent a list without a numeric resourceVersion")]
    NoRevision,
    #[error(transparent)]
    StaleList(#[from] StaleList),
}

/// A list that is older than what was seen before.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the API server listed revision {listed}, older than {seen} seen before: it is behind, or was restored from a \
     backup (then restart this process)"
)]
struct StaleList {
    seen: u64,
    listed: u64,
}

fn not_stale(seen: u64, listed: u64) -> Result<u64, StaleList> {
    if listed < seen { Err(StaleList { seen, listed }) } else { Ok(listed) }
}

/// Objects per list request, as client-go pages.
const PAGE: u32 = 500;
/// Seconds after which the API server ends a watch, so that clients spread over servers again.
const SERVER_ENDS_WATCH_AFTER: u32 = 290;
/// A connection that is silent for longer than the server's own limit is dead.
const SILENCE_MEANS_DEAD: Duration = Duration::from_mins(5);
/// How often a kind that is not served is looked for.
const UNSERVED_MAY_APPEAR_AFTER: Duration = Duration::from_secs(10);
/// Subscribers that ask for a new list within this time share it: capabilities begin to lead together.
const GATHER: Duration = Duration::from_millis(5);
const NOT_FOUND: u16 = 404;
const GONE: u16 = 410;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_older_than_what_was_seen_is_refused() {
        assert_eq!(not_stale(10, 9), Err(StaleList { seen: 10, listed: 9 }));
        assert_eq!(not_stale(10, 10), Ok(10));
    }
}
