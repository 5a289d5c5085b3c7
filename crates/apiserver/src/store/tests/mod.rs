//! The store from outside, in memory and on disk.

mod disk;
mod model;
mod readers;
mod watching;
mod window;

use std::sync::Arc;
use std::time::Duration;

use super::{Change, Entry, Expect, Key, Options, Refused, Resource, Store};

/// Bounds that no test reaches by accident.
const WIDE: Options =
    Options { window_events: usize::MAX, window_age: Duration::from_hours(1000), window_bytes: usize::MAX };

fn pods() -> Resource {
    Resource::new("", "pods")
}

fn deployments() -> Resource {
    Resource::new("apps", "deployments")
}

fn pod(name: &str) -> Key {
    Key::new(&pods(), "default", name)
}

/// An object as the tests write it: its name and revision.
fn json(name: &str, revision: u64) -> Vec<u8> {
    format!(r#"{{"name":"{name}","resourceVersion":"{revision}"}}"#).into_bytes()
}

async fn set(store: &Store, key: &Key, expect: Expect) -> Result<Arc<Entry>, Refused> {
    let name = Arc::clone(&key.name);
    store.commit(key.clone(), expect, move |revision| Change::Set(json(&name, revision))).await
}

async fn delete(store: &Store, key: &Key, expect: Expect) -> Result<Arc<Entry>, Refused> {
    let name = Arc::clone(&key.name);
    store.commit(key.clone(), expect, move |revision| Change::Delete(json(&name, revision))).await
}

/// Writes `count` pods, `p0` and so on; any that exist are replaced.
async fn fill(store: &Store, count: usize) {
    for index in 0..count {
        set(store, &pod(&format!("p{index}")), Expect::Any).await.unwrap();
    }
}

fn names(entries: &[Arc<Entry>]) -> Vec<&str> {
    entries.iter().map(|entry| &*entry.key.name).collect()
}
