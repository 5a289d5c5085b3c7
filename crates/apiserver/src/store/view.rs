//! What readers see: the present objects and the history window, pure map work under the caller's lock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::types::{Entry, Event, Expired, Key, Missing, Options, Resource};

#[derive(Debug)]
pub(super) struct View {
    revision: u64,
    /// Revision with which this process started: nothing is known of what was before.
    base: u64,
    ids: BTreeMap<Resource, usize>,
    tables: Vec<Table>,
    /// Every event of the window, in order of revision: what to evict next.
    window: VecDeque<Slot>,
    /// Sum of the window's weights, in bytes.
    weight: usize,
    options: Options,
}

/// A resource: its objects and its part of the window.
#[derive(Debug)]
pub(super) struct Table {
    /// By namespace, then name; no namespace is kept empty.
    objects: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Arc<Entry>>>,
    /// Events with their revisions, which are searched for: so the search stays within this memory.
    log: VecDeque<(u64, Arc<Event>)>,
    /// Revision of the last event that left the log.
    pub(super) oldest: u64,
    /// Wakes watchers.
    pub(super) moved: Arc<Notify>,
}

#[derive(Debug)]
struct Slot {
    table: usize,
    weight: usize,
    at: Instant,
}

impl View {
    pub(super) fn new(revision: u64, options: Options) -> Self {
        Self {
            revision,
            base: revision,
            ids: BTreeMap::new(),
            tables: Vec::new(),
            window: VecDeque::new(),
            weight: 0,
            options,
        }
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn oldest(&self, resource: &Resource) -> u64 {
        self.find(resource).map_or(self.base, |table| table.oldest)
    }

    pub(super) fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.find(&key.resource)?.objects.get(&key.namespace)?.get(&key.name).cloned()
    }

    pub(super) fn list(&self, resource: &Resource, namespace: Option<&str>) -> Vec<Arc<Entry>> {
        let Some(table) = self.find(resource) else { return Vec::new() };
        match namespace {
            Some(namespace) => table.objects.get(namespace).into_iter().flat_map(BTreeMap::values).cloned().collect(),
            None => table.objects.values().flat_map(BTreeMap::values).cloned().collect(),
        }
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
        let Some(table) = self.find(resource) else { return Ok(Vec::new()) };
        Ok(table.after(revision).filter(|event| event.is_in(namespace)).cloned().collect())
    }

    /// The number by which [`View::table`] finds a resource.
    pub(super) fn id(&mut self, resource: &Resource) -> usize {
        if let Some(id) = self.ids.get(resource) {
            return *id;
        }
        let id = self.tables.len();
        self.tables.push(Table::new(self.base));
        self.ids.insert(resource.clone(), id);
        id
    }

    pub(super) fn table(&self, id: usize) -> &Table {
        &self.tables[id]
    }

    /// Takes over an object from the disk.
    pub(super) fn load(&mut self, entry: Arc<Entry>) {
        let id = self.id(&entry.key.resource);
        self.tables[id].set(entry);
    }

    /// Makes a write visible; returns whom to wake.
    pub(super) fn apply(&mut self, event: Arc<Event>, now: Instant) -> Arc<Notify> {
        let id = self.id(&event.key().resource);
        let weight = event.weight();
        let table = &mut self.tables[id];
        match event.after() {
            Some(entry) => table.set(Arc::clone(entry)),
            None => table.remove(event.key()),
        }
        self.revision = event.revision();
        self.weight += weight;
        self.window.push_back(Slot { table: id, weight, at: now });
        table.log.push_back((event.revision(), event));
        Arc::clone(&table.moved)
    }

    /// Lets go of the history that is out of bounds.
    pub(super) fn trim(&mut self, now: Instant) {
        while self.window.len() > 1 && self.window.front().is_some_and(|slot| self.is_out_of_bounds(slot, now)) {
            let Some(slot) = self.window.pop_front() else { return };
            self.weight -= slot.weight;
            self.tables[slot.table].forget_first();
        }
    }

    fn is_out_of_bounds(&self, slot: &Slot, now: Instant) -> bool {
        self.window.len() > self.options.window_events
            || self.weight > self.options.window_bytes
            || now.saturating_duration_since(slot.at) > self.options.window_age
    }

    fn find(&self, resource: &Resource) -> Option<&Table> {
        self.ids.get(resource).map(|id| &self.tables[*id])
    }
}

impl Table {
    fn new(base: u64) -> Self {
        Self { objects: BTreeMap::new(), log: VecDeque::new(), oldest: base, moved: Arc::new(Notify::new()) }
    }

    /// The events after `revision`, in order.
    pub(super) fn after(&self, revision: u64) -> impl Iterator<Item = &Arc<Event>> {
        let start = self.log.partition_point(|(at, _)| *at <= revision);
        self.log.range(start..).map(|(_, event)| event)
    }

    fn set(&mut self, entry: Arc<Entry>) {
        let names = self.objects.entry(Arc::clone(&entry.key.namespace)).or_default();
        names.insert(Arc::clone(&entry.key.name), entry);
    }

    fn remove(&mut self, key: &Key) {
        let Some(names) = self.objects.get_mut(&key.namespace) else { return };
        names.remove(&key.name);
        if names.is_empty() {
            self.objects.remove(&key.namespace);
        }
    }

    fn forget_first(&mut self) {
        if let Some((revision, _)) = self.log.pop_front() {
            self.oldest = revision;
        }
        // A burst leaves no empty log of its size behind.
        if self.log.capacity() > 64 && self.log.len() * 4 < self.log.capacity() {
            self.log.shrink_to(self.log.len() * 2);
        }
    }
}

impl Event {
    pub(super) fn is_in(&self, namespace: Option<&str>) -> bool {
        namespace.is_none_or(|namespace| *self.key().namespace == *namespace)
    }
}

/// What existed before the events `since`, given what exists after them; both of one resource.
pub(super) fn undo(present: Vec<Arc<Entry>>, since: &[Arc<Event>]) -> Vec<Arc<Entry>> {
    if since.is_empty() {
        return present;
    }
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
