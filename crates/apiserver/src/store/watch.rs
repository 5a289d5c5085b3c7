//! A watcher: a position in the log of its resource, without a queue of its own.
//!
//! The position is a revision: newer events in the log are unread; if a newer event was evicted, the watch has expired.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::Notify;

use super::types::{Event, Expired, Resource};
use super::view::{Log, View};

/// The changes of a resource, or of one namespace of it, in order.
#[derive(Debug)]
pub struct Watch {
    view: Arc<RwLock<View>>,
    resource: Resource,
    moved: Arc<Notify>,
    namespace: Option<Box<str>>,
    /// Every event up to this revision was returned, or was not requested.
    seen: u64,
}

impl Watch {
    pub(super) fn open(
        shared: &Arc<RwLock<View>>,
        resource: &Resource,
        namespace: Option<&str>,
        from: u64,
    ) -> Result<Self, Expired> {
        let mut view = shared.write();
        let log = view.log(resource);
        let watch = Self {
            view: Arc::clone(shared),
            resource: resource.clone(),
            moved: Arc::clone(&log.moved),
            namespace: namespace.map(Into::into),
            seen: from,
        };
        watch.check(log)?;
        Ok(watch)
    }

    /// The next change, when there is one. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Arc<Event>, Expired> {
        let moved = Arc::clone(&self.moved);
        loop {
            // Made before looking, so that a change in between wakes it.
            let woken = moved.notified();
            if let Some(event) = self.try_next()? {
                return Ok(event);
            }
            woken.await;
        }
    }

    /// The next change, if there is one already.
    pub fn try_next(&mut self) -> Result<Option<Arc<Event>>, Expired> {
        let view = self.view.read();
        let log = view.watched(&self.resource);
        self.check(log)?;
        for event in log.after(self.seen) {
            self.seen = event.revision();
            if event.is_in(self.namespace.as_deref()) {
                return Ok(Some(Arc::clone(event)));
            }
        }
        self.seen = self.seen.max(view.revision);
        Ok(None)
    }

    /// The revision up to which [`Watch::next`] has returned everything there is: what a bookmark may say.
    ///
    /// It moves with the writes to other resources too.
    pub fn position(&self) -> u64 {
        let view = self.view.read();
        let log = view.watched(&self.resource);
        if self.check(log).is_err() {
            return self.seen;
        }
        let reached = log.after(self.seen).next().map_or(view.revision, |unread| unread.revision() - 1);
        self.seen.max(reached)
    }

    fn check(&self, log: &Log) -> Result<(), Expired> {
        if self.seen < log.oldest {
            return Err(Expired { requested: self.seen, oldest: log.oldest });
        }
        Ok(())
    }
}
