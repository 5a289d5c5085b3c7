//! The rows of the table, in order.

use crate::contestant::Contestant;
use crate::place;
use crate::roles::{CHANGES, ENDPOINTS};
use crate::round_trips::{Caller, start_echo};
use crate::sessions::Crowd;
use crate::setting::{
    BARE, BYTE_SINK, ECHO, ENVOY, JOINED_SINK, NGINX, OURS, RULED_TO_SINK, SECOND, SINK, SPLIT_SINK, TO_BYTE_SINK,
    TO_ECHO, TO_JOINED_SINK, TO_SINK, TO_SPLIT_SINK, WS_SINK, config, envoy, nginx,
};
use crate::streams::{ByteSink, Pusher, connect};
use crate::udp::{Load, Shape, Sink, await_passage, clients};
use crate::websockets::{Frames, pushing};
use portolan_bench::{Bench, Goal, Side};
use std::cell::RefCell;
use std::path::Path;
use std::process::ExitCode;
use std::slice::from_ref;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// Small packets, never two of a flow in one batch.
pub(crate) const SINGLE: Shape = Shape { size: 64, flows: 64, burst: 1, joined: false, volley: 512, packets: 25_600 };
pub(crate) const MANY: Shape = Shape { flows: 10_000, ..SINGLE };
pub(crate) const BURSTS: Shape = Shape { flows: 8, burst: 8, ..SINGLE };
pub(crate) const JOINED: Shape = Shape { joined: true, volley: 2048, packets: 204_800, ..BURSTS };

/// Bytes of one write to a stream, and writes of a turn.
const CHUNK: usize = 65_536;
const WRITES: u64 = 4096;
const MIB: u64 = 1 << 20;

const NEW_SESSIONS: usize = 8_000;
/// As many as 20,000 descriptors allow, with some to spare.
const IDLE_SESSIONS: usize = 19_000;
const STARTS: usize = 11;
const ROUND_TRIPS: usize = 1000;
const ROUND_TRIP_TURNS: usize = 10;

/// Datagrams through one contestant.
#[derive(Clone, Copy)]
pub(crate) struct Way<'a> {
    pub(crate) name: &'a str,
    pub(crate) process: &'a Contestant,
    pub(crate) port: u16,
    pub(crate) shape: Shape,
}

pub(crate) struct Table {
    pub(crate) bench: Bench,
    pub(crate) single: Sink,
    joined: Sink,
    bytes: ByteSink,
    pub(crate) websocket: ByteSink,
    /// One for each processor.
    pub(crate) split: Vec<Sink>,
    /// Datagrams given to ours, and what became of some.
    sent: u64,
    lost: u64,
}

pub(crate) fn run(bench: Bench) -> anyhow::Result<ExitCode> {
    let mut table = Table {
        bench,
        single: Sink::start(SINK, false)?,
        joined: Sink::start(JOINED_SINK, true)?,
        bytes: ByteSink::start(BYTE_SINK, false)?,
        websocket: ByteSink::start(WS_SINK, true)?,
        split: Sink::split(SPLIT_SINK)?,
        sent: 0,
        lost: 0,
    };
    start_echo(ECHO)?;
    let ours = Contestant::ours(1, &config(OURS))?;
    if let Some(program) = table.bench.against().map(Path::to_owned) {
        table.against_other_build(ours, &program)?;
        return table.bench.finish();
    }
    table.against_floors(&ours)?;
    table.against_peers(&ours)?;
    table.within_ours(&ours)?;
    table.websockets(&ours)?;
    table.round_trips_of_nginx()?;
    table.changes(ours)?;
    table.new_sessions(1)?;
    table.new_sessions(2)?;
    table.idle_sessions()?;
    table.start_time()?;
    let lost = table.lost as f64 * 1000.0 / table.sent.max(1) as f64;
    table.bench.count("UDP: lost under load", "of 1000 packets", Goal::value(1.0), lost)?;
    table.bench.finish()
}

