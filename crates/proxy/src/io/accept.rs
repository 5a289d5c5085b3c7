//! New connections of listening sockets, handed to their transports.

use super::incoming::Incoming;
use super::link::Link;
use super::port::{ListenerState, Port};
use super::slab::Key;
use super::stats::{Drop, Limit};
use super::sys::{self, READ, SockAddr, WRITE};
use super::timers::TimerEvent;
use super::token::Token;
use super::worker::Worker;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Connections accepted per event, so that other sockets are served too.
pub(crate) const ACCEPTS: usize = 64;

impl Worker {
    pub(crate) fn accept_tcp(&mut self, port: &Arc<Port>, fd: RawFd) {
        for _ in 0..ACCEPTS {
            let (socket, from) = match sys::accept_tcp(fd) {
                Ok(accepted) => accepted,
                Err(error) => return self.accept_failed(port, fd, &error),
            };
            let Some(listener) = port.listener.load_full() else { return };
            let Ok(socket) = self.check_descriptor_limit(Ok(socket)) else {
                self.count_drop(Drop::Cap, 1);
                continue;
            };
            let local = sys::local_address(socket.as_raw_fd()).unwrap_or_else(|_| SockAddr::default().to_std());
            self.accept_client(listener, socket, local, Some(from.to_std()));
        }
    }

    /// A connection could not be accepted. If descriptors are exhausted the port pauses: clients wait in the kernel's
    /// queue, and the worker does not spin on a socket that stays ready.
    pub(crate) fn accept_failed(&mut self, port: &Port, fd: RawFd, error: &io::Error) {
        if is_exhausted(error) {
            self.stats.reach_limit(Limit::Descriptors);
            if self.epoll.change(fd, Token::Port(port.id).pack(), 0).is_ok() {
                self.timers.add(self.now.ms / 1000 + 1, TimerEvent::Port(port.id));
            }
        }
    }

    /// A paused port accepts again.
    pub(crate) fn wake_port(&mut self, id: u32) {
        let Some(open) = self.ports.get(id) else { return };
        if let Err(error) = self.epoll.change(open.fd, Token::Port(id).pack(), READ) {
            tracing::error!(%error, address = ?open.port.bind_address, "cannot watch a listening socket");
        }
    }

    /// Refuses a socket whose descriptor is one of those reserved for the process.
    pub(crate) fn check_descriptor_limit(&self, socket: io::Result<OwnedFd>) -> io::Result<OwnedFd> {
        let granted = socket.and_then(|socket| {
            let reserved = self.shared.is_reserved(socket.as_raw_fd());
            if reserved { Err(io::Error::from_raw_os_error(libc::EMFILE)) } else { Ok(socket) }
        });
        if granted.as_ref().is_err_and(is_exhausted) {
            self.stats.reach_limit(Limit::Descriptors);
        }
        granted
    }

    /// Creates the session of a connection and watches it.
    pub(crate) fn open_connection(&mut self, incoming: Incoming) -> Option<Key> {
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

    /// Creates the session of a connection that is watched already.
    pub(crate) fn open_watched(&mut self, incoming: Incoming) -> Option<Key> {
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

/// The DSCP of a connection, if the listener reads it.
pub(crate) fn connection_dscp(listener: &ListenerState, fd: RawFd, local: SocketAddr) -> Option<u8> {
    listener.config.options.qos.as_ref()?;
    sys::connection_dscp(fd, local.is_ipv4())
}

/// Whether the system is out of descriptors or memory for sockets.
fn is_exhausted(error: &io::Error) -> bool {
    let codes = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}
