//! One worker: a thread with its own sockets, flows, sessions and timers.

use super::cluster::View;
use super::commands::Command;
use super::flow::FlowTable;
use super::nascent::Nascent;
use super::port::Port;
use super::ring::Ring;
use super::session::{Hot, Session};
use super::setup::Rules;
use super::shared::Shared;
use super::slab::{Key, Slab};
use super::stats::{Drop, WorkerStats};
use super::sync::Member;
use super::sys::{self, BATCH, Epoll, Gather, Ready, RecvBatch};
use super::wheel::Wheel;
use crate::config::engine::SessionDump;
use crate::config::snapshot::Snapshot;
use crate::config::types::ObjectId;
use crate::proto::Now;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Room for bytes of streams: what one read takes at most.
pub(super) const SCRATCH: usize = 256 * 1024;

pub(super) struct Worker {
    pub(super) id: usize,
    pub(super) shared: Arc<Shared>,
    pub(super) stats: Arc<WorkerStats>,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) commands: Arc<Ring<Command>>,
    pub(super) epoll: Epoll,
    pub(super) now: Now,
    pub(super) ports: BTreeMap<u32, OpenPort>,
    pub(super) flows: FlowTable,
    pub(super) hot: Vec<Hot>,
    pub(super) sessions: Slab<Box<Session>>,
    pub(super) nascent: Slab<Nascent>,
    /// Live sessions by sequence, for lists in order.
    pub(super) by_sequence: BTreeMap<u64, Key>,
    /// Unix datagram peers by port.
    pub(super) unix_peers: BTreeMap<(u32, Vec<u8>), Key>,
    pub(super) finished: VecDeque<Finished>,
    pub(super) rules: Rules,
    pub(super) views: BTreeMap<ObjectId, View>,
    /// The generation that [`Worker::forget_gone`] has seen.
    tidied: u64,
    pub(super) idle: Wheel<Timed>,
    pub(super) timers: BTreeSet<(u64, Key)>,
    /// Clients whose endpoint refused, and until when they are not served.
    pub(super) refused: BTreeMap<(u32, u128, u16), u64>,
    pub(super) received: RecvBatch,
    pub(super) answered: RecvBatch,
    pub(super) forth: Gather,
    pub(super) back: Back,
    pub(super) batch: u32,
    pub(super) groups: Vec<super::udp::Group>,
    pub(super) next_in_group: [u32; BATCH],
    pub(super) segments: [u32; BATCH],
    pub(super) scratch: Vec<u8>,
    /// Messages of Sync groups for sessions of this worker.
    pub(super) said: VecDeque<(Member, Vec<u8>)>,
    /// The same for other workers, sent once per loop.
    pub(super) said_elsewhere: Vec<Vec<(Member, Vec<u8>)>>,
    /// Bytes that wait for sessions to stand.
    pub(super) held_bytes: usize,
    pub(super) random: u64,
    pub(super) stopping: bool,
}

/// Answers gathered for one listening socket.
#[derive(Default)]
pub(super) struct Back {
    pub gather: Gather,
    pub fd: RawFd,
    /// Buffers of `answered` that are in use.
    pub used: usize,
}

/// A port that this worker serves.
pub(super) struct OpenPort {
    pub port: Arc<Port>,
    pub fd: RawFd,
    pub detached: bool,
    /// The kernel's drop counter when it was last read.
    pub drops: u32,
    pub buckets: Option<Box<super::rate::Buckets>>,
}

/// What the second wheel hands out.
#[derive(Clone, Copy)]
pub(super) enum Timed {
    Idle(Key),
    Nascent(Key),
}

/// A session that is over and still shown.
pub(super) struct Finished {
    pub until: u64,
    pub sequence: u64,
    pub dump: SessionDump,
    pub ids: super::commands::Ids,
}

/// What a token of epoll stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Wake,
    Port(u32),
    /// A session's link: 0 is the source, then the stages.
    Link(Key, usize),
    Nascent(Key),
}

