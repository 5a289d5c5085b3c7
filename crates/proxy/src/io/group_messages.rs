//! Messages between members of Sync groups, on their way to a session.

use super::command::Command;
use super::ring::Ring;
use super::sync::{Member, Membership};
use std::collections::VecDeque;
use std::sync::Arc;

/// Messages that one worker has to deliver.
pub(crate) struct GroupMessages {
    worker: usize,
    local: VecDeque<(Member, Vec<u8>)>,
    /// Messages for other workers, sent once per loop.
    remote: Vec<Vec<(Member, Vec<u8>)>>,
}

impl GroupMessages {
    pub(crate) fn new(worker: usize, workers: usize) -> Self {
        Self { worker, local: VecDeque::new(), remote: (0..workers).map(|_| Vec::new()).collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.local.is_empty()
    }

    /// Queues a message for the other members of a group; a slow one loses only its own messages.
    pub(crate) fn send(&mut self, membership: &Membership, data: &[u8]) {
        let members = membership.group.others(membership.member, data);
        for member in members.iter().filter(|member| **member != membership.member) {
            if member.worker == self.worker {
                self.local.push_back((*member, data.to_vec()));
            } else {
                self.remote[member.worker].push((*member, data.to_vec()));
            }
        }
    }

    /// Queues messages for members of this worker.
    pub(crate) fn extend(&mut self, messages: impl IntoIterator<Item = (Member, Vec<u8>)>) {
        self.local.extend(messages);
    }

    pub(crate) fn pop(&mut self) -> Option<(Member, Vec<u8>)> {
        self.local.pop_front()
    }

    /// Hands messages to other workers; returns how many were dropped because a worker is overloaded.
    pub(crate) fn flush(&mut self, rings: &[Arc<Ring<Command>>]) -> u64 {
        let mut dropped = 0;
        for (messages, ring) in self.remote.iter_mut().zip(rings).filter(|(messages, _)| !messages.is_empty()) {
            let batch = std::mem::take(messages);
            let count = batch.len() as u64;
            if ring.push(Command::GroupMessages(batch)).is_err() {
                dropped += count;
            }
        }
        dropped
    }
}
