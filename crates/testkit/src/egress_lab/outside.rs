//! The host outside of the cluster: a server that says which address it saw.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;

use super::{Sniffer, elsewhere_addresses, outside_addresses};
use crate::NetworkNamespace;

/// Where the server listens, with UDP and TCP.
const PORT: u16 = 7000;

/// The host and its server.
pub struct Outside {
    network: NetworkNamespace,
}

impl Outside {
    /// Starts the server, on threads that end with the process.
    pub(super) fn start(network: NetworkNamespace) -> anyhow::Result<Self> {
        let addresses = outside_addresses().into_iter().chain(elsewhere_addresses());
        let listener = network.enter(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)))?;
        thread::Builder::new().name("outside-tcp".into()).spawn(move || accept(&listener))?;
        for address in addresses {
            // One for each address: an answer comes from the one that was asked.
            let socket = network.enter(|| UdpSocket::bind((address, PORT)))?;
            thread::Builder::new().name("outside-udp".into()).spawn(move || answer_datagrams(&socket))?;
        }
        Ok(Self { network })
    }

    pub fn network(&self) -> &NetworkNamespace {
        &self.network
    }

    /// The server as a peer of this version of IP sees it.
    pub fn server(&self, like: IpAddr) -> SocketAddr {
        let [v4, v6] = outside_addresses();
        SocketAddr::new(if like.is_ipv4() { v4 } else { v6 }, PORT)
    }

    /// The server at its other address, for policies that tell destinations apart.
    pub fn elsewhere(&self, like: IpAddr) -> SocketAddr {
        let [v4, v6] = elsewhere_addresses();
        SocketAddr::new(if like.is_ipv4() { v4 } else { v6 }, PORT)
    }

    /// Forgets who has an address and sends it a packet, so that its network is asked for it.
    pub fn look_for(&self, address: IpAddr) -> anyhow::Result<()> {
        self.network.ip(&[&format!("neighbour flush to {address}")])?;
        let unspecified: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let socket = self.network.enter(|| UdpSocket::bind((unspecified, 0)))?;
        socket.send_to(b"?", (address, PORT))?;
        Ok(())
    }

    /// Watches what arrives here. Only these sources are expected.
    pub fn sniff(&self, expected: impl IntoIterator<Item = IpAddr>) -> anyhow::Result<Sniffer> {
        Sniffer::start(&self.network, expected.into_iter().collect())
    }
}

fn answer_datagrams(socket: &UdpSocket) {
    let mut buffer = [0; 2048];
    loop {
        // Errors are of single peers: one that is not there any more.
        let Ok((_, from)) = socket.recv_from(&mut buffer) else { continue };
        socket.send_to(from.ip().to_canonical().to_string().as_bytes(), from).ok();
    }
}

fn accept(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        let serve = move || answer_stream(stream);
        thread::Builder::new().name("outside-stream".into()).spawn(serve).expect("a thread can be started");
    }
}

/// Answers every read with a line.
fn answer_stream(mut stream: TcpStream) {
    let Ok(from) = stream.peer_addr() else { return };
    let mut buffer = [0; 2048];
    while stream.read(&mut buffer).is_ok_and(|length| length > 0) {
        if writeln!(stream, "{}", from.ip().to_canonical()).is_err() {
            return;
        }
    }
}
