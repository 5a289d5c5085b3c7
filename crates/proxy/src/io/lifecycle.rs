//! Runs the actions of a session's state machine on its sockets.

use super::circuit::{confirm_endpoint, finish_retry};
use super::command::Command;
use super::link::{Codec, Link};
use super::rate::source_of;
use super::session::{ServerHandshake, Session};
use super::session_filter::Ids;
use super::slab::Key;
use super::splice::Splice;
use super::sys;
use super::table::Finished;
use super::timers::TimerEvent;
use super::worker::Worker;
use crate::proto::json_socket::Rejected;
use crate::proto::session::{Action, Failure, Finish};
use crate::proto::ws::code;
use crate::transport::http::response::{answer_error, status_of};
use std::io;
use std::sync::atomic::Ordering::Relaxed;

/// How long a client is not served after its endpoint refused.
const REFUSAL_MS: u64 = 100;

impl Worker {
    /// Runs the actions of the state machine; returns how the session ended, if it did.
    pub(crate) fn run_actions(&mut self, session: &mut Session) -> Option<Finish> {
        while let Some(action) = session.machine.poll_action() {
            match action {
                Action::Connect(stage) => self.connect(session, stage),
                Action::Abandon(stage) => self.release_stage(session, stage),
                Action::TimeOut(stage) => self.stage_failed(session, stage, Failure::timed_out()),
                Action::Open => self.opened(session),
                Action::Finish(finish) => return Some(finish),
            }
        }
        self.stats.retries.add(u64::from(session.machine.take_retries()));
        self.arm(session);
        None
    }

    /// Sets the timer to the next deadline of the session.
    fn arm(&mut self, session: &mut Session) {
        let retransmits = session.stages.iter().filter_map(|stage| {
            let handshake = stage.handshake.as_ref().filter(|handshake| handshake.retransmit_ms > 0)?;
            matches!(stage.link, Link::Datagram(_)).then_some(handshake.sent_at + handshake.retransmit_ms)
        });
        let resume = Some(session.resume_at).filter(|at| *at > 0);
        let api = self.api_deadline(session);
        let dues =
            session.machine.poll_timeout().map(|(at, _)| at).into_iter().chain(resume).chain(api).chain(retransmits);
        let due = dues.min().unwrap_or(0);
        if due == session.timer {
            return;
        }
        self.timers.rearm(session.key, session.timer, due);
        session.timer = due;
    }

    pub(crate) fn handle_session_timeout(&mut self, session: &mut Session) {
        let now = self.now.ms;
        for stage in 0..session.stages.len() {
            let due = session.stages[stage].handshake.as_ref().is_some_and(|handshake| {
                handshake.retransmit_ms > 0 && handshake.sent_at + handshake.retransmit_ms <= now
            });
            if due && matches!(session.stages[stage].link, Link::Datagram(_)) {
                self.send_handshake(session, stage);
            }
        }
        session.machine.handle_timeout(self.now);
        self.check_api_deadline(session);
        if session.resume_at > 0 && session.resume_at <= now {
            self.resume_source(session);
        }
    }

    /// All stages are connected.
    fn opened(&mut self, session: &mut Session) {
        if !session.machine.is_open() {
            // a stage was lost again in the meantime
            return;
        }
        self.stats.setup.observe(self.now.ms - session.created.ms);
        if matches!(session.handshake, ServerHandshake::Read(_)) {
            self.accept_header(session);
        }
        self.drain_setup_queue(session);
        self.choose_path(session);
        self.admit_to_api(session);
        self.join_streams(session);
        self.pass_ends(session);
        self.watch(session);
    }

