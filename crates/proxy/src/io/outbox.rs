//! Messages of a stream on their way to a datagram socket: what one read brought leaves with few calls.

use super::session::Session;
use super::stats::Drop;
use super::sys::Gather;
use super::worker::Worker;
use std::io;
use std::os::fd::RawFd;

/// Messages and bytes that wait at most.
const MESSAGES: usize = 64;
const BYTES: usize = 64 * 1024;

/// Messages for one stage of the session that is being read.
#[derive(Default)]
pub(super) struct Outbox {
    /// Whether messages are kept for [`Worker::flush_outbox`].
    pub open: bool,
    gather: Gather,
    bytes: Vec<u8>,
    /// Where messages end.
    ends: Vec<usize>,
    fd: RawFd,
    at: usize,
}

impl Outbox {
    /// Whether a message of this size is better sent at once.
    pub(super) fn is_full(&self, size: usize) -> bool {
        self.ends.len() == MESSAGES || self.bytes.len() + size > BYTES
    }

    /// Keeps a copy for the stage at `at`.
    pub(super) fn push(&mut self, at: usize, fd: RawFd, data: &[u8]) {
        (self.at, self.fd) = (at, fd);
        self.bytes.extend_from_slice(data);
        self.ends.push(self.bytes.len());
    }
}

impl Worker {
    /// Sends what the outbox holds.
    pub(super) fn flush_outbox(&mut self, session: &mut Session) {
        let Outbox { gather, bytes, ends, fd, at, .. } = &mut self.outbox;
        if ends.is_empty() {
            return;
        }
        let hot = &mut self.hot[session.key.slot as usize];
        let mut start = 0;
        for end in ends.drain(..) {
            let data = &bytes[start..end];
            // SAFETY: the bytes are not touched before the flush.
            unsafe { gather.push(data, data.len(), None, !hot.singly, 0) };
            start = end;
        }
        let sent = gather.flush(*fd);
        bytes.clear();
        hot.singly |= sent.unsegmented;
        let at = *at;
        self.stats.segments_out.add(sent.segmented);
        if sent.dropped > 0 {
            self.count_drop(Drop::Send, sent.dropped);
        }
        if let Some(code) = sent.broken {
            self.stage_lost(session, at, &io::Error::from_raw_os_error(code), "sendmsg");
        }
    }
}
