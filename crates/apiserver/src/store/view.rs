//! What readers see: the current objects and the history window, pure map operations under the caller's lock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::types::{Entry, Event, Expired, Key, Missing, Options, Resource};

#[derive(Debug)]
pub(super) struct View {
    pub(super) revision: u64,
    /// Revision at which this process started: there is no history before it.
    base: u64,
    /// Ordered by resource, namespace and name.
    objects: BTreeMap<Key, Arc<Entry>>,
    logs: BTreeMap<Resource, Log>,
    /// Every event of the window, in order of revision: what to evict next.
    window: VecDeque<Slot>,
    /// Sum of the window's weights, in bytes.
    weight: usize,
    options: Options,
}

/// A resource's part of the window.
#[derive(Debug)]
pub(super) struct Log {
    events: VecDeque<Arc<Event>>,
    /// Revision of the last event that left the log.
    pub(super) oldest: u64,
    /// Wakes watchers.
    pub(super) moved: Arc<Notify>,
}

#[derive(Debug)]
struct Slot {
    resource: Resource,
    weight: usize,
    at: Instant,
}

impl View {
    pub(super) fn new(revision: u64, entries: Vec<Arc<Entry>>, options: Options) -> Self {
        Self {
            revision,
            base: revision,
            objects: entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect(),
            logs: BTreeMap::new(),
            window: VecDeque::new(),
            weight: 0,
            options,
        }
    }

    pub(super) fn oldest(&self, resource: &Resource) -> u64 {
        self.logs.get(resource).map_or(self.base, |log| log.oldest)
    }

    pub(super) fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.objects.get(key).cloned()
    }

    pub(super) fn list(&self, resource: &Resource, namespace: Option<&str>) -> Vec<Arc<Entry>> {
        let wanted =
            |key: &Key| key.resource == *resource && namespace.is_none_or(|namespace| *key.namespace == *namespace);
        let start = Key::new(resource, namespace.unwrap_or_default(), "");
        self.objects.range(start..).take_while(|(key, _)| wanted(key)).map(|(_, entry)| Arc::clone(entry)).collect()
    }

    /// The events after `revision`, in order.
    pub(super) fn since(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        revision: u64,
    ) -> Result<Vec<Arc<Event>>, Missing> {
        if revision > self.revision {
            return Err(Missing::Future { requested: revision, current: self.revision });
        }
        let oldest = self.oldest(resource);
        if revision < oldest {
            return Err(Expired { requested: revision, oldest }.into());
        }
        let events = self.logs.get(resource).into_iter().flat_map(|log| log.after(revision));
        Ok(events.filter(|event| event.is_in(namespace)).cloned().collect())
    }

    /// The log of a resource, created on first use.
    pub(super) fn log(&mut self, resource: &Resource) -> &mut Log {
        let base = self.base;
        let new = || Log { events: VecDeque::new(), oldest: base, moved: Arc::new(Notify::new()) };
        self.logs.entry(resource.clone()).or_insert_with(new)
    }

    /// The log of a resource that is watched.
    pub(super) fn watched(&self, resource: &Resource) -> &Log {
        self.logs.get(resource).expect("a watch makes the log, and logs stay")
    }

    /// Makes a write visible; returns whom to wake.
    pub(super) fn apply(&mut self, event: Arc<Event>, now: Instant) -> Arc<Notify> {
        match event.after() {
            Some(entry) => drop(self.objects.insert(entry.key.clone(), Arc::clone(entry))),
            None => drop(self.objects.remove(event.key())),
        }
        let (resource, weight) = (event.key().resource.clone(), event.weight());
        self.revision = event.revision();
        self.weight += weight;
        let log = self.log(&resource);
        log.events.push_back(event);
        let moved = Arc::clone(&log.moved);
        self.window.push_back(Slot { resource, weight, at: now });
        moved
    }

    /// Drops history outside of the bounds.
    pub(super) fn trim(&mut self, now: Instant) {
        while self.window.len() > 1 && self.window.front().is_some_and(|slot| self.is_out_of_bounds(slot, now)) {
            let Some(slot) = self.window.pop_front() else { return };
            self.weight -= slot.weight;
            self.log(&slot.resource).forget_first();
        }
    }

    fn is_out_of_bounds(&self, slot: &Slot, now: Instant) -> bool {
        self.window.len() > self.options.window_events
            || self.weight > self.options.window_bytes
            || now.saturating_duration_since(slot.at) > self.options.window_age
    }
}

impl Log {
    /// The events after `revision`, in order.
    pub(super) fn after(&self, revision: u64) -> impl Iterator<Item = &Arc<Event>> {
        let start = self.events.partition_point(|event| event.revision() <= revision);
        self.events.range(start..)
    }

    fn forget_first(&mut self) {
        if let Some(event) = self.events.pop_front() {
            self.oldest = event.revision();
        }
        // A burst leaves no empty log of its size behind.
        if self.events.capacity() > 64 && self.events.len() * 4 < self.events.capacity() {
            self.events.shrink_to(self.events.len() * 2);
        }
    }
}

/// What existed before the events `since`, given what exists after them; both of one resource.
pub(super) fn undo(present: Vec<Arc<Entry>>, since: &[Arc<Event>]) -> Vec<Arc<Entry>> {
    let mut past: BTreeMap<Key, Option<Arc<Entry>>> = BTreeMap::new();
    for event in since {
        past.entry(event.key().clone()).or_insert_with(|| event.before.clone());
    }
    let mut entries: Vec<_> = present.into_iter().filter(|entry| !past.contains_key(&entry.key)).collect();
    entries.extend(past.into_values().flatten());
    // Two sorted runs: the stable sort merges them.
    entries.sort_by(|one, other| one.key.cmp(&other.key));
    entries
}
