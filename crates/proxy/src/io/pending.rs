//! Connections without a session: those that wait for a request, and those that deliver their last bytes.

use super::link::{Stream, Written};
use super::port::ListenerState;
use super::slab::Key;
use super::stats::{Drop, Limit};
use super::sys::{self, READ, WRITE};
use super::timers::TimerEvent;
use super::token::Token;
use super::worker::Worker;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Requests that were read already and are begun per loop, so that other sockets are served too.
const REQUESTS_PER_LOOP: usize = 256;
/// How long a closing connection may take nothing of what waits for it.
const STALLED_MS: u64 = 10_000;
/// How long a peer that got everything may take to close its half.
const LINGER_MS: u64 = 2000;

/// A connection without a session.
pub(crate) struct PendingConnection {
    pub stream: Stream,
    pub purpose: Purpose,
    /// When it began to wait, or last made progress.
    pub since: u64,
    /// It has a timer.
    timed: bool,
}

/// What a connection without a session is there for.
pub(crate) enum Purpose {
    /// Its next request is awaited.
    Request(Arc<Acceptor>),
    /// What waits is sent, then the end; then input is discarded until the peer's end, because closing a socket with
    /// unread input resets the connection, and the peer may lose what it has not read yet.
    Close,
}

/// Who accepted a connection, and its ends.
pub(crate) struct Acceptor {
    pub listener: Arc<ListenerState>,
    pub local: SocketAddr,
    pub peer: Option<SocketAddr>,
}

impl PendingConnection {
    /// How long it may stay without progress.
    fn limit_ms(&self) -> u64 {
        match &self.purpose {
            Purpose::Request(acceptor) => acceptor.listener.setup_seconds() * 1000,
            Purpose::Close if self.stream.waiting() > 0 => STALLED_MS,
            Purpose::Close => LINGER_MS,
        }
    }
}

impl Worker {
    /// Awaits a request on a connection. One that was sent ahead is begun later in the loop: a request must never be
    /// handled inside the handling of the one before it.
    pub(crate) fn await_request(&mut self, stream: Stream, acceptor: Arc<Acceptor>) {
        let limit = acceptor.listener.config.options.max_sessions.unwrap_or(usize::MAX).saturating_add(1024);
        if self.pending.len() >= limit.min(self.shared.most_sessions) {
            self.count_drop(Drop::Cap, 1);
            // a connection that was kept may still have an answer to deliver
            if stream.waiting() > 0 {
                self.linger(stream);
            }
            return;
        }
        let begun = !stream.input.is_empty();
        if stream.ended && !begun {
            return self.linger(stream);
        }
        let Some(key) = self.keep_pending(stream, Purpose::Request(acceptor)) else { return };
        if begun {
            self.requests.push_back(key);
        } else {
            self.time_pending(key);
        }
    }

    /// Lets a connection without a session deliver what waits for it, and closes it.
    pub(crate) fn linger(&mut self, mut stream: Stream) {
        stream.input.clear();
        stream.ending = true;
        if stream.flush() == Written::Broken || stream.ended && stream.waiting() == 0 {
            return;
        }
        if self.pending.len() >= self.shared.most_sessions {
            return self.count_drop(Drop::Cap, 1);
        }
        if let Some(key) = self.keep_pending(stream, Purpose::Close) {
            self.shared.counts.closing.fetch_add(1, Relaxed);
            self.time_pending(key);
        }
    }

    /// Sets the timer of a connection that has to wait; most requests that were sent ahead never do.
    pub(crate) fn time_pending(&mut self, key: Key) {
        let Some(pending) = self.pending.get_mut(key) else { return };
        if !std::mem::replace(&mut pending.timed, true) {
            let due = (pending.since + pending.limit_ms()) / 1000 + 1;
            self.timers.add(due, TimerEvent::PendingConnection(key));
        }
    }

