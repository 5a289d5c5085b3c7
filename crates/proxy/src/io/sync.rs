//! Sync groups over all workers.

use super::slab::Key;
use crate::proto::sync::{Full, SyncGroup};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A member: a stage of a session of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub worker: usize,
    pub session: Key,
    /// Its place on the session's way.
    pub at: usize,
}

/// One group. Members are read without a lock; joining, leaving and talking alone take it.
pub(crate) struct Group {
    members: ArcSwap<Vec<Member>>,
    state: Mutex<SyncGroup<Member>>,
}

/// A stage's place in its group.
pub(crate) struct Membership {
    pub group: Arc<Group>,
    pub key: String,
    pub member: Member,
}

/// All groups of one cluster.
#[derive(Default)]
pub(crate) struct Groups(Mutex<BTreeMap<String, Arc<Group>>>);

impl Groups {
    /// Joins the group of a key, created if needed; returns the messages queued for the new member.
    pub(crate) fn join(&self, key: &str, member: Member, max: usize) -> Result<(Membership, VecDeque<Vec<u8>>), Full> {
        let mut groups = self.0.lock();
        let group = groups
            .entry(key.to_owned())
            .or_insert_with(|| Arc::new(Group { members: ArcSwap::default(), state: Mutex::new(SyncGroup::new(max)) }));
        let waiting = group.change(|state| state.join(member))?;
        Ok((Membership { group: Arc::clone(group), key: key.to_owned(), member }, waiting))
    }

    /// Leaves; the last member removes the group.
    pub(crate) fn leave(&self, membership: &Membership) {
        let mut groups = self.0.lock();
        if membership.group.change(|state| state.leave(membership.member)) {
            groups.remove(&membership.key);
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl Group {
    /// The other members; if there are none, the message waits for the first.
    pub(crate) fn others(&self, me: Member, message: &[u8]) -> arc_swap::Guard<Arc<Vec<Member>>> {
        let members = self.members.load();
        if members.len() > 1 {
            return members;
        }
        let mut state = self.state.lock();
        if state.members() == [me] {
            state.wait(message);
        }
        drop(state);
        self.members.load()
    }

    fn change<R>(&self, change: impl FnOnce(&mut SyncGroup<Member>) -> R) -> R {
        let mut state = self.state.lock();
        let result = change(&mut state);
        self.members.store(Arc::new(state.members().to_vec()));
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_member_frees_the_group() {
        let groups = Groups::default();
        let member = |slot| Member { worker: 0, session: Key { slot, generation: 0 }, at: 1 };
        let (a, _) = groups.join("k", member(0), 2).unwrap();
        a.group.others(a.member, b"early");
        let (b, waiting) = groups.join("k", member(1), 2).unwrap();
        assert_eq!((waiting.len(), groups.join("k", member(2), 2).err()), (1, Some(Full)));
        groups.leave(&a);
        assert_eq!(groups.len(), 1);
        groups.leave(&b);
        assert_eq!(groups.len(), 0);
    }
}
