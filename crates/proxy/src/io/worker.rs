//! One worker: a thread with its own sockets, flows, sessions and timers.

use super::cluster::ClusterRuntime;
use super::command::Command;
use super::group_messages::GroupMessages;
use super::outbox::Outbox;
use super::pending::PendingConnection;
use super::ports::Ports;
use super::ring::Ring;
use super::rules::Rules;
use super::session::Session;
use super::shared::Shared;
use super::slab::{Key, Slab};
use super::stats::{Drop, WorkerStats};
use super::sys::{self, Epoll, Ready};
use super::table::SessionTable;
use super::timers::{TimerEvent, Timers};
use super::token::Token;
use super::udp_path::UdpPath;
use crate::config::snapshot::{Names, Snapshot};
use crate::proto::Now;
use crate::proto::session::Finish;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Size of the buffer for bytes of streams: the most that one read takes.
pub(crate) const SCRATCH: usize = 256 * 1024;

pub(crate) struct Worker {
    pub(crate) id: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) stats: Arc<WorkerStats>,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) clusters: Names<ClusterRuntime>,
    pub(crate) rules: Rules,
    pub(crate) commands: Arc<Ring<Command>>,
    pub(crate) epoll: Epoll,
    pub(crate) now: Now,
    pub(crate) ports: Ports,
    pub(crate) sessions: SessionTable,
    pub(crate) pending: Slab<PendingConnection>,
    /// Connections whose next request was sent ahead.
    pub(crate) requests: VecDeque<Key>,
    pub(crate) timers: Timers,
    pub(crate) udp: UdpPath,
    pub(crate) scratch: Vec<u8>,
    /// Buffer for the name of a new session.
    pub(crate) name: String,
    pub(crate) outbox: Outbox,
    pub(crate) group_messages: GroupMessages,
    /// Bytes in the setup queues of all sessions.
    pub(crate) setup_queue_bytes: usize,
    random: u64,
    pub(crate) stopping: bool,
    tick: Tick,
    /// A panic left more than one session in an unknown state.
    broken: bool,
}

/// Why a worker stopped running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerExit {
    Stopped,
    /// It has to be restarted.
    Broken,
}

/// The state at the last periodic check.
#[derive(Clone, Copy)]
struct Tick {
    at: u64,
    busy_ns: u64,
    generation: u64,
}

impl Worker {
    pub(crate) fn new(id: usize, shared: Arc<Shared>) -> io::Result<Self> {
        let epoll = Epoll::new(256)?;
        let commands = Arc::clone(&shared.rings[id]);
        epoll.add(commands.wake_up().as_raw_fd(), Token::Wake.pack(), sys::READ)?;
        let now = Now { ms: sys::monotonic_ms(), unix: sys::unix_ms() };
        let current = shared.current.load_full();
        Ok(Self {
            id,
            stats: Arc::clone(&shared.stats[id]),
            snapshot: Arc::clone(&current.snapshot),
            clusters: current.clusters.clone(),
            rules: Rules::default(),
            commands,
            epoll,
            now,
            ports: Ports::default(),
            sessions: SessionTable::new(shared.seed),
            pending: Slab::default(),
            requests: VecDeque::new(),
            timers: Timers::new(now.ms),
            udp: UdpPath::new()?,
            scratch: vec![0; SCRATCH],
            name: String::new(),
            outbox: Outbox::default(),
            group_messages: GroupMessages::new(id, shared.rings.len()),
            setup_queue_bytes: 0,
            random: sys::random_u64(),
            stopping: false,
            tick: Tick { at: now.ms, busy_ns: sys::thread_cpu_ns(), generation: current.snapshot.generation },
            broken: false,
            shared,
        })
    }

    /// Runs until it is stopped, or until a panic outside of a session.
    pub(crate) fn run(&mut self) -> WorkerExit {
        while !self.stopping && !self.broken {
            let Ok(ready) = self.epoll.wait(self.wait_ms()) else { return WorkerExit::Broken };
            self.now = Now { ms: sys::monotonic_ms(), unix: sys::unix_ms() };
            self.guarded(Self::follow_configuration);
            for i in 0..ready {
                let ready = self.epoll.ready(i);
                self.guarded(|worker| worker.handle(Token::unpack(ready.token), ready));
            }
            self.guarded(|worker| {
                worker.begin_requests();
                worker.flush_replies();
                worker.deliver_group_messages();
                worker.run_timers();
            });
        }
        if self.stopping { WorkerExit::Stopped } else { WorkerExit::Broken }
    }

    /// Catches panics; after one outside of a session the worker has to be restarted.
    pub(crate) fn guarded(&mut self, part: impl FnOnce(&mut Self)) {
        self.broken |= catch_unwind(AssertUnwindSafe(|| part(self))).is_err();
    }

