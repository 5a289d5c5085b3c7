//! HTTP listeners: connections that wait for a request, here also those of WebSocket listeners.

use super::metadata::http_metadata;
use crate::config::types::ListenerSpec;
use crate::io::accept::connection_dscp;
use crate::io::incoming::Incoming;
use crate::io::link::{Codec, HttpState, Link, Stream};
use crate::io::pending::{Acceptor, PendingConnection, Purpose};
use crate::io::session::Session;
use crate::io::slab::Key;
use crate::io::stats::{LIMITS, Limit};
use crate::io::worker::Worker;
use crate::proto::http1::{Body, Head, HeadError, HeadLimits, parse_head};
use std::sync::Arc;

const BAD_REQUEST: &str = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

impl Worker {
    /// Keeps the connection of a finished HTTP session for its next request, if both sides mean to.
    pub(crate) fn keep_connection(&mut self, session: &mut Session) {
        let Link::Stream(stream) = &session.source else { return };
        let Codec::Http(state) = &stream.codec else { return };
        let more = !stream.ended || !stream.input.is_empty();
        if !(state.keep_alive && state.answered && state.body.is_done() && more) {
            return;
        }
        let Link::Stream(mut stream) = std::mem::take(&mut session.source) else { return };
        stream.codec = Codec::Bytes;
        let Session { listener, local, peer, .. } = session;
        let acceptor = Acceptor { listener: Arc::clone(listener), local: *local, peer: *peer };
        self.await_request(*stream, Arc::new(acceptor));
    }

    /// Reads the head of a request, once it is complete.
    pub(crate) fn handle_request(&mut self, key: Key) {
        let limits = &self.snapshot.admin.limits;
        let limits = HeadLimits { bytes: limits.http_head, headers: limits.http_headers };
        let Some(pending) = self.pending.get_mut(key) else { return };
        let Purpose::Request(acceptor) = &pending.purpose else { return };
        pending.stream.input.set_limit(limits.bytes);
        if pending.stream.is_crowded() {
            // goes on when the client has taken earlier answers
            self.time_pending(key);
            return self.watch_pending(key);
        }
        match parse_head(pending.stream.input.as_slice(), limits) {
            Ok(None) if pending.stream.ended => self.close_pending(key),
            Ok(None) => self.time_pending(key),
            Ok(Some((head, _))) if !head.names_one_host() => self.reject(key, BAD_REQUEST),
            Ok(Some((head, used))) => {
                pending.stream.input.consume(used);
                let is_ws = matches!(acceptor.listener.config.spec.transport(), ListenerSpec::WebSocket(_));
                if is_ws { self.accept_ws(key, &head) } else { self.accept_http(key, head) }
            }
            Err(HeadError::Malformed(_)) => self.reject(key, BAD_REQUEST),
            Err(HeadError::TooLong(_)) => self.reject_large(key, Limit::HttpHead),
            Err(HeadError::TooMany(_)) => self.reject_large(key, Limit::HttpHeaders),
        }
    }

    fn reject_large(&mut self, key: Key, limit: Limit) {
        self.stats.reach_limit(limit);
        let body = format!("The request head is too large (admin.limits.{})\n", LIMITS[limit as usize]);
        let head = "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain\r\nConnection: close";
        self.reject(key, &format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    }

    /// Answers and closes, as soon as the answer is out.
    pub(crate) fn reject(&mut self, key: Key, answer: &str) {
        let Some(pending) = self.pending.get_mut(key) else { return };
        pending.stream.write(answer.as_bytes(), &[]);
        self.close_pending(key);
    }

    fn accept_http(&mut self, key: Key, head: Head) {
        let Ok(body) = Body::of_request(&head) else {
            return self.reject(key, BAD_REQUEST);
        };
        let Some((mut stream, acceptor)) = self.take_accepted(key) else { return };
        let Acceptor { listener, local, peer } = &*acceptor;
        let (listener, local, peer) = (Arc::clone(listener), *local, *peer);
        let metadata = Some(http_metadata(&head, local, peer));
        let state = HttpState {
            keep_alive: head.keeps_alive(),
            answering: false,
            answered: false,
            expects: head.lists("expect", "100-continue") && !body.is_done(),
            collected: Vec::new(),
            submitted: false,
            chunked: head.version() != "1.0",
            body,
            head,
        };
        stream.codec = Codec::Http(Box::new(state));
        let dscp = connection_dscp(&listener, stream.raw(), local);
        let source = Link::Stream(Box::new(stream));
        let incoming = Incoming { listener, port: None, local, peer, source, metadata, dscp };
        if let Some(key) = self.open_watched(incoming) {
            self.with_session(key, Self::handle_sent_ahead);
        }
    }

    /// Takes a connection whose request is complete.
    pub(crate) fn take_accepted(&mut self, key: Key) -> Option<(Stream, Arc<Acceptor>)> {
        let PendingConnection { stream, purpose, .. } = self.pending.remove(key)?;
        let Purpose::Request(acceptor) = purpose else { return None };
        Some((stream, acceptor))
    }

    /// The body, or the frames, that arrived together with a request.
    pub(crate) fn handle_sent_ahead(&mut self, session: &mut Session) {
        let Link::Stream(stream) = &mut session.source else { return };
        let mut bytes = stream.input.as_slice().to_vec();
        stream.input.clear();
        self.handle_bytes(session, 0, &mut bytes);
        // the end may have been read before the request was begun
        if matches!(&session.source, Link::Stream(stream) if stream.ended) && !session.machine.is_over() {
            self.stream_ended(session, 0);
        }
        self.watch(session);
    }
}
