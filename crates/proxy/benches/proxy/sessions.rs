//! New sessions: many clients that send one packet each.

use crate::contestant::Contestant;
use crate::place;
use crate::udp::{Sink, Window, await_passage, clients};
use anyhow::ensure;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Clients that come at a time.
const VOLLEY: usize = 1000;

/// Clients without a session, and a contestant that is to give them one each.
pub(crate) struct Crowd<'a> {
    pub(crate) process: Contestant,
    port: u16,
    sink: &'a Sink,
    clients: Vec<UdpSocket>,
    pub(crate) lost: u64,
    pub(crate) wall: Vec<Duration>,
}

impl<'a> Crowd<'a> {
    pub(crate) fn new(process: Contestant, port: u16, sink: &'a Sink) -> anyhow::Result<Self> {
        let client = clients(1, port)?.remove(0);
        await_passage(sink, || drop(client.send(b"first")))?;
        Ok(Self { process, port, sink, clients: Vec::new(), lost: 0, wall: Vec::new() })
    }

    /// Ends all sessions and brings so many strangers.
    pub(crate) fn prepare(&mut self, count: usize) -> anyhow::Result<()> {
        self.clients.clear();
        self.process.order("end sessions")?;
        self.clients = clients(count, self.port)?;
        Ok(())
    }

    /// Each of them sends its first packet.
    pub(crate) fn arrive(&mut self) -> anyhow::Result<u64> {
        let (began, mut window) = (Instant::now(), Window::new(self.sink));
        let mut sent = 0;
        for volley in self.clients.chunks(VOLLEY) {
            place::beside(place::THEIRS);
            for client in volley {
                ensure!(client.send(b"first")? == 5, "a packet was cut");
            }
            sent += volley.len() as u64;
            window.drain(sent);
            place::apart();
        }
        self.lost += window.lost;
        self.wall.push(began.elapsed());
        Ok(sent)
    }
}
