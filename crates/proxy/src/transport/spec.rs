//! The protocols that have sockets: their specs, and the properties that the rest of the proxy asks for.
//!
//! Code outside of `transport` asks for a property in place of matching on a protocol, so that a protocol is added
//! here, in `mod.rs` and in its folder alone.

use std::net::IpAddr;
use std::path::Path;

use super::http::config::HttpListener;
use super::tcp::config::{TcpCluster, TcpListener};
use super::udp::config::{UdpCluster, UdpListener, UdpMode};
use super::unix::config::{UdsCluster, UdsListener, UdsType};
use super::websocket::config::{WsCluster, WsListener};
use crate::config::options::Admin;
use crate::config::reader::SpecReader;
use crate::config::refusal::Refusal;

/// Protocols of listeners.
pub const LISTENERS: [&str; 6] = ["UDP", "TCP", "UnixDomainSocket", "WebSocket", "HTTP", "JSONSocket"];
/// Protocols of clusters.
pub const CLUSTERS: [&str; 15] = [
    "UDP",
    "TCP",
    "UnixDomainSocket",
    "WebSocket",
    "JSONSocket",
    "Echo",
    "Discard",
    "Logger",
    "Stdio",
    "Sync",
    "Metric",
    "Prometheus",
    "JSONEncap",
    "JSONDecap",
    "L7mpController",
];
/// Protocols that a JSONSocket can use as its transport.
pub const JSON_SOCKET_TRANSPORTS: [&str; 4] = ["UDP", "TCP", "UnixDomainSocket", "WebSocket"];

/// What a listener listens on.
#[derive(Debug, Clone, PartialEq)]
pub enum ListenerSpec {
    Udp(UdpListener),
    Tcp(TcpListener),
    Uds(UdsListener),
    WebSocket(WsListener),
    Http(HttpListener),
    /// The transport is one of [`JSON_SOCKET_TRANSPORTS`].
    JsonSocket(Box<ListenerSpec>),
}

/// How a cluster connects to its endpoints.
#[derive(Debug, Clone, PartialEq)]
pub enum TransportCluster {
    Udp(UdpCluster),
    Tcp(TcpCluster),
    Uds(UdsCluster),
    WebSocket(WsCluster),
}

/// Where the sockets of a listener are bound; without an address: to all addresses.
#[derive(Debug, Clone, Copy)]
pub enum ListenAddress<'a> {
    Udp { address: Option<IpAddr>, port: u16 },
    Tcp { address: Option<IpAddr>, port: u16 },
    Unix(&'a UdsListener),
}

/// What sockets of a cluster connect to, with what is used where an endpoint does not say it.
#[derive(Debug, Clone, Copy)]
pub enum EndpointAddress<'a> {
    Udp { port: Option<u16> },
    Tcp { port: Option<u16> },
    Unix { filename: Option<&'a Path> },
}

/// What the names of a listener's sessions consist of.
pub(crate) struct SessionNaming {
    pub prefix: &'static str,
    /// The addresses of both ends follow; else the name of the listener.
    pub has_addresses: bool,
    pub is_numbered: bool,
}

impl ListenerSpec {
    /// Reads the spec of a listener with its own socket; nothing if its protocol is not one of them.
    pub(crate) fn read(read: &SpecReader<'_>, admin: &Admin) -> Result<Option<Self>, Refusal> {
        Ok(Some(match read.protocol() {
            "UDP" => Self::Udp(UdpListener::read(read)?),
            "TCP" => Self::Tcp(read.with_port()?),
            "UnixDomainSocket" => Self::Uds(UdsListener::read(read, admin)?),
            "WebSocket" => Self::WebSocket(read.with_port()?),
            "HTTP" => Self::Http(read.with_port()?),
            _ => return Ok(None),
        }))
    }

    /// The protocol's name on the wire.
    pub const fn protocol(&self) -> &'static str {
        match self {
            Self::Udp(_) => "UDP",
            Self::Tcp(_) => "TCP",
            Self::Uds(_) => "UnixDomainSocket",
            Self::WebSocket(_) => "WebSocket",
            Self::Http(_) => "HTTP",
            Self::JsonSocket(_) => "JSONSocket",
        }
    }

    /// The spec whose socket is bound: the transport of a JSONSocket, else itself.
    pub fn transport(&self) -> &Self {
        if let Self::JsonSocket(transport) = self { transport } else { self }
    }

    pub fn listen_address(&self) -> ListenAddress<'_> {
        match self {
            Self::Udp(UdpListener { address, port, .. }) => ListenAddress::Udp { address: *address, port: *port },
            Self::Tcp(TcpListener { address, port, .. })
            | Self::WebSocket(WsListener { address, port, .. })
            | Self::Http(HttpListener { address, port, .. }) => ListenAddress::Tcp { address: *address, port: *port },
            Self::Uds(uds) => ListenAddress::Unix(uds),
            Self::JsonSocket(transport) => transport.listen_address(),
        }
    }

    /// Whether clients have no connection, so that only a timeout ends their sessions.
    pub(crate) fn is_connectionless(&self) -> bool {
        match self {
            Self::Udp(udp) => udp.mode() == UdpMode::Server,
            Self::Uds(uds) => uds.kind == UdsType::Datagram,
            Self::Tcp(_) | Self::WebSocket(_) | Self::Http(_) => false,
            Self::JsonSocket(transport) => transport.is_connectionless(),
        }
    }

    pub(crate) const fn session_naming(&self) -> SessionNaming {
        let (prefix, has_addresses, is_numbered) = match self {
            Self::Udp(_) => ("UDP:", true, true),
            Self::Tcp(_) => ("TCP:", true, false),
            Self::Uds(_) => ("UNIX:", false, true),
            Self::WebSocket(_) => ("WS:", true, true),
            Self::Http(_) => ("HTTP:", true, true),
            Self::JsonSocket(_) => ("JSONSocket:", false, true),
        };
        SessionNaming { prefix, has_addresses, is_numbered }
    }
}

impl TransportCluster {
    /// Reads the spec of a cluster with sockets; nothing if its protocol is not one of them.
    pub(crate) fn read(read: &SpecReader<'_>, admin: &Admin) -> Result<Option<Self>, Refusal> {
        Ok(Some(match read.protocol() {
            "UDP" => Self::Udp(read.all()?),
            "TCP" => Self::Tcp(read.all()?),
            "UnixDomainSocket" => Self::Uds(UdsCluster::read(read, admin)?),
            "WebSocket" => Self::WebSocket(read.all()?),
            _ => return Ok(None),
        }))
    }

    /// The protocol's name on the wire.
    pub const fn protocol(&self) -> &'static str {
        match self {
            Self::Udp(_) => "UDP",
            Self::Tcp(_) => "TCP",
            Self::Uds(_) => "UnixDomainSocket",
            Self::WebSocket(_) => "WebSocket",
        }
    }

    pub(crate) fn endpoint_address(&self) -> EndpointAddress<'_> {
        match self {
            Self::Udp(udp) => EndpointAddress::Udp { port: udp.port },
            Self::Tcp(TcpCluster { port, .. }) | Self::WebSocket(WsCluster { port, .. }) => {
                EndpointAddress::Tcp { port: *port }
            }
            Self::Uds(uds) => EndpointAddress::Unix { filename: uds.filename.as_deref() },
        }
    }
}