impl Token {
    pub(super) fn pack(self) -> u64 {
        let keyed = |kind: u64, key: Key, at: usize| {
            kind << 60 | (at as u64 & 0xff) << 52 | u64::from(key.generation) << 32 | u64::from(key.slot)
        };
        match self {
            Self::Wake => 0,
            Self::Port(id) => 1 << 60 | u64::from(id),
            Self::Link(key, at) => keyed(2, key, at),
            Self::Nascent(key) => keyed(3, key, 0),
        }
    }

    pub(super) fn unpack(token: u64) -> Self {
        let key = Key { slot: token as u32, generation: (token >> 32) as u32 & 0xf_ffff };
        match token >> 60 {
            0 => Self::Wake,
            1 => Self::Port(token as u32),
            2 => Self::Link(key, (token >> 52) as usize & 0xff),
            _ => Self::Nascent(key),
        }
    }
}

impl Worker {
    pub(super) fn new(id: usize, shared: Arc<Shared>) -> io::Result<Self> {
        let epoll = Epoll::new(256)?;
        let commands = Arc::clone(&shared.rings[id]);
        epoll.add(commands.wake_up().as_raw_fd(), Token::Wake.pack(), sys::READ)?;
        let now = Now { ms: sys::monotonic_ms(), unix: sys::unix_ms() };
        let workers = shared.rings.len();
        Ok(Self {
            id,
            stats: Arc::clone(&shared.stats[id]),
            snapshot: shared.snapshot.load_full(),
            commands,
            epoll,
            now,
            ports: BTreeMap::new(),
            flows: FlowTable::new(shared.seed),
            hot: Vec::new(),
            sessions: Slab::default(),
            nascent: Slab::default(),
            by_sequence: BTreeMap::new(),
            unix_peers: BTreeMap::new(),
            finished: VecDeque::new(),
            rules: Rules::default(),
            views: BTreeMap::new(),
            tidied: 0,
            idle: Wheel::new(now.ms / 1000),
            timers: BTreeSet::new(),
            refused: BTreeMap::new(),
            received: RecvBatch::new(true)?,
            answered: RecvBatch::new(false)?,
            forth: Gather::default(),
            back: Back::default(),
            batch: 0,
            groups: Vec::with_capacity(BATCH),
            next_in_group: [0; BATCH],
            segments: [0; BATCH],
            scratch: vec![0; SCRATCH],
            said: VecDeque::new(),
            said_elsewhere: (0..workers).map(|_| Vec::new()).collect(),
            held_bytes: 0,
            random: sys::random_u64(),
            stopping: false,
            shared,
        })
    }

    /// Runs until told to stop.
    pub(super) fn run(&mut self) -> io::Result<()> {
        let began = self.now.ms;
        while !self.stopping {
            let ready = self.epoll.wait(self.patience())?;
            self.now = Now { ms: sys::monotonic_ms(), unix: sys::unix_ms() };
            self.follow_configuration();
            for i in 0..ready {
                let ready = self.epoll.ready(i);
                self.guarded(ready);
            }
            self.flush_back();
            self.deliver_said();
            self.run_timers(began);
        }
        Ok(())
    }

    /// Handles one event; a panic costs the session that it was for, not the worker.
    fn guarded(&mut self, ready: Ready) {
        let token = Token::unpack(ready.token);
        if catch_unwind(AssertUnwindSafe(|| self.handle(token, ready))).is_err() {
            self.stats.restarts.add(1);
            tracing::error!(?token, "a session was ended after a fault in this program");
            if let Token::Link(key, _) = token {
                self.drop_broken(key);
            }
        }
    }

    fn handle(&mut self, token: Token, ready: Ready) {
        match token {
            Token::Wake => self.run_commands(),
            Token::Port(id) => self.handle_port(id),
            Token::Link(key, at) => self.handle_link(key, at, ready),
            Token::Nascent(key) => self.handle_nascent(key),
        }
    }

    /// Looks whether the configuration changed: one load per loop.
    pub(super) fn follow_configuration(&mut self) {
        if self.shared.generation.load(Acquire) != self.snapshot.generation {
            self.snapshot = self.shared.snapshot.load_full();
            self.rules.forget();
        }
    }

