//! What the watches have shown so far, one [`Store`] per kind: synchronous, ordered, without a client.
//!
//! A store knows the revision up to which it is complete and the newest revision this process wrote, so it can
//! say whether it *settled*: it shows our own last writes. Nothing is planned on a store that has not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use kube::Resource;
use kube::api::ObjectMeta;
use parking_lot::RwLock;
use tokio::sync::Notify;

use super::pack::{Pack, Packed};
use super::watch::Kind;

/// Namespace and name of an object; the namespace of a cluster-scoped one is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    /// The key of a cluster-scoped object.
    pub fn of_cluster(name: &str) -> Self {
        Self { namespace: String::new(), name: name.to_owned() }
    }

    /// The key of an object.
    pub fn of(object: &impl Resource) -> Self {
        Self::from(object.meta())
    }
}

impl From<&ObjectMeta> for Key {
    fn from(ObjectMeta { namespace, name, .. }: &ObjectMeta) -> Self {
        Self { namespace: namespace.clone().unwrap_or_default(), name: name.clone().unwrap_or_default() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

/// An object that could not be read as its kind: set aside, so that the others go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecodable {
    pub key: Key,
    pub uid: String,
    pub problem: String,
}

/// What a watch hands over for one object: the object, or why it could not be read.
pub(super) type Decoded<K> = Result<Shown<K>, Undecodable>;

/// An object as a watch shows it.
pub(super) struct Shown<K> {
    key: Arc<Key>,
    uid: Option<String>,
    kept: Kept<K>,
}

/// How an object is kept.
enum Kept<K> {
    Whole(Arc<K>),
    /// Read again whenever somebody looks.
    Packed(Packed),
}

impl<K: Kind> Kept<K> {
    fn open(&self, key: &Key) -> Arc<K> {
        match self {
            Self::Whole(object) => object.clone(),
            Self::Packed(packed) => Arc::new(packed.open(key)),
        }
    }

    fn is(&self, key: &Key, uid: &str) -> bool {
        self.open(key).meta().uid.as_deref() == Some(uid)
    }

    fn is_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Packed(one), Self::Packed(other)) => one == other,
            (Self::Whole(one), Self::Whole(other)) => one.meta().resource_version == other.meta().resource_version,
            (Self::Packed(_), Self::Whole(_)) | (Self::Whole(_), Self::Packed(_)) => false,
        }
    }
}

/// A shared view of all objects of one kind. Clones see the same objects.
pub struct Store<K> {
    view: Arc<RwLock<View<K>>>,
    changed: Arc<Notify>,
    /// Wakes the watch when it must list again.
    pub(super) refresh: Arc<Notify>,
    pack: Option<Pack<K>>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self { view: self.view.clone(), changed: self.changed.clone(), refresh: self.refresh.clone(), pack: self.pack }
    }
}

struct View<K> {
    objects: BTreeMap<Arc<Key>, Kept<K>>,
    undecodable: BTreeMap<Key, Undecodable>,
    changes: BTreeSet<Arc<Key>>,
    /// Everything up to this revision is shown.
    position: u64,
    /// The newest revision we wrote.
    written: u64,
    /// Uids of objects we deleted and that are still shown.
    deleted: BTreeMap<Key, String>,
    listed: Listed,
}

/// Whether a complete list stands behind the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listed {
    /// No list has arrived yet.
    Never,
    /// The view may lack a write of ours whose answer was lost: only a list begun after that tells.
    InDoubt,
    /// A list begun after the last doubt is under way.
    Again,
    /// Complete up to its position.
    Whole,
}

/// A list that is older than what the view has already shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WentBack {
    pub shown: u64,
    pub listed: u64,
}

