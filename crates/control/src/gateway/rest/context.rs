//! What all requests share.

use std::sync::Arc;
use std::time::Duration;

use portolan_api::gateway::{Endpoint, LoadBalancer};
use portolan_core::gateway::{PROVIDER_NAMESPACE, namespace_of};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::feed::Feed;
use super::login::Logins;
use super::metrics::Metrics;
use super::refusal::{Refusal, Refused};
use super::throttle::Buckets;
use super::writes::Writes;
use crate::gateway::observe::Cache;
use crate::runtime::store::{Key, Store};
use crate::runtime::tasks::Tasks;
use crate::runtime::watch::Kind;

/// A write is awaited in the cache for this long; it is done all the same.
const SOON: Duration = Duration::from_secs(2);

pub(super) struct Context {
    pub(super) cache: Cache,
    pub(super) feed: Arc<Feed>,
    /// Counts changes of the cache.
    pub(super) changed: watch::Sender<u64>,
    pub(super) writes: Writes,
    pub(super) logins: Logins,
    pub(super) buckets: Buckets,
    pub(super) metrics: Metrics,
    pub(super) tasks: Tasks,
    pub(super) stop: CancellationToken,
}

impl Context {
    /// True once the cache shows everything.
    pub(super) fn is_ready(&self) -> bool {
        self.feed.has_begun() && self.cache.accounts.synced() && self.cache.groups.synced()
    }

    pub(super) fn service(&self, account: &str, name: &str) -> Refused<Arc<LoadBalancer>> {
        self.cache.load_balancers.get(&key(account, name)).ok_or_else(|| Refusal::missing("service", name))
    }

    /// An endpoint of a service.
    pub(super) fn endpoint(&self, account: &str, service: &str, name: &str) -> Refused<Arc<Endpoint>> {
        let found = self.cache.endpoints.get(&key(account, name));
        let found = found.filter(|endpoint| endpoint.spec.load_balancer == service);
        found.ok_or_else(|| Refusal::missing("endpoint", name))
    }

    /// The endpoints of a service, in order of name.
    pub(super) fn endpoints_of(&self, account: &str, service: &str) -> Vec<Arc<Endpoint>> {
        let mut found = Vec::new();
        self.cache.endpoints.in_namespace(&namespace_of(account), |_, endpoint| {
            if endpoint.spec.load_balancer == service {
                found.push(Arc::clone(endpoint));
            }
        });
        found
    }

    pub(super) fn has_account(&self, account: &str) -> bool {
        let key = Key { namespace: PROVIDER_NAMESPACE.to_owned(), name: account.to_owned() };
        self.cache.accounts.get(&key).is_some()
    }

    /// Looks again whenever the cache changed, until there is something or the time is over.
    pub(super) async fn until<T>(&self, end: Instant, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let mut changed = self.changed.subscribe();
        loop {
            if let Some(found) = look() {
                return Some(found);
            }
            let waited = tokio::time::timeout_at(end, changed.changed()).await;
            if !matches!(waited, Ok(Ok(()))) {
                return look();
            }
        }
    }

    /// Returns when reads show what was written, or some time later.
    pub(super) async fn shown<K: Kind>(&self, store: &Store<K>, written: &K) {
        let key = Key::of(written);
        let Some(wanted) = revision(written) else { return };
        let is_shown = || {
            let is_newer = store.get(&key).and_then(|object| revision(&*object)).is_some_and(|found| found >= wanted);
            (is_newer || store.position() >= wanted).then_some(())
        };
        self.until(Instant::now() + SOON, is_shown).await;
    }

    /// Returns when reads show that it was deleted, or some time later.
    pub(super) async fn shown_deleted<K: Kind>(&self, store: &Store<K>, key: &Key, uid: Option<&str>) {
        let is_shown = || {
            let object = store.get(key);
            let is_there = object.is_some_and(|object| {
                let meta = object.meta();
                meta.deletion_timestamp.is_none() && (uid.is_none() || meta.uid.as_deref() == uid)
            });
            (!is_there).then_some(())
        };
        self.until(Instant::now() + SOON, is_shown).await;
    }
}

/// The key of an object of an account.
pub(super) fn key(account: &str, name: &str) -> Key {
    Key { namespace: namespace_of(account), name: name.to_owned() }
}

fn revision<K: Kind>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_deref()?.parse().ok()
}
