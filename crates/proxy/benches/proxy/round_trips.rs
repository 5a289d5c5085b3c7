//! Round trips: one packet under way, to an echo and back. What is measured is how long each of them waits.

use crate::place;
use crate::udp::clients;
use anyhow::ensure;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Answers what it gets, beside the client.
pub(crate) fn start_echo(port: u16) -> anyhow::Result<()> {
    let socket = UdpSocket::bind(("127.0.0.1", port))?;
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((n, from)) = socket.recv_from(&mut buffer) {
            // whoever asked may be gone
            socket.send_to(&buffer[..n], from).ok();
        }
    });
    Ok(())
}

/// A client with a session of its own, and the time each of its packets took.
pub(crate) struct Caller {
    socket: UdpSocket,
    took: Vec<Duration>,
}

impl Caller {
    pub(crate) fn new(port: u16) -> anyhow::Result<Self> {
        let socket = clients(1, port)?.remove(0);
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let mut caller = Self { socket, took: Vec::new() };
        let began = Instant::now();
        // nobody may listen yet
        while caller.call().is_err() {
            ensure!(began.elapsed() < Duration::from_secs(10), "no packet came back within 10 s");
        }
        caller.took.clear();
        Ok(caller)
    }

    pub(crate) fn call(&mut self) -> anyhow::Result<()> {
        let began = Instant::now();
        self.socket.send(b"there and back")?;
        self.socket.recv(&mut [0; 64])?;
        self.took.push(began.elapsed());
        Ok(())
    }

    pub(crate) fn calls(&mut self, count: usize) -> anyhow::Result<()> {
        place::apart();
        (0..count).try_for_each(|_| self.call())
    }

    /// The time within which so many of 1,000 came back, in microseconds.
    pub(crate) fn within(&mut self, of_thousand: usize) -> f64 {
        self.took.sort();
        self.took[(self.took.len() - 1) * of_thousand / 1000].as_secs_f64() * 1e6
    }
}
