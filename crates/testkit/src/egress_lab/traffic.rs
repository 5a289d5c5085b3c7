//! Flows from a pod's address to a server that says which address it saw.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};

use crate::NetworkNamespace;

/// Which protocol a flow has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Udp,
    Tcp,
}

/// Opens a flow and gives the address that the server saw; None if there was no answer in this time.
pub fn ask(
    network: &NetworkNamespace,
    transport: Transport,
    from: IpAddr,
    to: SocketAddr,
    at_most: Duration,
) -> anyhow::Result<Option<IpAddr>> {
    match transport {
        Transport::Udp => UdpFlow::open(network, from, to)?.ask(at_most),
        Transport::Tcp => match TcpFlow::open(network, from, to, at_most) {
            Ok(mut flow) => flow.ask(at_most),
            Err(error) if is_silence(&error) => Ok(None),
            Err(error) => Err(error.into()),
        },
    }
}

/// A UDP flow.
pub struct UdpFlow {
    socket: UdpSocket,
}

impl UdpFlow {
    pub fn open(network: &NetworkNamespace, from: IpAddr, to: SocketAddr) -> anyhow::Result<Self> {
        let socket = network.enter(|| UdpSocket::bind((from, 0)))?;
        socket.connect(to)?;
        Ok(Self { socket })
    }

    /// Sends a datagram and waits for the answer to it.
    pub fn ask(&self, at_most: Duration) -> anyhow::Result<Option<IpAddr>> {
        self.socket.set_read_timeout(Some(at_most))?;
        let mut buffer = [0; 64];
        match self.socket.send(b"?").and_then(|_| self.socket.recv(&mut buffer)) {
            Ok(length) => Ok(Some(std::str::from_utf8(&buffer[..length])?.parse()?)),
            Err(error) if is_silence(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a datagram and does not wait.
    pub fn send(&self) -> io::Result<()> {
        self.socket.send(b"?").map(drop)
    }
}

/// A TCP connection.
pub struct TcpFlow {
    stream: BufReader<TcpStream>,
}

impl TcpFlow {
    pub fn open(network: &NetworkNamespace, from: IpAddr, to: SocketAddr, at_most: Duration) -> io::Result<Self> {
        let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = network.enter(|| socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None))?;
        bind(&socket, &SocketAddr::new(from, 0))?;
        // Connecting waits as long as sending may.
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(at_most))?;
        connect(&socket, &to)?;
        Ok(Self { stream: BufReader::new(TcpStream::from(socket)) })
    }

    /// Sends a byte and waits for the answer to it.
    pub fn ask(&mut self, at_most: Duration) -> anyhow::Result<Option<IpAddr>> {
        self.stream.get_ref().set_read_timeout(Some(at_most))?;
        let mut line = String::new();
        match self.stream.get_mut().write_all(b"?").and_then(|()| self.stream.read_line(&mut line)) {
            Ok(_) => Ok(Some(line.trim().parse()?)),
            Err(error) if is_silence(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// True for an error that means that nobody answered.
fn is_silence(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkUnreachable, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | HostUnreachable | NetworkUnreachable)
        || error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error())
}
