//! The store on disk: what is acknowledged stays, whatever ends the process.

use std::fs;
use std::io;
use std::path::Path;

use futures::future::join_all;
use parking_lot::{Condvar, Mutex};
use redb::backends::InMemoryBackend;
use redb::{Database, StorageBackend};
use tempfile::tempdir;

use super::*;
use crate::store::Error;
use crate::store::disk::{Disk, NUMBERS, initialize_database};

#[tokio::test]
async fn objects_and_revision_survive_and_old_watches_expire() {
    let folder = tempdir().unwrap();
    let store = Store::open(&folder.path().join("new/folder"), WIDE).unwrap();
    fill(&store, 3).await;
    delete(&store, &pod("p1"), Expect::Any).await.unwrap();
    let before = store.list(&pods(), None);
    drop(store);

    let store = Store::open(&folder.path().join("new/folder"), WIDE).unwrap();
    assert_eq!(store.list(&pods(), None), before);
    assert!(store.watch(&pods(), None, 4).is_err());
    let mut watch = store.watch(&pods(), None, before.revision).unwrap();
    let next = set(&store, &pod("p1"), Expect::Absent).await.unwrap();
    assert_eq!(next.revision, before.revision + 1, "a revision is never given twice");
    assert_eq!(watch.next().await.unwrap().entry, next);
}

#[tokio::test]
async fn any_text_can_be_a_key() {
    let folder = tempdir().unwrap();
    let keys = [("", "pods", "a/b", "c"), ("", "pods", "a", "b/c"), ("é\0", "x\0", "", "\0"), ("", "", "", "")]
        .map(|(group, plural, namespace, name)| Key::new(&Resource::new(group, plural), namespace, name));
    let store = Store::open(folder.path(), WIDE).unwrap();
    let written = join_all(keys.iter().map(|key| set(&store, key, Expect::Absent))).await;
    drop(store);
    let store = Store::open(folder.path(), WIDE).unwrap();
    for (key, entry) in keys.iter().zip(written) {
        assert_eq!(store.get(key), Some(entry.unwrap()));
    }
}

#[tokio::test]
async fn a_folder_in_use_is_refused_until_the_last_handle_is_gone() {
    let folder = tempdir().unwrap();
    let store = Store::open(folder.path(), WIDE).unwrap();
    let other = store.clone();
    let watch = store.watch(&pods(), None, 1).unwrap();
    drop(store);
    assert!(matches!(Store::open(folder.path(), WIDE), Err(Error::InUse { .. })));
    drop(other);
    Store::open(folder.path(), WIDE).expect("a watcher does not hold the folder");
    drop(watch);
}

#[tokio::test]
async fn a_closed_store_has_unlocked_its_folder_and_refuses_writes() {
    let folder = tempdir().unwrap();
    let (store, one) = (Store::open(folder.path(), WIDE).unwrap(), pod("one"));
    let written = set(&store, &one, Expect::Absent).await.unwrap();
    store.close().await;
    store.close().await;
    let again = Store::open(folder.path(), WIDE).expect("the folder is free while a handle is held");
    assert_eq!((store.get(&one), again.get(&one)), (Some(written.clone()), Some(written)));
    assert!(matches!(set(&store, &one, Expect::Any).await, Err(Refused::Storage(_))));
}

#[test]
fn a_kill_during_the_first_start_leaves_nothing_in_the_way() {
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("store.redb.new"), [0; 5000]).unwrap();
    assert_eq!(Store::open(folder.path(), WIDE).unwrap().revision(), 1);
}