impl<K: Kind> Store<K> {
    /// An empty store that wakes `changed` whenever what it shows or knows moves.
    pub fn new(changed: Arc<Notify>, pack: Option<Pack<K>>) -> Self {
        let view = View {
            objects: BTreeMap::new(),
            undecodable: BTreeMap::new(),
            changes: BTreeSet::new(),
            position: 0,
            written: 0,
            deleted: BTreeMap::new(),
            listed: Listed::Never,
        };
        Self { view: Arc::new(RwLock::new(view)), changed, refresh: Arc::new(Notify::new()), pack }
    }

    /// A store that shows these objects and is not watched: for plans on objects from elsewhere.
    pub fn of(objects: impl IntoIterator<Item = K>) -> Self {
        let store = Self::new(Arc::new(Notify::new()), None);
        store.list_begins();
        let list = objects.into_iter().map(|object| Ok(store.shown(object))).collect();
        store.reset(list, 0).expect("an empty store shows nothing newer");
        store
    }

    /// Brings an object into the form in which it is kept.
    pub(super) fn shown(&self, object: K) -> Shown<K> {
        let (key, uid) = (Arc::new(Key::of(&object)), object.meta().uid.clone());
        let kept = match self.pack {
            None => Kept::Whole(Arc::new(object)),
            Some(pack) => Kept::Packed(pack(object)),
        };
        Shown { key, uid, kept }
    }

