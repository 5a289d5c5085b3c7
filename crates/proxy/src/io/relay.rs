//! Messages on their way through a session: source, stages in order, back to the source.

use super::link::{Link, Written};
use super::session::{ServerHandshake, Session, SetupQueue};
use super::slab::Key;
use super::stats::{Drop, Limit};
use super::sys;
use super::virtual_cluster::Transformed;
use super::worker::Worker;
use crate::config::types::DropPolicy;
use crate::proto::Message;
use crate::proto::session::Failure;
use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// The largest UDP payload over IPv4: longer pieces of a stream are cut.
const LARGEST: usize = 65_507;

impl Worker {
    /// A message from the client.
    pub(crate) fn handle_source(&mut self, session: &mut Session, message: Message<'_>) {
        let hot = &mut self.sessions.hot[session.key.slot as usize];
        hot.seen = self.now.ms;
        hot.packets_in += 1;
        hot.bytes_in += message.data.len() as u64;
        self.stats.packets_in.add(1);
        self.stats.bytes_in.add(message.data.len() as u64);
        match &session.handshake {
            ServerHandshake::Waiting(_) => self.handle_header(session, message.data),
            ServerHandshake::Read(header) if **header == *message.data => {}
            ServerHandshake::None | ServerHandshake::Open(_) | ServerHandshake::Read(_) => {
                self.forward(session, 0, message);
            }
            ServerHandshake::Answered(header) if **header == *message.data => self.accept_header(session),
            ServerHandshake::Answered(header) => {
                session.handshake = ServerHandshake::after_header(header);
                self.choose_path(session);
                self.forward(session, 0, message);
            }
        }
    }

    /// Which of some datagrams the rate limits allow; the others are counted as dropped.
    pub(crate) fn apply_rate_limits(&self, session: &Session, sizes: &[usize]) -> Range<usize> {
        let source = session.peer.map(|peer| peer.ip());
        let mut passing = 0..sizes.len();
        for limiter in session.limiters() {
            match limiter.grant(source, &sizes[passing.clone()], self.now.ms) {
                (granted, DropPolicy::Newest) => passing.end = passing.start + granted,
                (granted, DropPolicy::Oldest) => passing.start = passing.end - granted,
            }
        }
        self.count_drop(Drop::Rate, (sizes.len() - passing.len()) as u64);
        passing
    }

    /// A message out of a stage.
    pub(crate) fn handle_stage(&mut self, session: &mut Session, at: usize, message: Message<'_>) {
        self.sessions.hot[session.key.slot as usize].seen = self.now.ms;
        if session.stages[at - 1].unconfirmed {
            super::circuit::confirm_endpoint(&mut session.stages[at - 1]);
        }
        if session.stages[at - 1].handshake.is_some() {
            return self.handle_answer(session, at - 1, message);
        }
        self.forward(session, at, message);
    }

    /// Forwards a message from a place on the path, or queues it until the session is connected.
    pub(crate) fn forward(&mut self, session: &mut Session, from: usize, message: Message<'_>) {
        if session.machine.is_over() {
            return;
        }
        if !session.machine.is_open() {
            return self.queue_until_connected(session, from, message);
        }
        let mut data = Cow::Borrowed(message.data);
        let mut text = message.text;
        let mut at = from;
        loop {
            at = session.after(at);
            if at == 0 {
                return self.send_to_source(session, Message { data: &data, text }, from);
            }
            if !session.is_virtual(at) {
                return self.send_to_stage(session, at, Message { data: &data, text }, from);
            }
            match self.apply_virtual_cluster(session, at, &data) {
                Transformed::Same => {}
                Transformed::Changed(bytes) => {
                    data = Cow::Owned(bytes);
                    text = false;
                }
                Transformed::Nothing => return,
            }
        }
    }

    pub(crate) fn queue_until_connected(&mut self, session: &mut Session, from: usize, message: Message<'_>) {
        let room = self.snapshot.admin.limits.setup_queue;
        let fits = self.setup_queue_bytes + message.data.len() <= room;
        let of_stream = matches!(session.link(from), Link::Stream(_));
        let held = session.setup_queue.get_or_insert_with(Box::<SetupQueue>::default);
        if fits && of_stream {
            held.push_all(from, message);
        } else if !fits || !held.push(from, message) {
            self.count_drop(Drop::SetupQueue, 1);
            if !fits {
                self.stats.reach_limit(Limit::SetupQueue);
            }
            if of_stream {
                let why = format!("More than {room} bytes wait for sessions to connect (admin.limits.setup_queue)");
                session.machine.handle_refusal(&Failure::unavailable(why), self.now);
            }
            return;
        }
        self.setup_queue_bytes += SetupQueue::cost(message.data.len());
    }

    /// Forwards what was queued during setup. If a stage is lost over it, the rest waits for the next connection.
    pub(crate) fn drain_setup_queue(&mut self, session: &mut Session) {
        while session.machine.is_open()
            && let Some((from, text, data)) = session.setup_queue.as_mut().and_then(|held| held.pop())
        {
            self.setup_queue_bytes -= SetupQueue::cost(data.len());
            self.forward(session, from, Message { data: &data, text });
        }
        if session.setup_queue.as_ref().is_some_and(|held| held.is_empty()) {
            session.setup_queue = None;
        }
    }

