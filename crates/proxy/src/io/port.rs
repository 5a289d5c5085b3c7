//! Open sockets of listeners, apart from the listeners themselves.
//!
//! Sessions answer through the socket they came in by. So when a listener goes, its datagram sockets stay until
//! their last session ends, and a listener that comes back to the same address takes them over: two sockets on one
//! port would tear flows apart.

use super::apart::Apart;
use super::loops::{End, Family};
use super::naming::push_address;
use super::rate::Limiter;
use super::sys::{self, Buffers, UnixKind};
use crate::config::engine::BindError;
use crate::config::home::Home;
use crate::config::types::{Listener, ListenerSpec, UdpMode, UdsType};
use arc_swap::ArcSwapOption;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Where a port is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Udp(SocketAddr),
    Tcp(SocketAddr),
    Unix(PathBuf, UnixType),
}

impl Place {
    /// The address, where it is one of the internet.
    pub(super) const fn end(&self) -> Option<End> {
        match self {
            Self::Udp(at) => Some((Family::Udp, *at)),
            Self::Tcp(at) => Some((Family::Tcp, *at)),
            Self::Unix(..) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnixType {
    Stream,
    SeqPacket,
    Datagram,
}

impl From<UdsType> for UnixType {
    fn from(kind: UdsType) -> Self {
        match kind {
            UdsType::Stream => Self::Stream,
            UdsType::Seqpacket => Self::SeqPacket,
            UdsType::Datagram => Self::Datagram,
        }
    }
}

impl From<UnixType> for UnixKind {
    fn from(kind: UnixType) -> Self {
        match kind {
            UnixType::Stream => Self::Stream,
            UnixType::SeqPacket => Self::SeqPacket,
            UnixType::Datagram => Self::Datagram,
        }
    }
}

/// One bound address with a socket per worker that serves it.
pub(super) struct Port {
    pub id: u32,
    pub place: Place,
    /// What sessions call this end: the bound address and port.
    pub local: SocketAddr,
    /// The same, as their names have it.
    pub local_text: String,
    sockets: Vec<Option<OwnedFd>>,
    /// Whose sessions come in here; nobody's after the listener went.
    pub listener: ArcSwapOption<Inlet>,
    /// Live sessions that answer through it.
    pub sessions: Apart<AtomicUsize>,
}

/// A listener while it runs, shared by all workers.
pub(super) struct Inlet {
    pub listener: Arc<Listener>,
    pub counts: Apart<InletCounts>,
    /// Live sessions by source, where there is a cap on them.
    pub sources: parking_lot::Mutex<std::collections::BTreeMap<IpAddr, usize>>,
    pub idle_ms: u64,
    /// Shared with the listener's earlier and later forms, so that sessions follow a change of rates.
    pub limiter: Arc<Limiter>,
}

#[derive(Default)]
pub(super) struct InletCounts {
    /// Sessions so far: the next one's number.
    pub next: AtomicU64,
    pub active: AtomicUsize,
}

impl Inlet {
    pub(super) fn new(listener: Arc<Listener>, next: u64, limiter: Arc<Limiter>) -> Self {
        limiter.set(listener.options.qos.as_ref(), sys::monotonic_ms());
        let default = if is_connectionless(&listener.spec) { 300.0 } else { 0.0 };
        let idle_ms = (listener.options.idle_timeout.unwrap_or(default) * 1000.0) as u64;
        Self {
            listener,
            counts: Apart(InletCounts { next: AtomicU64::new(next), ..InletCounts::default() }),
            sources: parking_lot::Mutex::default(),
            idle_ms,
            limiter,
        }
    }

    pub(super) fn take_number(&self) -> u64 {
        self.counts.next.fetch_add(1, Relaxed)
    }

    /// The mode of a UDP listener, options included.
    pub(super) fn is_singleton(&self) -> bool {
        let ListenerSpec::Udp(udp) = self.listener.spec.transport() else { return false };
        self.listener.options.mode.unwrap_or_else(|| udp.mode()) == UdpMode::Singleton
    }
}

fn is_connectionless(spec: &ListenerSpec) -> bool {
    match spec.transport() {
        ListenerSpec::Udp(udp) => udp.mode() == UdpMode::Server,
        ListenerSpec::Uds(uds) => uds.kind == UdsType::Datagram,
        ListenerSpec::Tcp(_) | ListenerSpec::WebSocket(_) | ListenerSpec::Http(_) | ListenerSpec::JsonSocket(_) => {
            false
        }
    }
}

static NEXT_PORT: AtomicU32 = AtomicU32::new(0);

impl Port {
    /// Opens a socket for each worker that serves the place.
    pub(super) fn open(
        place: Place,
        listener: &Listener,
        workers: usize,
        buffers: Buffers,
    ) -> Result<Arc<Self>, BindError> {
        let alone = match listener.spec.transport() {
            ListenerSpec::Udp(udp) => listener.options.mode.unwrap_or_else(|| udp.mode()) == UdpMode::Singleton,
            ListenerSpec::Uds(_) => true,
            ListenerSpec::Tcp(_) | ListenerSpec::WebSocket(_) | ListenerSpec::Http(_) | ListenerSpec::JsonSocket(_) => {
                false
            }
        };
        let mut sockets = Vec::new();
        let id = NEXT_PORT.fetch_add(1, Relaxed);
        let owner = id as usize % workers;
        let mut local = None;
        for worker in 0..workers {
            let socket = if alone && worker != owner {
                None
            } else {
                let socket = open_socket(&place, local, listener, buffers);
                Some(socket.map_err(|error| bind_error(listener, &place, &error))?)
            };
            if let (None, Some(socket)) = (local, &socket) {
                // With port 0 the kernel chooses for the first socket, and the others follow.
                local = sys::local_address(socket.as_raw_fd()).ok().filter(|_| !matches!(place, Place::Unix(..)));
            }
            sockets.push(socket);
        }
        let local = local.unwrap_or(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));
        let mut local_text = String::new();
        push_address(&mut local_text, local);
        let sessions = Apart::default();
        Ok(Arc::new(Self { id, place, local, local_text, sockets, listener: ArcSwapOption::empty(), sessions }))
    }

    pub(super) fn socket(&self, worker: usize) -> Option<RawFd> {
        self.sockets.get(worker)?.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Whether sessions answer through the port's own sockets.
    pub(super) const fn is_datagram(&self) -> bool {
        matches!(self.place, Place::Udp(_) | Place::Unix(_, UnixType::Datagram))
    }
}

impl std::ops::Drop for Port {
    fn drop(&mut self) {
        if let Place::Unix(path, _) = &self.place {
            // It may have been removed by hand; then there is nothing to do.
            std::fs::remove_file(path).ok();
        }
    }
}

/// The places that a listener binds to, where this process is at home.
pub(super) fn places(listener: &Listener, home: &Home) -> Vec<Place> {
    let both = |address: Option<IpAddr>, port: u16| -> Vec<SocketAddr> {
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let all = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let addresses = match home.bound(address) {
            Some(address) if !listener.loopback_only || address.is_loopback() => vec![address],
            Some(IpAddr::V4(_)) => vec![loopback[0]],
            Some(IpAddr::V6(_)) => vec![loopback[1]],
            None if listener.loopback_only => loopback.to_vec(),
            None => all.to_vec(),
        };
        addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect()
    };
    let tcp = |address, port| both(address, port).into_iter().map(Place::Tcp).collect();
    match listener.spec.transport() {
        ListenerSpec::Udp(udp) => both(udp.address, udp.port).into_iter().map(Place::Udp).collect(),
        ListenerSpec::Tcp(spec) => tcp(spec.address, spec.port),
        ListenerSpec::WebSocket(spec) => tcp(spec.address, spec.port),
        ListenerSpec::Http(spec) => tcp(spec.address, spec.port),
        ListenerSpec::Uds(uds) => vec![Place::Unix(home.real(&uds.filename).into_owned(), uds.kind.into())],
        ListenerSpec::JsonSocket(_) => Vec::new(),
    }
}

/// Whether a place may be missing: the IPv6 half of "all addresses", on a machine without IPv6.
pub(super) fn is_optional(place: &Place, error: &BindError) -> bool {
    let (Place::Udp(at) | Place::Tcp(at)) = place else { return false };
    at.is_ipv6()
        && (at.ip().is_unspecified() || at.ip().is_loopback())
        && matches!(error.code.as_str(), "EAFNOSUPPORT" | "EADDRNOTAVAIL")
}

fn open_socket(place: &Place, first: Option<SocketAddr>, listener: &Listener, buffers: Buffers) -> io::Result<OwnedFd> {
    match place {
        Place::Udp(at) => sys::udp_listener(first.unwrap_or(*at), true, buffers),
        Place::Tcp(at) => sys::tcp_listener(first.unwrap_or(*at), true),
        Place::Unix(path, kind) => {
            let mode = if let ListenerSpec::Uds(uds) = listener.spec.transport() { uds.mode } else { None };
            sys::unix_listener(path, (*kind).into(), mode)
        }
    }
}

pub(super) fn bind_error(listener: &Listener, place: &Place, error: &io::Error) -> BindError {
    let at = match place {
        Place::Udp(at) | Place::Tcp(at) => format!("{}:{}", at.ip(), at.port()),
        Place::Unix(path, _) => path.display().to_string(),
    };
    let protocol = listener.spec.transport().protocol();
    BindError { listener: Arc::clone(&listener.name), protocol, call: "bind", at, code: sys::error_name(error) }
}
