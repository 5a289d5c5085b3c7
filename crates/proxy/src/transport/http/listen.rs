//! HTTP listeners: connections that wait for a request, here also those of WebSocket listeners.

use super::metadata::http_metadata;
use crate::config::types::ListenerSpec;
use crate::io::accept::connection_dscp;
use crate::io::incoming::Incoming;
use crate::io::link::{Codec, HttpState, Link, Stream};
use crate::io::pending::PendingConnection;
use crate::io::port::ListenerState;
use crate::io::session::Session;
use crate::io::slab::Key;
use crate::io::stats::{Drop, LIMITS, Limit};
use crate::io::sys::{self, READ, SockAddr, WRITE};
use crate::io::timers::TimerEvent;
use crate::io::token::Token;
use crate::io::worker::Worker;
use crate::proto::http1::{Body, Head, HeadError, HeadLimits, parse_head};
use std::net::SocketAddr;
use std::sync::Arc;

const BAD_REQUEST: &str = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

impl Worker {
    pub(crate) fn await_request(
        &mut self,
        mut stream: Stream,
        listener: Arc<ListenerState>,
        local: SocketAddr,
        peer: Option<SocketAddr>,
        read: Vec<u8>,
    ) {
        let limit = listener.config.options.max_sessions.unwrap_or(usize::MAX).saturating_add(1024);
        if self.pending.len() >= limit.min(self.shared.most_sessions) {
            return self.count_drop(Drop::Cap, 1);
        }
        stream.interest = READ | if stream.waiting() > 0 { WRITE } else { 0 };
        let (fd, interest) = (stream.raw(), stream.interest);
        let has_bytes = !read.is_empty();
        let due = self.now.ms / 1000 + listener.setup_seconds() + 1;
        let key = self.pending.insert(PendingConnection {
            stream,
            listener,
            local,
            peer,
            read,
            since: self.now.ms,
            closing: false,
        });
        let token = Token::PendingConnection(key).pack();
        if self.epoll.add(fd, token, interest).or_else(|_| self.epoll.change(fd, token, interest)).is_err() {
            self.pending.remove(key);
            return;
        }
        self.timers.add(due, TimerEvent::PendingConnection(key));
        if has_bytes {
            self.handle_request(key);
        }
    }

    /// A connection whose session is over waits for its next request.
    pub(crate) fn await_next_request(&mut self, stream: Stream, listener: Arc<ListenerState>) {
        let local = sys::local_address(stream.raw()).unwrap_or_else(|_| SockAddr::default().to_std());
        let peer = sys::peer_address(stream.raw()).ok();
        let mut stream = stream;
        let old = std::mem::replace(&mut stream.codec, Codec::Bytes);
        let read = if let Codec::Http(state) = old { state.next } else { Vec::new() };
        self.await_request(stream, listener, local, peer, read);
    }

    /// Keeps the connection of a finished HTTP session, if both sides mean to.
    pub(crate) fn keep_connection(session: &mut Session) -> Option<(Stream, Arc<ListenerState>)> {
        let Link::Stream(stream) = &session.source else { return None };
        let Codec::Http(state) = &stream.codec else { return None };
        let keep = state.keep_alive && state.answered && state.body.is_done() && !stream.ended;
        if !keep && stream.waiting() == 0 {
            return None;
        }
        let Link::Stream(mut stream) = std::mem::take(&mut session.source) else { return None };
        if !keep && let Codec::Http(state) = &mut stream.codec {
            state.next.clear();
            stream.ending = true;
        }
        Some((*stream, Arc::clone(&session.listener)))
    }

    pub(crate) fn expire_pending(&mut self, key: Key) {
        let Some(pending) = self.pending.get(key) else { return };
        let limit = pending.listener.setup_seconds() * 1000;
        if self.now.ms < pending.since + limit {
            return self.timers.add((pending.since + limit).div_ceil(1000), TimerEvent::PendingConnection(key));
        }
        self.stats.reach_limit(Limit::SetupTimeout);
        self.pending.remove(key);
    }

    pub(crate) fn handle_pending(&mut self, key: Key) {
        let Some(pending) = self.pending.get_mut(key) else { return };
        pending.stream.flush();
        if pending.closing || pending.stream.ending {
            if pending.stream.waiting() == 0 {
                self.pending.remove(key);
            }
            return;
        }
        let read = sys::receive(pending.stream.raw(), &mut self.scratch);
        match read {
            Ok(0) => drop(self.pending.remove(key)),
            Ok(n) => {
                pending.read.extend_from_slice(&self.scratch[..n]);
                self.handle_request(key);
            }
            Err(error) if sys::would_block(&error) => {}
            Err(_) => drop(self.pending.remove(key)),
        }
    }

    /// Reads the head of a request, once it is complete.
    fn handle_request(&mut self, key: Key) {
        let limits = &self.snapshot.admin.limits;
        let limits = HeadLimits { bytes: limits.http_head, headers: limits.http_headers };
        let Some(pending) = self.pending.get_mut(key) else { return };
        match parse_head(&pending.read, limits) {
            Ok(None) => {}
            Ok(Some((head, used))) => {
                let rest = pending.read.split_off(used);
                let is_ws = matches!(pending.listener.config.spec.transport(), ListenerSpec::WebSocket(_));
                if is_ws { self.accept_ws(key, &head, rest) } else { self.accept_http(key, head, rest) }
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
        pending.closing = true;
        if pending.stream.waiting() == 0 {
            sys::end_writing(pending.stream.raw());
            self.pending.remove(key);
        } else {
            self.epoll.change(pending.stream.raw(), Token::PendingConnection(key).pack(), WRITE).ok();
        }
    }

    fn accept_http(&mut self, key: Key, head: Head, mut rest: Vec<u8>) {
        let Ok(body) = Body::of_request(&head) else {
            return self.reject(key, BAD_REQUEST);
        };
        let Some(PendingConnection { mut stream, listener, local, peer, .. }) = self.pending.remove(key) else {
            return;
        };
        if head.lists("expect", "100-continue") && !body.is_done() {
            stream.write(b"HTTP/1.1 100 Continue\r\n\r\n", &[]);
        }
        let metadata = Some(http_metadata(&head, local, peer));
        let state = HttpState {
            body,
            keep_alive: head.keeps_alive(),
            answering: false,
            answered: false,
            next: Vec::new(),
            collected: Vec::new(),
            chunked: head.version() != "1.0",
            head,
        };
        stream.codec = Codec::Http(Box::new(state));
        let dscp = connection_dscp(&listener, stream.raw(), local);
        let source = Link::Stream(Box::new(stream));
        let incoming = Incoming { listener, port: None, local, peer, source, metadata, dscp };
        if let Some(key) = self.open_watched(incoming) {
            self.with_session(key, |worker, session| worker.handle_body(session, &mut rest));
        }
    }
}
