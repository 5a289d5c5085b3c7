//! The same load on our data plane and on that of another build, such as an older commit's, in turns.

use crate::contestant::Contestant;
use crate::roles::CHANGES;
use crate::rows::{BURSTS, JOINED, MANY, SINGLE, Table, Way, arriving};
use crate::sessions::Crowd;
use crate::setting::{
    OURS, RULED_TO_SINK, SECOND, TO_BYTE_SINK, TO_ECHO, TO_JOINED_SINK, TO_SINK, TO_SPLIT_SINK, config,
};
use crate::udp::Shape;
use crate::websockets::{Frames, pushing};
use portolan_bench::{Goal, Side};
use std::cell::RefCell;
use std::path::Path;
use std::slice::from_ref;

const OTHER: &str = "other build";
const NO_WORSE: Goal = Goal::ratio(1.03);

impl Table {
    pub(crate) fn against_other_build(&mut self, mut ours: Contestant, program: &Path) -> anyhow::Result<()> {
        let mut other = Contestant::other_build(program, 1, &config(SECOND))?;
        for (name, port, shape) in [
            ("UDP 64 B", TO_SINK, SINGLE),
            ("UDP 1200 B", TO_SINK, Shape { size: 1200, ..SINGLE }),
            ("UDP 64 B, 10,000 flows", TO_SINK, MANY),
            ("UDP 64 B, rules and labels", RULED_TO_SINK, SINGLE),
            ("UDP 64 B, bursts of 8, GRO sink", TO_JOINED_SINK, BURSTS),
            ("UDP 64 B, GSO of 8, GRO sink", TO_JOINED_SINK, JOINED),
            ("UDP 64 B, GSO of 32, GRO sink", TO_JOINED_SINK, Shape { burst: 32, ..JOINED }),
        ] {
            let way = |name, process, first: u16| Way { name, process, port: first + port, shape };
            self.datagrams(name, NO_WORSE, way("portolan", &ours, OURS), way(OTHER, &other, SECOND))?;
        }
        self.bytes(NO_WORSE, &ours, (OTHER, &other, SECOND + TO_BYTE_SINK))?;
        for frames in Frames::ALL {
            if !self.bench.wants(frames.name()) {
                continue;
            }
            let sinks = (&self.single, &self.websocket);
            let side = pushing(frames, "portolan", &ours, OURS, sinks)?;
            let their_side = pushing(frames, OTHER, &other, SECOND, sinks)?;
            self.bench.compare(frames.name(), "frame", NO_WORSE, side, their_side)?;
        }
        self.round_trips(OTHER, SECOND + TO_ECHO)?;
        let pids = [ours.pid(), other.pid()];
        let [side, their_side] = [("portolan", &mut ours), (OTHER, &mut other)].map(|(name, process)| {
            Side::new(name, || process.order("change one object, often").map(|_| CHANGES as u64))
        });
        let (side, their_side) = (side.of_processes(vec![pids[0]]), their_side.of_processes(vec![pids[1]]));
        self.bench.compare("configuration changed", "change", NO_WORSE, side, their_side)?;
        drop((ours, other));
        self.new_sessions_against_other_build(1, program)?;
        self.new_sessions_against_other_build(2, program)
    }

    fn new_sessions_against_other_build(&mut self, workers: usize, program: &Path) -> anyhow::Result<()> {
        let name = format!("new UDP sessions, workers: {workers}");
        if !self.bench.wants(&name) {
            return Ok(());
        }
        let (sinks, port) = if workers > 1 { (&*self.split, TO_SPLIT_SINK) } else { (from_ref(&self.single), TO_SINK) };
        let other = Contestant::other_build(program, workers, &config(SECOND))?;
        let ours = RefCell::new(Crowd::new(Contestant::ours(workers, &config(OURS))?, OURS + port, sinks)?);
        let other = RefCell::new(Crowd::new(other, SECOND + port, sinks)?);
        let (side, their_side) = (arriving("portolan", &ours), arriving(OTHER, &other));
        self.bench.compare(&name, "session and its first packet", NO_WORSE, side, their_side)
    }
}