    /// Joins two plain streams inside the kernel, or lets WebSocket frames pass untouched.
    fn join_streams(&self, session: &mut Session) {
        if session.stages.len() != 1 || session.stages[0].handshake.is_some() {
            return;
        }
        let reconnects = session.reconnects();
        let limited = session.limiters().next().is_some();
        let (Link::Stream(source), Link::Stream(stage)) = (&mut session.source, &mut session.stages[0].link) else {
            return;
        };
        let idle = source.waiting() == 0 && stage.waiting() == 0 && !source.ended && !stage.ended;
        if !idle || source.ending || stage.ending {
            return;
        }
        match (&mut source.codec, &mut stage.codec) {
            (Codec::Bytes, Codec::Bytes) if !limited => {
                // without descriptors for pipes bytes are read and written instead
                let splice = Splice::new(reconnects).ok();
                let granted = splice.filter(|splice| !self.shared.is_reserved(splice.last_descriptor()));
                session.splice = granted.map(Box::new);
            }
            (Codec::Ws(a), Codec::Ws(b))
                if a.subprotocol == b.subprotocol && a.reader.is_between() && b.reader.is_between() =>
            {
                source.codec = Codec::Pass(crate::proto::ws::Walker::default());
                stage.codec = Codec::Pass(crate::proto::ws::Walker::default());
            }
            _ => {}
        }
    }

    /// A connected stage is lost.
    pub(crate) fn stage_lost(&mut self, session: &mut Session, at: usize, error: &io::Error, call: &str) {
        if session.machine.is_over() {
            return;
        }
        let blames = sys::is_peers_fault(error);
        if !is_ready(session, at) {
            let content = format!("{call} {}", sys::error_name(error));
            return self.stage_failed(session, at - 1, Failure::connect(content).with_endpoint_fault(blames));
        }
        if blames {
            self.record_failure(&session.stages[at - 1]);
            session.stages[at - 1].unconfirmed = false;
        }
        if matches!(session.source, Link::UdpPeer) {
            let flow = self.sessions.hot[session.key.slot as usize].key;
            self.udp.refuse(flow, self.now.ms + REFUSAL_MS);
        }
        let why = format!("{call} {}:", sys::error_name(error));
        self.disconnect_stage(session, at - 1, &why);
    }

    /// A stage is disconnected: the session reconnects it, or ends.
    pub(crate) fn disconnect_stage(&mut self, session: &mut Session, stage: usize, why: &str) {
        session.splice = None;
        session.machine.handle_disconnect(stage, &session.cluster_name(stage + 1), why, self.now);
    }

    /// The client is gone.
    pub(crate) fn source_lost(&mut self, session: &mut Session) {
        session.machine.handle_end(Finish::Normal, None, self.now);
    }

    pub(crate) fn stream_lost(&mut self, session: &mut Session, at: usize, error: &io::Error) {
        if at == 0 { self.source_lost(session) } else { self.stage_lost(session, at, error, "write") }
    }

    /// Checks whether a session has been idle for too long.
    pub(crate) fn handle_idle(&mut self, key: Key) {
        let Some(session) = self.sessions.get(key) else { return };
        let waiting = matches!(session.handshake, ServerHandshake::Waiting(_));
        let limit = if waiting { session.listener.setup_seconds() * 1000 } else { session.idle_ms };
        if limit == 0 {
            return;
        }
        let seen = if waiting { session.created.ms } else { self.sessions.hot[key.slot as usize].seen };
        if self.now.ms < seen + limit {
            return self.timers.add((seen + limit).div_ceil(1000), TimerEvent::Idle(key));
        }
        self.with_session(key, |worker, session| session.machine.handle_end(Finish::Idle, None, worker.now));
    }

    /// Sets another idle limit, for instance after the client ended its half.
    pub(crate) fn limit_idle(&mut self, session: &mut Session, ms: u64) {
        if session.idle_ms == 0 || session.idle_ms > ms {
            session.idle_ms = ms;
            self.timers.add((self.now.ms + ms).div_ceil(1000), TimerEvent::Idle(session.key));
        }
    }

    /// Removes a session.
    pub(crate) fn finish(&mut self, mut session: Box<Session>, finish: Finish) {
        let key = session.key;
        self.flush_replies();
        // after a panic the state of the protocols is unknown
        if finish != Finish::Fault {
            self.notify_peers(&mut session);
        }
        self.keep_connection(&mut session);
        for stage in 0..session.stages.len() {
            let place = &mut session.stages[stage];
            if place.unconfirmed && finish == Finish::Normal && matches!(place.link, Link::Stream(_)) {
                confirm_endpoint(place);
            }
            if matches!(&session.stages[stage].link, Link::Stream(stream) if stream.needs_linger())
                && let Link::Stream(stream) = std::mem::take(&mut session.stages[stage].link)
                && finish.lets_linger()
            {
                self.linger(*stream);
            }
            self.release_stage(&mut session, stage);
            finish_retry(&mut session.stages[stage]);
        }
        if let Some(held) = &session.setup_queue {
            self.setup_queue_bytes -= held.bytes();
        }
        self.count_out(&session, finish);
        let hot_traffic = self.sessions.traffic(key);
        session.machine.handle_destroyed(self.now);
        self.log_access(&session, finish, hot_traffic);
        self.track(&session);
        if let Link::Stream(stream) = std::mem::take(&mut session.source)
            && stream.needs_linger()
            && finish.lets_linger()
        {
            self.linger(*stream);
        }
        self.sessions.vacate(key);
    }

