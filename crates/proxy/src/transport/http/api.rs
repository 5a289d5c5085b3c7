//! Request bodies: into the session, or as a whole to the API.

use super::metadata::origin_form;
use crate::config::types::ClusterSpec;
use crate::io::command::Command;
use crate::io::link::{Codec, Link};
use crate::io::session::Session;
use crate::io::slab::Key;
use crate::io::stats::Limit;
use crate::io::worker::Worker;
use crate::proto::Message;
use crate::proto::session::{Failure, Finish};
use crate::rest::exchange::{Client, Request, Response};
use crate::rest::response;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Worker {
    /// Bytes of a request's body, and what comes behind it.
    pub(crate) fn handle_body(&mut self, session: &mut Session, bytes: &[u8]) {
        let whole = Self::goes_to_api(session);
        let limit = self.snapshot.admin.limits.body;
        let Link::Stream(stream) = &mut session.source else { return };
        let Codec::Http(state) = &mut stream.codec else { return };
        if whole && state.submitted {
            // behind a request that was refused nothing is read any more; behind one that was taken, it is the next
            let used = state.body.handle_bytes(bytes, |_| {}).unwrap_or(bytes.len());
            return stream.input.push(&bytes[used..]);
        }
        let too_large = whole && state.body.exceeds(limit);
        if !too_large && std::mem::take(&mut state.expects) {
            stream.write(b"HTTP/1.1 100 Continue\r\n\r\n", &[]);
        }
        let Codec::Http(state) = &mut stream.codec else { return };
        let mut pieces = Vec::new();
        let used = state.body.handle_bytes(bytes, |data| pieces.extend_from_slice(data));
        let Ok(used) = used else { return self.refuse_request(session, &bad_request("Malformed request body")) };
        stream.input.push(&bytes[used..]);
        let done = state.body.is_done();
        if whole {
            if too_large || state.collected.len() + pieces.len() > limit {
                self.stats.reach_limit(Limit::Body);
                return self.refuse_request(session, &response::body_too_large(limit));
            }
            state.collected.extend_from_slice(&pieces);
            if done {
                self.ask_api(session);
            }
            return;
        }
        if !pieces.is_empty() {
            self.handle_source(session, Message::binary(&pieces));
        }
        if done {
            self.pass_ends(session);
        }
    }

    /// A client ended its half inside the body of its request.
    pub(crate) fn refuse_truncated(&mut self, session: &mut Session) {
        self.refuse_request(session, &bad_request("The connection ended inside the request body"));
    }

    /// Refuses a request whose answer has not begun, and ends its session; the connection is closed.
    pub(crate) fn refuse_request(&mut self, session: &mut Session, refusal: &Response) {
        let Link::Stream(stream) = &mut session.source else { return };
        let Codec::Http(state) = &mut stream.codec else { return };
        state.keep_alive = false;
        state.submitted = true;
        state.collected = Vec::new();
        if !std::mem::replace(&mut state.answering, true) {
            self.write_response(session, refusal);
        } else if let Link::Stream(stream) = &mut session.source
            && let Codec::Http(state) = &mut stream.codec
        {
            // an answer that is cut off must not look complete
            state.answered = true;
        }
        self.source_lost(session);
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
        state.submitted = true;
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
            target: origin_form(state.head.target()).to_owned(),
            headers: state.head.headers.clone(),
            body: std::mem::take(&mut state.collected),
            client: Client { address: session.peer.map(|peer| peer.ip()), certified: false },
        };
        api_handler.submit(request, Box::new(reply));
    }

    /// Refuses a session that leads to the API while too many requests do.
    pub(crate) fn admit_to_api(&mut self, session: &mut Session) {
        let Link::Stream(stream) = &session.source else { return };
        if !Self::goes_to_api(session) || !matches!(stream.codec, Codec::Http(_)) {
            return;
        }
        session.api_request = true;
        let most = self.snapshot.admin.limits.api_connections;
        if self.shared.counts.api_requests.fetch_add(1, Relaxed) >= most {
            self.stats.reach_limit(Limit::ApiConnections);
            self.refuse_request(session, &response::busy());
        }
    }

    /// When the request of a session has to be complete, if it leads to the API.
    pub(crate) fn api_deadline(&self, session: &Session) -> Option<u64> {
        let Link::Stream(stream) = &session.source else { return None };
        let Codec::Http(state) = &stream.codec else { return None };
        let waits = session.api_request && !state.submitted;
        waits.then(|| session.created.ms + self.snapshot.admin.limits.api_request_ms)
    }

    /// Refuses a request to the API that takes too long.
    pub(crate) fn check_api_deadline(&mut self, session: &mut Session) {
        if self.api_deadline(session).is_some_and(|due| due <= self.now.ms) {
            self.stats.reach_limit(Limit::ApiRequestMs);
            self.refuse_request(session, &response::request_timeout());
        }
    }

    /// The API has answered.
    pub(crate) fn handle_api_answer(&mut self, key: Key, response: &Response) {
        self.with_session(key, |worker, session| {
            worker.write_response(session, response);
            session.machine.handle_end(Finish::Normal, None, worker.now);
        });
    }

    /// Writes a whole response.
    fn write_response(&mut self, session: &mut Session, response: &Response) {
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
        let body = if state.is_bodyless() { empty } else { &response.body };
        let hot = &mut self.sessions.hot[session.key.slot as usize];
        hot.packets_out += 1;
        hot.bytes_out += body.len() as u64;
        stream.write(head.as_bytes(), body);
    }
}

fn bad_request(content: &str) -> Response {
    response::error(400, "Bad Request", content.into())
}