#[tokio::test]
async fn a_damaged_file_is_an_error_that_names_it() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("store.redb");
    let store = Store::open(folder.path(), WIDE).unwrap();
    fill(&store, 200).await;
    drop(store);
    let sound = fs::read(&file).unwrap();
    for (what, bytes) in [
        ("empty", Vec::new()),
        ("text", b"not a database".to_vec()),
        ("cut", sound[..sound.len() / 2].to_vec()),
        ("overwritten", overwritten(&sound)),
        ("zeros", [&sound[..4096], &vec![0; sound.len() - 4096]].concat()),
    ] {
        fs::write(&file, bytes).unwrap();
        let error = Store::open(folder.path(), WIDE).expect_err(what);
        assert!(matches!(error, Error::Damaged { .. }), "{what}: {error:?}");
        assert!(error.to_string().contains("store.redb"), "{error}");
    }
    fs::write(&file, sound).unwrap();
    assert_eq!(Store::open(folder.path(), WIDE).unwrap().list(&pods(), None).entries.len(), 200);
}

/// Changes one letter of every object.
fn overwritten(sound: &[u8]) -> Vec<u8> {
    let mut bytes = sound.to_vec();
    for index in 0..bytes.len() - 4 {
        if &bytes[index..index + 4] == b"name" {
            bytes[index] = b'N';
        }
    }
    bytes
}

