//! One worker: a thread with its own sockets, flows, sessions and timers.

use super::cluster::ClusterRuntime;
use super::commands::Command;
use super::flow::{FlowKey, FlowTable};
use super::loop_detection::Family;
use super::outbox::Outbox;
use super::pending::PendingConnection;
use super::port::{BindAddress, Port};
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
use crate::config::snapshot::{Names, Snapshot};
use crate::proto::Now;
use crate::proto::session::Finish;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::IpAddr;
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
    /// Addresses of those ports that have one.
    pub(super) listening: BTreeMap<(Family, u16), Vec<IpAddr>>,
    pub(super) flows: FlowTable,
    pub(super) hot: Vec<Hot>,
    pub(super) sessions: Slab<Box<Session>>,
    pub(super) pending: Slab<PendingConnection>,
    /// Live sessions by sequence, for lists in order.
    pub(super) by_sequence: BTreeMap<u64, Key>,
    /// Unix datagram peers by port.
    pub(super) unix_peers: BTreeMap<(u32, Vec<u8>), Key>,
    pub(super) finished: VecDeque<Finished>,
    pub(super) rules: Rules,
    pub(super) clusters: Names<ClusterRuntime>,
    pub(super) idle: Wheel<TimerEvent>,
    pub(super) timers: BTreeSet<(u64, Key)>,
    /// Clients whose endpoint refused, and until when they are not served.
    pub(super) refused: BTreeMap<FlowKey, u64>,
    pub(super) received: RecvBatch,
    pub(super) answered: RecvBatch,
    pub(super) to_upstream: Gather,
    pub(super) replies: ReplyBatch,
    pub(super) batch: u32,
    pub(super) arrived: [super::udp::Arrived; BATCH],
    pub(super) groups: Vec<super::udp::Group>,
    pub(super) next_in_group: [u32; BATCH],
    pub(super) segments: [u32; BATCH],
    pub(super) scratch: Vec<u8>,
    /// Room for the name of a session that comes.
    pub(super) name: String,
    pub(super) outbox: Outbox,
    /// Messages of Sync groups for sessions of this worker.
    pub(super) group_messages: VecDeque<(Member, Vec<u8>)>,
    /// The same for other workers, sent once per loop.
    pub(super) remote_group_messages: Vec<Vec<(Member, Vec<u8>)>>,
    /// Bytes that wait for sessions to stand.
    pub(super) setup_queue_bytes: usize,
    pub(super) random: u64,
    pub(super) stopping: bool,
    second: Tick,
    /// Something beyond one session is not as it should be.
    broken: bool,
}

/// Answers gathered for one listening socket.
#[derive(Default)]
pub(super) struct ReplyBatch {
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
    /// Incoming packets tell their code point.
    pub reads_dscp: bool,
}

/// Why a worker does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkerExit {
    Stopped,
    /// It has to be started again.
    Broken,
}

/// When the worker last looked around, and what it saw.
#[derive(Clone, Copy)]
struct Tick {
    at: u64,
    busy_ns: u64,
    generation: u64,
}

