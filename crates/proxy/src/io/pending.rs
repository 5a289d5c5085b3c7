//! Connections that have not said yet what they want: WebSocket and HTTP clients before their request is read.

use super::link::{Codec, HttpState, Link, Stream, WsState};
use super::port::{BindAddress, ListenerState, Port, UnixType};
use super::session::Session;
use super::setup::Incoming;
use super::slab::Key;
use super::stats::{Drop, LIMITS, Limit};
use super::sys::{self, READ, SockAddr, WRITE};
use super::worker::{TimerEvent, Token, Worker};
use crate::config::types::ListenerSpec;
use crate::proto::Message;
use crate::proto::http1::{Body, Head, HeadError, HeadLimits, parse_head};
use crate::proto::ws::{Role, handshake};
use serde_json::{Map, Value, json};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Connections taken per event, so that others get their turn.
const ACCEPTS: usize = 64;

const BAD_REQUEST: &str = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

pub(super) struct PendingConnection {
    pub stream: Stream,
    pub listener: Arc<ListenerState>,
    pub local: SocketAddr,
    pub peer: Option<SocketAddr>,
    pub read: Vec<u8>,
    pub since: u64,
    /// Only what waits to be sent is still of interest.
    pub closing: bool,
}

impl Worker {
    /// A listening socket has something.
    pub(super) fn handle_port(&mut self, id: u32) {
        let Some(open) = self.ports.get(&id) else { return };
        let fd = open.fd;
        if matches!(open.port.bind_address, BindAddress::Udp(_)) {
            return self.receive_udp(id, fd);
        }
        let port = Arc::clone(&open.port);
        match &port.bind_address {
            BindAddress::Udp(_) => {}
            BindAddress::Tcp(_) => self.accept_tcp(&port, fd),
            BindAddress::Unix(_, UnixType::Datagram) => self.receive_unix(&port, fd),
            BindAddress::Unix(..) => self.accept_unix(&port, fd),
        }
    }

    fn accept_tcp(&mut self, port: &Arc<Port>, fd: RawFd) {
        for _ in 0..ACCEPTS {
            let (socket, from) = match sys::accept_tcp(fd) {
                Ok(accepted) => accepted,
                Err(error) => return self.accept_failed(port, fd, &error),
            };
            let Some(listener) = port.listener.load_full() else { return };
            match self.check_descriptor_limit(Ok(socket)) {
                Ok(socket) => self.accept_client(listener, socket, from),
                Err(_) => self.count_drop(Drop::Cap, 1),
            }
        }
    }

    /// A connection could not be taken. Where descriptors are all in use the port rests: its queue keeps who waits, and
    /// a socket that stays ready would keep the worker busy with nothing else.
    fn accept_failed(&mut self, port: &Port, fd: RawFd, error: &io::Error) {
        if is_exhausted(error) {
            self.stats.reach_limit(Limit::Descriptors);
            if self.epoll.change(fd, Token::Port(port.id).pack(), 0).is_ok() {
                self.idle.add(self.now.ms / 1000 + 1, TimerEvent::Port(port.id));
            }
        }
    }

    /// A port has rested.
    pub(super) fn wake_port(&mut self, id: u32) {
        let Some(open) = self.ports.get(&id) else { return };
        if let Err(error) = self.epoll.change(open.fd, Token::Port(id).pack(), READ) {
            tracing::error!(%error, address = ?open.port.bind_address, "cannot watch a listening socket");
        }
    }

    /// A socket that a session may keep: not one of the last descriptors.
    pub(super) fn check_descriptor_limit(&self, socket: io::Result<OwnedFd>) -> io::Result<OwnedFd> {
        let granted = socket.and_then(|socket| {
            let reserved = self.shared.is_reserved(socket.as_raw_fd());
            if reserved { Err(io::Error::from_raw_os_error(libc::EMFILE)) } else { Ok(socket) }
        });
        if granted.as_ref().is_err_and(is_exhausted) {
            self.stats.reach_limit(Limit::Descriptors);
        }
        granted
    }

    fn accept_client(&mut self, listener: Arc<ListenerState>, socket: OwnedFd, from: SockAddr) {
        let local = sys::local_address(socket.as_raw_fd()).unwrap_or_else(|_| SockAddr::default().to_std());
        let peer = Some(from.to_std());
        let codec = match listener.config.spec.transport() {
            ListenerSpec::Tcp(tcp) => self.codec(tcp.framing),
            ListenerSpec::WebSocket(_) | ListenerSpec::Http(_) => {
                return self.await_request(Stream::new(socket, Codec::Bytes), listener, local, peer, Vec::new());
            }
            ListenerSpec::Udp(_) | ListenerSpec::Uds(_) | ListenerSpec::JsonSocket(_) => return,
        };
        let dscp = dscp_of(&listener, socket.as_raw_fd(), local);
        let source = Link::Stream(Box::new(Stream::new(socket, codec)));
        self.open_connection(Incoming { listener, port: None, local, peer, source, metadata: None, dscp });
    }

