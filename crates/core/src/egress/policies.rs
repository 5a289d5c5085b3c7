//! All policies by number, so that only lookups by name compare names.

use std::ops::{Index, IndexMut};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::placement::NodeId;
use super::state::AllocationOrder;
use super::{AddressRequest, Eip, GatewayName, Policy, PolicyName};

/// Index of a policy in [`Policies`]. Reused after a deletion, so no visible order may depend on it.
pub(super) type PolicyId = u32;

/// No policy.
const NONE: PolicyId = PolicyId::MAX;

#[derive(Debug, Clone, Default)]
pub(super) struct Policies {
    rows: Vec<Option<PolicyEntry>>,
    vacant: Vec<PolicyId>,
    /// Hash of the name and number, at or behind the slot that the hash names; a quarter at least is free. Never walked
    /// through whole, so its order is never seen.
    slots: Vec<(u32, PolicyId)>,
}

#[derive(Debug, Clone)]
pub(super) struct PolicyEntry {
    pub(super) name: PolicyName,
    pub(super) spec: Policy,
    pub(super) grant: Option<Grant>,
}

/// What a policy was granted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Grant {
    pub(super) gateway: GatewayName,
    /// None for the node's own address.
    pub(super) eip: Eip,
    /// The node, if it uses the node's own address; otherwise see its allocation.
    pub(super) node: Option<NodeId>,
    /// Its index among the users of the allocation.
    pub(super) user_index: u32,
}

impl PolicyEntry {
    /// Its position in the order in which policies are served.
    pub(super) fn order(&self, id: PolicyId) -> AllocationOrder {
        AllocationOrder { created: self.spec.created, name: self.name.clone(), policy: id }
    }

    pub(super) fn is_explicit(&self) -> bool {
        matches!(self.spec.request, AddressRequest::Explicit(_))
    }
}

impl Policies {
    /// Allocates exactly what this many policies need.
    pub(super) fn with_capacity(count: usize) -> Self {
        Self { rows: Vec::with_capacity(count), ..Self::default() }
    }

    pub(super) fn find(&self, name: &PolicyName) -> Option<PolicyId> {
        let hash = hash(name);
        let mut at = hash as usize;
        while !self.slots.is_empty() {
            match self.slots[at & (self.slots.len() - 1)] {
                (_, NONE) => break,
                (alike, id) if alike == hash && self[id].name == *name => return Some(id),
                _ => at += 1,
            }
        }
        None
    }

    /// Adds a policy that does not exist yet.
    pub(super) fn add(&mut self, name: PolicyName, spec: Policy) -> PolicyId {
        if (self.rows.len() - self.vacant.len() + 1) * 4 > self.slots.len() * 3 {
            let more = vec![(0, NONE); (self.slots.len() * 2).max(16)];
            for (hash, id) in std::mem::replace(&mut self.slots, more).into_iter().filter(|(_, id)| *id != NONE) {
                self.enter(hash, id);
            }
        }
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.rows.push(None);
            PolicyId::try_from(self.rows.len() - 1).expect("fewer than 2^32 policies")
        });
        self.enter(hash(&name), id);
        self.rows[id as usize] = Some(PolicyEntry { name, spec, grant: None });
        id
    }

    pub(super) fn remove(&mut self, id: PolicyId) {
        let Some(entry) = self.rows[id as usize].take() else { return };
        self.vacant.push(id);
        let mask = self.slots.len() - 1;
        let mut hole = hash(&entry.name) as usize & mask;
        while self.slots[hole].1 != id {
            hole = (hole + 1) & mask;
        }
        // whoever stands behind the hole and is not at home moves up, or it would not be found any more
        let mut at = (hole + 1) & mask;
        while self.slots[at].1 != NONE {
            let from_home = at.wrapping_sub(self.slots[at].0 as usize) & mask;
            if from_home >= (at.wrapping_sub(hole) & mask) {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
            at = (at + 1) & mask;
        }
        self.slots[hole] = (0, NONE);
    }

    fn enter(&mut self, hash: u32, id: PolicyId) {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at].1 != NONE {
            at = (at + 1) & mask;
        }
        self.slots[at] = (hash, id);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PolicyId, &PolicyEntry)> {
        (0..).zip(&self.rows).filter_map(|(id, entry)| Some((id, entry.as_ref()?)))
    }

    /// The first `limit` names in order.
    pub(super) fn names(&self, ids: impl IntoIterator<Item = PolicyId>, limit: usize) -> Vec<&PolicyName> {
        if limit == 0 {
            return Vec::new();
        }
        let mut names: Vec<&PolicyName> = ids.into_iter().map(|id| &self[id].name).collect();
        if limit < names.len() {
            names.select_nth_unstable(limit);
            names.truncate(limit);
        }
        names.sort_unstable();
        names
    }
}

impl Index<PolicyId> for Policies {
    type Output = PolicyEntry;

    fn index(&self, id: PolicyId) -> &PolicyEntry {
        self.rows[id as usize].as_ref().expect("a number in use has a policy")
    }
}

impl IndexMut<PolicyId> for Policies {
    fn index_mut(&mut self, id: PolicyId) -> &mut PolicyEntry {
        self.rows[id as usize].as_mut().expect("a number in use has a policy")
    }
}

fn hash(name: &PolicyName) -> u32 {
    let namespace = name.namespace.as_ref().map_or(0, |namespace| xxh3_64(namespace.as_bytes()));
    (xxh3_64_with_seed(name.name.as_bytes(), namespace) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_while_others_come_and_go() {
        let name =
            |n: u32| PolicyName { namespace: (!n.is_multiple_of(3)).then(|| "a".into()), name: format!("{n}").into() };
        let spec =
            Policy { uid: "".into(), gateway: "".into(), created: 0, request: AddressRequest::Default, refused: false };
        let mut policies = Policies::default();
        assert_eq!(policies.find(&name(0)), None);
        // each comes in its turn and goes a while later, so that the table is full, then half empty, again and again
        for n in 0..5_000 {
            policies.add(name(n), spec.clone());
            let gone = (n / 500) * 400;
            for old in (gone.saturating_sub(400)..gone).filter(|_| n % 500 == 0) {
                policies.remove(policies.find(&name(old)).unwrap());
            }
            if n % 250 == 0 {
                assert!((0..gone).all(|old| policies.find(&name(old)).is_none()));
                assert!(
                    (gone..=n).all(|here| policies.find(&name(here)).is_some_and(|id| policies[id].name == name(here)))
                );
            }
        }
        assert!(policies.rows.len() < 1_600, "numbers are given again");
    }
}
