//! The bounds of the history window.

use tokio::time::advance;

use super::*;

#[tokio::test]
async fn the_window_is_bounded_in_events() {
    let store = Store::memory(Options { window_events: 10, ..WIDE });
    fill(&store, 100).await;
    assert_eq!(store.oldest(&pods()), 91);
    assert_eq!(kept(&store), 10);
}

#[tokio::test]
async fn the_window_is_bounded_in_bytes_that_only_it_holds() {
    let size = json("p0", 2).len();
    let store = Store::memory(Options { window_bytes: 5 * size, ..WIDE });
    fill(&store, 8).await;
    assert_eq!(store.oldest(&pods()), 1, "objects that are there anyhow weigh nothing");
    fill(&store, 8).await;
    assert_eq!(kept(&store), 5);
}

#[tokio::test(start_paused = true)]
async fn the_window_is_bounded_in_age() {
    let store = Store::memory(Options { window_age: Duration::from_mins(5), ..WIDE });
    fill(&store, 3).await;
    advance(Duration::from_mins(4)).await;
    fill(&store, 3).await;
    assert_eq!(kept(&store), 6);
    advance(Duration::from_mins(2)).await;
    fill(&store, 1).await;
    assert_eq!((kept(&store), store.oldest(&pods())), (4, 4));
}

#[tokio::test]
async fn the_newest_event_stays_whatever_the_bounds() {
    let none = Options { window_events: 0, window_age: Duration::ZERO, window_bytes: 0 };
    let store = Store::memory(none);
    let mut watch = store.watch(&pods(), None, 1).unwrap();
    for revision in 2..10 {
        set(&store, &pod("a"), Expect::Any).await.unwrap();
        assert_eq!(watch.next().await.unwrap().revision(), revision);
    }
}

#[tokio::test]
async fn objects_carry_no_spare_bytes() {
    let store = Store::memory(WIDE);
    let written = store
        .commit(pod("a"), Expect::Any, |_| {
            let mut json = Vec::with_capacity(1 << 20);
            json.extend(b"{}");
            Change::Set(json)
        })
        .await
        .unwrap();
    let copy = written.json.clone();
    drop(written);
    drop(store);
    assert_eq!(Vec::from(copy).capacity(), 2);
}

/// How many pod events a watch from the oldest revision gets.
fn kept(store: &Store) -> usize {
    let mut watch = store.watch(&pods(), None, store.oldest(&pods())).unwrap();
    std::iter::from_fn(|| watch.try_next().unwrap()).count()
}
