//! Connecting stages.

use super::circuit::{finish_pending, finish_retry};
use super::cluster::ClusterRuntime;
use super::link::{Codec, Link, Stream, WsState};
use super::loop_detection::Family;
use super::session::{ClientHandshake, Session};
use super::slab::Key;
use super::sync::Member;
use super::sys::{self, UnixKind};
use super::worker::{Token, Worker};
use crate::config::types::{Bind, Cluster, ClusterSpec, Framing, UdsType, WsCluster};
use crate::proto::framer::Framer;
use crate::proto::json_socket;
use crate::proto::session::Failure;
use crate::proto::ws::{Role, handshake};
use portolan_core::mesh::{Path, key_text};
use serde_json::Value;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// What came of an attempt.
enum Attempt {
    Connected,
    /// The socket connects, a name is looked up, or a handshake is under way.
    Pending,
}

impl Worker {
    /// Begins an attempt to connect a stage.
    pub(super) fn connect(&mut self, session: &mut Session, stage: usize) {
        session.stages[stage].began = self.now.ms;
        match self.attempt(session, stage, None) {
            Ok(Attempt::Connected) => self.stage_connected(session, stage),
            Ok(Attempt::Pending) => {}
            Err(failure) => self.stage_failed(session, stage, failure),
        }
    }

    /// Goes on with an attempt whose name was looked up.
    pub(super) fn resolved(&mut self, key: Key, stage: usize, addresses: &[IpAddr]) {
        self.with_session(key, |worker, session| {
            if session.machine.is_over()
                || stage >= session.stages.len()
                || !matches!(session.stages[stage].link, Link::None)
            {
                return;
            }
            match worker.attempt(session, stage, Some(addresses)) {
                Ok(Attempt::Connected) => worker.stage_connected(session, stage),
                Ok(Attempt::Pending) => {}
                Err(failure) => worker.stage_failed(session, stage, failure),
            }
        });
    }

    pub(super) fn stage_connected(&mut self, session: &mut Session, stage: usize) {
        let now = self.now;
        self.stats.connect.observe(now.ms - session.stages[stage].began);
        let place = &mut session.stages[stage];
        place.unconfirmed = place.state.is_some();
        // That a datagram socket is connected says nothing about the other end.
        if let (Link::Stream(_), Some(state)) = (&place.link, &place.state) {
            state.health.lock().connected();
        }
        finish_pending(place);
        finish_retry(place);
        session.machine.handle_connected(stage, now);
    }

    pub(super) fn stage_failed(&mut self, session: &mut Session, stage: usize, failure: Failure) {
        if failure.endpoint_fault {
            self.record_failure(&session.stages[stage]);
        }
        let again = session.machine.would_retry(stage, &failure);
        let failure = if again { self.admit_retry(&mut session.stages[stage]).unwrap_or(failure) } else { failure };
        self.release_stage(session, stage);
        session.machine.handle_failure(stage, &failure, &session.name, self.now);
    }

    /// Releases what a stage holds: socket, counts, group.
    pub(super) fn release_stage(&mut self, session: &mut Session, stage: usize) {
        let key = session.key;
        let link = std::mem::take(&mut session.stages[stage].link);
        if let Link::Datagram(socket) = &link {
            self.send_close_notice(session, stage, socket);
        }
        let place = &mut session.stages[stage];
        finish_pending(place);
        place.handshake = None;
        if let (Link::Sync(membership), Some(cluster_state)) = (&link, &place.cluster_state) {
            cluster_state.groups.leave(membership);
        }
        if let Some(cluster_state) = place.cluster_state.take() {
            cluster_state.sessions.fetch_sub(1, Relaxed);
            if place.cluster.as_ref().is_some_and(|cluster| cluster.spec == ClusterSpec::Stdio) {
                self.shared.stdio.leave(Member { worker: self.id, session: key, at: stage + 1 });
            }
            if place.meter.take().is_some() {
                cluster_state.meters.lock().remove(&*session.name);
            }
        }
        if let Some(state) = place.state.take() {
            state.sessions.fetch_sub(1, Relaxed);
        }
        if let Some(end) = place.looped.take() {
            self.shared.loops.leave(*end);
        }
        self.hot[key.slot as usize].upstream = -1;
    }

