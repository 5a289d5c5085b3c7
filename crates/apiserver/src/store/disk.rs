//! The store's file: all present objects and the revision, in one redb database.
//!
//! A folder holds `lock`, held while the store is open, and `store.redb`. The file is made under another name and
//! renamed when it is whole, so a kill during the first start leaves nothing that cannot be opened.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use redb::{Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, StorageError, TableDefinition};

use super::types::{Entry, Event, FIRST_REVISION, Key, Resource};

/// Key and value are bytes of ours (see [`encode_key`] and [`encode_value`]): redb's own types panic on bad ones.
const OBJECTS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("objects");
pub(super) const NUMBERS: TableDefinition<u8, u64> = TableDefinition::new("numbers");
const FORMAT: u8 = 0;
const REVISION: u8 = 1;

/// The format that this version reads and writes.
const FORMAT_1: u64 = 1;

/// Objects are in memory already; redb needs room for its branch pages and a transaction only.
const CACHE_BYTES: usize = 8 << 20;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{} is in use by another process: stop it, or choose another folder", folder.display())]
    InUse { folder: PathBuf },
    #[error("{} is damaged ({why}): restore a backup, or move it away to start empty", file.display())]
    Damaged { file: PathBuf, why: String },
    #[error("{} has format {format}, which this version does not know: use a newer one", file.display())]
    Newer { file: PathBuf, format: u64 },
    #[error("{} cannot be opened: {cause}", path.display())]
    Open { path: PathBuf, cause: io::Error },
    #[error("the store's writer cannot be started: {cause}")]
    Start { cause: io::Error },
}

#[derive(Debug)]
pub(super) struct Disk {
    database: Database,
    /// Dropped after the database, so that who gets the lock can open the file.
    _lock: Option<FolderLock>,
}

/// The lock of a store's folder, held by this value.
#[derive(Debug)]
struct FolderLock(File);

impl Drop for FolderLock {
    /// Closing the file alone would not do: a child process that was forked but has not called exec yet holds a copy of
    /// the descriptor, and the lock with it.
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "unlocking the store's folder failed");
        }
    }
}

/// What was on disk.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) revision: u64,
    pub(super) entries: Vec<Arc<Entry>>,
}

impl Disk {
    /// Opens the store in `folder`, making what is missing.
    pub(super) fn open(folder: &Path) -> Result<(Self, Loaded), Error> {
        let file = folder.join("store.redb");
        let failed = |cause| Error::Open { path: file.clone(), cause };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let lock = lock(folder)?;
        if !file.try_exists().map_err(failed)? {
            create(&file)?;
        }
        // redb panics on some damage, such as zeros where its tables begin.
        let opened = catch_unwind(|| {
            let database = Database::builder().set_cache_size(CACHE_BYTES).open(&file);
            Self::adopt(database.map_err(|error| explain(&file, error))?, &file)
        });
        let why = "its structure is broken".to_owned();
        let (disk, loaded) = opened.unwrap_or_else(|_| Err(Error::Damaged { file: file.clone(), why }))?;
        Ok((Self { _lock: Some(lock), ..disk }, loaded))
    }

    /// Checks and reads a database; `file` is its name in errors.
    pub(super) fn adopt(mut database: Database, file: &Path) -> Result<(Self, Loaded), Error> {
        let damaged = |why: String| Error::Damaged { file: file.to_owned(), why };
        // Reads every page: damage is found here, not by a panic later.
        if !database.check_integrity().map_err(|error| explain(file, error))? {
            return Err(damaged("checksums are wrong".to_owned()));
        }
        let (format, loaded) = read(&database).map_err(|error| damaged(error.to_string()))?;
        if format != FORMAT_1 {
            return Err(Error::Newer { file: file.to_owned(), format });
        }
        let loaded = loaded.ok_or_else(|| damaged("unknown content".to_owned()))?;
        Ok((Self { database, _lock: None }, loaded))
    }

    /// Makes events durable, and `revision` with them.
    pub(super) fn write(&mut self, events: &[Arc<Event>], revision: u64) -> Result<(), redb::Error> {
        if events.is_empty() {
            return Ok(());
        }
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            for event in events {
                let key = encode_key(event.key());
                match event.after() {
                    Some(entry) => objects.insert(key.as_slice(), encode_value(entry).as_slice())?,
                    None => objects.remove(key.as_slice())?,
                };
            }
            transaction.open_table(NUMBERS)?.insert(REVISION, revision)?;
        }
        transaction.commit()?;
        Ok(())
    }
}

