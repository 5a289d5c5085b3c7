//! Byte streams: reading, writing, back pressure, and half-close.

use super::link::{Codec, Link, Written, broken_pipe, connection_reset};
use super::session::{ServerHandshake, Session};
use super::slab::Key;
use super::splice::move_bytes;
use super::sys::{self, FAILURES_ONCE, READ, Ready, WRITE};
use super::token::Token;
use super::worker::{SCRATCH, Worker};
use crate::config::types::ClusterSpec;
use crate::proto::Message;
use crate::proto::session::{Failure, Finish};
use crate::proto::ws::code;
use std::io;
use std::os::fd::AsRawFd;

/// Reads of one stream per event, so that other sockets are served too.
const READS: usize = 4;
/// Bytes of one read where a rate is limited, so that pauses are short.
const LIMITED_READ: usize = 16 * 1024;
/// Idle timeout after a half-close that cannot be forwarded.
const AFTER_END_MS: u64 = 5000;

impl Worker {
    /// A socket of a session is ready.
    pub(crate) fn handle_link(&mut self, key: Key, at: usize, ready: Ready) {
        if !self.sessions.is_current(key) {
            return;
        }
        if self.sessions.hot[key.slot as usize].upstream >= 0 && at == 1 {
            return self.receive_answers(key, at);
        }
        let Some(session) = self.sessions.get(key) else { return };
        let link = if at == 0 { Some(&session.source) } else { session.stages.get(at - 1).map(|stage| &stage.link) };
        match link {
            Some(Link::Stream(_)) => self.with_session(key, |worker, session| worker.handle_stream(session, at, ready)),
            Some(Link::Datagram(_)) if at == 0 => self.with_session(key, Self::read_packets),
            Some(Link::Datagram(_)) => self.receive_answers(key, at),
            _ => {}
        }
    }

    fn handle_stream(&mut self, session: &mut Session, at: usize, ready: Ready) {
        if session.splice.is_some() {
            return self.pump(session);
        }
        let Link::Stream(stream) = session.link(at) else { return };
        if stream.connecting {
            return self.handle_connecting(session, at, ready);
        }
        let waiting = stream.waiting();
        if (ready.writable || ready.failed) && stream.flush() == Written::Broken {
            self.write_failed(session, at);
        } else if stream.waiting() < waiting {
            // a slow reader is not idle
            self.sessions.hot[session.key.slot as usize].seen = self.now.ms;
        }
        if ready.readable && !session.machine.is_over() {
            self.read_stream(session, at);
        }
        if ready.failed {
            self.check_failed(session, at);
        }
        if !session.machine.is_over() {
            self.end_if_done(session);
            self.watch(session);
        }
    }

    /// A peer takes nothing more. What it sent before that, an early answer for instance, is still passed on: the stream
    /// is lost when its end has been read.
    pub(crate) fn write_failed(&mut self, session: &mut Session, at: usize) {
        let heard = session.machine.is_open() && !session.awaits_response(at);
        // no answer can reach an HTTP client any more
        if let Link::Stream(stream) = session.link(at)
            && heard
            && !matches!(stream.codec, Codec::Http(_))
        {
            stream.give_up_sending();
            self.watch(session);
        } else {
            self.stream_lost(session, at, &broken_pipe());
        }
    }

    /// Looks for the error of a peer that is not read at the moment.
    fn check_failed(&mut self, session: &mut Session, at: usize) {
        if session.machine.is_over() || Self::may_read(session, at) {
            return;
        }
        let Link::Stream(stream) = session.link(at) else { return };
        // a peer that closed both halves in order leaves no error
        match sys::connect_error(stream.raw()) {
            Some(_) if at > 0 => self.write_failed(session, at),
            Some(_) => self.source_lost(session),
            None => {}
        }
    }

