//! One folder per transport: its configuration, how its listeners accept clients, and how its clusters connect.
//!
//! ```text
//!   io::accept --> <transport>::listen --> session <-- <transport>::connect <-- io::connect
//! ```
//! A transport extends [`Worker`](crate::io) with methods; those here call them by the spec of a listener or cluster.
//! What else the proxy has to know about a transport is in [`spec`].

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::io::link::{Codec, Link, Stream};
use crate::io::pending::Acceptor;
use crate::io::port::{BindAddress, ListenerState};
use crate::io::session::Session;
use crate::io::worker::Worker;
use crate::proto::session::Failure;
use spec::{ListenerSpec, TransportCluster};
use unix::config::UdsType;

pub mod http;
pub mod json_socket;
pub mod spec;
pub mod tcp;
pub mod udp;
pub mod unix;
pub mod websocket;

impl Worker {
    /// A listening socket has something.
    pub(crate) fn handle_port(&mut self, id: u32) {
        let Some(open) = self.ports.get(id) else { return };
        let fd = open.fd;
        if matches!(open.port.bind_address, BindAddress::Udp(_)) {
            return self.receive_udp(id, fd);
        }
        let port = Arc::clone(&open.port);
        match &port.bind_address {
            BindAddress::Udp(_) => {}
            BindAddress::Tcp(_) => self.accept_tcp(&port, fd),
            BindAddress::Unix(_, UdsType::Datagram) => self.receive_unix(&port, fd),
            BindAddress::Unix(..) => self.accept_unix(&port, fd),
        }
    }

    /// A client has connected by TCP.
    pub(crate) fn accept_client(
        &mut self,
        listener: Arc<ListenerState>,
        socket: OwnedFd,
        local: SocketAddr,
        peer: Option<SocketAddr>,
    ) {
        match listener.config.spec.transport() {
            ListenerSpec::Tcp(tcp) => {
                let framing = tcp.framing;
                self.accept_stream(listener, socket, framing, local, peer);
            }
            ListenerSpec::WebSocket(_) | ListenerSpec::Http(_) => {
                let acceptor = Acceptor { listener, local, peer };
                self.await_request(Stream::new(socket, Codec::Bytes), Arc::new(acceptor));
            }
            ListenerSpec::Udp(_) | ListenerSpec::Uds(_) | ListenerSpec::JsonSocket(_) => {}
        }
    }

    /// Opens the socket of a stage; `None` while a name is resolved.
    pub(crate) fn open_transport(
        &mut self,
        session: &mut Session,
        stage: usize,
        transport: &TransportCluster,
        found: Option<&[IpAddr]>,
    ) -> Result<Option<Link>, Failure> {
        match transport {
            TransportCluster::Udp(udp) => self.connect_udp(session, stage, udp, found),
            TransportCluster::Tcp(tcp) => self.connect_tcp(session, stage, tcp, found),
            TransportCluster::Uds(uds) => self.connect_unix(session, stage, uds).map(Some),
            TransportCluster::WebSocket(ws) => self.connect_websocket(session, stage, ws, found),
        }
    }
}