fn lock(folder: &Path) -> Result<FolderLock, Error> {
    let path = folder.join("lock");
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = opened.map_err(|cause| Error::Open { path: path.clone(), cause })?;
    match file.try_lock() {
        Ok(()) => Ok(FolderLock(file)),
        Err(TryLockError::WouldBlock) => Err(Error::InUse { folder: folder.to_owned() }),
        Err(TryLockError::Error(cause)) => Err(Error::Open { path, cause }),
    }
}

/// Creates an empty store atomically.
fn create(file: &Path) -> Result<(), Error> {
    let failed = |cause| Error::Open { path: file.to_owned(), cause };
    let half = file.with_extension("redb.new");
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&half);
    initialize(opened.map_err(failed)?).map_err(|error| failed(io::Error::other(error)))?;
    fs::rename(&half, file).map_err(failed)?;
    let folder = file.parent().unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

fn initialize(file: File) -> Result<(), redb::Error> {
    initialize_database(&Database::builder().set_cache_size(CACHE_BYTES).create_file(file)?)
}

pub(super) fn initialize_database(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        transaction.open_table(OBJECTS)?;
        let mut numbers = transaction.open_table(NUMBERS)?;
        numbers.insert(FORMAT, FORMAT_1)?;
        numbers.insert(REVISION, FIRST_REVISION)?;
    }
    transaction.commit()?;
    Ok(())
}

/// The format and, if it can be decoded, the content.
fn read(database: &Database) -> Result<(u64, Option<Loaded>), redb::Error> {
    let transaction = database.begin_read()?;
    let numbers = transaction.open_table(NUMBERS)?;
    let number = |name| numbers.get(name).map(|number| number.map_or(0, |number| number.value()));
    let (format, revision) = (number(FORMAT)?, number(REVISION)?);
    if format != FORMAT_1 {
        return Ok((format, None));
    }
    let mut entries = Vec::new();
    for object in transaction.open_table(OBJECTS)?.iter()? {
        let (key, value) = object?;
        match decode(key.value(), value.value()) {
            Some(entry) if entry.revision <= revision => entries.push(Arc::new(entry)),
            _ => return Ok((format, None)),
        }
    }
    Ok((format, Some(Loaded { revision, entries })))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "redb's errors are open-ended, and all others are damage")]
fn explain(file: &Path, error: DatabaseError) -> Error {
    match error {
        DatabaseError::DatabaseAlreadyOpen => {
            Error::InUse { folder: file.parent().unwrap_or(Path::new(".")).to_owned() }
        }
        DatabaseError::Storage(StorageError::Io(cause)) if !is_content(&cause) => {
            Error::Open { path: file.to_owned(), cause }
        }
        error => Error::Damaged { file: file.to_owned(), why: error.to_string() },
    }
}

/// Whether an I/O error is about the content of the file, not about the disk.
fn is_content(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

/// The lengths of resource and namespace, then resource, namespace and name: any text can be any part.
fn encode_key(key: &Key) -> Vec<u8> {
    let parts = [key.resource.as_str(), &key.namespace, &key.name];
    let mut bytes = Vec::with_capacity(8 + parts.iter().map(|part| part.len()).sum::<usize>());
    for part in &parts[..2] {
        bytes.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
    }
    bytes.extend(parts.concat().as_bytes());
    bytes
}

/// The revision, then the JSON.
fn encode_value(entry: &Entry) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 + entry.json.len());
    bytes.extend(entry.revision.to_be_bytes());
    bytes.extend(&entry.json);
    bytes
}

fn decode(key: &[u8], value: &[u8]) -> Option<Entry> {
    let (resource_length, key) = key.split_first_chunk()?;
    let (namespace_length, key) = key.split_first_chunk()?;
    let (resource, key) = key.split_at_checked(u32::from_be_bytes(*resource_length) as usize)?;
    let (namespace, name) = key.split_at_checked(u32::from_be_bytes(*namespace_length) as usize)?;
    let (revision, json) = value.split_first_chunk()?;
    let resource = Resource::stored(str::from_utf8(resource).ok()?);
    Some(Entry {
        key: Key::new(&resource, str::from_utf8(namespace).ok()?, str::from_utf8(name).ok()?),
        revision: u64::from_be_bytes(*revision),
        json: Bytes::copy_from_slice(json),
    })
}

#[test]
fn a_copy_of_the_descriptor_does_not_keep_the_folder_locked() {
    let folder = tempfile::tempdir().unwrap();
    let held = lock(folder.path()).unwrap();
    // what a forked child has until it calls exec
    let copy = held.0.try_clone().unwrap();
    assert!(matches!(lock(folder.path()), Err(Error::InUse { .. })));
    drop(held);
    lock(folder.path()).unwrap();
    drop(copy);
}