/// What the second wheel hands out.
#[derive(Clone, Copy)]
pub(super) enum TimerEvent {
    Idle(Key),
    PendingConnection(Key),
    /// A port that rests.
    Port(u32),
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
    PendingConnection(Key),
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
            Self::PendingConnection(key) => keyed(3, key, 0),
        }
    }

    pub(super) fn unpack(token: u64) -> Self {
        let key = Key { slot: token as u32, generation: (token >> 32) as u32 & 0xf_ffff };
        match token >> 60 {
            0 => Self::Wake,
            1 => Self::Port(token as u32),
            2 => Self::Link(key, (token >> 52) as usize & 0xff),
            _ => Self::PendingConnection(key),
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
        let in_force = shared.in_force.load_full();
        Ok(Self {
            id,
            stats: Arc::clone(&shared.stats[id]),
            snapshot: Arc::clone(&in_force.snapshot),
            commands,
            epoll,
            now,
            ports: BTreeMap::new(),
            listening: BTreeMap::new(),
            flows: FlowTable::new(shared.seed),
            hot: Vec::new(),
            sessions: Slab::default(),
            pending: Slab::default(),
            by_sequence: BTreeMap::new(),
            unix_peers: BTreeMap::new(),
            finished: VecDeque::new(),
            rules: Rules::default(),
            clusters: in_force.clusters.clone(),
            idle: Wheel::new(now.ms / 1000),
            timers: BTreeSet::new(),
            refused: BTreeMap::new(),
            received: RecvBatch::new(true)?,
            answered: RecvBatch::new(false)?,
            to_upstream: Gather::default(),
            replies: ReplyBatch::default(),
            batch: 0,
            arrived: [super::udp::Arrived::default(); BATCH],
            groups: Vec::with_capacity(BATCH),
            next_in_group: [0; BATCH],
            segments: [0; BATCH],
            scratch: vec![0; SCRATCH],
            name: String::new(),
            outbox: Outbox::default(),
            group_messages: VecDeque::new(),
            remote_group_messages: (0..workers).map(|_| Vec::new()).collect(),
            setup_queue_bytes: 0,
            random: sys::random_u64(),
            stopping: false,
            second: Tick { at: now.ms, busy_ns: sys::thread_cpu_ns(), generation: in_force.snapshot.generation },
            broken: false,
            shared,
        })
    }

    /// Runs until told to stop, or until a fault that is not one session's.
    pub(super) fn run(&mut self) -> WorkerExit {
        while !self.stopping && !self.broken {
            let Ok(ready) = self.epoll.wait(self.wait_ms()) else { return WorkerExit::Broken };
            self.now = Now { ms: sys::monotonic_ms(), unix: sys::unix_ms() };
            self.guarded(Self::follow_configuration);
            for i in 0..ready {
                let ready = self.epoll.ready(i);
                self.guarded(|worker| worker.handle(Token::unpack(ready.token), ready));
            }
            self.guarded(|worker| {
                worker.flush_replies();
                worker.deliver_group_messages();
                worker.run_timers();
            });
        }
        if self.stopping { WorkerExit::Stopped } else { WorkerExit::Broken }
    }

    /// Does a part of the work; after a panic that no session caught, nothing here is trusted any more.
    pub(super) fn guarded(&mut self, part: impl FnOnce(&mut Self)) {
        self.broken |= catch_unwind(AssertUnwindSafe(|| part(self))).is_err();
    }

    /// Ends all sessions after a fault; one that cannot be ended in good order is only dropped.
    pub(super) fn end_all(&mut self) {
        let sessions: Vec<Key> = self.by_sequence.values().copied().collect();
        for key in sessions {
            self.guarded(|worker| worker.end(key, Finish::Fault, "Worker restarted"));
        }
    }

    /// Goes on in the place of a worker whose sessions were ended: serves its ports, shows what it tracked.
    pub(super) fn take_over(&mut self, before: Self) {
        self.stats.restarts.add(1);
        self.stats.active.set(0);
        for open in before.ports.values() {
            self.attach(&open.port);
            if let Some(attached) = self.ports.get_mut(&open.port.id) {
                attached.detached = open.detached;
            }
        }
        self.finished = before.finished;
    }

    fn handle(&mut self, token: Token, ready: Ready) {
        match token {
            Token::Wake => self.run_commands(),
            Token::Port(id) => self.handle_port(id),
            Token::Link(key, at) => self.handle_link(key, at, ready),
            Token::PendingConnection(key) => self.handle_pending(key),
        }
    }

    /// Looks whether the configuration changed: one load per loop.
    pub(super) fn follow_configuration(&mut self) {
        if self.shared.generation.load(Acquire) != self.snapshot.generation {
            let in_force = self.shared.in_force.load();
            self.snapshot = Arc::clone(&in_force.snapshot);
            self.clusters = in_force.clusters.clone();
            self.rules.forget();
        }
    }

    /// How long to wait at most: to the next timer, and a second while the wheel has something.
    fn wait_ms(&self) -> i32 {
        if !self.group_messages.is_empty() {
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

    fn run_timers(&mut self) {
        while let Some((at, key)) = self.timers.first().copied().filter(|(at, _)| *at <= self.now.ms) {
            self.timers.remove(&(at, key));
            self.with_session(key, |worker, session| {
                session.timer = 0;
                worker.handle_session_timeout(session);
            });
        }
        let second = self.now.ms / 1000;
        let mut due = Vec::new();
        self.idle.turn(second, &mut due);
        for timed in due {
            match timed {
                TimerEvent::Idle(key) => self.handle_idle(key),
                TimerEvent::PendingConnection(key) => self.expire_pending(key),
                TimerEvent::Port(id) => self.wake_port(id),
            }
        }
        while self.finished.front().is_some_and(|finished| finished.until <= self.now.ms) {
            self.finished.pop_front();
        }
        if self.now.ms >= self.second.at + 1000 {
            self.each_second();
        }
    }

    fn each_second(&mut self) {
        self.count_kernel_drops();
        let second = Tick { at: self.now.ms, busy_ns: sys::thread_cpu_ns(), generation: self.snapshot.generation };
        let before = std::mem::replace(&mut self.second, second);
        let busy = second.busy_ns.saturating_sub(before.busy_ns) / 1000;
        self.stats.busy.set((busy / (second.at - before.at)).min(1000));
        if second.generation != before.generation {
            self.stats.forget_gone(&self.snapshot);
        }
        let now = self.now.ms;
        self.refused.retain(|_, until| *until > now);
        let unused = |port: &OpenPort| port.detached && port.port.sessions.load(Relaxed) == 0;
        let gone: Vec<u32> = self.ports.values().filter(|port| unused(port)).map(|port| port.port.id).collect();
        for id in gone {
            self.close_port(id);
        }
    }

    fn count_kernel_drops(&mut self) {
        for open in self.ports.values_mut().filter(|open| matches!(open.port.bind_address, BindAddress::Udp(_))) {
            let drops = sys::dropped_by_kernel(open.fd);
            self.stats.drop_packets(Drop::KernelQueue, u64::from(drops.wrapping_sub(open.drops)));
            open.drops = drops;
        }
    }

    pub(super) fn close_port(&mut self, id: u32) {
        if let Some(open) = self.ports.remove(&id) {
            if let Some((family, at)) = open.port.bind_address.end()
                && let Some(bound) = self.listening.get_mut(&(family, open.port.local.port()))
            {
                bound.retain(|address| *address != at.ip());
            }
            // The descriptor is shared with the port, so epoll would go on to report it.
            self.epoll.remove(open.fd).ok();
        }
    }

    /// Takes a session out and works on it.
    pub(super) fn with_session(&mut self, key: Key, work: impl FnOnce(&mut Self, &mut Session)) {
        if let Some(session) = self.sessions.take(key) {
            self.run_session(session, work);
        }
    }

    /// Works on a session and settles what follows; a panic costs this session and no other.
    pub(super) fn run_session(&mut self, mut session: Box<Session>, work: impl FnOnce(&mut Self, &mut Session)) {
        let done = catch_unwind(AssertUnwindSafe(|| {
            work(self, &mut session);
            self.run_actions(&mut session)
        }));
        match done {
            Ok(None) => self.sessions.put(session.key, session),
            Ok(Some(finish)) => self.finish(session, finish),
            Err(_) => {
                tracing::error!(session = %session.name, "ending a session after a panic: please report this bug");
                self.scratch.resize(SCRATCH, 0);
                self.outbox = Outbox::default();
                session.machine.handle_end(Finish::Fault, Some("Fault"), self.now);
                self.finish(session, Finish::Fault);
            }
        }
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
        for token in
            [Token::Wake, Token::Port(7), Token::Link(key, 255), Token::Link(key, 0), Token::PendingConnection(key)]
        {
            assert_eq!(Token::unpack(token.pack()), token);
        }
    }
}