    /// Ends all sessions after a panic; one that cannot be ended in order is dropped.
    pub(crate) fn end_all(&mut self) {
        for key in self.sessions.keys() {
            self.guarded(|worker| worker.end(key, Finish::Fault, "Worker restarted"));
        }
    }

    /// Replaces a worker whose sessions were ended: serves its ports, lists its finished sessions.
    pub(crate) fn take_over(&mut self, before: Self) {
        self.stats.restarts.add(1);
        self.stats.active.set(0);
        for open in before.ports.iter() {
            self.attach(&open.port);
            if let Some(attached) = self.ports.get_mut(open.port.id) {
                attached.detached = open.detached;
            }
        }
        self.shared.counts.closing.fetch_sub(before.closing(), Relaxed);
        self.sessions.adopt_finished(before.sessions);
    }

    fn handle(&mut self, token: Token, ready: Ready) {
        match token {
            Token::Wake => self.run_commands(),
            Token::Port(id) => self.handle_port(id),
            Token::Link(key, at) => self.handle_link(key, at, ready),
            Token::PendingConnection(key) => self.handle_pending(key),
        }
    }

    /// Switches to a new configuration, if there is one: one load per loop.
    pub(crate) fn follow_configuration(&mut self) {
        if self.shared.generation.load(Acquire) != self.snapshot.generation {
            let current = self.shared.current.load();
            self.snapshot = Arc::clone(&current.snapshot);
            self.clusters = current.clusters.clone();
            self.rules.forget();
        }
    }

    /// How long to wait at most: until the next timer, and a second while the wheel has events.
    fn wait_ms(&self) -> i32 {
        if !self.group_messages.is_empty() || !self.requests.is_empty() {
            return 0;
        }
        let next = self.timers.next_exact(self.now.ms);
        let each_second = self.timers.has_wheel_events() || self.sessions.has_finished() || self.ports.has_detached();
        let second = each_second.then(|| 1000 - self.now.ms % 1000);
        match (next, second) {
            (Some(a), Some(b)) => a.min(b) as i32,
            (a, b) => a.or(b).map_or(1000, |ms| ms as i32),
        }
    }

    fn run_timers(&mut self) {
        while let Some(key) = self.timers.pop_due(self.now.ms) {
            self.with_session(key, |worker, session| {
                session.timer = 0;
                worker.handle_session_timeout(session);
            });
        }
        for event in self.timers.turn(self.now.ms) {
            match event {
                TimerEvent::Idle(key) => self.handle_idle(key),
                TimerEvent::PendingConnection(key) => self.expire_pending(key),
                TimerEvent::Port(id) => self.wake_port(id),
            }
        }
        self.sessions.expire_finished(self.now.ms);
        if self.now.ms >= self.tick.at + 1000 {
            self.each_second();
        }
    }

    fn each_second(&mut self) {
        self.ports.count_kernel_drops(&self.stats);
        let tick = Tick { at: self.now.ms, busy_ns: sys::thread_cpu_ns(), generation: self.snapshot.generation };
        let before = std::mem::replace(&mut self.tick, tick);
        let busy = tick.busy_ns.saturating_sub(before.busy_ns) / 1000;
        self.stats.busy.set((busy / (tick.at - before.at)).min(1000));
        if tick.generation != before.generation {
            self.stats.forget_gone(&self.snapshot);
        }
        self.udp.expire_refused(self.now.ms);
        for id in self.ports.unused() {
            self.close_port(id);
        }
    }

    /// Closes a port without a listener once its last session has ended.
    pub(crate) fn close_if_unused(&mut self, id: u32) {
        if self.ports.is_unused(id) {
            self.close_port(id);
        }
    }

    pub(crate) fn close_port(&mut self, id: u32) {
        if let Some(open) = self.ports.remove(id) {
            // The descriptor is shared with the port, so epoll would continue to report it.
            self.epoll.remove(open.fd).ok();
        }
    }

    /// Takes a session out and works on it.
    pub(crate) fn with_session(&mut self, key: Key, work: impl FnOnce(&mut Self, &mut Session)) {
        if let Some(session) = self.sessions.take(key) {
            self.run_session(session, work);
        }
    }

    /// Works on a session and runs the actions that follow; a panic ends only this session.
    pub(crate) fn run_session(&mut self, mut session: Box<Session>, work: impl FnOnce(&mut Self, &mut Session)) {
        let done = catch_unwind(AssertUnwindSafe(|| {
            work(self, &mut session);
            self.run_actions(&mut session)
        }));
        match done {
            Ok(None) => self.sessions.put(session),
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

    pub(crate) fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ (self.random >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        z ^ (z >> 32)
    }

    pub(crate) fn count_drop(&self, why: Drop, packets: u64) {
        self.stats.drop_packets(why, packets);
    }
}