    /// A connection attempt has an outcome.
    fn handle_connecting(&mut self, session: &mut Session, at: usize, ready: Ready) {
        let Link::Stream(stream) = session.link(at) else { return };
        if !ready.writable && !ready.failed {
            return;
        }
        if let Some(error) = sys::connect_error(stream.raw()) {
            let failure = Failure::connect(format!("connect {}", sys::error_name(&error)));
            return self.stage_failed(session, at - 1, failure.with_endpoint_fault(sys::is_peers_fault(&error)));
        }
        stream.connecting = false;
        stream.flush();
        let upgrading = stream.is_upgrading();
        if !upgrading {
            self.transport_connected(session, at);
        }
        self.watch(session);
    }

    /// The transport of a stage is connected; a JSONSocket continues with its handshake.
    pub(crate) fn transport_connected(&mut self, session: &mut Session, at: usize) {
        if session.stages[at - 1].handshake.is_some() {
            self.send_handshake(session, at - 1);
        } else {
            self.stage_connected(session, at - 1);
        }
    }

    fn read_stream(&mut self, session: &mut Session, at: usize) {
        for _ in 0..READS {
            if !Self::may_read(session, at) {
                return;
            }
            let limited = at == 0 && session.limiters().next().is_some();
            let Link::Stream(stream) = session.link(at) else { return };
            let room = match &stream.codec {
                Codec::Http(state) if state.body.is_done() => stream.input.room().min(SCRATCH),
                _ if limited => LIMITED_READ,
                Codec::Bytes | Codec::Framed(_) | Codec::Ws(_) | Codec::Pass(_) | Codec::Http(_) => SCRATCH,
            };
            let fd = stream.raw();
            let mut scratch = std::mem::take(&mut self.scratch);
            let result = sys::receive(fd, &mut scratch[..room]);
            let full = matches!(result, Ok(n) if n == room);
            let deaf = stream.deaf;
            match result {
                Ok(0) if deaf => self.stream_lost(session, at, &broken_pipe()),
                Ok(0) => self.stream_ended(session, at),
                Ok(n) => {
                    let packets = self.sessions.hot[session.key.slot as usize].packets_in;
                    self.handle_bytes(session, at, &mut scratch[..n]);
                    if limited {
                        self.charge(session, packets, n);
                    }
                }
                Err(error) if sys::would_block(&error) => {}
                Err(error) if at == 0 => {
                    tracing::trace!(%error, "client connection lost");
                    self.source_lost(session);
                }
                Err(error) => self.stage_lost(session, at, &error, "read"),
            }
            self.scratch = scratch;
            if !full || session.machine.is_over() {
                return;
            }
        }
    }

    /// Charges bytes of a rate-limited client, and pauses reading until the rate allows more.
    fn charge(&mut self, session: &mut Session, packets_before: u64, bytes: usize) {
        let now = self.now.ms;
        let whole = matches!(&session.source, Link::Stream(stream) if matches!(stream.codec, Codec::Bytes));
        let packets = self.sessions.hot[session.key.slot as usize].packets_in - packets_before;
        let packets = if whole { 0 } else { packets };
        let source = session.peer.map(|peer| peer.ip());
        let pause = session.limiters().map(|limiter| limiter.charge(source, packets, bytes, now)).max();
        if let Some(pause) = pause.filter(|pause| *pause > 0) {
            session.resume_at = now + pause;
        }
    }

    /// Resumes reading from a rate-limited client.
    pub(crate) fn resume_source(&mut self, session: &mut Session) {
        session.resume_at = 0;
        self.watch(session);
    }

