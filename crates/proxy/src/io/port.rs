//! Open sockets of listeners, separate from the listeners themselves.
//!
//! Sessions send replies through the socket that they arrived on. When a listener is deleted, its datagram sockets stay
//! open until their last session ends, and a new listener on the same address takes them over: two sockets on one port
//! would split flows.

use super::address_text::push_address;
use super::cache_padded::CachePadded;
use super::loop_detection::{End, Family};
use super::rate::Limiter;
use super::sys::{self, Buffers, Sharing, UnixKind};
use crate::config::engine::BindError;
use crate::config::host_mapping::HostMapping;
use crate::config::types::{Listener, ListenerSpec, UdpMode, UdsType};
use crate::transport::spec::ListenAddress;
use arc_swap::ArcSwapOption;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The address that a port is bound to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BindAddress {
    Udp(SocketAddr),
    Tcp(SocketAddr),
    Unix(PathBuf, UdsType),
}

impl BindAddress {
    /// The address, where it is one of the internet.
    pub(crate) const fn end(&self) -> Option<End> {
        match self {
            Self::Udp(at) => Some((Family::Udp, *at)),
            Self::Tcp(at) => Some((Family::Tcp, *at)),
            Self::Unix(..) => None,
        }
    }
}

impl BindAddress {
    /// Whether one socket could take clients of the other.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Udp(a), Self::Udp(b)) | (Self::Tcp(a), Self::Tcp(b)) => a.port() == b.port(),
            (Self::Udp(_) | Self::Tcp(_) | Self::Unix(..), _) => false,
        }
    }
}

impl From<UdsType> for UnixKind {
    fn from(kind: UdsType) -> Self {
        match kind {
            UdsType::Stream => Self::Stream,
            UdsType::Seqpacket => Self::SeqPacket,
            UdsType::Datagram => Self::Datagram,
        }
    }
}

/// One bound address with a socket per worker that serves it.
pub(crate) struct Port {
    pub id: u32,
    pub bind_address: BindAddress,
    /// The bound address and port.
    pub local: SocketAddr,
    /// The same as text, as session names contain it.
    pub local_text: String,
    sockets: Vec<Option<OwnedFd>>,
    /// The listener that new sessions belong to; empty once the listener is deleted.
    pub listener: ArcSwapOption<ListenerState>,
    /// Live sessions that send replies through it.
    pub sessions: CachePadded<AtomicUsize>,
}

/// A running listener, shared by all workers.
pub(crate) struct ListenerState {
    pub config: Arc<Listener>,
    pub counts: CachePadded<ListenerCounts>,
    /// Live sessions by source, where there is a cap on them.
    pub sources: parking_lot::Mutex<std::collections::BTreeMap<IpAddr, usize>>,
    pub idle_ms: u64,
    /// Shared by all versions of the listener, so that existing sessions follow a change of rates.
    pub limiter: Arc<Limiter>,
}

#[derive(Default)]
pub(crate) struct ListenerCounts {
    /// Sessions so far: the next one's number.
    pub next: AtomicU64,
    pub active: AtomicUsize,
}

impl ListenerState {
    pub(crate) fn new(config: Arc<Listener>, next: u64, limiter: Arc<Limiter>) -> Self {
        limiter.set(config.options.qos.as_ref(), sys::monotonic_ms());
        let default = if config.spec.is_connectionless() { 300.0 } else { 0.0 };
        let idle_ms = (config.options.idle_timeout.unwrap_or(default) * 1000.0) as u64;
        Self {
            config,
            counts: CachePadded(ListenerCounts { next: AtomicU64::new(next), ..ListenerCounts::default() }),
            sources: parking_lot::Mutex::default(),
            idle_ms,
            limiter,
        }
    }

    /// Seconds that a client's handshake may take.
    pub(crate) fn setup_seconds(&self) -> u64 {
        self.config.options.setup_timeout as u64
    }

    pub(crate) fn take_number(&self) -> u64 {
        self.counts.next.fetch_add(1, Relaxed)
    }

    /// Gives a number back that no session was set up with, unless others were taken since.
    pub(crate) fn return_number(&self, number: u64) {
        self.counts.next.compare_exchange(number + 1, number, Relaxed, Relaxed).ok();
    }

    pub(crate) fn is_singleton(&self) -> bool {
        is_singleton(&self.config)
    }
}

/// Whether it is a UDP listener with one peer, options included.
fn is_singleton(listener: &Listener) -> bool {
    let ListenerSpec::Udp(udp) = listener.spec.transport() else { return false };
    listener.options.mode.unwrap_or_else(|| udp.mode()) == UdpMode::Singleton
}

static NEXT_PORT: AtomicU32 = AtomicU32::new(0);