    /// One object, as last shown.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.view.read().objects.get(key).map(|kept| kept.open(key))
    }

    /// All objects, as last shown.
    pub fn all(&self) -> BTreeMap<Key, Arc<K>> {
        self.view.read().objects.iter().map(|(key, kept)| (Key::clone(key), kept.open(key))).collect()
    }

    /// Visits every object, as last shown, in order of key.
    pub fn for_each(&self, mut visit: impl FnMut(&Arc<Key>, &Arc<K>)) {
        self.view.read().objects.iter().for_each(|(key, kept)| visit(key, &kept.open(key)));
    }

    /// Visits every object of one namespace.
    pub fn in_namespace(&self, namespace: &str, visit: impl FnMut(&Arc<Key>, &Arc<K>)) {
        self.beginning_with(&Key { namespace: namespace.to_owned(), name: String::new() }, visit);
    }

    /// Visits every object of a namespace whose name begins so.
    pub fn beginning_with(&self, key: &Key, mut visit: impl FnMut(&Arc<Key>, &Arc<K>)) {
        let view = self.view.read();
        let fits = |found: &Key| found.namespace == key.namespace && found.name.starts_with(&key.name);
        let found = view.objects.range::<Key, _>(key..).take_while(|(found, _)| fits(found));
        found.for_each(|(found, kept)| visit(found, &kept.open(found)));
    }

    /// Objects that could not be read as this kind.
    pub fn undecodable(&self) -> Vec<Undecodable> {
        self.view.read().undecodable.values().cloned().collect()
    }

    /// Keys that changed since the last call, for loops that plan by difference.
    pub fn take_changes(&self) -> BTreeSet<Arc<Key>> {
        std::mem::take(&mut self.view.write().changes)
    }

    /// True once a whole list has arrived.
    pub fn synced(&self) -> bool {
        self.view.read().listed != Listed::Never
    }

    /// True when the view is whole and shows every write and delete of ours.
    pub fn settled(&self) -> bool {
        let view = self.view.read();
        view.listed == Listed::Whole && view.position >= view.written && view.deleted.is_empty()
    }

    /// Revision up to which the view is complete.
    pub fn position(&self) -> u64 {
        self.view.read().position
    }

    /// Records that we wrote `object` (as the API server answered it): the view is settled once it shows that.
    /// Only for objects that this store's watch selects.
    pub fn wrote(&self, object: &impl Resource) {
        if let Some(revision) = revision(object.meta()) {
            let mut view = self.view.write();
            view.written = view.written.max(revision);
        }
    }

    /// Records that we deleted the object: the view is settled once it is gone.
    pub fn deleted(&self, key: &Key, uid: &str) {
        let mut view = self.view.write();
        if view.objects.get(key).is_some_and(|kept| kept.is(key, uid)) {
            view.deleted.insert(key.clone(), uid.to_owned());
        }
    }

    /// Records that a write of ours may or may not have happened: the view is settled after a list that began later.
    pub fn uncertain(&self) {
        let mut view = self.view.write();
        if view.listed != Listed::Never {
            view.listed = Listed::InDoubt;
            self.refresh.notify_one();
        }
    }

    /// True when the watch should list again.
    pub(super) fn in_doubt(&self) -> bool {
        self.view.read().listed == Listed::InDoubt
    }

    /// Marks the beginning of a list, before its first request is sent.
    pub(super) fn list_begins(&self) {
        let mut view = self.view.write();
        if view.listed == Listed::InDoubt {
            view.listed = Listed::Again;
        }
    }

    /// Replaces everything by a whole list taken at `listed`.
    pub(super) fn reset(&self, list: Vec<Decoded<K>>, listed: u64) -> Result<(), WentBack> {
        let mut view = self.view.write();
        if listed < view.position {
            return Err(WentBack { shown: view.position, listed });
        }
        let View { objects, undecodable, changes, deleted, .. } = &mut *view;
        let mut before = std::mem::take(objects);
        undecodable.clear();
        for decoded in list {
            match decoded {
                Ok(Shown { key, kept, .. }) => {
                    let (key, earlier) = before.remove_entry(&key).map_or((key, None), |(key, kept)| (key, Some(kept)));
                    if earlier.is_none_or(|earlier| !earlier.is_as(&kept)) {
                        changes.insert(key.clone());
                    }
                    objects.insert(key, kept);
                }
                Err(bad) => {
                    undecodable.insert(bad.key.clone(), bad);
                }
            }
        }
        changes.extend(before.into_keys());
        deleted.retain(|key, uid| objects.get(key).is_some_and(|kept| kept.is(key, uid)));
        view.position = listed;
        if view.listed != Listed::InDoubt {
            view.listed = Listed::Whole;
        }
        self.changed.notify_one();
        Ok(())
    }

    /// Takes word that the kind is not served: there are no objects.
    pub(super) fn none_served(&self) {
        let shown = self.position();
        if let Err(WentBack { .. }) = self.reset(Vec::new(), shown) {
            self.uncertain();
        }
    }

    /// Takes one added or modified object.
    pub(super) fn apply(&self, decoded: Decoded<K>, revision: u64) {
        let mut view = self.view.write();
        let key = match decoded {
            Ok(Shown { key, uid, kept }) => {
                if view.deleted.get(&*key) != uid.as_ref() {
                    view.deleted.remove(&*key);
                }
                view.undecodable.remove(&*key);
                view.objects.insert(key.clone(), kept);
                key
            }
            Err(bad) => {
                // The last good version would no longer be true.
                view.objects.remove(&bad.key);
                view.deleted.remove(&bad.key);
                let key = Arc::new(bad.key.clone());
                view.undecodable.insert(bad.key.clone(), bad);
                key
            }
        };
        view.changes.insert(key);
        view.position = view.position.max(revision);
        self.changed.notify_one();
    }

    /// Takes one deletion.
    pub(super) fn delete(&self, key: Key, revision: u64) {
        let mut view = self.view.write();
        view.objects.remove(&key);
        view.undecodable.remove(&key);
        view.deleted.remove(&key);
        view.changes.insert(Arc::new(key));
        view.position = view.position.max(revision);
        self.changed.notify_one();
    }

    /// Takes word that nothing happened up to `revision`.
    pub(super) fn bookmark(&self, revision: u64) {
        let mut view = self.view.write();
        view.position = view.position.max(revision);
        self.changed.notify_one();
    }
}