    /// Bytes of a stream, as its codec reads them.
    pub(crate) fn handle_bytes(&mut self, session: &mut Session, at: usize, bytes: &mut [u8]) {
        let Link::Stream(stream) = session.link(at) else { return };
        match &mut stream.codec {
            Codec::Bytes => self.handle_message(session, at, Message::binary(bytes)),
            Codec::Pass(walker) => {
                let frames = walker.handle_bytes(bytes);
                if frames.is_none() {
                    return self.stream_lost(session, at, &io::Error::from_raw_os_error(libc::EPROTO));
                }
                self.handle_message(session, at, Message::binary(bytes));
            }
            Codec::Framed(framer) => {
                let mut framer = framer.lend();
                let mut done = Ok(());
                self.gathering(session, |worker, session| {
                    let each = |message: &[u8]| worker.handle_message(session, at, Message::binary(message));
                    done = framer.handle_bytes(bytes, each);
                });
                if let Link::Stream(stream) = session.link(at) {
                    stream.codec = Codec::Framed(framer);
                }
                if done.is_err() {
                    self.stream_lost(session, at, &io::Error::from_raw_os_error(libc::EMSGSIZE));
                }
            }
            Codec::Ws(state) if state.nonce.is_some() => self.handle_upgrade(session, at, bytes),
            Codec::Ws(_) => self.handle_frames(session, at, bytes),
            Codec::Http(_) => self.handle_body(session, bytes),
        }
    }

    pub(crate) fn handle_message(&mut self, session: &mut Session, at: usize, message: Message<'_>) {
        if at == 0 { self.handle_source(session, message) } else { self.handle_stage(session, at, message) }
    }

    /// The other side of a stream sends nothing more.
    pub(crate) fn stream_ended(&mut self, session: &mut Session, at: usize) {
        let unheard = session.awaits_response(at);
        let Link::Stream(stream) = session.link(at) else { return };
        stream.ended = true;
        match &mut stream.codec {
            Codec::Http(state) if !state.body.is_done() => return self.refuse_truncated(session),
            // without a close before it this is an end all the same
            Codec::Ws(state) => {
                state.close_received.get_or_insert((code::NO_STATUS, String::new()));
            }
            Codec::Bytes | Codec::Framed(_) | Codec::Pass(_) | Codec::Http(_) => {}
        }
        if unheard {
            return self.stage_lost(session, at, &connection_reset(), "read");
        }
        if at == 0 && matches!(session.handshake, ServerHandshake::Waiting(_)) {
            return self.source_lost(session);
        }
        self.pass_ends(session);
    }

    /// Passes on the ends that have arrived, each once, behind everything that came before it. While a session is not
    /// connected they wait, as data does.
    pub(crate) fn pass_ends(&mut self, session: &mut Session) {
        for at in 0..=session.stages.len() {
            let ended = match session.link_at(at) {
                Link::Stream(stream) => {
                    let whole = matches!(&stream.codec, Codec::Http(state) if state.body.is_done());
                    stream.ended || whole
                }
                Link::None | Link::UdpPeer | Link::UnixPeer(_) | Link::Datagram(_) | Link::Virtual | Link::Sync(_) => {
                    false
                }
            };
            if ended && session.machine.is_open() && session.splice.is_none() {
                self.pass_end(session, at);
            }
        }
    }

