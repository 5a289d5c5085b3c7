//! Types of the store: keys, entries, events, errors.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

/// Revision of a store that was never written to; 0 is taken, clients send it for "any".
pub(super) const FIRST_REVISION: u64 = 1;

/// A resource in whatever version, as `group/plural`; the core group is empty: `/pods`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(Arc<str>);

/// Where an object is; ordered by resource, namespace, name. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub resource: Resource,
    /// Empty for cluster scope.
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

/// An object at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: Key,
    /// Revision of the write that made it.
    pub revision: u64,
    pub json: Bytes,
}

/// One write, as watchers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The object before; none when the write created it.
    pub before: Option<Arc<Entry>>,
    /// The object as written; for a deletion, the last object with the revision of the deletion.
    pub entry: Arc<Entry>,
    pub deleted: bool,
}

/// What a list returns: `entries` is exactly what existed at `revision`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub revision: u64,
    /// Ordered by namespace and name.
    pub entries: Vec<Arc<Entry>>,
}

/// What must hold for a write to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// There is no such object.
    Absent,
    /// The object is there, last written at this revision.
    Revision(u64),
    /// Nothing: [`Change::Set`] creates or replaces.
    Any,
}

/// What a write does; the bytes are the object with its new `metadata.resourceVersion`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Set(Vec<u8>),
    /// Removes the object; the bytes are what watchers are sent of it.
    Delete(Vec<u8>),
}

/// Why a write did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The object exists, and was expected not to.
    #[error("the object exists")]
    Exists(Arc<Entry>),
    /// The object has another revision than expected.
    #[error("the object has changed to revision {}", .0.revision)]
    Changed(Arc<Entry>),
    /// There is no such object.
    #[error("the object does not exist")]
    Gone,
    /// The disk failed, so it is unknown whether the write happened; writes are refused until the store is reopened.
    #[error("the store cannot write: {0}")]
    Storage(Arc<str>),
}

/// A revision whose successors have left the history window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {requested} ({oldest})")]
pub struct Expired {
    pub requested: u64,
    /// The oldest revision that is still available.
    pub oldest: u64,
}

/// Why an old revision cannot be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    #[error(transparent)]
    Expired(#[from] Expired),
    #[error("too large resource version: {requested}, current: {current}")]
    Future { requested: u64, current: u64 },
}

/// Bounds of the history window, over all resources together; the newest event always stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    pub window_events: usize,
    /// Looked at with every write.
    pub window_age: Duration,
    /// Bytes of JSON that only the window still holds.
    pub window_bytes: usize,
}

impl Resource {
    pub fn new(group: &str, plural: &str) -> Self {
        Self(format!("{group}/{plural}").into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn stored(text: &str) -> Self {
        Self(text.into())
    }
}

impl Key {
    pub fn new(resource: &Resource, namespace: &str, name: &str) -> Self {
        Self { resource: resource.clone(), namespace: namespace.into(), name: name.into() }
    }
}

impl Event {
    pub fn revision(&self) -> u64 {
        self.entry.revision
    }

    pub fn key(&self) -> &Key {
        &self.entry.key
    }

    /// The object afterwards; none for a deletion.
    pub fn after(&self) -> Option<&Arc<Entry>> {
        (!self.deleted).then_some(&self.entry)
    }

    pub(super) fn is_in(&self, namespace: Option<&str>) -> bool {
        namespace.is_none_or(|namespace| *self.key().namespace == *namespace)
    }

    /// Bytes that nothing but the history holds: what the write replaced, and a deleted object's last state.
    pub(super) fn weight(&self) -> usize {
        let before = self.before.as_ref().map_or(0, |before| before.json.len());
        before + if self.deleted { self.entry.json.len() } else { 0 }
    }
}

impl Default for Options {
    /// Five minutes, as etcd keeps for Kubernetes; 50,000 events, about 10 MB besides their objects; 32 MiB of objects.
    fn default() -> Self {
        Self { window_events: 50_000, window_age: Duration::from_mins(5), window_bytes: 32 << 20 }
    }
}
