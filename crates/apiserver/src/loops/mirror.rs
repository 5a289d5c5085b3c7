//! A copy of what a watch has shown, and which of it changed.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use kube::runtime::watcher::{Error, Event};

/// Namespace (empty for cluster-wide) and name.
pub(super) type Key = (String, String);

/// What matters of each object of a kind.
pub(super) struct Mirror<V> {
    items: BTreeMap<Key, V>,
    /// A list that is under way; it takes the place of all when it is complete.
    fresh: Option<BTreeMap<Key, V>>,
    synced: bool,
}

impl<V> Default for Mirror<V> {
    fn default() -> Self {
        Self { items: BTreeMap::new(), fresh: None, synced: false }
    }
}

impl<V: PartialEq> Mirror<V> {
    /// Whether everything has been listed once.
    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    pub(super) fn items(&self) -> &BTreeMap<Key, V> {
        &self.items
    }

    /// The objects of a namespace.
    pub(super) fn within(&self, namespace: &str) -> impl Iterator<Item = (&Key, &V)> {
        let start = (namespace.to_owned(), String::new());
        self.items.range(start..).take_while(move |((other, _), _)| other == namespace)
    }

    /// Takes in an event; says which objects came, changed or went.
    pub(super) fn take_in<K: ResourceExt>(
        &mut self,
        event: Result<Event<K>, Error>,
        read: impl Fn(K) -> V,
    ) -> BTreeSet<Key> {
        let key = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
        match event {
            Ok(Event::Apply(object)) => self.put(key(&object), read(object)),
            Ok(Event::Delete(object)) => self.remove(&key(&object)),
            Ok(Event::Init) => {
                self.fresh = Some(BTreeMap::new());
                BTreeSet::new()
            }
            Ok(Event::InitApply(object)) => {
                self.fresh.get_or_insert_default().insert(key(&object), read(object));
                BTreeSet::new()
            }
            Ok(Event::InitDone) => {
                self.synced = true;
                let before = std::mem::replace(&mut self.items, self.fresh.take().unwrap_or_default());
                let keys: BTreeSet<Key> = before.keys().chain(self.items.keys()).cloned().collect();
                keys.into_iter().filter(|key| before.get(key) != self.items.get(key)).collect()
            }
            Err(error) => {
                tracing::debug!(%error, "a watch was interrupted");
                BTreeSet::new()
            }
        }
    }

    /// Notes a write of our own before its event arrives.
    pub(super) fn put(&mut self, key: Key, value: V) -> BTreeSet<Key> {
        if self.items.get(&key) == Some(&value) {
            return BTreeSet::new();
        }
        self.items.insert(key.clone(), value);
        BTreeSet::from([key])
    }

    pub(super) fn remove(&mut self, key: &Key) -> BTreeSet<Key> {
        self.items.remove_entry(key).map(|(key, _)| key).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn map(name: &str, value: &str) -> ConfigMap {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.to_owned());
        map.data = Some(BTreeMap::from([("v".to_owned(), value.to_owned())]));
        map
    }

    #[test]
    fn only_what_changed_is_told_and_a_new_list_replaces_all() {
        let mut mirror = Mirror::default();
        let mut feed = |event| {
            let changed = mirror.take_in(Ok(event), |map: ConfigMap| map.data.unwrap_or_default()["v"].clone());
            changed.into_iter().map(|(_, name)| name).collect::<Vec<_>>()
        };

        feed(Event::Init);
        assert!(feed(Event::InitApply(map("a", "1"))).is_empty());
        feed(Event::InitApply(map("b", "1")));
        assert_eq!(feed(Event::InitDone), ["a", "b"]);
        assert!(feed(Event::Apply(map("a", "1"))).is_empty());
        assert_eq!(feed(Event::Apply(map("a", "2"))), ["a"]);
        feed(Event::Init);
        feed(Event::InitApply(map("a", "2")));
        feed(Event::InitApply(map("c", "1")));
        assert_eq!(feed(Event::InitDone), ["b", "c"]);
        assert_eq!(feed(Event::Delete(map("c", "1"))), ["c"]);
    }
}