    /// Forwards an end, as far as the next socket supports it; to repeat it changes nothing.
    fn pass_end(&mut self, session: &mut Session, at: usize) {
        if at == 0 && Self::goes_to_api(session) {
            return;
        }
        let closed = match session.link_at(at) {
            Link::Stream(stream) => match &stream.codec {
                Codec::Ws(state) => state.close_received.clone(),
                Codec::Bytes | Codec::Framed(_) | Codec::Pass(_) | Codec::Http(_) => None,
            },
            Link::None | Link::UdpPeer | Link::UnixPeer(_) | Link::Datagram(_) | Link::Virtual | Link::Sync(_) => None,
        };
        if at > 0 {
            if let Some((code, reason)) = closed {
                return self.ws_stage_closed(session, at, code, &reason);
            }
            // an endpoint that ends behind the client's end has not been lost: both are done
            let complete = matches!(&session.source, Link::Stream(stream) if stream.ended);
            if session.reconnects() && !complete {
                return self.stage_lost(session, at, &connection_reset(), "read");
            }
        }
        if Self::swallows(session, at) {
            return session.machine.handle_end(Finish::Normal, None, self.now);
        }
        let next = session.socket_after(at);
        match session.link(next) {
            Link::Stream(stream) => match &mut stream.codec {
                Codec::Http(_) => {
                    stream.end_answer();
                    session.machine.handle_end(Finish::Normal, None, self.now);
                }
                Codec::Ws(state) => {
                    let over = state.close_received.is_some();
                    let (code, reason) = closed.unwrap_or((code::NORMAL, String::new()));
                    stream.send_close(if code == code::NO_STATUS { code::NORMAL } else { code }, &reason);
                    if over {
                        return session.machine.handle_end(Finish::Normal, None, self.now);
                    }
                    self.limit_idle(session, AFTER_END_MS);
                }
                Codec::Bytes | Codec::Framed(_) | Codec::Pass(_) => {
                    stream.ending = true;
                    if stream.flush() == Written::Broken {
                        return self.write_failed(session, next);
                    }
                    if closed.is_some() {
                        self.limit_idle(session, AFTER_END_MS);
                    }
                }
            },
            Link::UdpPeer | Link::UnixPeer(_) | Link::Datagram(_) | Link::Sync(_) | Link::None | Link::Virtual => {
                let http = matches!(&session.source, Link::Stream(stream) if matches!(stream.codec, Codec::Http(_)));
                if closed.is_some() {
                    // the peer waits for our close, and no end will come from where its messages go
                    session.machine.handle_end(Finish::Normal, None, self.now);
                } else if !(http && at == 0) {
                    self.limit_idle(session, AFTER_END_MS);
                }
            }
        }
    }

    /// Whether a stage after `at` swallows all messages.
    fn swallows(session: &Session, at: usize) -> bool {
        let mut next = session.after(at);
        while next != 0 && session.is_virtual(next) {
            let spec = session.stages[next - 1].cluster.as_ref().map(|cluster| &cluster.spec);
            if matches!(spec, Some(ClusterSpec::Discard | ClusterSpec::Stdio)) {
                return true;
            }
            next = session.after(next);
        }
        false
    }

    /// Ends a session of streams when all halves are closed.
    fn end_if_done(&mut self, session: &mut Session) {
        let mut streams = 0;
        for at in 0..=session.stages.len() {
            match session.link_at(at) {
                Link::Stream(stream) if stream.is_done() => streams += 1,
                Link::Virtual => {}
                Link::None
                | Link::UdpPeer
                | Link::UnixPeer(_)
                | Link::Datagram(_)
                | Link::Stream(_)
                | Link::Sync(_) => return,
            }
        }
        if streams > 0 {
            session.machine.handle_end(Finish::Normal, None, self.now);
        }
    }

    /// Whether a stream may be read: everything that its bytes fill has room.
    fn may_read(session: &Session, at: usize) -> bool {
        let Link::Stream(stream) = session.link_at(at) else { return false };
        if stream.ended || stream.connecting || stream.ignores_control() || at == 0 && session.resume_at > 0 {
            return false;
        }
        if let Codec::Http(state) = &stream.codec
            && state.body.is_done()
        {
            return !stream.input.is_full();
        }
        if session.awaits_response(at) {
            return true;
        }
        if !session.machine.is_open() {
            return !session.setup_queue.as_ref().is_some_and(|held| held.is_full());
        }
        !matches!(session.link_at(session.socket_after(at)), Link::Stream(next) if next.is_crowded())
    }

    /// Watches all streams of a session for what they wait for.
    pub(crate) fn watch(&mut self, session: &mut Session) {
        if session.splice.is_some() {
            return self.pump(session);
        }
        for at in 0..=session.stages.len() {
            let read = if Self::may_read(session, at) { READ } else { 0 };
            let Link::Stream(stream) = session.link(at) else { continue };
            let write = if stream.waiting() > 0 || stream.connecting { WRITE } else { 0 };
            self.set_interest(session, at, read | write);
        }
    }

