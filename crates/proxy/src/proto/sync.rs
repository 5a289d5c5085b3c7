//! Groups of sessions that receive each other's messages.

use std::collections::VecDeque;

/// Messages queued for the next member.
const WAITING: usize = 32;
const WAITING_BYTES: usize = 64 * 1024;

/// The members of one group, and the messages sent while there was only one.
#[derive(Debug)]
pub struct SyncGroup<M> {
    members: Vec<M>,
    max: usize,
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
}

/// The group has as many members as it may have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the group is full")]
pub struct Full;

impl<M: Copy + PartialEq> SyncGroup<M> {
    pub const fn new(max: usize) -> Self {
        Self { members: Vec::new(), max, waiting: VecDeque::new(), waiting_bytes: 0 }
    }

    /// Adds a member and returns the messages queued for it.
    pub fn join(&mut self, member: M) -> Result<VecDeque<Vec<u8>>, Full> {
        if self.members.len() >= self.max {
            return Err(Full);
        }
        self.members.push(member);
        if self.members.len() < 2 {
            return Ok(VecDeque::new());
        }
        self.waiting_bytes = 0;
        Ok(std::mem::take(&mut self.waiting))
    }

    /// Takes a member out; true if it was the last.
    pub fn leave(&mut self, member: M) -> bool {
        self.members.retain(|other| *other != member);
        self.members.is_empty()
    }

    pub fn members(&self) -> &[M] {
        &self.members
    }

    /// Queues a message of the only member; the oldest is dropped if there is no room.
    pub fn wait(&mut self, message: &[u8]) {
        self.waiting_bytes += message.len();
        self.waiting.push_back(message.to_vec());
        while self.waiting.len() > WAITING || self.waiting_bytes > WAITING_BYTES {
            self.waiting_bytes -= self.waiting.pop_front().map_or(self.waiting_bytes, |oldest| oldest.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_alone_goes_to_the_first_who_joins_only() {
        let mut group = SyncGroup::new(64);
        assert!(group.join('a').unwrap().is_empty());
        group.wait(b"a0");
        group.wait(b"a1");
        assert_eq!(group.join('b').unwrap(), [b"a0", b"a1"]);
        assert!(group.join('c').unwrap().is_empty());
        assert_eq!(group.members(), ['a', 'b', 'c']);
    }

    #[test]
    fn the_oldest_waiting_message_makes_room() {
        let mut group = SyncGroup::new(2);
        group.join('a').unwrap();
        for i in 0..40u8 {
            group.wait(&[i]);
        }
        let waiting = group.join('b').unwrap();
        assert_eq!((waiting.len(), waiting.front().unwrap()[0]), (32, 8));
        let mut group = SyncGroup::new(2);
        group.join('a').unwrap();
        group.wait(&vec![1; 60_000]);
        group.wait(&vec![2; 60_000]);
        assert_eq!(group.join('b').unwrap().len(), 1);
    }

    #[test]
    fn a_full_group_refuses_and_the_last_to_leave_closes_it() {
        let mut group = SyncGroup::new(2);
        group.join('a').unwrap();
        group.join('b').unwrap();
        assert_eq!(group.join('c'), Err(Full));
        assert!(!group.leave('a'));
        assert!(group.leave('b'));
    }
}