impl Port {
    /// Opens a socket for each worker that serves the address. It `joins` sockets of this process that are bound to an
    /// address which overlaps.
    pub(crate) fn open(
        bind_address: BindAddress,
        listener: &Listener,
        workers: usize,
        buffers: Buffers,
        joins: bool,
    ) -> Result<Arc<Self>, BindError> {
        let alone = matches!(bind_address, BindAddress::Unix(..)) || is_singleton(listener);
        let mut sockets = Vec::new();
        let id = NEXT_PORT.fetch_add(1, Relaxed);
        let owner = id as usize % workers;
        let mut local = None;
        for worker in 0..workers {
            let socket = if alone && worker != owner {
                None
            } else {
                let sharing = if joins || local.is_some() { Sharing::Joins } else { Sharing::First };
                let socket = open_socket(&bind_address, local, listener, buffers, sharing);
                Some(socket.map_err(|error| bind_error(listener, &bind_address, &error))?)
            };
            if let (None, Some(socket)) = (local, &socket) {
                // With port 0 the kernel chooses for the first socket, and the others follow.
                local = sys::local_address(socket.as_raw_fd())
                    .ok()
                    .filter(|_| !matches!(bind_address, BindAddress::Unix(..)));
            }
            sockets.push(socket);
        }
        let local = local.unwrap_or(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));
        let mut local_text = String::new();
        push_address(&mut local_text, local);
        let sessions = CachePadded::default();
        Ok(Arc::new(Self { id, bind_address, local, local_text, sockets, listener: ArcSwapOption::empty(), sessions }))
    }

    pub(crate) fn socket(&self, worker: usize) -> Option<RawFd> {
        self.sockets.get(worker)?.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Whether sessions answer through the port's own sockets.
    pub(crate) const fn is_datagram(&self) -> bool {
        matches!(self.bind_address, BindAddress::Udp(_) | BindAddress::Unix(_, UdsType::Datagram))
    }
}

impl std::ops::Drop for Port {
    fn drop(&mut self) {
        if let BindAddress::Unix(path, _) = &self.bind_address {
            // The file may have been removed already; then there is nothing to do.
            std::fs::remove_file(path).ok();
        }
    }
}

/// The addresses that a listener binds to, after the mapping of this process is applied.
pub(crate) fn bind_addresses(listener: &Listener, host_mapping: &HostMapping) -> Vec<BindAddress> {
    let each = |address: Option<IpAddr>, port: u16, bind: fn(SocketAddr) -> BindAddress| {
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let all = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let addresses = match host_mapping.bind_address(address) {
            Some(address) if !listener.loopback_only || address.is_loopback() => vec![address],
            Some(IpAddr::V4(_)) => vec![loopback[0]],
            Some(IpAddr::V6(_)) => vec![loopback[1]],
            None if listener.loopback_only => loopback.to_vec(),
            None => all.to_vec(),
        };
        addresses.into_iter().map(|address| bind(SocketAddr::new(address, port))).collect()
    };
    match listener.spec.listen_address() {
        ListenAddress::Udp { address, port } => each(address, port, BindAddress::Udp),
        ListenAddress::Tcp { address, port } => each(address, port, BindAddress::Tcp),
        ListenAddress::Unix(uds) => {
            vec![BindAddress::Unix(host_mapping.map_path(&uds.filename).into_owned(), uds.kind)]
        }
    }
}

/// Whether an address may be missing: the IPv6 half of "all addresses", on a machine without IPv6.
pub(crate) fn is_optional(bind_address: &BindAddress, error: &BindError) -> bool {
    let (BindAddress::Udp(at) | BindAddress::Tcp(at)) = bind_address else { return false };
    at.is_ipv6()
        && (at.ip().is_unspecified() || at.ip().is_loopback())
        && matches!(error.code.as_str(), "EAFNOSUPPORT" | "EADDRNOTAVAIL")
}

fn open_socket(
    bind_address: &BindAddress,
    first: Option<SocketAddr>,
    listener: &Listener,
    buffers: Buffers,
    sharing: Sharing,
) -> io::Result<OwnedFd> {
    match bind_address {
        BindAddress::Udp(at) => sys::udp_listener(first.unwrap_or(*at), sharing, buffers),
        BindAddress::Tcp(at) => sys::tcp_listener(first.unwrap_or(*at), sharing),
        BindAddress::Unix(path, kind) => {
            let mode = if let ListenAddress::Unix(uds) = listener.spec.listen_address() { uds.mode } else { None };
            sys::unix_listener(path, (*kind).into(), mode)
        }
    }
}

pub(crate) fn bind_error(listener: &Listener, bind_address: &BindAddress, error: &io::Error) -> BindError {
    let at = match bind_address {
        BindAddress::Udp(at) | BindAddress::Tcp(at) => format!("{}:{}", at.ip(), at.port()),
        BindAddress::Unix(path, _) => path.display().to_string(),
    };
    let protocol = listener.spec.transport().protocol();
    BindError { listener: Arc::clone(&listener.name), protocol, call: "bind", at, code: sys::error_name(error) }
}