    fn attempt(&mut self, session: &mut Session, stage: usize, found: Option<&[IpAddr]>) -> Result<Attempt, Failure> {
        let name = &session.stages[stage].cluster_name;
        let cluster_runtime = self.clusters.get(name).cloned();
        let cluster_runtime =
            cluster_runtime.ok_or_else(|| Failure::not_found(format!("Cannot find cluster \"{name}\"")))?;
        let cluster = &cluster_runtime.cluster;
        if session.stages[stage].cluster_state.is_none() {
            self.count_stage(&mut session.stages[stage], &cluster_runtime)?;
        }
        if cluster.spec.is_virtual() {
            return self.join_virtual(session, stage, cluster);
        }
        let transport = if let ClusterSpec::JsonSocket(json) = &cluster.spec { &json.transport } else { &cluster.spec };
        // a socket file that the cluster itself names stands in for endpoints
        let named =
            cluster.endpoints.is_empty() && matches!(transport, ClusterSpec::Uds(uds) if uds.filename.is_some());
        if !named && (session.stages[stage].endpoint.is_none() || found.is_none()) {
            self.choose_endpoint(session, stage, &cluster_runtime)?;
        }
        let Some(link) = self.open_transport(session, stage, transport, found)? else { return Ok(Attempt::Pending) };
        self.watch_stage(session, stage, link)?;
        let handshake = self.begin_handshake(session, stage, &cluster.spec);
        let connecting =
            matches!(&session.stages[stage].link, Link::Stream(stream) if stream.connecting || is_upgrading(stream));
        Ok(if connecting || handshake { Attempt::Pending } else { Attempt::Connected })
    }

    fn choose_endpoint(
        &mut self,
        session: &mut Session,
        stage: usize,
        cluster_runtime: &ClusterRuntime,
    ) -> Result<(), Failure> {
        let metadata = if cluster_runtime.needs_metadata() { session.metadata() } else { Value::Null };
        let picked = cluster_runtime.pick(&metadata, session.peer, self.next_random(), self.now.ms);
        let picked = picked.ok_or_else(|| Failure::not_found("No endpoint in cluster"))?;
        let state = Arc::clone(cluster_runtime.state(picked));
        state.sessions.fetch_add(1, Relaxed);
        let place = &mut session.stages[stage];
        place.endpoint = cluster_runtime.cluster.endpoints.get(picked).cloned();
        if let Some(old) = place.state.replace(state) {
            old.sessions.fetch_sub(1, Relaxed);
        }
        Ok(())
    }

