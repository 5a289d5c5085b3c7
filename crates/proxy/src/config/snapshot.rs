//! The current configuration as workers see it: immutable, and looked up by name.
//!
//! One change copies one of 256 parts of one kind and shares the rest, so that a change among 100 000 objects costs
//! what it costs among 400.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use xxhash_rust::xxh3::xxh3_64;

use super::types::{Admin, Cluster, Listener, Name, Route, Rule, RuleList};

const PARTS: usize = 256;

/// One generation of the configuration.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Grows by one with each change that is put in force.
    pub generation: u64,
    pub admin: Arc<Admin>,
    pub listeners: Names<Listener>,
    pub clusters: Names<Cluster>,
    pub rulelists: Names<RuleList>,
    pub rules: Names<Rule>,
    pub routes: Names<Route>,
    /// Listeners that differ from those of the generation before: by name, as it was and as it is. The rest are
    /// the same allocations.
    pub changed_listeners: Vec<ListenerChange>,
}

#[derive(Debug, Clone)]
pub struct ListenerChange {
    pub before: Option<Arc<Listener>>,
    pub after: Option<Arc<Listener>>,
}

/// Where workers find the newest snapshot; they look at its generation once per loop.
pub type Current = ArcSwap<Snapshot>;

/// Objects of one kind by name. Copies are cheap and share what is equal.
#[derive(Debug)]
pub struct Names<T> {
    parts: Arc<Vec<Part<T>>>,
    len: usize,
}

type Part<T> = Arc<BTreeMap<Name, Arc<T>>>;

impl<T> Names<T> {
    /// Finds an object.
    pub fn get(&self, name: &str) -> Option<&Arc<T>> {
        self.parts[part(name)].get(name)
    }

    /// All objects, in an order that depends on their names alone.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.parts.iter().flat_map(|part| part.values())
    }

    /// The differences from an earlier copy: each name with its object here, if any.
    pub fn changes<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = (&'a Name, Option<&'a Arc<T>>)> {
        let parts = self.parts.iter().zip(before.parts.iter()).filter(|(now, then)| !Arc::ptr_eq(now, then));
        parts.flat_map(|(now, then)| {
            let gone = then.keys().filter(|name| !now.contains_key(*name)).map(|name| (name, None));
            let same = |name: &Name, object| then.get(name).is_some_and(|other| Arc::ptr_eq(object, other));
            let changed = now.iter().filter(move |(name, object)| !same(name, object));
            gone.chain(changed.map(|(name, object)| (name, Some(object))))
        })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds or replaces an object; copies of this map do not see it.
    pub fn insert(&mut self, name: Name, object: Arc<T>) -> Option<Arc<T>> {
        let before = Arc::make_mut(&mut Arc::make_mut(&mut self.parts)[part(&name)]).insert(name, object);
        self.len += usize::from(before.is_none());
        before
    }

    /// An object to change; `Arc::make_mut` copies it only if a copy of this map still has it.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Arc<T>> {
        let part = part(name);
        if !self.parts[part].contains_key(name) {
            return None;
        }
        Arc::make_mut(&mut Arc::make_mut(&mut self.parts)[part]).get_mut(name)
    }

    pub fn remove(&mut self, name: &str) -> Option<Arc<T>> {
        if !self.parts[part(name)].contains_key(name) {
            return None;
        }
        let before = Arc::make_mut(&mut Arc::make_mut(&mut self.parts)[part(name)]).remove(name);
        self.len -= usize::from(before.is_some());
        before
    }
}

impl<T> Clone for Names<T> {
    fn clone(&self) -> Self {
        Self { parts: Arc::clone(&self.parts), len: self.len }
    }
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        let empty = Arc::new(BTreeMap::new());
        Self { parts: Arc::new(vec![empty; PARTS]), len: 0 }
    }
}

fn part(name: &str) -> usize {
    usize::from(xxh3_64(name.as_bytes()).to_le_bytes()[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_does_not_see_later_changes() {
        let mut names = Names::default();
        for number in 0..1000 {
            names.insert(format!("n{number}").into(), Arc::new(number));
        }
        let before = names.clone();
        names.insert("n7".into(), Arc::new(-7));
        names.remove("n8");
        assert_eq!(
            (before.get("n7").map(|n| **n), before.get("n8").map(|n| **n), before.len()),
            (Some(7), Some(8), 1000)
        );
        assert_eq!((names.get("n7").map(|n| **n), names.get("n8"), names.len()), (Some(-7), None, 999));
    }

    #[test]
    fn changes_are_what_was_added_replaced_and_removed() {
        let mut names = Names::default();
        for number in 0..1000 {
            names.insert(format!("n{number}").into(), Arc::new(number));
        }
        let before = names.clone();
        names.insert("n7".into(), Arc::new(7));
        names.insert("new".into(), Arc::new(1));
        names.remove("n8");
        let mut changes: Vec<_> = names.changes(&before).map(|(name, now)| (&**name, now.is_some())).collect();
        changes.sort_unstable();
        assert_eq!(changes, [("n7", true), ("n8", false), ("new", true)]);
    }

    #[test]
    fn a_change_shares_all_other_parts() {
        let mut names: Names<u32> = Names::default();
        names.insert("a".into(), Arc::new(1));
        let before = names.clone();
        names.insert("b".into(), Arc::new(2));
        let same = before.parts.iter().zip(names.parts.iter()).filter(|(one, other)| Arc::ptr_eq(one, other)).count();
        assert_eq!(same, PARTS - 1);
    }
}