    fn set_interest(&mut self, session: &mut Session, at: usize, wanted: u32) {
        let token = Token::Link(session.key, at).pack();
        let epoll = &self.epoll;
        let Link::Stream(stream) = session.link(at) else { return };
        let wanted = if wanted == 0 { FAILURES_ONCE } else { wanted };
        if wanted != stream.interest {
            stream.interest = wanted;
            // A descriptor that cannot be watched is reported as failed by the next read or write.
            epoll.change(stream.raw(), token, wanted).ok();
        }
    }

    /// Moves bytes both ways inside the kernel.
    fn pump(&mut self, session: &mut Session) {
        let Some(mut splice) = session.splice.take() else { return };
        let (Link::Stream(source), Link::Stream(stage)) = (&session.source, &session.stages[0].link) else { return };
        let ends = [source.raw(), stage.raw()];
        let mut moved = [(0u64, 0u64); 2];
        let mut lost = None;
        let mut wants = [0, 0];
        for way in 0..2 {
            match move_bytes(&mut splice, way, ends, &mut moved[way]) {
                Ok(state) => {
                    wants[way] |= if state.reads { READ } else { 0 };
                    wants[1 - way] |= if state.writes { WRITE } else { 0 };
                }
                Err((at, error)) => lost = Some((at, error)),
            }
        }
        let done = splice.end_sent == [true, true];
        if splice.reconnects && splice.ended[1] && !splice.ended[0] && splice.pipes[1].held() == 0 {
            lost = Some((1, connection_reset()));
        }
        if let Some(at) = splice.is_over_with() {
            lost = Some((at, broken_pipe()));
        }
        session.splice = Some(splice);
        if session.stages[0].unconfirmed && moved[1].1 > 0 {
            super::circuit::confirm_endpoint(&mut session.stages[0]);
        }
        self.count_moved(session.key.slot, moved);
        for (at, wanted) in wants.into_iter().enumerate() {
            self.set_interest(session, at, wanted);
        }
        match lost {
            Some((0, _)) => self.source_lost(session),
            Some((at, error)) => self.stage_lost(session, at, &error, "read"),
            None if done => session.machine.handle_end(Finish::Normal, None, self.now),
            None => {}
        }
    }

    fn count_moved(&mut self, slot: u32, [(packets_in, bytes_in), (packets_out, bytes_out)]: [(u64, u64); 2]) {
        let hot = &mut self.sessions.hot[slot as usize];
        hot.seen = self.now.ms;
        hot.packets_in += packets_in;
        hot.bytes_in += bytes_in;
        hot.packets_out += packets_out;
        hot.bytes_out += bytes_out;
        self.stats.packets_in.add(packets_in);
        self.stats.bytes_in.add(bytes_in);
        self.stats.packets_out.add(packets_out);
        self.stats.bytes_out.add(bytes_out);
    }

    /// Packets of a sequenced-packet client.
    fn read_packets(&mut self, session: &mut Session) {
        for _ in 0..super::sys::BATCH {
            let Link::Datagram(fd) = &session.source else { return };
            let fd = fd.as_raw_fd();
            let mut scratch = std::mem::take(&mut self.scratch);
            let result = sys::receive(fd, &mut scratch);
            match &result {
                // An empty packet and the end of a connection look alike here; the end also hangs up.
                Ok(0) => self.source_lost(session),
                Ok(n) if self.apply_rate_limits(session, &[*n]).is_empty() => {}
                Ok(n) => self.handle_source(session, Message::binary(&scratch[..*n])),
                Err(error) if sys::would_block(error) => {}
                Err(_) => self.source_lost(session),
            }
            self.scratch = scratch;
            if result.is_err() || session.machine.is_over() {
                return;
            }
        }
    }
}