    fn send_to_source(&mut self, session: &mut Session, message: Message<'_>, from: usize) {
        let slot = session.key.slot;
        let hot = &mut self.sessions.hot[slot as usize];
        hot.packets_out += 1;
        hot.bytes_out += message.data.len() as u64;
        self.stats.packets_out.add(1);
        self.stats.bytes_out.add(message.data.len() as u64);
        self.send_raw_to_source(session, message, from);
    }

    /// Answers a client's handshake; that is not counted as traffic.
    pub(crate) fn answer_handshake(&mut self, session: &mut Session, answer: &[u8]) {
        self.send_raw_to_source(session, Message::binary(answer), 0);
    }

    fn send_raw_to_source(&mut self, session: &mut Session, message: Message<'_>, from: usize) {
        let worker = self.id;
        let fd = session.port.as_ref().and_then(|port| port.socket(worker));
        match &mut session.source {
            Link::UdpPeer => {
                for piece in pieces(message.data) {
                    self.answer_udp(session.key.slot, piece, fd.unwrap_or(-1));
                }
            }
            Link::UnixPeer(peer) => {
                let sent = fd.filter(|_| !peer.is_unnamed()).map(|fd| sys::send_to_unix(fd, message.data, peer));
                if !matches!(sent, Some(Ok(_))) {
                    self.count_drop(Drop::Send, 1);
                }
            }
            Link::Datagram(fd) => {
                if let Err(error) = sys::send(fd.as_raw_fd(), message.data) {
                    self.count_drop(Drop::Send, 1);
                    if !sys::would_block(&error) {
                        self.source_lost(session);
                    }
                }
            }
            Link::Stream(_) => self.send_to_stream(session, 0, message, from),
            Link::None | Link::Virtual | Link::Sync(_) => {}
        }
    }

    /// Sends a message that came from the place `from` to a stage.
    pub(crate) fn send_to_stage(&mut self, session: &mut Session, at: usize, message: Message<'_>, from: usize) {
        match &session.stages[at - 1].link {
            Link::Datagram(fd) => {
                let fd = fd.as_raw_fd();
                // Only UDP takes several datagrams as one message and gives them out one by one.
                if self.outbox.open && session.stages[at - 1].is_udp() {
                    if self.outbox.is_full(message.data.len()) {
                        self.flush_outbox(session);
                    }
                    if message.data.len() <= LARGEST {
                        return self.outbox.push(at, fd, message.data);
                    }
                }
                for piece in pieces(message.data) {
                    match sys::send(fd, piece) {
                        Ok(_) => {}
                        Err(error) if is_loss(&error) => {
                            self.count_drop(Drop::Send, 1);
                            return self.stage_lost(session, at, &error, "sendmsg");
                        }
                        Err(_) => self.count_drop(Drop::Send, 1),
                    }
                }
            }
            Link::Stream(_) => self.send_to_stream(session, at, message, from),
            Link::Sync(_) => self.send_to_group(session, at, message.data),
            Link::None | Link::Virtual | Link::UdpPeer | Link::UnixPeer(_) => {}
        }
    }

    fn send_to_stream(&mut self, session: &mut Session, at: usize, message: Message<'_>, from: usize) {
        let held_back = matches!(session.link_at(from), Link::Stream(_));
        let Link::Stream(stream) = session.link(at) else { return };
        let corked = self.outbox.open && stream.cork();
        let written = stream.send(message, held_back);
        if !corked {
            return self.follow_write(session, at, written);
        }
        if !self.outbox.corked.contains(&at) {
            self.outbox.corked.push(at);
        }
        if written == Written::Dropped {
            self.count_drop(Drop::Send, 1);
        }
    }

    /// What follows from how a write to a stream went.
    pub(crate) fn follow_write(&mut self, session: &mut Session, at: usize, written: Written) {
        match written {
            Written::Done => {}
            Written::Queued => self.watch(session),
            Written::Dropped => self.count_drop(Drop::Send, 1),
            Written::Broken => self.write_failed(session, at),
        }
    }

    /// Handles the data of one read; the messages that this sends leave together at the end.
    pub(crate) fn gathering(&mut self, session: &mut Session, work: impl FnOnce(&mut Self, &mut Session)) {
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

    /// Sends the datagrams in the outbox.
    fn flush_outbox(&mut self, session: &mut Session) {
        let hot = &mut self.sessions.hot[session.key.slot as usize];
        let Some((at, sent)) = self.outbox.flush(!hot.singly) else { return };
        hot.singly |= sent.unsegmented;
        self.stats.segments_out.add(sent.segmented);
        if sent.dropped > 0 {
            self.count_drop(Drop::Send, sent.dropped);
        }
        if let Some(code) = sent.broken {
            self.stage_lost(session, at, &io::Error::from_raw_os_error(code), "sendmsg");
        }
    }

    /// A stage's socket failed, seen from the packet path.
    pub(crate) fn drop_stage(&mut self, key: Key, at: usize, error: &io::Error, call: &str) {
        self.with_session(key, |worker, session| worker.stage_lost(session, at, error, call));
    }
}

/// Errors of a connected datagram socket that mean that the peer is gone.
fn is_loss(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::EPIPE
                | libc::ENOTCONN
                | libc::ECONNRESET
        )
    )
}

/// A message cut to what fits into one datagram; an empty one is one.
fn pieces(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    (0..data.len().div_ceil(LARGEST).max(1)).map(move |i| &data[i * LARGEST..data.len().min((i + 1) * LARGEST)])
}
