//! Messages on their way: what one read brought leaves with few calls.

use super::link::Link;
use super::session::Session;
use super::stats::Drop;
use super::sys::Gather;
use super::worker::Worker;
use std::io;
use std::os::fd::RawFd;

/// Messages and bytes that wait at most.
const MESSAGES: usize = 64;
const BYTES: usize = 64 * 1024;

/// Messages of the session that is being read: datagrams for one stage, and the streams that keep theirs.
#[derive(Default)]
pub(super) struct Outbox {
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
    /// Works through what one read brought; the messages that this sends leave together at the end.
    pub(super) fn gathering(&mut self, session: &mut Session, work: impl FnOnce(&mut Self, &mut Session)) {
        self.outbox.open = true;
        work(self, session);
        self.outbox.open = false;
        self.flush_outbox(session);
        while let Some(at) = self.outbox.corked.pop() {
            if let Link::Stream(stream) = session.link(at) {
                let written = stream.uncork();
                self.follow_write(session, at, written);
            }
        }
    }

    /// Sends the datagrams that the outbox holds.
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