/// The resource version as a number. The API machinery defines it as a decimal that grows with each write.
pub(super) fn revision(metadata: &ObjectMeta) -> Option<u64> {
    metadata.resource_version.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::pack::pack;
    use k8s_openapi::api::core::v1::ConfigMap;

    fn object(name: &str, uid: &str, revision: u64) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.into());
        object.metadata.namespace = Some("ns".into());
        object.metadata.uid = Some(uid.into());
        object.metadata.resource_version = Some(revision.to_string());
        object
    }

    fn key(name: &str) -> Key {
        Key { namespace: "ns".into(), name: name.into() }
    }

    fn listed(objects: Vec<ConfigMap>, revision: u64) -> Store<ConfigMap> {
        let store = Store::new(Arc::new(Notify::new()), Some(pack));
        store.list_begins();
        store.reset(objects.into_iter().map(|object| Ok(store.shown(object))).collect(), revision).unwrap();
        store
    }

    #[test]
    fn a_store_settles_when_it_shows_our_write() {
        let store = listed(vec![object("a", "1", 5)], 10);
        assert!(store.settled());
        store.wrote(&object("a", "1", 12));
        assert!(!store.settled());
        store.apply(Ok(store.shown(object("b", "2", 11))), 11);
        assert!(!store.settled(), "an earlier event of another object is not enough");
        store.apply(Ok(store.shown(object("a", "1", 12))), 12);
        assert!(store.settled());
    }

    #[test]
    fn a_write_that_someone_else_replaced_settles_too() {
        let store = listed(vec![], 10);
        store.wrote(&object("a", "1", 12));
        store.delete(key("a"), 14);
        assert!(store.settled());
    }

    #[test]
    fn a_deleted_object_is_waited_for_until_it_is_gone_or_another() {
        let store = listed(vec![object("a", "1", 5), object("b", "2", 6)], 10);
        store.deleted(&key("a"), "1");
        store.deleted(&key("b"), "2");
        store.deleted(&key("c"), "3");
        assert!(!store.settled());
        store.delete(key("a"), 11);
        assert!(!store.settled());
        store.apply(Ok(store.shown(object("b", "9", 13))), 13);
        assert!(store.settled());
    }

    #[test]
    fn after_a_lost_answer_only_a_list_begun_later_settles() {
        let store = listed(vec![], 10);
        store.list_begins();
        store.uncertain();
        store.reset(vec![], 20).unwrap();
        assert!(!store.settled(), "that list had begun before the doubt");
        assert!(store.in_doubt());
        store.list_begins();
        store.reset(vec![], 21).unwrap();
        assert!(store.settled());
    }

    #[test]
    fn a_list_older_than_what_was_shown_is_refused() {
        let store = listed(vec![object("a", "1", 5)], 10);
        assert_eq!(store.reset(vec![], 9), Err(WentBack { shown: 10, listed: 9 }));
        assert!(store.get(&key("a")).is_some());
    }

    #[test]
    fn an_undecodable_object_steps_aside_and_comes_back() {
        let store = listed(vec![object("a", "1", 5), object("b", "2", 6)], 10);
        let bad = Undecodable { key: key("a"), uid: "1".into(), problem: "spec: not a map".into() };
        store.apply(Err(bad.clone()), 11);
        assert_eq!((store.get(&key("a")), store.undecodable()), (None, vec![bad]));
        assert!(store.get(&key("b")).is_some());
        store.apply(Ok(store.shown(object("a", "1", 12))), 12);
        assert!(store.get(&key("a")).is_some() && store.undecodable().is_empty());
    }

    #[test]
    fn changes_name_exactly_what_differs_after_a_relist() {
        let store = listed(vec![object("same", "1", 5), object("changed", "2", 6), object("gone", "3", 7)], 10);
        store.take_changes();
        store
            .reset(
                [object("same", "1", 5), object("changed", "2", 12), object("new", "4", 13)]
                    .map(|object| Ok(store.shown(object)))
                    .into(),
                20,
            )
            .unwrap();
        assert_eq!(store.take_changes(), BTreeSet::from([key("changed"), key("gone"), key("new")].map(Arc::new)));
    }
}
