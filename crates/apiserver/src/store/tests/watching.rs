//! Watchers: order, wake-ups, lag, bookmarks.

use std::time::Duration;

use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::*;
use crate::store::{Event, Expired, Watch};

#[tokio::test]
async fn history_and_live_events_join_without_gap_or_duplicate() {
    let store = Store::memory(WIDE);
    fill(&store, 3).await;
    let mut watch = store.watch(&pods(), None, 2).unwrap();
    fill(&store, 2).await;
    for revision in 3..=6 {
        assert_eq!(watch.next().await.unwrap().revision(), revision);
    }
    assert_eq!(watch.try_next(), Ok(None));
}

#[tokio::test]
async fn an_event_says_what_was_before_and_after() {
    let store = Store::memory(WIDE);
    let mut watch = store.watch(&pods(), None, 1).unwrap();
    let first = set(&store, &pod("a"), Expect::Any).await.unwrap();
    let second = set(&store, &pod("a"), Expect::Any).await.unwrap();
    let last = delete(&store, &pod("a"), Expect::Any).await.unwrap();
    let event = |before, entry, deleted| Event { before, entry, deleted };
    assert_eq!(*watch.next().await.unwrap(), event(None, first.clone(), false));
    assert_eq!(*watch.next().await.unwrap(), event(Some(first), second.clone(), false));
    let gone = watch.next().await.unwrap();
    assert_eq!(*gone, event(Some(second), last, true));
    assert_eq!((gone.revision(), gone.after()), (4, None));
}

#[tokio::test]
async fn a_watcher_sees_its_namespace_and_resource_only() {
    let store = Store::memory(WIDE);
    let mut watch = store.watch(&pods(), Some("shop"), 1).unwrap();
    fill(&store, 5).await;
    set(&store, &Key::new(&deployments(), "shop", "d"), Expect::Any).await.unwrap();
    let wanted = set(&store, &Key::new(&pods(), "shop", "w"), Expect::Any).await.unwrap();
    assert_eq!(watch.next().await.unwrap().entry, wanted);
    assert_eq!(watch.try_next(), Ok(None));
}

#[tokio::test]
async fn a_waiting_watcher_is_woken_by_its_own_resource_only() {
    let store = Store::memory(WIDE);
    let mut watch = store.watch(&pods(), None, 1).unwrap();
    let mut next = polled(&mut watch);
    assert!(!next.poll_once());
    set(&store, &Key::new(&deployments(), "a", "d"), Expect::Any).await.unwrap();
    assert!(!next.was_woken());
    set(&store, &pod("a"), Expect::Any).await.unwrap();
    assert!(next.was_woken() && next.poll_once());
}

#[tokio::test]
async fn a_watch_from_the_future_leaves_out_what_comes_before() {
    let store = Store::memory(WIDE);
    let mut watch = store.watch(&pods(), None, 3).unwrap();
    assert_eq!(watch.position(), 3);
    fill(&store, 3).await;
    assert_eq!(watch.next().await.unwrap().revision(), 4);
}

#[tokio::test]
async fn a_bookmark_moves_with_other_resources_but_never_past_an_unread_event() {
    let store = Store::memory(WIDE);
    let mut watch = store.watch(&pods(), Some("default"), 1).unwrap();
    set(&store, &Key::new(&deployments(), "a", "d"), Expect::Any).await.unwrap();
    assert_eq!(watch.position(), 2);
    set(&store, &pod("a"), Expect::Any).await.unwrap();
    set(&store, &Key::new(&deployments(), "a", "e"), Expect::Any).await.unwrap();
    assert_eq!(watch.position(), 2);
    watch.next().await.unwrap();
    assert_eq!(watch.position(), 4);
}

#[tokio::test]
async fn a_watcher_that_lags_is_told_and_others_go_on() {
    let store = Store::memory(Options { window_events: 4, ..WIDE });
    let mut slow = store.watch(&pods(), None, 1).unwrap();
    fill(&store, 3).await;
    let mut quick = store.watch(&pods(), None, 4).unwrap();
    assert_eq!(slow.next().await.unwrap().revision(), 2);
    fill(&store, 4).await;
    assert_eq!(slow.next().await, Err(Expired { requested: 2, oldest: 4 }));
    assert_eq!(slow.next().await, Err(Expired { requested: 2, oldest: 4 }), "it stays expired");
    assert_eq!(slow.position(), 2);
    assert_eq!(quick.next().await.unwrap().revision(), 5);
    assert_eq!(store.watch(&pods(), None, 3).unwrap_err(), Expired { requested: 3, oldest: 4 });
    assert!(store.watch(&pods(), None, 4).is_ok());
}

#[tokio::test]
async fn a_busy_resource_expires_nobody_elses_watch_from_after_its_last_event() {
    let store = Store::memory(Options { window_events: 4, ..WIDE });
    set(&store, &Key::new(&deployments(), "a", "d"), Expect::Any).await.unwrap();
    let mut quiet = store.watch(&deployments(), None, 2).unwrap();
    fill(&store, 100).await;
    assert_eq!(store.oldest(&deployments()), 2);
    assert!(store.watch(&deployments(), None, 2).is_ok());
    assert_eq!(quiet.try_next(), Ok(None));
    assert_eq!(quiet.position(), 102);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hundreds_of_watchers_each_get_every_event_in_order() {
    let store = Store::memory(WIDE);
    let tasks = TaskTracker::new();
    let readers: Vec<_> = (0..300)
        .map(|_| {
            let mut watch = store.watch(&pods(), None, 1).unwrap();
            tasks.spawn(async move {
                for revision in 2..502 {
                    assert_eq!(watch.next().await.unwrap().revision(), revision);
                }
            })
        })
        .collect();
    fill(&store, 500).await;
    for reader in readers {
        timeout(Duration::from_mins(1), reader).await.expect("every watcher ends").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_list_and_the_watch_from_it_rebuild_the_present() {
    let store = Store::memory(WIDE);
    let tasks = TaskTracker::new();
    let writing = {
        let store = store.clone();
        tasks.spawn(async move {
            for round in 0..50 {
                fill(&store, 20).await;
                delete(&store, &pod(&format!("p{}", round % 20)), Expect::Any).await.unwrap();
            }
        })
    };
    let list = store.list(&pods(), None);
    let mut copy: std::collections::BTreeMap<Key, Arc<Entry>> =
        list.entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
    let mut watch = store.watch(&pods(), None, list.revision).unwrap();
    writing.await.unwrap();
    while let Some(event) = watch.try_next().unwrap() {
        assert_eq!(copy.get(event.key()), event.before.as_ref());
        match event.after() {
            Some(entry) => copy.insert(event.key().clone(), Arc::clone(entry)),
            None => copy.remove(event.key()),
        };
    }
    assert_eq!(copy.into_values().collect::<Vec<_>>(), store.list(&pods(), None).entries);
}

/// A future polled by hand, which counts its wake-ups.
struct Polled<'a> {
    future: std::pin::Pin<Box<dyn Future<Output = Result<Arc<Event>, Expired>> + 'a>>,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken(std::sync::atomic::AtomicBool);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Polled<'_> {
    /// Whether it is ready.
    fn poll_once(&mut self) -> bool {
        let waker = Arc::clone(&self.woken).into();
        self.future.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_ready()
    }

    fn was_woken(&self) -> bool {
        self.woken.0.load(std::sync::atomic::Ordering::SeqCst)
    }
}

fn polled(watch: &mut Watch) -> Polled<'_> {
    Polled { future: Box::pin(watch.next()), woken: Arc::default() }
}
