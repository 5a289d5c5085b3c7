//! New sessions: many clients that send one packet each.

use crate::contestant::Contestant;
use crate::udp::{Sink, Window, await_passage, clients};
use anyhow::ensure;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Clients without a session, and a data plane that is to give them one each.
pub(crate) struct Crowd<'a> {
    pub(crate) ours: Contestant,
    port: u16,
    sink: &'a Sink,
    clients: Vec<UdpSocket>,
    pub(crate) lost: u64,
    pub(crate) wall: Vec<Duration>,
}

impl<'a> Crowd<'a> {
    pub(crate) fn new(ours: Contestant, port: u16, sink: &'a Sink) -> anyhow::Result<Self> {
        await_passage(&clients(1, port)?[0], b"first", sink)?;
        Ok(Self { ours, port, sink, clients: Vec::new(), lost: 0, wall: Vec::new() })
    }

    /// Ends all sessions and brings so many strangers.
    pub(crate) fn prepare(&mut self, count: usize) -> anyhow::Result<()> {
        self.clients.clear();
        self.ours.order("end sessions")?;
        self.clients = clients(count, self.port)?;
        Ok(())
    }

    /// Each of them sends its first packet.
    pub(crate) fn arrive(&mut self) -> anyhow::Result<u64> {
        let (began, mut window) = (Instant::now(), Window::new(self.sink));
        for (sent, client) in self.clients.iter().enumerate() {
            while !window.has_room(sent as u64) {
                std::thread::yield_now();
            }
            ensure!(client.send(b"first")? == 5, "a packet was cut");
        }
        let count = self.clients.len() as u64;
        self.lost += window.close(count);
        self.wall.push(began.elapsed());
        Ok(count)
    }
}
