//! JSONSocket listeners: the client's header and the response to it.

use crate::io::link::{Codec, Link};
use crate::io::loop_detection::MAX_HOPS;
use crate::io::session::{ServerHandshake, Session};
use crate::io::stats::{Drop, Limit};
use crate::io::worker::Worker;
use crate::proto::session::Failure;
use crate::proto::{Message, json_socket};
use serde_json::Value;

/// How long a client over UDP is ignored whose header was refused.
const REFUSED_HEADER_MS: u64 = 1000;

impl Worker {
    /// A JSONSocket client's header, or a piece of it.
    pub(crate) fn handle_header(&mut self, session: &mut Session, data: &[u8]) {
        let limit = self.snapshot.admin.limits.jsonsocket_header;
        let ServerHandshake::Waiting(read) = &mut session.handshake else { return };
        let is_stream = matches!(&session.source, Link::Stream(stream) if matches!(stream.codec, Codec::Bytes));
        read.extend_from_slice(data);
        let end = if is_stream { json_socket::header_end(read) } else { Some(read.len()) };
        let Some(end) = end.filter(|end| *end <= limit).or_else(|| (read.len() > limit).then_some(read.len())) else {
            return;
        };
        let mut header = std::mem::take(read);
        let rest = header.split_off(end);
        let parsed = if header.len() > limit {
            self.stats.reach_limit(Limit::JsonSocketHeader);
            let why = format!("Bad Request: The header is larger than {limit} bytes (admin.limits.jsonsocket_header)");
            Err(json_socket::Rejected { status: 400, message: why })
        } else {
            json_socket::parse_request(&header)
        };
        match parsed {
            Ok(request) => {
                session.hops = session.hops.max(json_socket::hops(&request));
                Self::import_header(session, request);
                session.handshake = ServerHandshake::Read(header.into());
                if session.hops > MAX_HOPS {
                    self.count_drop(Drop::Loop, 1);
                    let content = format!("Routing loop: more than {MAX_HOPS} proxies on the path");
                    return session.machine.handle_refusal(&Failure::unavailable(content), self.now);
                }
                if !rest.is_empty() {
                    self.queue_until_connected(session, 0, Message::binary(&rest));
                }
                self.route(session);
            }
            Err(rejected) => {
                session.handshake = ServerHandshake::None;
                self.answer_handshake(session, &rejected.to_bytes());
                self.refuse_header(session);
                // l7mp numbers sessions by their headers
                if let Some(number) = session.name.rsplit('-').next().and_then(|number| number.parse().ok()) {
                    session.listener.return_number(number);
                }
                let refused = Failure::unavailable(rejected.message);
                let failure = Failure { message: "Bad Request", ..refused };
                session.machine.handle_refusal(&failure, self.now);
            }
        }
    }

    /// Does not answer a UDP client again for a while: its datagrams may bear a forged address, and the answers are larger.
    pub(crate) fn refuse_header(&mut self, session: &Session) {
        if matches!(session.source, Link::UdpPeer) {
            let flow = self.sessions.hot[session.key.slot as usize].key;
            self.udp.refuse(flow, self.now.ms + REFUSED_HEADER_MS);
        }
    }

    fn import_header(session: &mut Session, mut header: serde_json::Map<String, Value>) {
        json_socket::take_token(&mut header);
        let mut metadata = session.metadata();
        let labels = header.get("labels").cloned();
        metadata["JSONSocket"] = Value::Object(header);
        if let (Some(Value::Object(labels)), true) = (labels, session.listener.config.options.import_labels) {
            let all = metadata
                .as_object_mut()
                .map(|map| map.entry("labels").or_insert_with(|| Value::Object(serde_json::Map::new())));
            if let Some(Value::Object(all)) = all {
                all.extend(labels);
            }
        }
        session.metadata = Some(Box::new(metadata));
    }

    /// Responds to a JSONSocket client that its session is connected.
    pub(crate) fn accept_header(&mut self, session: &mut Session) {
        if let ServerHandshake::Read(header) = &mut session.handshake {
            let header = std::mem::take(header);
            let is_message = !matches!(&session.source, Link::Stream(stream) if matches!(stream.codec, Codec::Bytes));
            session.handshake = if is_message { ServerHandshake::Answered(header) } else { ServerHandshake::None };
        }
        self.answer_handshake(session, json_socket::ACCEPTED.as_bytes());
    }
}
