//! All policies by number, so that only lookups by name compare names.

use std::ops::{Index, IndexMut};

use hashbrown::HashTable;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::placement::NodeId;
use super::state::AllocationOrder;
use super::{AddressRequest, Eip, GatewayName, Policy, PolicyName};

/// Index of a policy in [`Policies`]. Reused after a deletion, so no visible order may depend on it.
pub(super) type PolicyId = u32;

#[derive(Debug, Clone, Default)]
pub(super) struct Policies {
    entries: Vec<Option<PolicyEntry>>,
    vacant: Vec<PolicyId>,
    /// The ids by the hash of the policy's name. Never iterated, so its order is never visible.
    by_name: HashTable<PolicyId>,
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
    /// Allocates what this many policies need.
    pub(super) fn with_capacity(count: usize) -> Self {
        Self { entries: Vec::with_capacity(count), vacant: Vec::new(), by_name: HashTable::with_capacity(count) }
    }

    pub(super) fn find(&self, name: &PolicyName) -> Option<PolicyId> {
        self.by_name.find(hash(name), |id| self[*id].name == *name).copied()
    }

    /// Adds a policy that does not exist yet.
    pub(super) fn add(&mut self, name: PolicyName, spec: Policy) -> PolicyId {
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(None);
            PolicyId::try_from(self.entries.len() - 1).expect("fewer than 2^32 policies")
        });
        let hash_of_name = hash(&name);
        self.entries[id as usize] = Some(PolicyEntry { name, spec, grant: None });
        let Self { entries, by_name, .. } = self;
        by_name.insert_unique(hash_of_name, id, |id| entry(entries, *id).map_or(0, |entry| hash(&entry.name)));
        id
    }

    pub(super) fn remove(&mut self, id: PolicyId) {
        let Some(removed) = self.entries[id as usize].take() else { return };
        self.vacant.push(id);
        if let Ok(found) = self.by_name.find_entry(hash(&removed.name), |other| *other == id) {
            found.remove();
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PolicyId, &PolicyEntry)> {
        (0..).zip(&self.entries).filter_map(|(id, entry)| Some((id, entry.as_ref()?)))
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
        self.entries[id as usize].as_ref().expect("a number in use has a policy")
    }
}

impl IndexMut<PolicyId> for Policies {
    fn index_mut(&mut self, id: PolicyId) -> &mut PolicyEntry {
        self.entries[id as usize].as_mut().expect("a number in use has a policy")
    }
}

fn entry(entries: &[Option<PolicyEntry>], id: PolicyId) -> Option<&PolicyEntry> {
    entries.get(id as usize)?.as_ref()
}

fn hash(name: &PolicyName) -> u64 {
    let namespace = name.namespace.as_ref().map_or(0, |namespace| xxh3_64(namespace.as_bytes()));
    xxh3_64_with_seed(name.name.as_bytes(), namespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::AllocationMode;

    #[test]
    fn every_name_is_found_while_others_come_and_go() {
        let name =
            |n: u32| PolicyName { namespace: (!n.is_multiple_of(3)).then(|| "a".into()), name: format!("{n}").into() };
        let spec = Policy {
            uid: "".into(),
            gateway: "".into(),
            created: 0,
            request: AddressRequest::FromPool(AllocationMode::Default),
            refused: false,
        };
        let mut policies = Policies::default();
        assert_eq!(policies.find(&name(0)), None);
        // policies are added and removed a while later, so that the table grows and shrinks again and again
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
        assert!(policies.entries.len() < 1_600, "ids are reused");
    }
}