    /// Makes the session of a connection and watches it.
    fn open_connection(&mut self, incoming: Incoming) -> Option<Key> {
        let mut session = self.admit(incoming)?;
        let token = Token::Link(session.key, 0).pack();
        let watched = match &mut session.source {
            Link::Stream(stream) => {
                stream.interest = READ;
                self.epoll.add(stream.raw(), token, READ)
            }
            Link::Datagram(fd) => self.epoll.add(fd.as_raw_fd(), token, READ),
            Link::None | Link::UdpPeer | Link::UnixPeer(_) | Link::Virtual | Link::Sync(_) => Ok(()),
        };
        if watched.is_err() {
            self.source_lost(&mut session);
        }
        let key = session.key;
        self.begin(session);
        Some(key)
    }

    fn accept_unix(&mut self, port: &Arc<Port>, fd: RawFd) {
        for _ in 0..ACCEPTS {
            let socket = match sys::accept_unix(fd) {
                Ok(socket) => socket,
                Err(error) => return self.accept_failed(port, fd, &error),
            };
            let Some(listener) = port.listener.load_full() else { return };
            let Ok(socket) = self.check_descriptor_limit(Ok(socket)) else {
                self.count_drop(Drop::Cap, 1);
                continue;
            };
            let ListenerSpec::Uds(uds) = listener.config.spec.transport() else { return };
            let mut unix = json!({ "filename": uds.filename.display().to_string() });
            if let Some(peer) = sys::peer_credentials(socket.as_raw_fd()) {
                unix["uid"] = peer.uid.into();
                unix["gid"] = peer.gid.into();
                unix["pid"] = peer.pid.into();
            }
            let source = if matches!(port.bind_address, BindAddress::Unix(_, UnixType::SeqPacket)) {
                Link::Datagram(socket)
            } else {
                Link::Stream(Box::new(Stream::new(socket, self.codec(uds.framing))))
            };
            let metadata = Some(json!({ "UNIX": unix }));
            let local = port.local;
            self.open_connection(Incoming { listener, port: None, local, peer: None, source, metadata, dscp: None });
        }
    }

    /// Datagrams of Unix peers: a session per name, and one for all without.
    fn receive_unix(&mut self, port: &Arc<Port>, fd: RawFd) {
        for _ in 0..super::sys::BATCH {
            let mut scratch = std::mem::take(&mut self.scratch);
            let received = sys::receive_from_unix(fd, &mut scratch);
            if let Ok((len, peer)) = &received {
                let place = (port.id, peer.bytes().to_vec());
                let known = self.unix_peers.get(&place).copied();
                if let Some(key) = known.or_else(|| self.open_unix_peer(port, peer)) {
                    self.with_session(key, |worker, session| {
                        if !worker.apply_rate_limits(session, &[*len]).is_empty() {
                            worker.handle_source(session, Message::binary(&scratch[..*len]));
                        }
                    });
                }
            }
            self.scratch = scratch;
            if received.is_err() {
                return;
            }
        }
    }

    fn open_unix_peer(&mut self, port: &Arc<Port>, peer: &sys::UnixPeer) -> Option<Key> {
        let listener = port.listener.load_full()?;
        let ListenerSpec::Uds(uds) = listener.config.spec.transport() else { return None };
        let metadata = Some(json!({ "UNIX": { "filename": uds.filename.display().to_string() } }));
        let source = Link::UnixPeer(Box::new(peer.clone()));
        let (own, local) = (Some(Arc::clone(port)), port.local);
        let incoming = Incoming { listener, port: own, local, peer: None, source, metadata, dscp: None };
        let session = self.admit(incoming)?;
        let key = session.key;
        self.unix_peers.insert((port.id, peer.bytes().to_vec()), key);
        self.begin(session);
        self.sessions.get(key).map(|_| key)
    }

    fn await_request(
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
        let due = self.now.ms / 1000 + listener.config.options.setup_timeout as u64 + 1;
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
        self.idle.add(due, TimerEvent::PendingConnection(key));
        if has_bytes {
            self.handle_request(key);
        }
    }

    /// A connection whose session is over waits for its next request.
    pub(super) fn await_next_request(&mut self, stream: Stream, listener: Arc<ListenerState>) {
        let local = sys::local_address(stream.raw()).unwrap_or_else(|_| SockAddr::default().to_std());
        let peer = sys::peer_address(stream.raw()).ok();
        let mut stream = stream;
        let old = std::mem::replace(&mut stream.codec, Codec::Bytes);
        let read = if let Codec::Http(state) = old { state.next } else { Vec::new() };
        self.await_request(stream, listener, local, peer, read);
    }

