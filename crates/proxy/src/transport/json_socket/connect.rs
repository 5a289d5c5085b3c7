//! JSONSocket clusters: the header of a stage and the response to it.

use crate::config::types::ClusterSpec;
use crate::io::link::{Codec, Link};
use crate::io::session::{ClientHandshake, Session};
use crate::io::worker::Worker;
use crate::proto::session::Failure;
use crate::proto::{Message, json_socket};

impl Worker {
    /// Sends the header of a JSONSocket stage; true if its response is awaited.
    pub(crate) fn begin_handshake(&mut self, session: &mut Session, stage: usize, spec: &ClusterSpec) -> bool {
        let ClusterSpec::JsonSocket(json) = spec else { return false };
        let header = json_socket::build_request(json.header.as_deref(), &session.metadata());
        // only Portolan proxies get retransmitted headers, so only they understand our labels and tokens
        let header = if json.retransmit_ms > 0 {
            let counted = json_socket::count_hop(&header, session.hops);
            json_socket::add_token(&counted, self.close_token(session, stage))
        } else {
            header
        };
        let handshake =
            ClientHandshake { header, answer: Vec::new(), retransmit_ms: json.retransmit_ms, sent_at: self.now.ms };
        session.stages[stage].handshake = Some(Box::new(handshake));
        let ready =
            !matches!(&session.stages[stage].link, Link::Stream(stream) if stream.connecting || stream.is_upgrading());
        if ready {
            self.send_handshake(session, stage);
        }
        true
    }

    pub(crate) fn send_handshake(&mut self, session: &mut Session, stage: usize) {
        let now = self.now.ms;
        let Some(handshake) = &mut session.stages[stage].handshake else { return };
        handshake.sent_at = now;
        let header = handshake.header.clone();
        let at = stage + 1;
        self.send_to_stage(session, at, Message::binary(&header), at);
    }

    /// The response to the header of a stage, or a part of it.
    pub(crate) fn handle_answer(&mut self, session: &mut Session, stage: usize, message: Message<'_>) {
        let limit = self.snapshot.admin.limits.jsonsocket_header;
        let is_stream =
            matches!(&session.stages[stage].link, Link::Stream(stream) if matches!(stream.codec, Codec::Bytes));
        let Some(handshake) = &mut session.stages[stage].handshake else { return };
        handshake.answer.extend_from_slice(message.data);
        let end = if is_stream { json_socket::header_end(&handshake.answer) } else { Some(handshake.answer.len()) };
        let Some(end) = end.or((handshake.answer.len() > limit).then_some(limit)) else { return };
        let mut answer = std::mem::take(&mut handshake.answer);
        let rest = answer.split_off(end);
        session.stages[stage].handshake = None;
        match json_socket::parse_response(&answer) {
            Ok(()) => {
                self.stage_connected(session, stage);
                if !rest.is_empty() {
                    self.forward(session, stage + 1, Message::binary(&rest));
                }
            }
            Err(rejected) => {
                let failure = Failure::connect(rejected.to_string());
                self.stage_failed(session, stage, failure);
            }
        }
    }
}