    fn keep_pending(&mut self, mut stream: Stream, purpose: Purpose) -> Option<Key> {
        let fd = stream.raw();
        stream.interest = interest(&stream, &purpose);
        let (wanted, since) = (stream.interest, self.now.ms);
        let key = self.pending.insert(PendingConnection { stream, purpose, since, timed: false });
        let token = Token::PendingConnection(key).pack();
        if self.epoll.add(fd, token, wanted).or_else(|_| self.epoll.change(fd, token, wanted)).is_err() {
            self.pending.remove(key);
            return None;
        }
        Some(key)
    }

    /// Begins requests that were sent ahead, a bounded number at a time.
    pub(crate) fn begin_requests(&mut self) {
        for _ in 0..self.requests.len().min(REQUESTS_PER_LOOP) {
            let Some(key) = self.requests.pop_front() else { return };
            self.handle_request(key);
        }
    }

    /// Turns a connection whose request was refused into one that closes.
    pub(crate) fn close_pending(&mut self, key: Key) {
        if let Some(pending) = self.pending.remove(key) {
            self.linger(pending.stream);
        }
    }

    pub(crate) fn expire_pending(&mut self, key: Key) {
        let Some(pending) = self.pending.get(key) else { return };
        let due = pending.since + pending.limit_ms();
        if self.now.ms < due {
            return self.timers.add(due.div_ceil(1000), TimerEvent::PendingConnection(key));
        }
        if matches!(pending.purpose, Purpose::Request(_)) {
            self.stats.reach_limit(Limit::SetupTimeout);
        } else if pending.stream.waiting() > 0 {
            self.count_drop(Drop::Send, 1);
        }
        self.remove_pending(key);
    }

    /// Connections that deliver their last bytes.
    pub(crate) fn closing(&self) -> usize {
        let pending = self.pending.keys().filter_map(|key| self.pending.get(key));
        pending.filter(|pending| matches!(pending.purpose, Purpose::Close)).count()
    }

    fn remove_pending(&mut self, key: Key) {
        if let Some(PendingConnection { purpose: Purpose::Close, .. }) = self.pending.remove(key) {
            self.shared.counts.closing.fetch_sub(1, Relaxed);
        }
    }

    pub(crate) fn handle_pending(&mut self, key: Key) {
        let now = self.now.ms;
        let Some(pending) = self.pending.get_mut(key) else { return };
        let before = pending.stream.waiting();
        if pending.stream.flush() == Written::Broken {
            return self.remove_pending(key);
        }
        if pending.stream.waiting() < before {
            pending.since = now;
        }
        let closes = matches!(pending.purpose, Purpose::Close);
        let room = if closes { self.scratch.len() } else { pending.stream.input.room().min(self.scratch.len()) };
        if room > 0 && !pending.stream.ended {
            match sys::receive(pending.stream.raw(), &mut self.scratch[..room]) {
                Ok(0) => pending.stream.ended = true,
                Ok(n) if !closes => pending.stream.input.push(&self.scratch[..n]),
                Ok(_) => {}
                Err(error) if sys::would_block(&error) => {}
                Err(_) => return self.remove_pending(key),
            }
        }
        if !closes {
            self.handle_request(key);
        }
        self.watch_pending(key);
    }

    pub(crate) fn watch_pending(&mut self, key: Key) {
        let Some(pending) = self.pending.get_mut(key) else { return };
        if pending.stream.ended && pending.stream.waiting() == 0 && matches!(pending.purpose, Purpose::Close) {
            return self.remove_pending(key);
        }
        let wanted = interest(&pending.stream, &pending.purpose);
        if wanted != pending.stream.interest {
            pending.stream.interest = wanted;
            self.epoll.change(pending.stream.raw(), Token::PendingConnection(key).pack(), wanted).ok();
        }
    }
}

/// What a connection without a session is watched for.
fn interest(stream: &Stream, purpose: &Purpose) -> u32 {
    let takes_more = matches!(purpose, Purpose::Close) || !stream.input.is_full() && !stream.is_crowded();
    let reads = !stream.ended && takes_more;
    let wanted = if reads { READ } else { 0 } | if stream.waiting() > 0 { WRITE } else { 0 };
    if wanted == 0 { sys::FAILURES_ONCE } else { wanted }
}
