//! TCP listeners.

use crate::config::types::Framing;
use crate::io::accept::connection_dscp;
use crate::io::incoming::Incoming;
use crate::io::link::{Link, Stream};
use crate::io::port::ListenerState;
use crate::io::worker::Worker;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

impl Worker {
    /// Creates the session of an accepted TCP connection.
    pub(crate) fn accept_stream(
        &mut self,
        listener: Arc<ListenerState>,
        socket: OwnedFd,
        framing: Framing,
        local: SocketAddr,
        peer: Option<SocketAddr>,
    ) {
        let dscp = connection_dscp(&listener, socket.as_raw_fd(), local);
        let source = Link::Stream(Box::new(Stream::new(socket, self.codec(framing))));
        self.open_connection(Incoming { listener, port: None, local, peer, source, metadata: None, dscp });
    }
}
