//! The objects of one kind as one subscriber of a watch sees them: synchronous, ordered, without a client.
//!
//! A [`Store`] knows the revision up to which it is complete and the newest revision its capability wrote, so it can
//! say whether it is *settled*: it shows our own last writes. Nothing is planned on a store that is not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Resource;
use kube::api::ObjectMeta;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::kind::Kind;
use super::pack::{Packed, Packing};

pub use super::key::{Key, Undecodable};

/// An object in the form a store keeps, or why it could not be decoded.
pub(super) type Decoded<K> = Result<Entry<K>, Undecodable>;

/// An object in the form a store keeps.
pub(super) struct Entry<K> {
    key: Arc<Key>,
    uid: Option<String>,
    kept: Kept<K>,
}

/// A whole list on its way into a store.
pub(super) struct Batch<K> {
    /// None: the store has this version already.
    objects: Vec<(Arc<Key>, Option<Kept<K>>)>,
    undecodable: Vec<Undecodable>,
}

impl<K> Batch<K> {
    pub(super) fn new() -> Self {
        Self { objects: Vec::new(), undecodable: Vec::new() }
    }

    pub(super) fn push(&mut self, decoded: Decoded<K>) {
        match decoded {
            Ok(Entry { key, kept, .. }) => self.objects.push((key, Some(kept))),
            Err(bad) => self.undecodable.push(bad),
        }
    }

    /// Adds an object of which the store has this version already, see [`Store::known`].
    pub(super) fn push_known(&mut self, key: Arc<Key>) {
        self.objects.push((key, None));
    }
}

impl<K> FromIterator<Decoded<K>> for Batch<K> {
    fn from_iter<T: IntoIterator<Item = Decoded<K>>>(list: T) -> Self {
        let mut batch = Self::new();
        list.into_iter().for_each(|decoded| batch.push(decoded));
        batch
    }
}

/// How an object is kept.
enum Kept<K> {
    Whole(Arc<K>),
    /// Decoded again on every read.
    Packed(Packed),
}

impl<K: Kind> Kept<K> {
    fn revision(&self) -> Option<u64> {
        match self {
            Self::Whole(object) => revision(object.meta()),
            Self::Packed(packed) => packed.revision(),
        }
    }

    fn is_same_version(&self, other: &Self) -> bool {
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
    /// Wakes the loop that reads this store.
    changed: Arc<Notify>,
    /// Asks the watch for a new list.
    relist: Arc<Notify>,
    packing: Option<Packing<K>>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        let Self { view, changed, relist, packing } = self;
        Self { view: view.clone(), changed: changed.clone(), relist: relist.clone(), packing: *packing }
    }
}

/// A second reader of a store's changes, beside the loop that the store wakes.
#[derive(Clone)]
pub struct Follower {
    changes: Arc<Mutex<BTreeSet<Arc<Key>>>>,
    changed: Arc<Notify>,
}

impl Follower {
    /// Keys that changed since the last call.
    pub fn take_changes(&self) -> BTreeSet<Arc<Key>> {
        std::mem::take(&mut *self.changes.lock())
    }

    fn note(&self, keys: impl IntoIterator<Item = Arc<Key>>) {
        self.changes.lock().extend(keys);
        self.changed.notify_one();
    }
}

struct View<K> {
    followers: Vec<Follower>,
    objects: BTreeMap<Arc<Key>, Kept<K>>,
    undecodable: BTreeMap<Key, Undecodable>,
    changes: BTreeSet<Arc<Key>>,
    /// When the first of these changes came.
    changing_since: Option<Instant>,
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
    /// The view may lack a write of ours whose answer was lost: only a list begun after that shows it.
    Invalid,
    /// A list begun after the view was invalidated is under way.
    Again,
    /// Complete up to its position.
    Complete,
}

impl<K: Kind> Store<K> {
    /// An empty store that wakes `changed` whenever its objects or its state change, and `relist` to ask for a list.
    pub(super) fn new(changed: Arc<Notify>, relist: Arc<Notify>, packing: Option<Packing<K>>) -> Self {
        let view = View {
            followers: Vec::new(),
            objects: BTreeMap::new(),
            undecodable: BTreeMap::new(),
            changes: BTreeSet::new(),
            changing_since: None,
            position: 0,
            written: 0,
            deleted: BTreeMap::new(),
            listed: Listed::Never,
        };
        Self { view: Arc::new(RwLock::new(view)), changed, relist, packing }
    }

