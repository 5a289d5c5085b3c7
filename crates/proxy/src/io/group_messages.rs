//! Messages between members of Sync groups, on their way to a session.

use super::command::Command;
use super::ring::Ring;
use super::sync::{Member, Membership};
use std::collections::VecDeque;
use std::sync::Arc;

/// Messages, and their bytes, that wait to be delivered by one worker; more are dropped.
const MESSAGES: usize = 65_536;
const BYTES: usize = 16 << 20;
/// Commands that may wait for another worker before batches for it are dropped.
const BATCHES: usize = 16;
/// Bytes for other workers in one loop.
const BATCH_BYTES: usize = 4 << 20;

/// Messages that one worker has to deliver.
pub(crate) struct GroupMessages {
    worker: usize,
    local: VecDeque<(Member, Vec<u8>)>,
    /// Bytes in `local`.
    bytes: usize,
    /// Messages that found no room.
    dropped: u64,
    /// Messages for other workers, sent once per loop.
    remote: Vec<Vec<(Member, Vec<u8>)>>,
    remote_bytes: usize,
}

impl GroupMessages {
    pub(crate) fn new(worker: usize, workers: usize) -> Self {
        Self {
            worker,
            local: VecDeque::new(),
            bytes: 0,
            dropped: 0,
            remote: (0..workers).map(|_| Vec::new()).collect(),
            remote_bytes: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.local.is_empty()
    }

    /// Queues a message for the other members of a group; a slow one loses only its own messages.
    pub(crate) fn send(&mut self, membership: &Membership, data: &[u8]) {
        let members = membership.group.others(membership.member, data);
        for member in members.iter().filter(|member| **member != membership.member) {
            if member.worker == self.worker {
                self.push(*member, data.to_vec());
            } else if self.remote_bytes + data.len() > BATCH_BYTES {
                self.dropped += 1;
            } else {
                self.remote_bytes += data.len();
                self.remote[member.worker].push((*member, data.to_vec()));
            }
        }
    }

    /// Queues messages for members of this worker.
    pub(crate) fn extend(&mut self, messages: impl IntoIterator<Item = (Member, Vec<u8>)>) {
        for (member, message) in messages {
            self.push(member, message);
        }
    }

    fn push(&mut self, member: Member, message: Vec<u8>) {
        if self.bytes + message.len() > BYTES || self.local.len() >= MESSAGES {
            self.dropped += 1;
            return;
        }
        self.bytes += message.len();
        self.local.push_back((member, message));
    }

    pub(crate) fn pop(&mut self) -> Option<(Member, Vec<u8>)> {
        let next = self.local.pop_front()?;
        self.bytes -= next.1.len();
        Some(next)
    }

    /// Hands messages to other workers; returns how many were dropped because a worker is overloaded.
    pub(crate) fn flush(&mut self, rings: &[Arc<Ring<Command>>]) -> u64 {
        self.remote_bytes = 0;
        let mut dropped = std::mem::take(&mut self.dropped);
        for (messages, ring) in self.remote.iter_mut().zip(rings).filter(|(messages, _)| !messages.is_empty()) {
            let batch = std::mem::take(messages);
            let count = batch.len() as u64;
            if ring.push_below(BATCHES, Command::GroupMessages(batch)).is_err() {
                dropped += count;
            }
        }
        dropped
    }
}
