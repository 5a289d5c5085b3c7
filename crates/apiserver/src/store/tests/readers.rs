//! Writes and what readers see of them.

use std::collections::BTreeSet;

use futures::future::join_all;
use tempfile::tempdir;

use super::*;
use crate::store::Missing;

#[tokio::test]
async fn the_first_write_gets_revision_two_like_in_etcd() {
    let store = Store::memory(WIDE);
    assert_eq!(store.revision(), 1);
    let written = set(&store, &pod("a"), Expect::Absent).await.unwrap();
    assert_eq!((written.revision, &*written.json), (2, json("a", 2).as_slice()));
    assert_eq!((store.revision(), store.get(&pod("a"))), (2, Some(written)));
}

#[tokio::test]
async fn a_write_is_refused_with_what_is_there() {
    let store = Store::memory(WIDE);
    let first = set(&store, &pod("a"), Expect::Absent).await.unwrap();
    assert_eq!(set(&store, &pod("a"), Expect::Absent).await, Err(Refused::Exists(first.clone())));
    assert_eq!(set(&store, &pod("a"), Expect::Revision(1)).await, Err(Refused::Changed(first.clone())));
    let second = set(&store, &pod("a"), Expect::Revision(first.revision)).await.unwrap();
    assert_eq!(delete(&store, &pod("a"), Expect::Revision(first.revision)).await, Err(Refused::Changed(second)));
    assert_eq!(set(&store, &pod("b"), Expect::Revision(2)).await, Err(Refused::Gone));
    assert_eq!(delete(&store, &pod("b"), Expect::Any).await, Err(Refused::Gone));
    assert_eq!(store.revision(), 3, "what is refused takes no revision");
}

#[tokio::test]
async fn a_deletion_has_its_own_revision_and_returns_the_last_object() {
    let store = Store::memory(WIDE);
    set(&store, &pod("a"), Expect::Any).await.unwrap();
    let last = delete(&store, &pod("a"), Expect::Any).await.unwrap();
    assert_eq!((last.revision, &*last.json), (3, json("a", 3).as_slice()));
    assert_eq!((store.get(&pod("a")), store.revision()), (None, 3));
}

#[tokio::test]
async fn a_list_is_ordered_and_keeps_to_its_resource_and_namespace() {
    let store = Store::memory(WIDE);
    for (resource, namespace, name) in
        [(pods(), "b", "z"), (pods(), "b", "a"), (pods(), "a", "m"), (deployments(), "a", "d"), (pods(), "", "c")]
    {
        set(&store, &Key::new(&resource, namespace, name), Expect::Absent).await.unwrap();
    }
    let all = store.list(&pods(), None);
    assert_eq!((all.revision, names(&all.entries)), (6, vec!["c", "m", "a", "z"]));
    assert_eq!(names(&store.list(&pods(), Some("b")).entries), ["a", "z"]);
    assert_eq!(names(&store.list(&pods(), Some("")).entries), ["c"]);
    assert!(store.list(&pods(), Some("none")).entries.is_empty());
    assert!(store.list(&Resource::new("", "podsx"), None).entries.is_empty());
}

#[tokio::test]
async fn the_past_can_be_listed_while_it_is_in_the_window() {
    let store = Store::memory(Options { window_events: 3, ..WIDE });
    fill(&store, 2).await;
    let then = store.list(&pods(), None);
    delete(&store, &pod("p0"), Expect::Any).await.unwrap();
    set(&store, &pod("p1"), Expect::Any).await.unwrap();
    set(&store, &pod("p0"), Expect::Absent).await.unwrap();
    assert_eq!(store.list_at(&pods(), None, then.revision).unwrap(), then);
    assert_eq!(names(&store.list_at(&pods(), None, 4).unwrap().entries), ["p1"]);
    assert!(matches!(store.list_at(&pods(), None, 2), Err(Missing::Expired(expired)) if expired.oldest == 3));
    let future = Missing::Future { requested: 7, current: 6 };
    assert_eq!(store.list_at(&pods(), None, 7), Err(future));
}

#[tokio::test]
async fn writes_at_once_get_revisions_of_their_own() {
    let folder = tempdir().unwrap();
    for store in [Store::memory(WIDE), Store::open(folder.path(), WIDE).unwrap()] {
        let keys: Vec<Key> = (0..500).map(|index| pod(&format!("p{index}"))).collect();
        let written = join_all(keys.iter().map(|key| set(&store, key, Expect::Absent))).await;
        let revisions: BTreeSet<u64> = written.iter().map(|entry| entry.as_ref().unwrap().revision).collect();
        assert_eq!(revisions, (2..502).collect());
        assert_eq!(store.list(&pods(), None).entries.len(), 500);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_writers_that_race_for_a_revision_one_wins() {
    let folder = tempdir().unwrap();
    for store in [Store::memory(WIDE), Store::open(folder.path(), WIDE).unwrap()] {
        set(&store, &pod("a"), Expect::Absent).await.unwrap();
        let racers = tokio_util::task::TaskTracker::new();
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let store = store.clone();
                racers.spawn(async move {
                    let mut won = 0;
                    while won < 20 {
                        let seen = store.get(&pod("a")).unwrap().revision;
                        won += usize::from(set(&store, &pod("a"), Expect::Revision(seen)).await.is_ok());
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(store.revision(), 2 + 8 * 20);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_list_and_its_revision_belong_together() {
    let store = Store::memory(WIDE);
    let writer = tokio_util::task::TaskTracker::new();
    let writing = {
        let store = store.clone();
        writer.spawn(async move { fill(&store, 2000).await })
    };
    while !writing.is_finished() {
        let list = store.list(&pods(), None);
        assert_eq!(list.entries.len() as u64, list.revision - 1, "one pod per revision");
    }
    writing.await.unwrap();
}