    /// Keeps the connection of a finished HTTP session, if both sides mean to.
    pub(super) fn keep_connection(session: &mut Session) -> Option<(Stream, Arc<ListenerState>)> {
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

    pub(super) fn expire_pending(&mut self, key: Key) {
        let Some(pending) = self.pending.get(key) else { return };
        let limit = pending.listener.config.options.setup_timeout as u64 * 1000;
        if self.now.ms < pending.since + limit {
            return self.idle.add((pending.since + limit).div_ceil(1000), TimerEvent::PendingConnection(key));
        }
        self.stats.reach_limit(Limit::SetupTimeout);
        self.pending.remove(key);
    }

    pub(super) fn handle_pending(&mut self, key: Key) {
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
    fn reject(&mut self, key: Key, answer: &str) {
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

    fn accept_ws(&mut self, key: Key, head: &Head, mut rest: Vec<u8>) {
        let Some(pending) = self.pending.get(key) else { return };
        let ListenerSpec::WebSocket(ws) = pending.listener.config.spec.transport() else { return };
        let fits = ws.path.as_deref().is_none_or(|path| head.target().starts_with(path));
        let Some(accepted) = handshake::accept(head, &ws.subprotocols) else {
            return self.reject(key, handshake::UPGRADE_REQUIRED);
        };
        if !fits {
            return self.reject(key, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
        let Some(pending) = self.pending.remove(key) else { return };
        let PendingConnection { mut stream, listener, local, peer, .. } = pending;
        let mut state = WsState::new(Role::Server, self.snapshot.admin.limits.ws_message, 0);
        state.subprotocol = accepted.subprotocol;
        stream.write(accepted.response.as_bytes(), &[]);
        stream.codec = Codec::Ws(Box::new(state));
        let metadata = Some(http_metadata(head, local, peer));
        let dscp = dscp_of(&listener, stream.raw(), local);
        let source = Link::Stream(Box::new(stream));
        let incoming = Incoming { listener, port: None, local, peer, source, metadata, dscp };
        if let Some(key) = self.open_watched(incoming)
            && !rest.is_empty()
        {
            self.with_session(key, |worker, session| worker.handle_bytes(session, 0, &mut rest));
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
        let dscp = dscp_of(&listener, stream.raw(), local);
        let source = Link::Stream(Box::new(stream));
        let incoming = Incoming { listener, port: None, local, peer, source, metadata, dscp };
        if let Some(key) = self.open_watched(incoming) {
            self.with_session(key, |worker, session| worker.handle_body(session, &mut rest));
        }
    }

    /// Makes a session of a connection that is watched already.
    fn open_watched(&mut self, incoming: Incoming) -> Option<Key> {
        let mut session = self.admit(incoming)?;
        let token = Token::Link(session.key, 0).pack();
        if let Link::Stream(stream) = &mut session.source {
            stream.interest = READ | if stream.waiting() > 0 { WRITE } else { 0 };
            if self.epoll.change(stream.raw(), token, stream.interest).is_err() {
                self.source_lost(&mut session);
            }
        }
        let key = session.key;
        self.begin(session);
        Some(key)
    }
}

/// The code point of a connection, where the listener reads it.
fn dscp_of(listener: &ListenerState, fd: RawFd, local: SocketAddr) -> Option<u8> {
    listener.config.options.qos.as_ref()?;
    sys::connection_dscp(fd, local.is_ipv4())
}

fn http_metadata(head: &Head, local: SocketAddr, peer: Option<SocketAddr>) -> Value {
    let host = head.header("host").unwrap_or_default();
    let (path, query) = head.target().split_once('?').unwrap_or((head.target(), ""));
    let names = head.headers.iter().map(|(name, _)| name.clone());
    let headers: Map<String, Value> =
        names.map(|name| (name.clone(), Value::String(head.header(&name).unwrap_or_default()))).collect();
    let peer_ip = peer.map(|peer| peer.ip().to_string()).unwrap_or_default();
    json!({
        "IP": { "src_addr": peer_ip, "dst_addr": local.ip().to_string() },
        "TCP": { "src_port": peer.map_or(0, |peer| peer.port()), "dst_port": local.port() },
        "HTTP": {
            "version": head.version(), "method": head.method(),
            "url": {
                "url": head.target(), "href": format!("http://{host}{}", head.target()), "protocol": "http:",
                "host": host, "port": local.port(), "path": head.target(), "query": query, "pathname": path,
            },
            "headers": headers,
        },
    })
}

/// Whether the system has no descriptor or no memory left for another socket.
fn is_exhausted(error: &io::Error) -> bool {
    let codes = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}
