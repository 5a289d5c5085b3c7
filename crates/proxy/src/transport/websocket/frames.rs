//! WebSocket frames of a connected stream.

use crate::io::link::{Codec, Link, connection_reset};
use crate::io::session::Session;
use crate::io::stats::Limit;
use crate::io::worker::Worker;
use crate::proto::Message;
use crate::proto::session::Finish;
use crate::proto::ws::{Event, Opcode, code};

impl Worker {
    pub(crate) fn handle_frames(&mut self, session: &mut Session, at: usize, bytes: &mut [u8]) {
        let Link::Stream(stream) = session.link(at) else { return };
        let Codec::Ws(state) = &mut stream.codec else { return };
        if state.close_received {
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
                self.close_ws(session, at, violation.code, violation.what);
            }
            (Ok(()), Some((code, reason))) => self.close_ws(session, at, code, &reason),
            (Ok(()), None) => {}
        }
    }

    fn control(&mut self, session: &mut Session, at: usize, opcode: Opcode, data: &[u8]) {
        if let Link::Stream(stream) = session.link(at) {
            stream.send_control(opcode, data);
            self.watch_stream(session, at);
        }
    }

    /// Echoes a close, forwards its code to the other end, and ends the session.
    fn close_ws(&mut self, session: &mut Session, at: usize, code: u16, reason: &str) {
        for place in 0..=session.stages.len() {
            if let Link::Stream(stream) = session.link(place) {
                if let Codec::Ws(state) = &mut stream.codec {
                    state.close_received |= place == at;
                }
                stream.send_close(if place == at || code != code::NO_STATUS { code } else { code::NORMAL }, reason);
            }
        }
        if at == 0 {
            session.machine.handle_end(Finish::Normal, None, self.now);
        } else {
            self.stage_lost(session, at, &connection_reset(), "close");
        }
    }
}
