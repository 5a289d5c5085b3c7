//! Request bodies: into the session, or as a whole to the API.

use crate::config::types::ClusterSpec;
use crate::io::command::Command;
use crate::io::link::{Codec, Link};
use crate::io::session::Session;
use crate::io::slab::Key;
use crate::io::worker::Worker;
use crate::proto::Message;
use crate::proto::session::{Failure, Finish};
use crate::rest::exchange::{Client, Request, Response};
use std::fmt::Write;
use std::sync::Arc;

impl Worker {
    /// Bytes of a request's body, and what comes behind it.
    pub(crate) fn handle_body(&mut self, session: &mut Session, bytes: &mut [u8]) {
        let whole = Self::goes_to_api(session);
        let limit = self.snapshot.admin.limits.body;
        let Link::Stream(stream) = &mut session.source else { return };
        let Codec::Http(state) = &mut stream.codec else { return };
        let was_done = state.body.is_done();
        let mut pieces = Vec::new();
        let used = state.body.handle_bytes(bytes, |data| pieces.extend_from_slice(data));
        let Ok(used) = used else { return self.source_lost(session) };
        state.next.extend_from_slice(&bytes[used..]);
        let done = state.body.is_done();
        if whole && state.collected.len() + pieces.len() <= limit + 1 {
            state.collected.extend_from_slice(&pieces);
        }
        if whole {
            if done && (!was_done || bytes.is_empty()) && !state.answering {
                self.ask_api(session);
            }
            return;
        }
        if !pieces.is_empty() {
            self.handle_source(session, Message::binary(&pieces));
        }
        if done && !was_done {
            self.input_ended(session, 0);
        }
    }

    /// Whether the whole request is an exchange with the API.
    pub(crate) fn goes_to_api(session: &Session) -> bool {
        let stage = session.decision.as_ref().and_then(|decision| session.stages.get(decision.route.ingress.len()));
        let spec = stage.and_then(|stage| stage.cluster.as_ref()).map(|cluster| &cluster.spec);
        matches!(spec, Some(ClusterSpec::Controller | ClusterSpec::Prometheus))
    }

    /// Hands a whole request to the API; its answer comes back as a command.
    fn ask_api(&mut self, session: &mut Session) {
        let prometheus = session.stages.iter().filter_map(|stage| stage.cluster.as_ref());
        let prometheus = prometheus.into_iter().any(|cluster| cluster.spec == ClusterSpec::Prometheus);
        let Link::Stream(stream) = &mut session.source else { return };
        let Codec::Http(state) = &mut stream.codec else { return };
        state.answering = true;
        let Some(api_handler) = &self.shared.api_handler else {
            state.answering = false;
            let failure = Failure::unavailable("The API is not available in this process");
            return session.machine.handle_refusal(&failure, self.now);
        };
        let (ring, key) = (Arc::clone(&self.commands), session.key);
        let reply = move |response| {
            // a full ring means an overloaded worker; the client's own timeout ends the wait
            ring.push(Command::Answer { session: key, response: Box::new(response) }).ok();
        };
        if prometheus {
            return api_handler.metrics(Box::new(reply));
        }
        let request = Request {
            method: state.head.method().to_owned(),
            target: state.head.target().to_owned(),
            headers: state.head.headers.clone(),
            body: std::mem::take(&mut state.collected),
            client: Client { address: session.peer.map(|peer| peer.ip()), certified: false },
        };
        api_handler.submit(request, Box::new(reply));
    }

    /// The API has answered.
    pub(crate) fn handle_api_answer(&mut self, key: Key, response: &Response) {
        self.with_session(key, |worker, session| {
            let Link::Stream(stream) = &mut session.source else { return };
            let Codec::Http(state) = &mut stream.codec else { return };
            state.answered = true;
            let keep = state.keep_alive;
            let mut head = format!("HTTP/1.1 {} {}\r\n", response.status, response.reason);
            for (name, value) in &response.headers {
                write!(head, "{name}: {value}\r\n").expect("a string takes everything");
            }
            if !response.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-length")) {
                write!(head, "Content-Length: {}\r\n", response.body.len()).expect("a string takes everything");
            }
            head.push_str(if keep { "\r\n" } else { "Connection: close\r\n\r\n" });
            let empty: &[u8] = &[];
            let body = if state.head.method() == "HEAD" { empty } else { &response.body };
            let hot = &mut worker.sessions.hot[session.key.slot as usize];
            hot.packets_out += 1;
            hot.bytes_out += body.len() as u64;
            stream.write(head.as_bytes(), body);
            session.machine.handle_end(Finish::Normal, None, worker.now);
        });
    }
}
