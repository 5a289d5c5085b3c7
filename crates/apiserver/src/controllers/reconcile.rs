//! What the controllers share: caches fed by watches, keys, and when to reconcile next.

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

/// Namespace (empty for cluster scope) and name.
pub type Key = (String, String);

/// A cache of a kind, and the namespaces in which something changed; none when every namespace may have changed.
pub(super) fn watch<K>(client: &Client, config: watcher::Config) -> (Store<K>, BoxStream<'static, Option<String>>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let events = watcher(Api::<K>::all(client.clone()), config).default_backoff();
    let events = events.modify(|object| object.managed_fields_mut().clear()).reflect(writer);
    let touched = events.filter_map(|event| async {
        match event {
            Ok(Event::Apply(object) | Event::Delete(object)) => Some(object.namespace()),
            Ok(Event::InitDone) => Some(None),
            Ok(Event::Init | Event::InitApply(_)) => None,
            Err(error) => {
                tracing::debug!(%error, "a watch was interrupted");
                None
            }
        }
    });
    (store, touched.boxed())
}

/// Whether everything of a kind has been listed once.
pub(super) fn is_listed<K: Resource<DynamicType = ()> + Clone + 'static>(store: &Store<K>) -> bool {
    store.wait_until_ready().now_or_never().is_some()
}

pub fn key(object: &impl ResourceExt) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// The HTTP status of a failure; 0 if the server was not reached.
pub fn code(error: &kube::Error) -> u16 {
    if let kube::Error::Api(status) = error { status.code } else { 0 }
}

/// Changes within this time are handled together.
const SETTLE: Duration = Duration::from_millis(20);
/// The shortest and the longest delay before a retry.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// When to reconcile next: soon after a change, with backoff while something is left to do.
#[derive(Default)]
pub struct Pace {
    at: Option<Instant>,
    failures: u32,
}

impl Pace {
    /// Something changed.
    pub fn touch(&mut self) {
        let soon = Instant::now() + SETTLE;
        self.at = Some(self.at.map_or(soon, |at| at.min(soon)));
    }

    /// All work was done, or some is left for a retry.
    pub fn worked(&mut self, all: bool) {
        self.failures = if all { 0 } else { self.failures + 1 };
        self.at = (!all).then(|| Instant::now() + (RETRY.0 * (1 << self.failures.min(6))).min(RETRY.1));
    }

    /// Waits until it is time to work.
    pub async fn due(&self) {
        match self.at {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}