#[test]
fn a_file_of_a_newer_format_is_refused() {
    let folder = tempdir().unwrap();
    drop(Store::open(folder.path(), WIDE).unwrap());
    let database = Database::open(folder.path().join("store.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(NUMBERS).unwrap().insert(0, 2).unwrap();
    transaction.commit().unwrap();
    drop(database);
    assert!(matches!(Store::open(folder.path(), WIDE), Err(Error::Newer { format: 2, .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_sees_a_write_before_it_is_on_disk() {
    let medium = Arc::new(Medium::default());
    let store = medium.open().unwrap();
    let mut watch = store.watch(&pods(), None, 1).unwrap();
    medium.block(true);
    let tasks = tokio_util::task::TaskTracker::new();
    let writing = {
        let store = store.clone();
        tasks.spawn(async move { set(&store, &pod("a"), Expect::Absent).await })
    };
    medium.until_blocked();
    // Joins the batch after; its refusal tells of `a`, so it waits too.
    let losing = {
        let store = store.clone();
        tasks.spawn(async move { set(&store, &pod("a"), Expect::Absent).await })
    };
    tokio::task::yield_now().await;
    assert!(!writing.is_finished() && !losing.is_finished());
    assert_eq!((store.revision(), store.get(&pod("a")), watch.try_next()), (1, None, Ok(None)), "readers do not wait");

    medium.block(false);
    let written = writing.await.unwrap().unwrap();
    assert_eq!(losing.await.unwrap(), Err(Refused::Exists(written.clone())));
    assert_eq!(watch.next().await.unwrap().entry, written);
}

#[tokio::test]
async fn a_failing_disk_refuses_writes_and_keeps_serving_reads() {
    let medium = Arc::new(Medium::default());
    let store = medium.open().unwrap();
    fill(&store, 2).await;
    medium.gate.lock().failing = true;
    assert!(matches!(set(&store, &pod("p0"), Expect::Any).await, Err(Refused::Storage(_))));
    medium.gate.lock().failing = false;
    assert!(
        matches!(set(&store, &pod("p9"), Expect::Any).await, Err(Refused::Storage(why)) if why.contains("restart"))
    );
    assert_eq!((store.revision(), names(&store.list(&pods(), None).entries)), (3, vec!["p0", "p1"]));
}

#[tokio::test]
async fn a_value_that_panics_costs_only_its_own_write() {
    let folder = tempdir().unwrap();
    let store = Store::open(folder.path(), WIDE).unwrap();
    let refused = store.commit(pod("a"), Expect::Any, |_| panic!("on purpose")).await;
    assert!(matches!(refused, Err(Refused::Storage(_))));
    assert_eq!(set(&store, &pod("b"), Expect::Any).await.unwrap().revision, 2);
}

/// A kill keeps what the process has written to the file so far, synced or not; every such moment is tried.
#[tokio::test]
async fn every_moment_of_a_kill_keeps_what_was_acknowledged() {
    let medium = Arc::new(Medium::default());
    let store = medium.open().unwrap();
    // What is there after how many steps of the medium.
    let mut acknowledged = vec![(medium.steps(), store.list(&pods(), None))];
    for round in 0..6 {
        let keys: Vec<Key> = (0..4).map(|index| pod(&format!("p{}", (round * 3 + index) % 8))).collect();
        join_all(keys.iter().map(|key| set(&store, key, Expect::Any))).await;
        acknowledged.push((medium.steps(), store.list(&pods(), None)));
        delete(&store, &keys[0], Expect::Any).await.unwrap();
        acknowledged.push((medium.steps(), store.list(&pods(), None)));
    }
    drop(store);
    for step in acknowledged[0].0..medium.steps() {
        let survivor = medium.killed_at(step).open().unwrap_or_else(|error| panic!("after step {step}: {error}"));
        let (done, under_way) = acknowledged.split_at(acknowledged.partition_point(|(at, _)| *at <= step));
        let last = &done.last().unwrap().1;
        let found = survivor.list(&pods(), None);
        assert!(found.revision >= last.revision, "step {step}: {} is gone, {} is left", last.revision, found.revision);
        let is_whole = [Some(last), under_way.first().map(|(_, list)| list)].contains(&Some(&found));
        // A burst may have been cut into several batches: then only its revisions are known.
        assert!(is_whole || under_way.first().is_some_and(|(_, next)| found.revision < next.revision), "step {step}");
    }
}

/// A disk in memory that remembers every step, and can block or fail when it should sync.
#[derive(Debug, Default)]
struct Medium {
    bytes: InMemoryBackend,
    steps: Mutex<Vec<Step>>,
    gate: Mutex<Gate>,
    turned: Condvar,
}

#[derive(Debug, Clone)]
enum Step {
    Resize(u64),
    Write(u64, Vec<u8>),
}

#[derive(Debug, Default)]
struct Gate {
    blocking: bool,
    waiting: bool,
    failing: bool,
}

impl Medium {
    /// The store on this medium, made when it is empty.
    fn open(self: &Arc<Self>) -> Result<Store, Error> {
        let file = Path::new("store.redb");
        let damaged = |error: &dyn ToString| Error::Damaged { file: file.to_owned(), why: error.to_string() };
        let is_new = self.steps() == 0;
        let database =
            Database::builder().create_with_backend(Handle(Arc::clone(self))).map_err(|error| damaged(&error))?;
        if is_new {
            initialize_database(&database).map_err(|error| damaged(&error))?;
        }
        let (disk, loaded) = Disk::adopt(database, file)?;
        Store::on(disk, loaded, WIDE)
    }

    fn block(&self, blocking: bool) {
        self.gate.lock().blocking = blocking;
        self.turned.notify_all();
    }

    fn until_blocked(&self) {
        let mut gate = self.gate.lock();
        self.turned.wait_while(&mut gate, |gate| !gate.waiting);
    }

    fn steps(&self) -> usize {
        self.steps.lock().len()
    }

    /// What a kill after so many steps leaves.
    fn killed_at(&self, step: usize) -> Arc<Self> {
        let left = Self { steps: Mutex::new(self.steps.lock()[..step].to_vec()), ..Self::default() };
        for step in &*left.steps.lock() {
            match step {
                Step::Resize(length) => left.bytes.set_len(*length).unwrap(),
                Step::Write(offset, data) => left.bytes.write(*offset, data).unwrap(),
            }
        }
        Arc::new(left)
    }
}

#[derive(Debug)]
struct Handle(Arc<Medium>);

impl StorageBackend for Handle {
    fn len(&self) -> Result<u64, io::Error> {
        self.0.bytes.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.0.bytes.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.0.steps.lock().push(Step::Resize(len));
        self.0.bytes.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        let mut gate = self.0.gate.lock();
        if gate.failing {
            return Err(io::Error::other("no disk"));
        }
        gate.waiting = gate.blocking;
        self.0.turned.notify_all();
        self.0.turned.wait_while(&mut gate, |gate| gate.blocking);
        gate.waiting = false;
        self.0.bytes.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.0.steps.lock().push(Step::Write(offset, data.to_vec()));
        self.0.bytes.write(offset, data)
    }
}
