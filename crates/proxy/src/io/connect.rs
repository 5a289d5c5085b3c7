//! Connecting stages: endpoint, name, socket.

use super::circuit::{finish_pending, finish_retry};
use super::cluster::ClusterRuntime;
use super::link::{Codec, Link};
use super::loop_detection::Family;
use super::session::Session;
use super::slab::Key;
use super::sync::Member;
use super::sys;
use super::token::Token;
use super::worker::Worker;
use crate::config::types::{Bind, ClusterSpec, Framing};
use crate::proto::framer::Framer;
use crate::proto::session::Failure;
use crate::transport::spec::EndpointAddress;
use serde_json::Value;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// The outcome of an attempt.
pub(crate) enum Attempt {
    Connected,
    /// The socket connects, a name is resolved, or a handshake is under way.
    Pending,
}

/// Where a socket connects to.
pub(crate) struct Remote<'a> {
    pub family: Family,
    /// Used in place of the endpoint's address and port.
    pub host: Option<&'a str>,
    pub port: Option<u16>,
    /// Used if the endpoint has no port.
    pub default_port: Option<u16>,
    pub bind: &'a Bind,
}

impl Worker {
    /// Begins an attempt to connect a stage.
    pub(crate) fn connect(&mut self, session: &mut Session, stage: usize) {
        session.stages[stage].began = self.now.ms;
        match self.attempt(session, stage, None) {
            Ok(Attempt::Connected) => self.stage_connected(session, stage),
            Ok(Attempt::Pending) => {}
            Err(failure) => self.stage_failed(session, stage, failure),
        }
    }

    /// Goes on with an attempt whose name was looked up.
    pub(crate) fn resolved(&mut self, key: Key, stage: usize, addresses: &[IpAddr]) {
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

    pub(crate) fn stage_connected(&mut self, session: &mut Session, stage: usize) {
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

    pub(crate) fn stage_failed(&mut self, session: &mut Session, stage: usize, failure: Failure) {
        if failure.endpoint_fault {
            self.record_failure(&session.stages[stage]);
        }
        let again = session.machine.would_retry(stage, &failure);
        let failure = if again { self.admit_retry(&mut session.stages[stage]).unwrap_or(failure) } else { failure };
        self.release_stage(session, stage);
        session.machine.handle_failure(stage, &failure, &session.name, self.now);
    }

    /// Releases what a stage holds: socket, counts, group.
    pub(crate) fn release_stage(&mut self, session: &mut Session, stage: usize) {
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
        self.sessions.hot[key.slot as usize].upstream = -1;
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
        let Some(transport) = cluster.spec.transport() else { return self.join_virtual(session, stage, cluster) };
        // a socket file in the cluster spec is used in place of endpoints
        let named = cluster.endpoints.is_empty()
            && matches!(transport.endpoint_address(), EndpointAddress::Unix { filename: Some(_) });
        if !named && (session.stages[stage].endpoint.is_none() || found.is_none()) {
            self.choose_endpoint(session, stage, &cluster_runtime)?;
        }
        let Some(link) = self.open_transport(session, stage, transport, found)? else { return Ok(Attempt::Pending) };
        self.watch_stage(session, stage, link)?;
        let handshake = self.begin_handshake(session, stage, &cluster.spec);
        let connecting =
            matches!(&session.stages[stage].link, Link::Stream(stream) if stream.connecting || stream.is_upgrading());
        Ok(if connecting || handshake { Attempt::Pending } else { Attempt::Connected })
    }

    /// Opens a socket to the endpoint of a stage; `None` while its name is resolved.
    pub(crate) fn dial(
        &mut self,
        session: &mut Session,
        stage: usize,
        remote: &Remote<'_>,
        found: Option<&[IpAddr]>,
    ) -> Result<Option<(OwnedFd, SocketAddr)>, Failure> {
        let endpoint = session.stages[stage].endpoint.as_ref();
        let port = remote.port.or(endpoint.and_then(|e| e.port)).or(remote.default_port);
        let port = port.ok_or_else(|| Failure::connect("No remote port defined").permanent())?;
        let host = remote.host.or(endpoint.map(|e| &*e.address)).unwrap_or("");
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
        let from = Self::local_end(remote.bind, address, session.sequence);
        let socket = self.open_socket(session, stage, remote.family, to, from);
        let socket = self.check_descriptor_limit(socket).map_err(|error| connect_failure(&error, to, from))?;
        Ok(Some((socket, to)))
    }

    /// Opens a socket to an endpoint; if that is a listener of this proxy, the hops are recorded.
    fn open_socket(
        &self,
        session: &mut Session,
        stage: usize,
        family: Family,
        to: SocketAddr,
        from: Option<SocketAddr>,
    ) -> io::Result<OwnedFd> {
        let qos = session.stages[stage].cluster.as_ref().and_then(|cluster| cluster.options.qos.as_ref());
        let dscp = qos.and_then(|qos| qos.dscp);
        let connect = || match family {
            Family::Udp => sys::udp_connected(to, from, dscp),
            Family::Tcp => sys::tcp_connecting(to, from, dscp),
        };
        if !self.ports.listens_on(family, to) {
            return connect();
        }
        let entry = self.shared.loops.entry();
        let socket = connect();
        let local = socket.as_ref().ok().and_then(|socket| sys::local_address(socket.as_raw_fd()).ok());
        let end = local.map(|local| (family, local));
        entry.record(end, session.hops + 1);
        session.stages[stage].looped = end.map(Box::new);
        socket
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

    pub(crate) fn codec(&self, framing: Framing) -> Codec {
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
