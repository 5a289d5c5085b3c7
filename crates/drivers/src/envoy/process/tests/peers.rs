//! Servers behind Envoy, and clients in front of it.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::LIMIT;

/// A server that says its name to each byte or datagram.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Server {
    pub(super) async fn tcp(name: u8) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let (connection, _) = accepted.unwrap();
                        connections.spawn(answer_each_byte(connection, name));
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Self { address, _tasks: tasks }
    }

    pub(super) async fn udp(name: u8) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = socket.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut datagram = vec![0; 1 << 16];
            loop {
                let (length, from) = socket.recv_from(&mut datagram).await.unwrap();
                socket.send_to(&vec![name; length], from).await.unwrap();
            }
        });
        Self { address, _tasks: tasks }
    }
}

async fn answer_each_byte(mut connection: TcpStream, name: u8) {
    let mut byte = [0];
    while connection.read_exact(&mut byte).await.is_ok() {
        if connection.write_all(&[name]).await.is_err() {
            return;
        }
    }
}

/// Connects, and asks who answers.
pub(super) async fn ask(address: SocketAddr) -> std::io::Result<u8> {
    let mut connection = TcpStream::connect(address).await?;
    ask_on(&mut connection).await
}

/// Asks who answers on a connection.
pub(super) async fn ask_on(connection: &mut TcpStream) -> std::io::Result<u8> {
    let exchange = async {
        connection.write_all(b"?").await?;
        let mut name = [0];
        connection.read_exact(&mut name).await?;
        Ok(name[0])
    };
    timeout(LIMIT, exchange).await.expect("an answer is due")
}

/// Asks until this one answers: Envoy accepts a listener a moment before it listens.
pub(super) async fn ask_until(address: SocketAddr, name: u8) {
    let begun = Instant::now();
    while ask(address).await.ok() != Some(name) {
        assert!(begun.elapsed() < LIMIT, "{} does not answer at {address}", char::from(name));
        sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until nobody listens.
pub(super) async fn refused(address: SocketAddr) {
    let begun = Instant::now();
    while TcpStream::connect(address).await.is_ok() {
        assert!(begun.elapsed() < LIMIT, "somebody listens at {address}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Sends datagrams of this length until one is answered; the answer.
pub(super) async fn ask_udp(address: SocketAddr, length: usize) -> Vec<u8> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let begun = Instant::now();
    let mut answer = vec![0; 1 << 16];
    loop {
        assert!(begun.elapsed() < LIMIT, "{address} does not answer datagrams of {length} bytes");
        // refused while nobody listens
        socket.send_to(&vec![b'?'; length], address).await.ok();
        if let Ok(Ok((length, _))) = timeout(Duration::from_millis(200), socket.recv_from(&mut answer)).await {
            answer.truncate(length);
            return answer;
        }
    }
}