    /// Opens the socket of a stage; nothing while a name is looked up.
    fn open_transport(
        &mut self,
        session: &mut Session,
        stage: usize,
        spec: &ClusterSpec,
        found: Option<&[IpAddr]>,
    ) -> Result<Option<Link>, Failure> {
        if let ClusterSpec::Uds(uds) = spec {
            return self.open_unix(session, stage, uds).map(Some);
        }
        let (port, bind) = match spec {
            ClusterSpec::Udp(udp) => (udp.port, &udp.bind),
            ClusterSpec::Tcp(tcp) => (tcp.port, &tcp.bind),
            ClusterSpec::WebSocket(ws) => (ws.port, &ws.bind),
            ClusterSpec::Uds(_)
            | ClusterSpec::JsonSocket(_)
            | ClusterSpec::Stdio
            | ClusterSpec::Sync(_)
            | ClusterSpec::Echo
            | ClusterSpec::Discard
            | ClusterSpec::Logger(_)
            | ClusterSpec::Metric(_)
            | ClusterSpec::Prometheus
            | ClusterSpec::JsonEncap
            | ClusterSpec::JsonDecap
            | ClusterSpec::Controller => {
                return Err(Failure::connect("The transport has no sockets").permanent());
            }
        };
        let url = if let ClusterSpec::WebSocket(ws) = spec { Some(Self::ws_target(session, ws)) } else { None };
        let port = url
            .as_ref()
            .and_then(|url| url.port)
            .or(session.stages[stage].endpoint.as_ref().and_then(|e| e.port))
            .or(port);
        let port = port.ok_or_else(|| Failure::connect("No remote port defined").permanent())?;
        let endpoint = session.stages[stage].endpoint.as_ref();
        let host = url.as_ref().and_then(|url| url.host.as_deref()).or(endpoint.map(|e| &*e.address)).unwrap_or("");
        let address = if let Some(address) = literal(host) {
            Some(address)
        } else {
            let host = host.to_owned();
            self.address_of(session, stage, &host, found)?
        };
        let Some(address) = address else { return Ok(None) };
        let address = self.shared.host_mapping.map_address(address);
        self.check_policy(address, port)?;
        let to = SocketAddr::new(address, port);
        let from = Self::local_end(bind, address, session.sequence);
        let is_udp = matches!(spec, ClusterSpec::Udp(_));
        let socket = self.open_socket(session, stage, is_udp, to, from);
        let socket = self.check_descriptor_limit(socket).map_err(|error| connect_failure(&error, to, from))?;
        if is_udp {
            return Ok(Some(Link::Datagram(socket)));
        }
        let stream = if let ClusterSpec::WebSocket(ws) = spec {
            let target = url.unwrap_or_default();
            let endpoint = session.stages[stage].endpoint.as_ref();
            let host = target.host.as_deref().or(endpoint.map(|e| &*e.address)).unwrap_or("");
            self.ws_stream(session, ws, socket, &format!("{host}:{port}"), target.path)
        } else {
            let framing = if let ClusterSpec::Tcp(tcp) = spec { tcp.framing } else { Framing::None };
            Stream::new(socket, self.codec(framing)).connecting()
        };
        Ok(Some(Link::Stream(Box::new(stream))))
    }

    /// Opens a socket to an endpoint; where that is a listener of this proxy, the hops are noted.
    fn open_socket(
        &self,
        session: &mut Session,
        stage: usize,
        is_udp: bool,
        to: SocketAddr,
        from: Option<SocketAddr>,
    ) -> io::Result<OwnedFd> {
        let family = if is_udp { Family::Udp } else { Family::Tcp };
        let qos = session.stages[stage].cluster.as_ref().and_then(|cluster| cluster.options.qos.as_ref());
        let dscp = qos.and_then(|qos| qos.dscp);
        let connect = || if is_udp { sys::udp_connected(to, from, dscp) } else { sys::tcp_connecting(to, from, dscp) };
        if !self.listens_on(family, to) {
            return connect();
        }
        let entry = self.shared.loops.entry();
        let socket = connect();
        let local = socket.as_ref().ok().and_then(|socket| sys::local_address(socket.as_raw_fd()).ok());
        let end = local.map(|local| (family, local));
        entry.note(end, session.hops + 1);
        session.stages[stage].looped = end.map(Box::new);
        socket
    }

    fn open_unix(
        &self,
        session: &Session,
        stage: usize,
        uds: &crate::config::types::UdsCluster,
    ) -> Result<Link, Failure> {
        let endpoint = session.stages[stage].endpoint.as_ref();
        let path = endpoint.map(|e| e.address.as_str()).filter(|path| path.starts_with('/'));
        let path = path.map(FilePath::new).or(uds.filename.as_deref()).unwrap_or(FilePath::new(""));
        let host_mapping = &self.shared.host_mapping;
        let real = host_mapping.map_path(path);
        if !allowed_path(&real, &host_mapping.directories(&self.snapshot.admin.uds_dirs)) {
            return Err(Failure::connect(format!("{} is outside admin.uds_dirs", path.display())).permanent());
        }
        let kind = match uds.kind {
            UdsType::Stream => UnixKind::Stream,
            UdsType::Seqpacket => UnixKind::SeqPacket,
            UdsType::Datagram => UnixKind::Datagram,
        };
        let socket = self.check_descriptor_limit(sys::unix_connected(&real, kind));
        let socket = socket.map_err(|error| {
            Failure::connect(format!("connect {} {}", sys::error_name(&error), path.display()))
                .with_endpoint_fault(sys::is_peers_fault(&error))
        })?;
        Ok(match kind {
            UnixKind::Stream => Link::Stream(Box::new(Stream::new(socket, self.codec(uds.framing)))),
            UnixKind::SeqPacket | UnixKind::Datagram => Link::Datagram(socket),
        })
    }

