//! Outgoing messages of one read, sent with few calls.

use super::sys::{Gather, Sent};
use std::os::fd::RawFd;

/// Messages and bytes that wait at most.
const MESSAGES: usize = 64;
const BYTES: usize = 64 * 1024;

/// Messages of the session that is being read: datagrams for one stage, and the streams that keep theirs.
#[derive(Default)]
pub(crate) struct Outbox {
    /// Whether messages are kept, by [`Worker::gathering`].
    pub open: bool,
    /// Places whose streams are corked.
    pub corked: Vec<usize>,
    gather: Gather,
    bytes: Vec<u8>,
    /// Where messages end.
    ends: Vec<usize>,
    fd: RawFd,
    at: usize,
}

impl Outbox {
    /// Whether a message of this size is better sent at once.
    pub(crate) fn is_full(&self, size: usize) -> bool {
        self.ends.len() == MESSAGES || self.bytes.len() + size > BYTES
    }

    /// Keeps a copy for the stage at `at`.
    pub(crate) fn push(&mut self, at: usize, fd: RawFd, data: &[u8]) {
        (self.at, self.fd) = (at, fd);
        self.bytes.extend_from_slice(data);
        self.ends.push(self.bytes.len());
    }

    /// Sends the datagrams that were kept, as segments of one message if `join`; returns their place with the outcome.
    pub(crate) fn flush(&mut self, join: bool) -> Option<(usize, Sent)> {
        if self.ends.is_empty() {
            return None;
        }
        let mut start = 0;
        for end in self.ends.drain(..) {
            let data = &self.bytes[start..end];
            // SAFETY: the bytes are not touched before the flush.
            unsafe { self.gather.push(data, data.len(), None, join, 0) };
            start = end;
        }
        let sent = self.gather.flush(self.fd);
        self.bytes.clear();
        Some((self.at, sent))
    }
}
