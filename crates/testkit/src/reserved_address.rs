//! Loopback addresses for servers that cannot pick a port themselves, or that start again on the port they had.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A loopback address that nobody else is given while this value lives.
///
/// A socket that is bound but does not listen holds the port. The kernel then gives it neither to a server that asks
/// for any free port nor to an outgoing connection. A server that asks for this very address with `SO_REUSEADDR`, as
/// those written in Rust and Go do, gets it, any number of times; while none listens, connections are refused.
#[derive(Debug)]
pub struct ReservedAddress {
    _socket: TcpSocket,
    address: SocketAddr,
}

impl ReservedAddress {
    /// Reserves an address; works with or without a tokio runtime.
    pub fn new() -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = socket.local_addr()?;
        Ok(Self { _socket: socket, address })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

#[test]
fn a_server_starts_again_and_again_on_a_reserved_address() {
    use std::net::{TcpListener, TcpStream};

    let reserved = ReservedAddress::new().unwrap();
    let mut connections = Vec::new();
    for _ in 0..3 {
        assert_eq!(TcpStream::connect(reserved.address()).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let server = TcpListener::bind(reserved.address()).unwrap();
        connections.push((TcpStream::connect(reserved.address()).unwrap(), server.accept().unwrap()));
    }
}