    pub(super) fn codec(&self, framing: Framing) -> Codec {
        Framer::new(framing, self.snapshot.admin.limits.ws_message).map_or(Codec::Bytes, Codec::Framed)
    }

    /// The address of a name; nothing while it is looked up.
    fn address_of(
        &mut self,
        session: &mut Session,
        stage: usize,
        host: &str,
        found: Option<&[IpAddr]>,
    ) -> Result<Option<IpAddr>, Failure> {
        let unknown = || Failure::connect(format!("getaddrinfo ENOTFOUND {host}"));
        let known = match found {
            Some(_) => None,
            None => self.shared.resolver.known(host, self.snapshot.admin.dns, Instant::now()),
        };
        if let Some(addresses) = found.or(known.as_deref()) {
            let tries = session.stages[stage].tries;
            let turn = session.sequence as usize + usize::from(tries);
            session.stages[stage].tries = tries.wrapping_add(1);
            let at = turn.checked_rem(addresses.len()).unwrap_or(0);
            return addresses.get(at).copied().map(Some).ok_or_else(unknown);
        }
        if self.shared.resolver.ask(host, session.key, stage, &self.commands) { Ok(None) } else { Err(unknown()) }
    }

    fn check_policy(&self, address: IpAddr, port: u16) -> Result<(), Failure> {
        self.snapshot.admin.endpoint_policy.check(address, port).map_err(|why| {
            Failure::connect(format!("Connecting to {} is denied: {why}", SocketAddr::new(address, port))).permanent()
        })
    }

