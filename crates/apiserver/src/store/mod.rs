//! The MVCC store: every object as JSON bytes, one revision counter, and a window of history that feeds watches.
//!
//! ```text
//!   commit ──► batch (check, then give out revisions) ──► disk (redb, if any) ──► view ──► answer
//!                                                                                  │
//!   get, list, list_at ◄─── objects ───────────────────────────────────────────────┤
//!   watch ◄──────────────── history window, one log per resource ──────────────────┘
//! ```
//!
//! All current objects are in memory; the disk is read at start only, so readers never wait for it. On disk, one thread
//! takes all pending writes, commits them in one durable transaction, and only then publishes and acknowledges them:
//! what a reader has seen survives a kill. A watcher has a position in the shared log instead of its own queue; when the
//! window moves past that position, the watch has expired.

mod batch;
mod disk;
mod types;
mod view;
mod watch;
mod writer;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

pub use disk::Error;
pub use types::{Change, Entry, Event, Expect, Expired, Key, Missing, Options, Refused, Resource, Snapshot};
pub use watch::Watch;

use batch::{Batch, PendingWrite};
use types::FIRST_REVISION;
use view::View;
use writer::Writer;

/// A handle to a store; clones share it.
///
/// A folder is unlocked by [`Store::close`], or when the last handle is dropped, which waits for the writer: at most one
/// transaction.
#[derive(Debug, Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    view: Arc<RwLock<View>>,
    backend: Backend,
}

#[derive(Debug)]
enum Backend {
    /// Held from the check of a write until readers see it.
    Memory(Mutex<()>),
    Disk(Writer),
}

impl Store {
    /// An empty store that lives as long as its handles.
    pub fn memory(options: Options) -> Self {
        let view = Arc::new(RwLock::new(View::new(FIRST_REVISION, Vec::new(), options)));
        Self { shared: Arc::new(Shared { view, backend: Backend::Memory(Mutex::new(())) }) }
    }

    /// The store kept in `folder`, made when missing. Blocks while it reads all objects.
    ///
    /// Its history window starts empty: only watches from the current revision on are possible.
    pub fn open(folder: &Path, options: Options) -> Result<Self, Error> {
        let (disk, loaded) = disk::Disk::open(folder)?;
        Self::on(disk, loaded, options)
    }

    fn on(disk: disk::Disk, loaded: disk::Loaded, options: Options) -> Result<Self, Error> {
        let view = Arc::new(RwLock::new(View::new(loaded.revision, loaded.entries, options)));
        let writer = Writer::start(disk, Arc::clone(&view))?;
        Ok(Self { shared: Arc::new(Shared { view, backend: Backend::Disk(writer) }) })
    }

    /// The revision of the newest write.
    pub fn revision(&self) -> u64 {
        self.shared.view.read().revision
    }

    /// The oldest revision from which `resource` can still be watched, and at which it can be listed.
    pub fn oldest(&self, resource: &Resource) -> u64 {
        self.shared.view.read().oldest(resource)
    }

    pub fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.shared.view.read().get(key)
    }

    /// All objects of a resource, or of one namespace of it, ordered by namespace and name.
    pub fn list(&self, resource: &Resource, namespace: Option<&str>) -> Snapshot {
        let view = self.shared.view.read();
        Snapshot { revision: view.revision, entries: view.list(resource, namespace) }
    }

    /// What [`Store::list`] returned at `revision`.
    pub fn list_at(&self, resource: &Resource, namespace: Option<&str>, revision: u64) -> Result<Snapshot, Missing> {
        let (present, since) = {
            let view = self.shared.view.read();
            (view.list(resource, namespace), view.since(resource, namespace, revision)?)
        };
        Ok(Snapshot { revision, entries: view::undo(present, &since) })
    }

    /// Writes one object if `expect` holds at that moment.
    ///
    /// `value` is given the revision that the write gets, for `metadata.resourceVersion`, and returns the object: as it
    /// shall be, or, for a deletion, its last state. It blocks other writes, so it must be quick.
    /// Returns the entry as written; for a deletion, the last object with the revision of the deletion.
    /// A future that is dropped early may or may not have written.
    pub async fn commit(
        &self,
        key: Key,
        expect: Expect,
        value: impl FnOnce(u64) -> Change + Send + 'static,
    ) -> Result<Arc<Entry>, Refused> {
        let write = PendingWrite { key, expect, value: Box::new(value) };
        match &self.shared.backend {
            Backend::Memory(writing) => self.commit_now(writing, write),
            Backend::Disk(writer) => writer.commit(write).await,
        }
    }

    /// Finishes pending writes and unlocks the folder, even while others hold handles: those can still read, and
    /// their writes are refused. In memory there is nothing to close.
    pub async fn close(&self) {
        if let Backend::Disk(writer) = &self.shared.backend {
            writer.close().await;
        }
    }

    /// All changes of a resource, or of one namespace of it, after revision `from`, without gap or duplicate.
    ///
    /// A `from` in the future is waited for: changes up to it are left out.
    pub fn watch(&self, resource: &Resource, namespace: Option<&str>, from: u64) -> Result<Watch, Expired> {
        Watch::open(&self.shared.view, resource, namespace, from)
    }

    fn commit_now(&self, writing: &Mutex<()>, write: PendingWrite) -> Result<Arc<Entry>, Refused> {
        let _turn = writing.lock();
        let mut batch = Batch::after(&self.shared.view);
        let entry = batch.add(write)?;
        batch.publish(Instant::now());
        Ok(entry)
    }
}