    /// Notifies client and endpoints of the end, in their protocols.
    fn notify_peers(&mut self, session: &mut Session) {
        let error = session.machine.error().map(|(message, content)| (message, content.to_owned()));
        if let ServerHandshake::Read(_) = session.handshake {
            session.handshake = ServerHandshake::None;
            let (message, content) = error.clone().unwrap_or(("Not Found", "Session ended".to_owned()));
            let rejected = Rejected { status: status_of(message), message: format!("{message}: {content}") };
            self.answer_handshake(session, &rejected.to_bytes());
            self.refuse_header(session);
        }
        if let Link::Stream(stream) = &mut session.source {
            match &stream.codec {
                Codec::Ws(_) if error.is_some() => stream.send_close(code::INTERNAL, ""),
                Codec::Ws(_) => stream.send_close(code::NORMAL, ""),
                Codec::Http(state) if error.is_some() && !state.answering => {
                    let (message, content) = error.unwrap_or_default();
                    answer_error(stream, message, &content);
                }
                Codec::Http(_) => stream.end_answer(),
                Codec::Bytes | Codec::Framed(_) | Codec::Pass(_) => {}
            }
        }
        for stage in &mut session.stages {
            if let Link::Stream(stream) = &mut stage.link {
                stream.send_close(code::NORMAL, "");
            }
        }
    }

    fn count_out(&mut self, session: &Session, finish: Finish) {
        let key = session.key;
        if matches!(session.source, Link::UdpPeer) {
            self.sessions.remove_flow(key.slot);
        }
        if let (Link::UnixPeer(peer), Some(port)) = (&session.source, &session.port) {
            self.sessions.remove_unix_peer(port.id, peer.bytes());
        }
        self.sessions.unlink(session);
        self.timers.rearm(key, session.timer, 0);
        self.release_name(session);
        self.shared.counts.active.fetch_sub(1, Relaxed);
        if session.api_request {
            self.shared.counts.api_requests.fetch_sub(1, Relaxed);
        }
        session.listener.counts.active.fetch_sub(1, Relaxed);
        if let Some(port) = &session.port {
            let last = port.sessions.fetch_sub(1, Relaxed) == 1;
            if last && port.listener.load().is_none() {
                // a full ring means an overloaded worker, which closes the port with its next tick
                self.shared.rings.iter().for_each(|ring| drop(ring.push(Command::CloseUnused(port.id))));
            }
        }
        if let Some(peer) = session.peer.filter(|_| session.listener.config.options.max_sessions_per_source.is_some()) {
            let source = source_of(peer.ip());
            let mut sources = session.listener.sources.lock();
            if let Some(count) = sources.get_mut(&source) {
                *count -= 1;
                if *count == 0 {
                    sources.remove(&source);
                }
            }
        }
        self.stats.ended[finish as usize].add(1);
        self.stats.active.set(self.sessions.len().saturating_sub(1) as u64);
    }

    fn track(&mut self, session: &Session) {
        let track = session.listener.config.options.track;
        if track <= 0.0 {
            return;
        }
        let until = self.now.ms + (track * 1000.0) as u64;
        let finished = Finished { until, sequence: session.sequence, dump: self.dump(session), ids: Ids::of(session) };
        self.sessions.track(finished);
    }
}

/// Whether a stage is connected.
fn is_ready(session: &Session, at: usize) -> bool {
    use crate::proto::session::StageStatus;
    matches!(session.machine.stage_status(at - 1), StageStatus::Ready | StageStatus::Finalizing)
}