    /// The local end to bind to; several addresses are used in turn.
    fn local_end(bind: &Bind, to: IpAddr, sequence: u64) -> Option<SocketAddr> {
        let fitting = || bind.addresses.iter().copied().filter(|address| address.is_ipv4() == to.is_ipv4());
        let address = (sequence as usize).checked_rem(fitting().count()).and_then(|turn| fitting().nth(turn));
        let any: IpAddr =
            if to.is_ipv4() { std::net::Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
        match (address, bind.port) {
            (None, None | Some(0)) => None,
            (address, port) => Some(SocketAddr::new(address.unwrap_or(any), port.unwrap_or(0))),
        }
    }

    fn watch_stage(&mut self, session: &mut Session, stage: usize, mut link: Link) -> Result<(), Failure> {
        let token = Token::Link(session.key, stage + 1).pack();
        let added = match &mut link {
            Link::Datagram(fd) => self.epoll.add(fd.as_raw_fd(), token, sys::READ),
            Link::Stream(stream) => {
                stream.interest = if stream.connecting { sys::WRITE } else { sys::READ };
                self.epoll.add(stream.raw(), token, stream.interest)
            }
            Link::None | Link::UdpPeer | Link::UnixPeer(_) | Link::Virtual | Link::Sync(_) => Ok(()),
        };
        added.map_err(|error| Failure::connect(error.to_string()))?;
        session.stages[stage].link = link;
        Ok(())
    }

    /// Sends a JSONSocket header where one is spoken; true if its answer is awaited.
    fn begin_handshake(&mut self, session: &mut Session, stage: usize, spec: &ClusterSpec) -> bool {
        let ClusterSpec::JsonSocket(json) = spec else { return false };
        let header = json_socket::build_request(json.header.as_deref(), &session.metadata());
        // Only a proxy of ours gets its header repeated, so only there labels and words of ours are understood.
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
            !matches!(&session.stages[stage].link, Link::Stream(stream) if stream.connecting || is_upgrading(stream));
        if ready {
            self.send_handshake(session, stage);
        }
        true
    }

    fn join_virtual(
        &mut self,
        session: &mut Session,
        stage: usize,
        cluster: &Arc<Cluster>,
    ) -> Result<Attempt, Failure> {
        match &cluster.spec {
            ClusterSpec::Sync(sync) => {
                let metadata = session.metadata();
                let found =
                    Path::new(&sync.query).read(&metadata).filter(|value| !value.is_object() && !value.is_array());
                let key = found.and_then(key_text).filter(|key| !key.is_empty());
                let Some(key) = key else {
                    let content = format!(
                        "SyncCluster.stream: reject: Session: \"{}\": query \"{}\": empty label",
                        session.name, sync.query
                    );
                    return Err(Failure::not_found(content).permanent());
                };
                let member = Member { worker: self.id, session: session.key, at: stage + 1 };
                let cluster_state =
                    session.stages[stage].cluster_state.clone().ok_or_else(|| Failure::not_found("No group"))?;
                let most = if sync.pair { 2 } else { sync.max_members };
                let joined = cluster_state.groups.join(&key, member, most);
                let (membership, waiting) = joined.map_err(|full| Failure::unavailable(full.to_string()))?;
                session.stages[stage].link = Link::Sync(Box::new(membership));
                self.group_messages.extend(waiting.into_iter().map(|message| (member, message)));
            }
            ClusterSpec::Stdio => {
                if !self.snapshot.admin.allow_stdio {
                    return Err(Failure::unavailable("Stdio is not allowed: set admin.allow_stdio"));
                }
                let member = Member { worker: self.id, session: session.key, at: stage + 1 };
                if !self.shared.stdio.join(member, &self.shared.rings) {
                    return Err(Failure::unavailable("Stdio serves one session at a time"));
                }
                session.stages[stage].link = Link::Virtual;
            }
            ClusterSpec::Metric(_) => {
                if self.snapshot.admin.metrics_per_session {
                    meter_session(session, stage);
                }
                session.stages[stage].link = Link::Virtual;
            }
            ClusterSpec::Udp(_)
            | ClusterSpec::Tcp(_)
            | ClusterSpec::Uds(_)
            | ClusterSpec::WebSocket(_)
            | ClusterSpec::JsonSocket(_)
            | ClusterSpec::Echo
            | ClusterSpec::Discard
            | ClusterSpec::Logger(_)
            | ClusterSpec::Prometheus
            | ClusterSpec::JsonEncap
            | ClusterSpec::JsonDecap
            | ClusterSpec::Controller => session.stages[stage].link = Link::Virtual,
        }
        Ok(Attempt::Connected)
    }

    fn ws_stream(
        &self,
        session: &Session,
        ws: &WsCluster,
        socket: OwnedFd,
        host: &str,
        path: Option<String>,
    ) -> Stream {
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&sys::random_u64().to_ne_bytes());
        nonce[8..].copy_from_slice(&sys::random_u64().to_ne_bytes());
        let metadata = session.metadata();
        let offered = Self::offered_subprotocols(session, ws);
        let headers = metadata.pointer("/HTTP/headers").and_then(Value::as_object);
        let headers = headers.into_iter().flatten().filter_map(|(name, value)| {
            let value = if let Value::String(text) = value { text.clone() } else { value.to_string() };
            Some((name.clone(), value)).filter(|(name, _)| !handshake::is_own(&name.to_ascii_lowercase()))
        });
        let request = handshake::Request {
            host: host.to_owned(),
            path: path.unwrap_or_else(|| "/".to_owned()),
            subprotocols: offered.clone(),
            headers: headers.collect(),
        };
        let mut state = WsState::new(Role::Client, self.snapshot.admin.limits.ws_message, sys::random_u64());
        state.nonce = Some(nonce);
        state.offered = offered;
        let mut stream = Stream::new(socket, Codec::Ws(Box::new(state))).connecting();
        stream.write(&request.to_bytes(nonce), &[]);
        stream
    }