    /// A store of these objects that no watch updates: for plans on objects from elsewhere.
    pub fn of(objects: impl IntoIterator<Item = K>) -> Self {
        let store = Self::new(Arc::default(), Arc::default(), None);
        store.reset(objects.into_iter().map(|object| Ok(store.entry(Arc::new(Key::of(&object)), object))).collect(), 0);
        store
    }

    /// Brings an object into the form in which it is kept.
    pub(super) fn entry(&self, key: Arc<Key>, object: K) -> Entry<K> {
        let uid = object.meta().uid.clone();
        let kept = match self.packing {
            None => Kept::Whole(Arc::new(object)),
            Some(packing) => Kept::Packed(packing.pack(object)),
        };
        Entry { key, uid, kept }
    }

    /// The object as it was before it was packed.
    fn open(&self, key: &Key, kept: &Kept<K>) -> Arc<K> {
        match kept {
            Kept::Whole(object) => object.clone(),
            Kept::Packed(packed) => {
                let packing = self.packing.expect("this store packed it");
                Arc::new(packing.unpack(packed, key))
            }
        }
    }

    fn has_uid(&self, key: &Key, kept: &Kept<K>, uid: &str) -> bool {
        self.open(key, kept).meta().uid.as_deref() == Some(uid)
    }

    /// One object, as last shown.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.view.read().objects.get(key).map(|kept| self.open(key, kept))
    }

    /// All objects, as last shown.
    pub fn all(&self) -> BTreeMap<Key, Arc<K>> {
        self.view.read().objects.iter().map(|(key, kept)| (Key::clone(key), self.open(key, kept))).collect()
    }

    /// Visits every object, as last shown, in order of key.
    pub fn for_each(&self, mut visit: impl FnMut(&Arc<Key>, &Arc<K>)) {
        self.view.read().objects.iter().for_each(|(key, kept)| visit(key, &self.open(key, kept)));
    }

    /// Visits the key of every object, in order: decodes nothing.
    pub fn for_each_key(&self, visit: impl FnMut(&Arc<Key>)) {
        self.view.read().objects.keys().for_each(visit);
    }

    /// The keys of all objects, and of those that could not be decoded.
    pub fn keys(&self) -> BTreeSet<Arc<Key>> {
        let view = self.view.read();
        view.objects.keys().cloned().chain(view.undecodable.keys().cloned().map(Arc::new)).collect()
    }

    /// Visits every object of one namespace.
    pub fn in_namespace(&self, namespace: &str, visit: impl FnMut(&Arc<Key>, &Arc<K>)) {
        self.beginning_with(&Key { namespace: namespace.to_owned(), name: String::new() }, visit);
    }

    /// Visits every object of the key's namespace whose name begins with the key's name.
    pub fn beginning_with(&self, prefix: &Key, mut visit: impl FnMut(&Arc<Key>, &Arc<K>)) {
        let view = self.view.read();
        let fits = |key: &Key| key.namespace == prefix.namespace && key.name.starts_with(&prefix.name);
        let found = view.objects.range::<Key, _>(prefix..).take_while(|(key, _)| fits(key));
        found.for_each(|(key, kept)| visit(key, &self.open(key, kept)));
    }

    /// Objects that could not be decoded as this kind.
    pub fn undecodable(&self) -> Vec<Undecodable> {
        self.view.read().undecodable.values().cloned().collect()
    }

    /// Keys that changed since the last call, for loops that plan by difference.
    pub fn take_changes(&self) -> BTreeSet<Arc<Key>> {
        let mut view = self.view.write();
        view.changing_since = None;
        std::mem::take(&mut view.changes)
    }

    /// Notes every later change for another reader as well, and wakes it.
    pub fn follow(&self, changed: Arc<Notify>) -> Follower {
        let follower = Follower { changes: Arc::default(), changed };
        self.view.write().followers.push(follower.clone());
        follower
    }

    /// When the first of the changes came that the next call of [`Store::take_changes`] gives.
    pub fn changing_since(&self) -> Option<Instant> {
        self.view.read().changing_since
    }

    /// True once a whole list has arrived.
    pub fn synced(&self) -> bool {
        self.view.read().listed != Listed::Never
    }

    /// True when the view is complete and shows every write and delete of ours.
    pub fn settled(&self) -> bool {
        let view = self.view.read();
        view.listed == Listed::Complete && view.position >= view.written && view.deleted.is_empty()
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
        if view.objects.get(key).is_some_and(|kept| self.has_uid(key, kept, uid)) {
            view.deleted.insert(key.clone(), uid.to_owned());
        }
    }

    /// Records that a write of ours may or may not have happened: the view is settled after a list that began later.
    pub fn invalidate(&self) {
        let mut view = self.view.write();
        if view.listed != Listed::Never {
            view.listed = Listed::Invalid;
            self.relist.notify_one();
        }
    }

    /// Wakes the loop that reads this store.
    pub(super) fn wake(&self) {
        self.changed.notify_one();
    }

    /// True when no list shows what this store must show.
    pub(super) fn needs_list(&self) -> bool {
        matches!(self.view.read().listed, Listed::Never | Listed::Invalid)
    }

    /// The key of an object that is kept in this very version: a list need not decode it again. Only the watch changes
    /// objects, so this holds until the list is complete.
    pub(super) fn known(&self, key: &Key, revision: u64) -> Option<Arc<Key>> {
        let view = self.view.read();
        let (key, kept) = view.objects.get_key_value(key)?;
        (kept.revision() == Some(revision)).then(|| key.clone())
    }

    /// Marks the beginning of a list, before its first request is sent.
    pub(super) fn list_begins(&self) {
        let mut view = self.view.write();
        if view.listed == Listed::Invalid {
            view.listed = Listed::Again;
        }
    }

    /// Replaces everything by a whole list taken at `revision`.
    pub(super) fn reset(&self, batch: Batch<K>, revision: u64) {
        let mut view = self.view.write();
        let View { objects, undecodable, changes, deleted, .. } = &mut *view;
        let mut before = std::mem::take(objects);
        let after = batch.objects.into_iter().filter_map(|(key, kept)| {
            let earlier = before.remove_entry(&*key);
            let Some(kept) = kept else { return earlier };
            // The earlier copy of the key is shared with others.
            let (key, earlier) = earlier.map_or((key, None), |(key, earlier)| (key, Some(earlier)));
            if earlier.is_none_or(|earlier| !earlier.is_same_version(&kept)) {
                changes.insert(key.clone());
            }
            Some((key, kept))
        });
        // Built at once its nodes are full; built by insertion in order they would be half empty.
        *objects = after.collect();
        changes.extend(before.into_keys());
        *undecodable = batch.undecodable.into_iter().map(|bad| (bad.key.clone(), bad)).collect();
        deleted.retain(|key, uid| objects.get(key).is_some_and(|kept| self.has_uid(key, kept, uid)));
        if !view.changes.is_empty() {
            view.changing_since.get_or_insert_with(Instant::now);
        }
        view.position = revision;
        if view.listed != Listed::Invalid {
            view.listed = Listed::Complete;
        }
        view.followers.iter().for_each(|follower| follower.note(view.changes.iter().cloned()));
        self.changed.notify_one();
    }

    /// Replaces everything by nothing: the kind is not served.
    pub(super) fn clear(&self) {
        let position = self.position();
        self.reset(Batch::new(), position);
    }

    /// Takes one added or modified object. Before the first list there is nothing to add it to.
    pub(super) fn apply(&self, decoded: Decoded<K>, revision: u64) {
        let mut view = self.view.write();
        if view.listed == Listed::Never {
            return;
        }
        let key = match decoded {
            Ok(Entry { key, uid, kept }) => {
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
        view.followers.iter().for_each(|follower| follower.note([key.clone()]));
        view.changes.insert(key);
        view.changing_since.get_or_insert_with(Instant::now);
        view.position = view.position.max(revision);
        self.changed.notify_one();
    }

    /// Takes one deletion.
    pub(super) fn remove(&self, key: &Arc<Key>, revision: u64) {
        let mut view = self.view.write();
        if view.listed == Listed::Never {
            return;
        }
        view.objects.remove(key);
        view.undecodable.remove(&**key);
        view.deleted.remove(&**key);
        view.followers.iter().for_each(|follower| follower.note([key.clone()]));
        view.changes.insert(key.clone());
        view.changing_since.get_or_insert_with(Instant::now);
        view.position = view.position.max(revision);
        self.changed.notify_one();
    }

    /// Notes that nothing else happened up to `revision`.
    pub(super) fn bookmark(&self, revision: u64) {
        let mut view = self.view.write();
        view.position = view.position.max(revision);
        self.changed.notify_one();
    }
}

/// The resource version as a number. The API machinery defines it as a decimal that grows with each write.
fn revision(metadata: &ObjectMeta) -> Option<u64> {
    metadata.resource_version.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::pack::Phrases;
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

    fn empty() -> Store<ConfigMap> {
        Store::new(Arc::default(), Arc::default(), Some(Packing::with(Phrases::new(&[]))))
    }

    #[expect(clippy::unnecessary_wraps, reason = "stores take the outcome of decoding")]
    fn entry(store: &Store<ConfigMap>, object: ConfigMap) -> Decoded<ConfigMap> {
        Ok(store.entry(Arc::new(Key::of(&object)), object))
    }

    fn listed(objects: Vec<ConfigMap>, revision: u64) -> Store<ConfigMap> {
        let store = empty();
        store.list_begins();
        store.reset(objects.into_iter().map(|object| entry(&store, object)).collect(), revision);
        store
    }

    #[test]
    fn a_store_settles_when_it_shows_our_write() {
        let store = listed(vec![object("a", "1", 5)], 10);
        assert!(store.settled());
        store.wrote(&object("a", "1", 12));
        assert!(!store.settled());
        store.apply(entry(&store, object("b", "2", 11)), 11);
        assert!(!store.settled(), "an earlier event of another object is not enough");
        store.apply(entry(&store, object("a", "1", 12)), 12);
        assert!(store.settled());
    }

    #[test]
    fn a_write_that_someone_else_replaced_settles_too() {
        let store = listed(vec![], 10);
        store.wrote(&object("a", "1", 12));
        store.remove(&Arc::new(key("a")), 14);
        assert!(store.settled());
    }

    #[test]
    fn a_deleted_object_is_waited_for_until_it_is_gone_or_another() {
        let store = listed(vec![object("a", "1", 5), object("b", "2", 6)], 10);
        store.deleted(&key("a"), "1");
        store.deleted(&key("b"), "2");
        store.deleted(&key("c"), "3");
        assert!(!store.settled());
        store.remove(&Arc::new(key("a")), 11);
        assert!(!store.settled());
        store.apply(entry(&store, object("b", "9", 13)), 13);
        assert!(store.settled());
    }

    #[test]
    fn after_a_lost_answer_only_a_list_begun_later_settles() {
        let store = listed(vec![], 10);
        store.list_begins();
        store.invalidate();
        store.reset(Batch::new(), 20);
        assert!(!store.settled(), "that list had begun before");
        assert!(store.needs_list());
        store.list_begins();
        store.reset(Batch::new(), 21);
        assert!(store.settled());
    }

    #[test]
    fn a_store_without_a_list_ignores_events_and_asks_for_a_list() {
        let store = empty();
        store.apply(entry(&store, object("a", "1", 5)), 5);
        store.remove(&Arc::new(key("b")), 6);
        assert!(store.all().is_empty() && store.take_changes().is_empty());
        assert!(store.needs_list() && !store.synced() && !store.settled());
    }

    #[test]
    fn an_undecodable_object_steps_aside_and_comes_back() {
        let store = listed(vec![object("a", "1", 5), object("b", "2", 6)], 10);
        let bad = Undecodable { key: key("a"), uid: "1".into(), problem: "spec: not a map".into() };
        store.apply(Err(bad.clone()), 11);
        assert_eq!((store.get(&key("a")), store.undecodable()), (None, vec![bad]));
        assert!(store.get(&key("b")).is_some());
        store.apply(entry(&store, object("a", "1", 12)), 12);
        assert!(store.get(&key("a")).is_some() && store.undecodable().is_empty());
    }

    #[test]
    fn a_list_keeps_objects_whose_version_is_known() {
        let store = listed(vec![object("same", "1", 5), object("changed", "2", 6)], 10);
        store.take_changes();
        assert_eq!(store.known(&key("changed"), 7), None);
        assert_eq!(store.known(&key("new"), 7), None);
        let mut batch = Batch::new();
        batch.push_known(store.known(&key("same"), 5).unwrap());
        batch.push(entry(&store, object("changed", "2", 7)));
        store.reset(batch, 11);
        assert_eq!(store.get(&key("same")).as_deref(), Some(&object("same", "1", 5)));
        assert_eq!(store.get(&key("changed")).as_deref(), Some(&object("changed", "2", 7)));
        assert_eq!(store.take_changes(), BTreeSet::from([Arc::new(key("changed"))]));
    }

    #[test]
    fn changes_name_exactly_what_differs_after_a_relist() {
        let store = listed(vec![object("same", "1", 5), object("changed", "2", 6), object("gone", "3", 7)], 10);
        store.take_changes();
        let list = [object("same", "1", 5), object("changed", "2", 12), object("new", "4", 13)];
        store.reset(list.into_iter().map(|object| entry(&store, object)).collect(), 20);
        assert!(store.changing_since().is_some());
        assert_eq!(store.take_changes(), BTreeSet::from([key("changed"), key("gone"), key("new")].map(Arc::new)));
        assert_eq!(store.changing_since(), None);
    }
}