impl Table {
    fn against_floors(&mut self, ours: &Contestant) -> anyhow::Result<()> {
        let floor = |variant, port: u16, sink| Contestant::bare(variant, 1, BARE + port, sink);
        let plain = floor("plain", TO_SINK, SINK)?;
        let to_joined = floor("plain", TO_JOINED_SINK, JOINED_SINK)?;
        let joining = floor("coalescing", RULED_TO_SINK, JOINED_SINK)?;
        let bare = |process, port, shape| Way { name: "bare forwarder", process, port: BARE + port, shape };
        let own = |port, shape| Way { name: "portolan", process: ours, port: OURS + port, shape };
        let goal = Goal::ratio(1.0 / 0.85);
        self.datagrams("UDP 64 B, bare forwarder", goal, own(TO_SINK, SINGLE), bare(&plain, TO_SINK, SINGLE))?;
        let large = Shape { size: 1200, ..SINGLE };
        self.datagrams("UDP 1200 B, bare forwarder", goal, own(TO_SINK, large), bare(&plain, TO_SINK, large))?;
        // how much of what many flows cost is the kernel's: it has as many sockets to touch for the floor
        self.datagrams(
            "UDP 64 B, 10,000 flows, bare forwarder",
            goal,
            own(TO_SINK, MANY),
            bare(&plain, TO_SINK, MANY),
        )?;
        let goal = Goal::ratio(1.0 / 2.2);
        let pair = (own(TO_JOINED_SINK, BURSTS), bare(&to_joined, TO_JOINED_SINK, BURSTS));
        self.datagrams("UDP 64 B, bursts of 8, GRO sink", goal, pair.0, pair.1)?;
        for burst in [8, 32] {
            let shape = Shape { burst, ..JOINED };
            let name = format!("UDP 64 B, GSO of {burst}, GRO sink");
            let floor = bare(&joining, RULED_TO_SINK, shape);
            let floor = Way { name: "bare with GRO and GSO", ..floor };
            self.datagrams(&name, Goal::ratio(1.25), own(TO_JOINED_SINK, shape), floor)?;
        }
        let port = BARE + TO_BYTE_SINK;
        let splice = Contestant::role(&["splice", &port.to_string(), &BYTE_SINK.to_string()], place::THEIRS)?;
        self.bytes(Goal::ratio(1.2), ours, ("bare splice loop", &splice, port))
    }

    fn against_peers(&mut self, ours: &Contestant) -> anyhow::Result<()> {
        let names = ["UDP 64 B, nginx", "UDP 64 B, Envoy", "TCP 64 KiB writes, nginx", "TCP 64 KiB writes, Envoy"];
        if !names.iter().any(|name| self.bench.wants(name)) {
            return Ok(());
        }
        let (nginx, envoy) = (nginx()?, envoy()?);
        for (peer, process, first, goal) in [("nginx", &nginx, NGINX, 1.6), ("Envoy", &envoy, ENVOY, 2.0)] {
            let own = Way { name: "portolan", process: ours, port: OURS + TO_SINK, shape: SINGLE };
            let other = Way { name: peer, process, port: first + TO_SINK, shape: SINGLE };
            self.datagrams(&format!("UDP 64 B, {peer}"), Goal::ratio(1.0 / goal), own, other)?;
            self.bytes(Goal::ratio(1.0), ours, (peer, process, first + TO_BYTE_SINK))?;
        }
        Ok(())
    }

    /// Ours against itself: flows, rules and workers must cost next to nothing.
    fn within_ours(&mut self, ours: &Contestant) -> anyhow::Result<()> {
        let own = |name, port, shape| Way { name, process: ours, port: OURS + port, shape };
        let pair = (own("10,000 flows", TO_SINK, MANY), own("64 flows", TO_SINK, SINGLE));
        self.datagrams("UDP 64 B, 10,000 flows", Goal::ratio(1.25), pair.0, pair.1)?;
        let pair = (own("with rules", RULED_TO_SINK, SINGLE), own("without", TO_SINK, SINGLE));
        self.datagrams("UDP 64 B, rules and labels", Goal::ratio(1.03), pair.0, pair.1)?;
        self.two_workers(ours)
    }