    /// How long to wait at most: to the next timer, and a second while the wheel has something.
    fn patience(&self) -> i32 {
        if !self.said.is_empty() {
            return 0;
        }
        let next = self.timers.first().map(|(at, _)| at.saturating_sub(self.now.ms).min(1000));
        let second = (!self.idle.is_empty() || !self.finished.is_empty() || self.ports.values().any(|p| p.detached))
            .then(|| 1000 - self.now.ms % 1000);
        match (next, second) {
            (Some(a), Some(b)) => a.min(b) as i32,
            (a, b) => a.or(b).map_or(1000, |ms| ms as i32),
        }
    }

    fn run_timers(&mut self, began: u64) {
        while let Some((at, key)) = self.timers.first().copied().filter(|(at, _)| *at <= self.now.ms) {
            self.timers.remove(&(at, key));
            self.visit(key, |worker, session| {
                session.timer = 0;
                worker.handle_session_timeout(session);
            });
        }
        let second = self.now.ms / 1000;
        let mut due = Vec::new();
        self.idle.turn(second, &mut due);
        for timed in due {
            match timed {
                Timed::Idle(key) => self.handle_idle(key),
                Timed::Nascent(key) => self.expire_nascent(key),
            }
        }
        while self.finished.front().is_some_and(|finished| finished.until <= self.now.ms) {
            self.finished.pop_front();
        }
        if self.stats.wall_ms.get() / 1000 != (self.now.ms - began) / 1000 {
            self.each_second(began);
        }
    }

    fn each_second(&mut self, began: u64) {
        self.forget_gone();
        self.stats.wall_ms.set(self.now.ms - began);
        self.stats.busy_ns.set(sys::thread_cpu_ns());
        let now = self.now.ms;
        self.refused.retain(|_, until| *until > now);
        let unused = |port: &OpenPort| port.detached && port.port.sessions.load(Relaxed) == 0;
        let gone: Vec<u32> = self.ports.values().filter(|port| unused(port)).map(|port| port.port.id).collect();
        for id in gone {
            self.close_port(id);
        }
    }

    /// Lets go of what was kept for objects that are gone: names that come and go must not add up.
    fn forget_gone(&mut self) {
        let snapshot = &self.snapshot;
        if self.tidied == snapshot.generation {
            return;
        }
        self.tidied = snapshot.generation;
        self.views.retain(|id, view| {
            let stands = snapshot.clusters.get(&view.cluster.name).is_some_and(|cluster| cluster.id == *id);
            stands || view.outlet.sessions.load(Relaxed) > 0
        });
        let mut names = self.stats.by_name.lock();
        names.listeners.retain(|(name, _), _| snapshot.listeners.get(name).is_some());
        names.clusters.retain(|(name, _), _| snapshot.clusters.get(name).is_some());
        names.rules.retain(|name, _| snapshot.rules.get(name).is_some());
    }

    pub(super) fn close_port(&mut self, id: u32) {
        if let Some(open) = self.ports.remove(&id) {
            // The descriptor is shared with the port, so epoll would go on to report it.
            self.epoll.remove(open.fd).ok();
        }
    }

    /// Takes a session out, works on it, and settles what follows.
    pub(super) fn visit(&mut self, key: Key, work: impl FnOnce(&mut Self, &mut Session)) {
        let Some(mut session) = self.sessions.take(key) else { return };
        work(self, &mut session);
        self.settle(session);
    }

    pub(super) fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ (self.random >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        z ^ (z >> 32)
    }

    pub(super) fn count_drop(&self, why: Drop, packets: u64) {
        self.stats.drop_packets(why, packets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_packing() {
        let key = Key { slot: u32::MAX, generation: 0xf_ffff };
        for token in [Token::Wake, Token::Port(7), Token::Link(key, 255), Token::Link(key, 0), Token::Nascent(key)] {
            assert_eq!(Token::unpack(token.pack()), token);
        }
    }
}
