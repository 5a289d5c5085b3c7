//! Writes that become visible together: each is checked against the current objects and earlier writes of the batch.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;
use tokio::time::Instant;

use super::types::{Change, Entry, Event, Expect, Key, Refused};
use super::view::View;

/// A requested write.
pub(super) struct PendingWrite {
    pub(super) key: Key,
    pub(super) expect: Expect,
    pub(super) value: Box<dyn FnOnce(u64) -> Change + Send>,
}

/// Only one batch may be under way at a time.
pub(super) struct Batch<'a> {
    view: &'a RwLock<View>,
    revision: u64,
    latest: BTreeMap<Key, Option<Arc<Entry>>>,
    events: Vec<Arc<Event>>,
}

impl<'a> Batch<'a> {
    pub(super) fn after(view: &'a RwLock<View>) -> Self {
        Self { view, revision: view.read().revision, latest: BTreeMap::new(), events: Vec::new() }
    }

    pub(super) fn add(&mut self, write: PendingWrite) -> Result<Arc<Entry>, Refused> {
        let PendingWrite { key, expect, value } = write;
        let before = match self.latest.get(&key) {
            Some(latest) => latest.clone(),
            None => self.view.read().get(&key),
        };
        check(expect, before.as_ref())?;
        let revision = self.revision + 1;
        let (json, deleted) = match value(revision) {
            Change::Set(json) => (json, false),
            Change::Delete(_) if before.is_none() => return Err(Refused::Gone),
            Change::Delete(json) => (json, true),
        };
        // A boxed slice has no spare capacity: objects live long.
        let json = Bytes::from(json.into_boxed_slice());
        let entry = Arc::new(Entry { key: key.clone(), revision, json });
        self.revision = revision;
        self.latest.insert(key, (!deleted).then(|| Arc::clone(&entry)));
        self.events.push(Arc::new(Event { before, entry: Arc::clone(&entry), deleted }));
        Ok(entry)
    }

    /// The revision after the batch.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn events(&self) -> &[Arc<Event>] {
        &self.events
    }

    /// Shows the batch to readers and watchers.
    pub(super) fn publish(self, now: Instant) {
        if self.events.is_empty() {
            return;
        }
        let woken: Vec<_> = {
            let mut view = self.view.write();
            let woken = self.events.into_iter().map(|event| view.apply(event, now)).collect();
            view.trim(now);
            woken
        };
        for moved in woken {
            moved.notify_waiters();
        }
    }
}

fn check(expect: Expect, before: Option<&Arc<Entry>>) -> Result<(), Refused> {
    match (expect, before) {
        (Expect::Any, _) | (Expect::Absent, None) => Ok(()),
        (Expect::Absent, Some(entry)) => Err(Refused::Exists(Arc::clone(entry))),
        (Expect::Revision(_), None) => Err(Refused::Gone),
        (Expect::Revision(revision), Some(entry)) if entry.revision == revision => Ok(()),
        (Expect::Revision(_), Some(entry)) => Err(Refused::Changed(Arc::clone(entry))),
    }
}