    /// A worker on each processor, each with a sender and a sink beside it as the single one has.
    fn two_workers(&mut self, ours: &Contestant) -> anyhow::Result<()> {
        let two = Contestant::ours(2, &config(SECOND))?;
        let bare = Contestant::bare("plain", 2, BARE + TO_SPLIT_SINK, SPLIT_SINK)?;
        let way = |name, process, first: u16| Way { name, process, port: first + TO_SPLIT_SINK, shape: SINGLE };
        let pair = (way("two workers", &two, SECOND), place::ALL);
        let single = (way("one worker", ours, OURS), place::THEIRS);
        let floor = (way("bare forwarder, two workers", &bare, BARE), place::ALL);
        self.beside_workers("UDP 64 B, two workers", Goal::ratio(1.15), pair, single)?;
        self.beside_workers("UDP 64 B, two workers, bare forwarder", Goal::ratio(1.0 / 0.85), pair, floor)
    }

    /// One row: datagrams through two contestants, in turns, on the processors where these have workers.
    fn beside_workers(
        &mut self,
        name: &str,
        goal: Goal,
        (ours, workers): (Way<'_>, &[usize]),
        (other, their_workers): (Way<'_>, &[usize]),
    ) -> anyhow::Result<()> {
        if !self.bench.wants(name) {
            return Ok(());
        }
        let mut loads = Load::split(ours.shape, ours.port, &self.split, workers)?;
        let mut their_loads = Load::split(other.shape, other.port, &self.split, their_workers)?;
        let side = Side::new(ours.name, || Ok(at_once(&mut loads))).of_processes(vec![ours.process.pid()]);
        let their_side =
            Side::new(other.name, || Ok(at_once(&mut their_loads))).of_processes(vec![other.process.pid()]);
        self.bench.compare(name, "packet", goal, side, their_side)?;
        self.sent += loads.iter().map(|load| load.sent).sum::<u64>();
        self.lost += loads.iter().map(|load| load.lost).sum::<u64>();
        Ok(())
    }

    /// One row: datagrams through two contestants, in turns.
    pub(crate) fn datagrams(&mut self, name: &str, goal: Goal, ours: Way<'_>, other: Way<'_>) -> anyhow::Result<()> {
        if !self.bench.wants(name) {
            return Ok(());
        }
        let sink = if name.contains("GRO sink") { &self.joined } else { &self.single };
        let mut load = Load::new(ours.shape, ours.port, sink)?;
        let mut their_load = Load::new(other.shape, other.port, sink)?;
        let side = Side::new(ours.name, || Ok(load.turn())).of_processes(vec![ours.process.pid()]);
        let their_side = Side::new(other.name, || Ok(their_load.turn())).of_processes(vec![other.process.pid()]);
        self.bench.compare(name, "packet", goal, side, their_side)?;
        self.sent += load.sent;
        self.lost += load.lost;
        Ok(())
    }

    /// One row: a stream of bytes through two contestants, in turns.
    pub(crate) fn bytes(
        &mut self,
        goal: Goal,
        ours: &Contestant,
        (peer, other, port): (&str, &Contestant, u16),
    ) -> anyhow::Result<()> {
        let name = format!("TCP 64 KiB writes, {peer}");
        if !self.bench.wants(&name) {
            return Ok(());
        }
        let units = WRITES * CHUNK as u64 / MIB;
        let mut own = Pusher::new(connect(OURS + TO_BYTE_SINK)?, &self.bytes, vec![7; CHUNK]);
        let mut their = Pusher::new(connect(port)?, &self.bytes, vec![7; CHUNK]);
        let side = Side::new("portolan", || own.turn(WRITES).map(|()| units)).of_processes(vec![ours.pid()]);
        let their_side = Side::new(peer, || their.turn(WRITES).map(|()| units)).of_processes(vec![other.pid()]);
        self.bench.compare(&name, "MiB", goal, side, their_side)
    }

    fn websockets(&mut self, ours: &Contestant) -> anyhow::Result<()> {
        // frames a second on one core
        for (frames, pace) in [(Frames::ToUdp, 600e3), (Frames::Passed, 5e6), (Frames::Reframed, 2e6)] {
            if self.bench.wants(frames.name()) {
                let side = pushing(frames, "portolan", ours, OURS, (&self.single, &self.websocket))?;
                self.bench.value(frames.name(), "frame", Goal::value(1e9 / pace), side)?;
            }
        }
        Ok(())
    }

    fn round_trips_of_nginx(&mut self) -> anyhow::Result<()> {
        let _peer = if self.bench.wants("round trip, one under way, nginx") { Some(nginx()?) } else { None };
        self.round_trips("nginx", NGINX + TO_ECHO)
    }

    /// One packet under way: whoever wakes up late or does more than it must is slower.
    pub(crate) fn round_trips(&mut self, peer: &str, port: u16) -> anyhow::Result<()> {
        let name = format!("round trip, one under way, {peer}");
        if !self.bench.wants(&name) {
            return Ok(());
        }
        let (mut own, mut other) = (Caller::new(OURS + TO_ECHO)?, Caller::new(port)?);
        for _ in 0..ROUND_TRIP_TURNS {
            own.calls(ROUND_TRIPS)?;
            other.calls(ROUND_TRIPS)?;
        }
        for (share, words, goal) in [(500, "median", 1.0), (990, "99 of 100", 1.2)] {
            let ratio = own.within(share) / other.within(share);
            self.bench.count(&format!("{name}: {words}"), "of theirs", Goal::value(goal), ratio)?;
        }
        Ok(())
    }

    /// What configuration costs while packets pass.
    fn changes(&mut self, mut ours: Contestant) -> anyhow::Result<()> {
        let name = "configuration changed under load";
        if !self.bench.wants(name) {
            return Ok(());
        }
        let mut load = Load::new(SINGLE, OURS + TO_SINK, &self.single)?;
        let stop = AtomicBool::new(false);
        let (one, many) = std::thread::scope(|scope| -> anyhow::Result<(f64, f64)> {
            let sender = scope.spawn(|| {
                while !stop.load(Relaxed) {
                    load.turn();
                }
            });
            let one = ours.order("change one object, often");
            let many = ours.order("change many endpoints, once");
            stop.store(true, Relaxed);
            sender.join().expect("the sender does not panic");
            Ok((one?.parse()?, many?.parse()?))
        })?;
        // 5,000 a second
        self.bench.count(&format!("{name}: one object"), "us of CPU each", Goal::value(200.0), one / CHANGES as f64)?;
        let words = format!("{name}: {ENDPOINTS} endpoints at once");
        self.bench.count(&words, "ms of CPU", Goal::value(50.0), many / 1000.0)?;
        self.bench.count(&format!("{name}: packets lost"), "packets", Goal::value(0.0), load.lost as f64)
    }

    fn new_sessions(&mut self, workers: usize) -> anyhow::Result<()> {
        let name = format!("new UDP sessions, {workers} worker{}", if workers > 1 { "s" } else { "" });
        if !self.bench.wants(&name) {
            return Ok(());
        }
        let (sinks, to_sink, sink) = if workers > 1 {
            (&*self.split, TO_SPLIT_SINK, SPLIT_SINK)
        } else {
            (from_ref(&self.single), TO_SINK, SINK)
        };
        let ours = Crowd::new(Contestant::ours(workers, &config(OURS))?, OURS + to_sink, sinks)?;
        let bare = Contestant::bare("plain", workers, BARE + to_sink, sink)?;
        let bare = Crowd::new(bare, BARE + to_sink, sinks)?;
        let (ours, bare) = (RefCell::new(ours), RefCell::new(bare));
        let (side, their_side) = (arriving("portolan", &ours), arriving("bare forwarder", &bare));
        self.bench.compare(&name, "session and its first packet", Goal::value(10_000.0), side, their_side)?;
        let Crowd { lost, mut wall, .. } = ours.into_inner();
        wall.sort();
        let each = wall[wall.len() / 2].as_secs_f64() * 1e6 / NEW_SESSIONS as f64;
        if workers > 1 {
            // 100,000 a second
            self.bench.count(&format!("{name}: pace"), "us of wall time per session", Goal::value(10.0), each)?;
        }
        self.bench.count(&format!("{name}: first packets lost"), "packets", Goal::value(0.0), lost as f64)
    }

    fn idle_sessions(&mut self) -> anyhow::Result<()> {
        let name = "memory, 19,000 idle UDP sessions";
        if !self.bench.wants(name) {
            return Ok(());
        }
        let mut crowd = Crowd::new(Contestant::ours(1, &config(OURS))?, OURS + TO_SINK, from_ref(&self.single))?;
        let idle = crowd.process.resident()?;
        self.bench.count("memory, idle", "MiB", Goal::value(20.0), idle as f64 / MIB as f64)?;
        crowd.prepare(IDLE_SESSIONS)?;
        crowd.arrive();
        let each = (crowd.process.resident()? - idle) as f64 / IDLE_SESSIONS as f64;
        self.bench.count(name, "bytes each", Goal::value(1024.0), each)?;
        let micros: f64 = crowd.process.order("list sessions")?.parse()?;
        self.bench.count("first 100 of 19,000 sessions listed", "ms", Goal::value(10.0), micros / 1000.0)?;
        let (mut caller, done) = (Caller::new(OURS + TO_ECHO)?, AtomicBool::new(false));
        let listed = std::thread::scope(|scope| {
            let lister = scope.spawn(|| {
                let listed = crowd.process.order("list all sessions, for a second");
                done.store(true, Relaxed);
                listed
            });
            while !done.load(Relaxed) {
                caller.call()?;
            }
            lister.join().expect("the one who lists does not panic")
        })?;
        anyhow::ensure!(listed.parse::<usize>()? > IDLE_SESSIONS, "not even one list was whole");
        let delay = caller.within(999) / 1000.0;
        self.bench.count("round trip while sessions are listed: 999 of 1000", "ms", Goal::value(1.0), delay)
    }

    fn start_time(&mut self) -> anyhow::Result<()> {
        let name = "start to first packet";
        if !self.bench.wants(name) {
            return Ok(());
        }
        let mut took = Vec::new();
        for _ in 0..STARTS {
            let client = clients(1, OURS + TO_SINK)?.remove(0);
            let began = Instant::now();
            let ours = Contestant::ours(1, &config(OURS))?;
            await_passage(from_ref(&self.single), || drop(client.send(b"first")))?;
            took.push(began.elapsed().as_secs_f64() * 1000.0);
            drop(ours);
        }
        took.sort_by(f64::total_cmp);
        self.bench.count(name, "ms", Goal::value(50.0), took[STARTS / 2])
    }
}

/// One turn of each, all at the same time; says how many packets arrived.
fn at_once(loads: &mut [Load<'_>]) -> u64 {
    std::thread::scope(|scope| {
        let turns: Vec<_> = loads.iter_mut().map(|load| scope.spawn(|| load.turn())).collect();
        turns.into_iter().map(|turn| turn.join().expect("a sender does not panic")).sum()
    })
}

/// Strangers who come to a contestant in each turn.
pub(crate) fn arriving<'a>(name: &str, crowd: &'a RefCell<Crowd<'_>>) -> Side<'a> {
    let side = Side::new(name, || Ok(crowd.borrow_mut().arrive()));
    side.prepared(|| crowd.borrow_mut().prepare(NEW_SESSIONS)).of_processes(vec![crowd.borrow().process.pid()])
}