    /// The client's subprotocol is passed on; else what the cluster names.
    fn offered_subprotocols(session: &Session, ws: &WsCluster) -> Vec<String> {
        let chosen = match &session.source {
            Link::Stream(stream) => match &stream.codec {
                Codec::Ws(state) => state.subprotocol.clone(),
                Codec::Bytes | Codec::Framed(_) | Codec::Pass(_) | Codec::Http(_) => None,
            },
            Link::None | Link::UdpPeer | Link::UnixPeer(_) | Link::Datagram(_) | Link::Virtual | Link::Sync(_) => None,
        };
        chosen.map_or_else(|| ws.subprotocols.clone(), |name| vec![name])
    }

    /// Where a WebSocket stage goes, as far as the metadata says.
    fn ws_target(session: &Session, ws: &WsCluster) -> Target {
        let metadata = session.metadata();
        let url = metadata.pointer("/HTTP/url");
        let text = |key: &str| url.and_then(|url| url.get(key)).and_then(Value::as_str).filter(|text| !text.is_empty());
        let path = text("path").map(str::to_owned).or_else(|| ws.path.clone());
        let mut target = Target { path, ..Target::default() };
        if session.rewrote_host {
            target.host = text("host").map(|host| host.split(':').next().unwrap_or(host).to_owned());
        }
        if session.rewrote_port {
            let port = url.and_then(|url| url.get("port"));
            target.port = port
                .and_then(|port| port.as_u64().or_else(|| port.as_str()?.parse().ok()))
                .and_then(|port| u16::try_from(port).ok());
        }
        target
    }
}

#[derive(Default)]
struct Target {
    host: Option<String>,
    port: Option<u16>,
    path: Option<String>,
}

/// Sessions that are counted one by one.
const METERED: usize = 1000;

/// Counts a session by its name, as long as there is room for names.
fn meter_session(session: &mut Session, stage: usize) {
    let place = &mut session.stages[stage];
    let Some(cluster_state) = &place.cluster_state else { return };
    let mut meters = cluster_state.meters.lock();
    if meters.len() < METERED {
        place.meter = Some(Arc::clone(meters.entry(session.name.to_string()).or_default()));
    }
}

/// Whether a WebSocket still waits for the answer to its upgrade.
pub(super) fn is_upgrading(stream: &Stream) -> bool {
    matches!(&stream.codec, Codec::Ws(state) if state.nonce.is_some())
}

/// The address that a host is written as, if it is no name.
fn literal(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse().ok().map(|address: IpAddr| address.to_canonical())
}

fn connect_failure(error: &io::Error, to: SocketAddr, from: Option<SocketAddr>) -> Failure {
    if error.raw_os_error() == Some(libc::EAGAIN) || error.raw_os_error() == Some(libc::EADDRNOTAVAIL) && from.is_none()
    {
        return Failure::connect(format!("no free local port to connect to {to}"));
    }
    Failure::connect(format!("connect {} {}:{}", sys::error_name(error), to.ip(), to.port()))
        .with_endpoint_fault(sys::is_peers_fault(error))
}

/// Whether a path lies in one of the directories, links on the way resolved, and is no link itself.
pub(super) fn allowed_path(path: &FilePath, directories: &[std::path::PathBuf]) -> bool {
    let Some(parent) = path.parent().and_then(|parent| parent.canonicalize().ok()) else { return false };
    if std::fs::symlink_metadata(path).is_ok_and(|file| file.is_symlink()) {
        return false;
    }
    directories
        .iter()
        .filter_map(|directory| directory.canonicalize().ok())
        .any(|directory| parent.starts_with(directory))
}
