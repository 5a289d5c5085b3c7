//! The sides of a comparison, and how they take turns.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::statistics::float;
use super::usage::Usage;

/// One side of a comparison: a name, the work of one round, and whose CPU time counts.
pub struct Side<'a> {
    pub(super) name: String,
    prepare: Box<dyn FnMut() -> anyhow::Result<()> + 'a>,
    round: Box<dyn FnMut() -> anyhow::Result<u64> + 'a>,
    processes: Vec<u32>,
}

impl<'a> Side<'a> {
    /// A side whose work runs in this process; a round returns how many units it did.
    pub fn new(name: &str, round: impl FnMut() -> anyhow::Result<u64> + 'a) -> Self {
        Self { name: name.to_owned(), prepare: Box::new(|| Ok(())), round: Box::new(round), processes: Vec::new() }
    }

    /// Does this before each turn, uncounted.
    #[must_use]
    pub fn prepared(self, prepare: impl FnMut() -> anyhow::Result<()> + 'a) -> Self {
        Self { prepare: Box::new(prepare), ..self }
    }

    /// Counts the CPU time of these processes instead of this one's.
    #[must_use]
    pub fn of_processes(self, processes: Vec<u32>) -> Self {
        Self { processes, ..self }
    }

    /// Does the work once and counts it.
    pub(super) fn turn(&mut self) -> anyhow::Result<Spent> {
        let processes = if self.processes.is_empty() { vec![std::process::id()] } else { self.processes.clone() };
        (self.prepare)().with_context(|| format!("preparing `{}` failed", self.name))?;
        let before = Usage::of(&processes)?;
        let start = Instant::now();
        let units = (self.round)().with_context(|| format!("a round of `{}` failed", self.name))?;
        let wall = start.elapsed();
        let cpu = Usage::of(&processes)?.since(&before).with_context(|| format!("measuring `{}` failed", self.name))?;
        ensure!(units > 0, "a round of `{}` did no unit of work", self.name);
        Ok(Spent { cpu: Duration::from_nanos(cpu), wall, units, turns: 1 })
    }
}

/// A round takes turns until each part of it used this much CPU time, or took this many turns.
const FULL_ROUND: Duration = Duration::from_millis(200);
pub(super) const TURNS: usize = 16;

/// What one side did in a round so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Spent {
    pub(super) cpu: Duration,
    pub(super) wall: Duration,
    pub(super) units: u64,
    pub(super) turns: usize,
}

impl Spent {
    pub(super) fn add(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.wall += other.wall;
        self.units += other.units;
        self.turns += other.turns;
    }

    pub(super) fn cost(&self) -> Cost {
        let per_unit = |time: Duration| time.as_secs_f64() * 1e9 / float(self.units);
        Cost { cpu: per_unit(self.cpu), wall: per_unit(self.wall) }
    }
}

/// What one unit of work took, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) cpu: f64,
    pub(super) wall: f64,
}

/// Lets the sides take turns until the round is full.
pub(super) fn round<const N: usize>(sides: &mut [&mut Side<'_>; N]) -> anyhow::Result<[Cost; N]> {
    let mut spent = [Spent::default(); N];
    while unfinished(&spent) {
        let mut order: [usize; N] = std::array::from_fn(|at| at);
        fastrand::shuffle(&mut order);
        for at in order {
            spent[at].add(sides[at].turn()?);
        }
    }
    Ok(spent.map(|spent| spent.cost()))
}

pub(super) fn unfinished(spent: &[Spent]) -> bool {
    spent.iter().any(|spent| spent.turns == 0 || (spent.cpu < FULL_ROUND && spent.turns < TURNS))
}
