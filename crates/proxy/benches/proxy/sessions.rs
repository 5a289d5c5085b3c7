//! New sessions: many clients that send one packet each.

use crate::contestant::Contestant;
use crate::place;
use crate::udp::{Sink, Strangers, Window, await_passage};
use std::slice::from_ref;
use std::time::{Duration, Instant};

/// First packets that are under way at most, and those that are sent at a time.
const UNDER_WAY: usize = 1000;
const VOLLEY: usize = 250;
/// Bytes of each.
const FIRST_PACKET: usize = 5;

/// Clients without a session, and a contestant that is to give them one each.
pub(crate) struct Crowd<'a> {
    pub(crate) process: Contestant,
    /// Where it has its workers, and what comes out of them.
    processors: &'static [usize],
    sinks: &'a [Sink],
    strangers: Strangers,
    /// How many of them come.
    count: usize,
    pub(crate) lost: u64,
    pub(crate) wall: Vec<Duration>,
}

impl<'a> Crowd<'a> {
    pub(crate) fn new(process: Contestant, port: u16, sinks: &'a [Sink]) -> anyhow::Result<Self> {
        let mut strangers = Strangers::new(port, FIRST_PACKET)?;
        await_passage(sinks, || strangers.send(0))?;
        let processors = if sinks.len() > 1 { place::ALL } else { place::THEIRS };
        Ok(Self { process, processors, sinks, strangers, count: 0, lost: 0, wall: Vec::new() })
    }

    /// Ends all sessions and brings so many strangers.
    pub(crate) fn prepare(&mut self, count: usize) -> anyhow::Result<()> {
        self.process.order("end sessions")?;
        self.count = count;
        Ok(())
    }

    /// Each of them sends its first packet, beside each worker in turn. Those who follow do not wait for those before:
    /// no worker is ever without work because another is late.
    pub(crate) fn arrive(&mut self) -> u64 {
        let (began, mut window) = (Instant::now(), Window::new(self.sinks));
        let mut sent = 0;
        for processor in self.processors.iter().cycle() {
            if sent == self.count {
                break;
            }
            place::beside(from_ref(processor));
            let volley = sent..self.count.min(sent + VOLLEY);
            sent = volley.end;
            volley.for_each(|client| self.strangers.send(client));
            window.drain_to(sent as u64, (UNDER_WAY - VOLLEY) as u64);
        }
        window.drain(sent as u64);
        place::apart();
        self.lost += window.lost;
        self.wall.push(began.elapsed());
        sent as u64
    }
}
