//! Random operations against the store and a plain model, in memory and on disk with reopening.

use std::collections::BTreeMap;

use futures::future::join_all;
use proptest::prelude::*;
use tempfile::{TempDir, tempdir};

use super::*;
use crate::store::{Event, Expired, Missing, Watch};

const WINDOW: usize = 12;

#[derive(Debug, Clone)]
enum Op {
    /// Writes that are sent at once.
    Commit(Vec<Ask>),
    Get(usize),
    /// At the present, less so many revisions (or more, when negative).
    List(usize, Option<&'static str>, i64),
    Watch(usize, Option<&'static str>, i64),
    /// Reads all that a watcher has.
    Drain(usize),
    Position(usize),
    Reopen,
}

#[derive(Debug, Clone)]
struct Ask {
    key: usize,
    expect: Guess,
    delete: bool,
}

#[derive(Debug, Clone, Copy)]
enum Guess {
    Absent,
    Any,
    Right,
    Wrong,
}

fn keys() -> Vec<Key> {
    let places = [("a", "x"), ("a", "y"), ("b", "x")];
    resources()
        .iter()
        .flat_map(|resource| places.map(|(namespace, name)| Key::new(resource, namespace, name)))
        .collect()
}

fn resources() -> [Resource; 2] {
    [pods(), deployments()]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let guess =
        prop_oneof![1 => Just(Guess::Absent), 1 => Just(Guess::Any), 3 => Just(Guess::Right), 1 => Just(Guess::Wrong)];
    let ask =
        (0..6_usize, guess, prop::bool::weighted(0.3)).prop_map(|(key, expect, delete)| Ask { key, expect, delete });
    let namespace = || prop_oneof![Just(None), Just(Some("a")), Just(Some("b"))];
    let op = prop_oneof![
        8 => prop::collection::vec(ask, 1..5).prop_map(Op::Commit),
        1 => (0..6_usize).prop_map(Op::Get),
        3 => (0..2_usize, namespace(), -2..25_i64).prop_map(|(resource, namespace, ago)| Op::List(resource, namespace, ago)),
        3 => (0..2_usize, namespace(), -2..25_i64).prop_map(|(resource, namespace, ago)| Op::Watch(resource, namespace, ago)),
        3 => (0..8_usize).prop_map(Op::Drain),
        2 => (0..8_usize).prop_map(Op::Position),
        1 => Just(Op::Reopen),
    ];
    prop::collection::vec(op, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_store_in_memory_is_as_the_model_says(ops in ops()) {
        run(ops, None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_store_on_disk_is_as_the_model_says(ops in ops()) {
        run(ops, Some(tempdir().unwrap()));
    }
}

fn run(ops: Vec<Op>, folder: Option<TempDir>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut pair = Pair::start(folder);
        for op in ops {
            pair.step(op).await;
        }
    });
}

/// The store and its model, side by side.
struct Pair {
    folder: Option<TempDir>,
    store: Option<Store>,
    model: Model,
    watchers: Vec<Watcher>,
}

struct Model {
    revision: u64,
    base: u64,
    objects: BTreeMap<Key, Arc<Entry>>,
    history: Vec<Event>,
    /// Where in the history this process began.
    start: usize,
}

struct Watcher {
    watch: Watch,
    resource: Resource,
    namespace: Option<&'static str>,
    /// Everything up to here was read.
    read: u64,
}

impl Pair {
    fn start(folder: Option<TempDir>) -> Self {
        let model = Model { revision: 1, base: 1, objects: BTreeMap::new(), history: Vec::new(), start: 0 };
        let mut pair = Self { folder, store: None, model, watchers: Vec::new() };
        pair.open();
        pair
    }

    fn open(&mut self) {
        let options = Options { window_events: WINDOW, ..WIDE };
        self.store = None;
        self.store = Some(match &self.folder {
            Some(folder) => Store::open(folder.path(), options).unwrap(),
            None => Store::memory(options),
        });
    }

    async fn step(&mut self, op: Op) {
        let store = self.store.clone().unwrap();
        match op {
            Op::Commit(asks) => self.commit(&store, asks).await,
            Op::Get(key) => assert_eq!(store.get(&keys()[key]).as_ref(), self.model.objects.get(&keys()[key])),
            Op::List(resource, namespace, ago) => {
                let resource = &resources()[resource];
                let present = store.list(resource, namespace);
                let expected = self.model.list_at(resource, namespace, self.model.revision).unwrap();
                assert_eq!((present.revision, present.entries), (self.model.revision, expected));
                let at = self.model.revision.saturating_add_signed(-ago);
                let listed = store.list_at(resource, namespace, at).map(|snapshot| snapshot.entries);
                assert_eq!(listed, self.model.list_at(resource, namespace, at));
            }
            Op::Watch(resource, namespace, ago) => {
                let resource = resources()[resource].clone();
                let from = self.model.revision.saturating_add_signed(-ago);
                let oldest = self.model.oldest(&resource);
                assert_eq!(store.oldest(&resource), oldest);
                match store.watch(&resource, namespace, from) {
                    Ok(watch) => {
                        assert!(from >= oldest);
                        self.watchers.push(Watcher { watch, resource, namespace, read: from });
                    }
                    Err(expired) => assert!(from < oldest && expired == Expired { requested: from, oldest }),
                }
            }
            Op::Drain(watcher) => self.drain(watcher),
            Op::Position(watcher) => {
                let Some(watcher) = self.watchers.get(watcher) else { return };
                if watcher.read >= self.model.oldest(&watcher.resource) {
                    let unread = self.model.after(&watcher.resource, watcher.read).next();
                    let reached = unread.map_or(self.model.revision, |event| event.revision() - 1);
                    assert_eq!(watcher.watch.position(), reached.max(watcher.read));
                }
            }
            Op::Reopen if self.folder.is_some() => {
                self.watchers.clear();
                drop(store);
                self.open();
                self.model.base = self.model.revision;
                self.model.start = self.model.history.len();
            }
            Op::Reopen => {}
        }
    }

    async fn commit(&mut self, store: &Store, asks: Vec<Ask>) {
        let writes: Vec<(Key, Expect, bool)> = asks
            .into_iter()
            .map(|ask| {
                let key = keys()[ask.key].clone();
                let revision = self.model.objects.get(&key).map_or(0, |entry| entry.revision);
                let expect = match ask.expect {
                    Guess::Absent => Expect::Absent,
                    Guess::Any => Expect::Any,
                    Guess::Right => Expect::Revision(revision),
                    Guess::Wrong => Expect::Revision(revision + 1),
                };
                (key, expect, ask.delete)
            })
            .collect();
        let answers = join_all(writes.iter().map(async |(key, expect, remove)| {
            if *remove { delete(store, key, *expect).await } else { set(store, key, *expect).await }
        }));
        for ((key, expect, remove), answer) in writes.iter().zip(answers.await) {
            assert_eq!(answer, self.model.commit(key, *expect, *remove));
        }
        assert_eq!(store.revision(), self.model.revision);
    }

    fn drain(&mut self, watcher: usize) {
        let Some(watcher) = self.watchers.get_mut(watcher) else { return };
        let oldest = self.model.oldest(&watcher.resource);
        if watcher.read < oldest {
            assert!(matches!(watcher.watch.try_next(), Err(expired) if expired.oldest == oldest));
            return;
        }
        let later = self.model.after(&watcher.resource, watcher.read);
        let expected: Vec<&Event> = later.filter(|event| event.is_in(watcher.namespace)).collect();
        let read: Vec<Arc<Event>> = std::iter::from_fn(|| watcher.watch.try_next().unwrap()).collect();
        assert_eq!(read.iter().map(|event| &**event).collect::<Vec<_>>(), expected);
        watcher.read = watcher.read.max(self.model.revision);
    }
}

impl Model {
    fn commit(&mut self, key: &Key, expect: Expect, deleted: bool) -> Result<Arc<Entry>, Refused> {
        let before = self.objects.get(key).cloned();
        match (expect, &before) {
            (Expect::Absent, Some(entry)) => return Err(Refused::Exists(entry.clone())),
            (Expect::Revision(_), None) => return Err(Refused::Gone),
            (Expect::Revision(revision), Some(entry)) if entry.revision != revision => {
                return Err(Refused::Changed(entry.clone()));
            }
            (_, None) if deleted => return Err(Refused::Gone),
            _ => {}
        }
        self.revision += 1;
        let json = json(&key.name, self.revision).into();
        let entry = Arc::new(Entry { key: key.clone(), revision: self.revision, json });
        if deleted {
            self.objects.remove(key);
        } else {
            self.objects.insert(key.clone(), entry.clone());
        }
        self.history.push(Event { before, entry: entry.clone(), deleted });
        Ok(entry)
    }

    /// The last revision of the resource that has left the window, or the start of the process.
    fn oldest(&self, resource: &Resource) -> u64 {
        let left = self.history.len().saturating_sub(WINDOW).max(self.start);
        let mut left = self.history[self.start..left].iter().rev();
        left.find(|event| event.key().resource == *resource).map_or(self.base, Event::revision)
    }

    fn after(&self, resource: &Resource, revision: u64) -> impl Iterator<Item = &Event> {
        self.history.iter().filter(move |event| event.key().resource == *resource && event.revision() > revision)
    }

    /// The past by replaying everything from the first write on.
    fn list_at(&self, resource: &Resource, namespace: Option<&str>, at: u64) -> Result<Vec<Arc<Entry>>, Missing> {
        let (oldest, current) = (self.oldest(resource), self.revision);
        if at > current {
            return Err(Missing::Future { requested: at, current });
        }
        if at < oldest {
            return Err(Expired { requested: at, oldest }.into());
        }
        let mut objects = BTreeMap::new();
        for event in self.after(resource, 0).filter(|event| event.revision() <= at && event.is_in(namespace)) {
            match event.after() {
                Some(entry) => objects.insert(event.key().clone(), entry.clone()),
                None => objects.remove(event.key()),
            };
        }
        Ok(objects.into_values().collect())
    }
}
