//! WebSocket frames of a connected stream.

use crate::io::link::{Codec, Link, connection_reset};
use crate::io::session::{ServerHandshake, Session};
use crate::io::stats::Limit;
use crate::io::worker::Worker;
use crate::proto::Message;
use crate::proto::ws::{Event, Opcode, code};

impl Worker {
    pub(crate) fn handle_frames(&mut self, session: &mut Session, at: usize, bytes: &mut [u8]) {
        let Link::Stream(stream) = session.link(at) else { return };
        let Codec::Ws(state) = &mut stream.codec else { return };
        if state.close_received.is_some() {
            return;
        }
        let mut reader = state.reader.lend();
        let mut closed = None;
        let mut done = Ok(());
        self.gathering(session, |worker, session| {
            done = reader.handle_bytes(bytes, |event| match event {
                Event::Message { data, text } if closed.is_none() => {
                    worker.handle_message(session, at, Message { data, text });
                }
                Event::Ping(data) => worker.control(session, at, Opcode::Pong, data),
                Event::Close { code, reason } if closed.is_none() => closed = Some((code, reason.to_owned())),
                Event::Message { .. } | Event::Close { .. } | Event::Pong => {}
            });
        });
        if let Link::Stream(stream) = session.link(at)
            && let Codec::Ws(state) = &mut stream.codec
        {
            state.reader = reader;
        }
        match (done, closed) {
            (Err(violation), _) => {
                if violation.code == code::TOO_BIG {
                    self.stats.reach_limit(Limit::WsMessage);
                }
                self.ws_broken(session, at, violation.code, violation.what);
            }
            (Ok(()), Some(close)) => self.ws_closed(session, at, close),
            (Ok(()), None) => {}
        }
    }

    fn control(&mut self, session: &mut Session, at: usize, opcode: Opcode, data: &[u8]) {
        if let Link::Stream(stream) = session.link(at) {
            stream.send_control(opcode, data);
            self.watch(session);
        }
    }

    /// A peer has closed its half: an end like any other, with a code.
    fn ws_closed(&mut self, session: &mut Session, at: usize, close: (u16, String)) {
        if let Link::Stream(stream) = session.link(at) {
            stream.ended = true;
            if let Codec::Ws(state) = &mut stream.codec {
                state.close_received = Some(close);
            }
        }
        if session.awaits_response(at) {
            return self.stage_lost(session, at, &connection_reset(), "close");
        }
        if at == 0 && matches!(session.handshake, ServerHandshake::Waiting(_)) {
            return self.source_lost(session);
        }
        self.pass_ends(session);
    }

    /// An endpoint has closed: its session connects again or ends, with the endpoint's code for the others.
    pub(crate) fn ws_stage_closed(&mut self, session: &mut Session, at: usize, code: u16, reason: &str) {
        if let Link::Stream(stream) = session.link(at) {
            stream.send_close(code, reason);
        }
        self.stage_lost(session, at, &connection_reset(), "close");
        if !session.machine.is_over() {
            return;
        }
        let code = if code == code::NO_STATUS { code::NORMAL } else { code };
        for place in 0..=session.stages.len() {
            if let Link::Stream(stream) = session.link(place) {
                stream.send_close(code, reason);
            }
        }
    }

    /// A peer broke the protocol: it is told the code, and if the session ends with that, all others are.
    fn ws_broken(&mut self, session: &mut Session, at: usize, code: u16, what: &str) {
        if at > 0 {
            return self.ws_stage_closed(session, at, code, what);
        }
        for place in 0..=session.stages.len() {
            if let Link::Stream(stream) = session.link(place) {
                stream.send_close(code, what);
            }
        }
        self.source_lost(session);
    }
}
