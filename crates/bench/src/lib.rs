//! The common harness of all benchmarks: two sides in one run, one verdict.
//!
//! A benchmark is a file `benches/NAME.rs` with `harness = false`, started by `cargo xtask bench NAME`:
//!
//! ```no_run
//! use std::process::ExitCode;
//! use portolan_bench::{Bench, Goal, Side};
//!
//! fn main() -> anyhow::Result<ExitCode> {
//!     let mut bench = Bench::from_arguments("queue")?;
//!     bench.compare(
//!         "10,000 keys through the queue",
//!         "key",
//!         Goal::ratio(0.8),
//!         Side::new("portolan", || Ok(10_000)),
//!         Side::new("a channel per key", || Ok(10_000)),
//!     )?;
//!     bench.growth("keys through the queue", &[1_000, 10_000, 100_000], Goal::exponent(1.1), |size| {
//!         std::hint::black_box(size);
//!         Ok(())
//!     })?;
//!     bench.finish()
//! }
//! ```
//!
//! - **Rounds are interleaved**, ours and theirs in random order, so that a machine that slows down slows both; a
//!   round of short work is itself such a sequence of turns. One turn each warms up and is not counted; then
//!   [`ROUNDS`] are measured, and up to three times as many while the spread is too wide.
//! - **CPU time is the measure**, as the scheduler counts it for every thread of the process (this one, or the
//!   ones named by [`Side::of_processes`]); wall time stands beside it.
//! - **The result is the median of the ratios of the rounds**, with its spread: the distance between the
//!   quartiles, as a share of the median. A row whose spread is over [`WIDEST`] is refused, not reported.
//! - **The exit status is the verdict**: 0 when every goal was met, 1 when one was not or a row was refused.
//!
//! Both sides must be pinned alike and use the same socket buffers, and a turn should work for 10 ms or more, so
//! that looking at the clocks weighs nothing: that is the benchmark's to arrange.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};

use self::report::{Report, Row, machine, now, significant, table};
use self::side::{Cost, Spent, round, unfinished};
use self::statistics::{fitted_exponent, float, median, quartiles, spread};

mod report;
mod side;
mod statistics;
mod usage;

pub use self::report::Goal;
pub use self::side::Side;

/// How many rounds of each side are measured at least, unless a benchmark asks for more.
pub const ROUNDS: usize = 7;
/// The widest spread that is reported: of ratios as a share of their median, of exponents as it is.
pub const WIDEST: f64 = 0.15;

/// How many times [`ROUNDS`] are measured at most while the spread is too wide.
const PATIENCE: usize = 3;
/// A benchmark: rows are added one by one, [`Bench::finish`] gives the verdict.
pub struct Bench {
    name: String,
    json: Option<PathBuf>,
    /// Rows whose names hold this are measured; all when it is empty.
    only: String,
    /// Another build of the benchmark, whose roles are compared to ours.
    against: Option<PathBuf>,
    rounds: usize,
    rows: Vec<Row>,
    refused: Vec<String>,
}

impl Bench {
    /// Takes `[--json FILE] [--only TEXT]` from the command line, and the `--bench` that cargo adds.
    pub fn from_arguments(name: &str) -> anyhow::Result<Self> {
        let bench = Self::with_arguments(name, std::env::args().skip(1))?;
        ensure!(
            bench.against.is_none(),
            "benchmark {name} runs in one process: it cannot be compared to another build"
        );
        Ok(bench)
    }

    /// The same and `[--against PROGRAM]`, from words that a benchmark has looked at already.
    pub fn with_arguments(name: &str, words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut words = words.filter(|word| word != "--bench");
        let (mut json, mut only, mut against) = (None, String::new(), None);
        while let Some(word) = words.next() {
            match (word.as_str(), words.next()) {
                ("--json", Some(file)) => json = Some(PathBuf::from(file)),
                ("--only", Some(text)) => only = text,
                ("--against", Some(program)) => against = Some(PathBuf::from(program)),
                _ => bail!("usage: cargo xtask bench {name} [--json FILE] [--only TEXT]"),
            }
        }
        let (rows, refused) = (Vec::new(), Vec::new());
        Ok(Self { name: name.to_owned(), json, only, against, rounds: ROUNDS, rows, refused })
    }

    /// Another build of this benchmark's program, such as that of an older commit: the work is to be given to its
    /// roles and to ours, in turns.
    pub fn against(&self) -> Option<&Path> {
        self.against.as_deref()
    }

    /// Measures so many rounds at least.
    #[must_use]
    pub fn with_rounds(self, rounds: usize) -> Self {
        Self { rounds, ..self }
    }

    /// Whether a row of this name is asked for: what it takes to measure others need not be made.
    pub fn wants(&self, row: &str) -> bool {
        row.contains(&self.only)
    }

    /// Whether a row of this name was asked for by [`only`](Self::with_arguments): for rows that take too long to be
    /// measured each time.
    pub fn names(&self, row: &str) -> bool {
        !self.only.is_empty() && self.wants(row)
    }

    /// Measures CPU time per `unit` on both sides; the goal is on the ratio, or on our own value in nanoseconds.
    pub fn compare<'a>(
        &mut self,
        name: &str,
        unit: &str,
        goal: Goal,
        mut ours: Side<'a>,
        mut other: Side<'a>,
    ) -> anyhow::Result<()> {
        if !self.wants(name) {
            return Ok(());
        }
        ours.turn()?;
        other.turn()?;
        let ratio = |(ours, other): &(Cost, Cost)| ours.cpu / other.cpu;
        let mut rounds = Vec::new();
        while wants_more(&rounds, self.rounds, ratio) {
            let [ours, other] = round(&mut [&mut ours, &mut other])?;
            rounds.push((ours, other));
        }
        let ratios: Vec<f64> = rounds.iter().map(ratio).collect();
        let each = |pick: fn(&(Cost, Cost)) -> f64| median(&rounds.iter().map(pick).collect::<Vec<_>>());
        let (value, ratio) = (each(|(ours, _)| ours.cpu), median(&ratios));
        let row = Row::alone(name, format!("ns of CPU per {unit}"), value, spread(&ratios), goal);
        self.add(Row {
            against: Some(other.name),
            other: Some(each(|(_, other)| other.cpu)),
            ratio: Some(ratio),
            met: goal.met_by(value, Some(ratio)),
            ours_wall: Some(each(|(ours, _)| ours.wall)),
            other_wall: Some(each(|(_, other)| other.wall)),
            ..row
        })
    }

    /// Measures CPU time per `unit` of one side alone, in nanoseconds.
    pub fn value(&mut self, name: &str, unit: &str, goal: Goal, mut ours: Side<'_>) -> anyhow::Result<()> {
        if !self.wants(name) {
            return Ok(());
        }
        ours.turn()?;
        let mut rounds = Vec::new();
        while wants_more(&rounds, self.rounds, |cost: &Cost| cost.cpu) {
            let [ours] = round(&mut [&mut ours])?;
            rounds.push(ours);
        }
        let values: Vec<f64> = rounds.iter().map(|cost| cost.cpu).collect();
        let value = median(&values);
        let wall = median(&rounds.iter().map(|cost| cost.wall).collect::<Vec<_>>());
        let row = Row::alone(name, format!("ns of CPU per {unit}"), value, spread(&values), goal);
        self.add(Row { ours_wall: Some(wall), ..row })
    }

    /// Does the same work at several sizes, and fits the exponent with which its CPU time grows.
    pub fn growth(
        &mut self,
        name: &str,
        sizes: &[u64],
        goal: Goal,
        mut work: impl FnMut(u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        if !self.wants(name) {
            return Ok(());
        }
        ensure!(sizes.len() >= 3, "growth needs three sizes or more: {name} has {}", sizes.len());
        let mut turn = |size| Side::new(name, || work(size).map(|()| 1)).turn();
        let mut round = || {
            let mut spent = vec![Spent::default(); sizes.len()];
            while unfinished(&spent) {
                for (spent, &size) in spent.iter_mut().zip(sizes) {
                    spent.add(turn(size)?);
                }
            }
            let points: Vec<_> =
                sizes.iter().zip(&spent).map(|(size, spent)| (float(*size), spent.cost().cpu)).collect();
            fitted_exponent(&points).with_context(|| format!("{name}: the sizes must differ"))
        };
        let mut exponents = Vec::new();
        while exponents.len() < self.rounds
            || (exponents.len() < self.rounds * PATIENCE && quartiles(&exponents) > WIDEST)
        {
            exponents.push(round()?);
        }
        let exponent = median(&exponents);
        let shown: Vec<String> = sizes.iter().map(u64::to_string).collect();
        let unit = format!("exponent over {}", shown.join(", "));
        self.add(Row::alone(name, unit, exponent, quartiles(&exponents), goal))
    }

    /// Adds a figure that was measured by other means, such as a number of requests: it has no spread.
    pub fn count(&mut self, name: &str, unit: &str, goal: Goal, value: f64) -> anyhow::Result<()> {
        if self.wants(name) { self.add(Row::alone(name, unit.to_owned(), value, 0.0, goal)) } else { Ok(()) }
    }

    /// The same, with a figure of another program beside it that others have published, on another machine.
    pub fn count_beside(
        &mut self,
        name: &str,
        unit: &str,
        goal: Goal,
        value: f64,
        (against, other): (&str, f64),
    ) -> anyhow::Result<()> {
        if !self.wants(name) {
            return Ok(());
        }
        let row = Row::alone(name, unit.to_owned(), value, 0.0, goal);
        self.add(Row { against: Some(format!("{against} (published)")), other: Some(other), ..row })
    }

    /// Prints the table, writes the JSON if it was asked for and no row was refused, and gives the verdict.
    pub fn finish(self) -> anyhow::Result<ExitCode> {
        self.report(&mut std::io::stdout().lock())
    }

    fn report(self, out: &mut impl Write) -> anyhow::Result<ExitCode> {
        let Self { name, json, rows, refused, .. } = self;
        ensure!(!rows.is_empty() || !refused.is_empty(), "benchmark {name} measured nothing");
        write!(out, "\n{}", table(&rows))?;
        for refusal in &refused {
            writeln!(out, "refused: {refusal}")?;
        }
        if let Some(file) = json {
            if refused.is_empty() {
                let report = Report { bench: &name, date: now()?, machine: machine(), rows: &rows };
                fs::write(&file, serde_json::to_string_pretty(&report)? + "\n")
                    .with_context(|| format!("writing {} failed", file.display()))?;
            } else {
                writeln!(out, "{} was not written: run again on a quiet machine", file.display())?;
            }
        }
        let unmet = rows.iter().filter(|row| !row.met).count();
        writeln!(out, "{} goals met, {unmet} not met, {} refused", rows.len() - unmet, refused.len())?;
        Ok(if unmet == 0 && refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Judges a row and says so while the others are still to come.
    fn add(&mut self, row: Row) -> anyhow::Result<()> {
        let said = self.judge(row)?;
        writeln!(std::io::stderr(), "{said}")?;
        Ok(())
    }

    fn judge(&mut self, row: Row) -> anyhow::Result<String> {
        ensure!(row.ours.is_finite() && row.spread.is_finite(), "{}: a round used no CPU time: give it more", row.name);
        if row.spread > WIDEST {
            let Row { name, spread, .. } = row;
            let refusal = format!("{name}: spread {:.0} % is over {:.0} %", spread * 100.0, WIDEST * 100.0);
            self.refused.push(refusal.clone());
            return Ok(refusal);
        }
        let ratio = row.ratio.map(|ratio| format!(", ratio {}", significant(ratio))).unwrap_or_default();
        let verdict = if row.met { "met" } else { "NOT met" };
        let said = format!("{}: {}{ratio}, goal {} {verdict}", row.name, significant(row.ours), row.goal);
        self.rows.push(row);
        Ok(said)
    }
}

fn wants_more<T>(rounds: &[T], least: usize, figure: impl Fn(&T) -> f64) -> bool {
    let figures: Vec<f64> = rounds.iter().map(figure).collect();
    figures.len() < least || (figures.len() < least * PATIENCE && spread(&figures) > WIDEST)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::side::TURNS;
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_in_the_middle() {
        assert_close(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_close(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_spread_ignores_one_wild_round() {
        assert_close(spread(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 50.0]), 0.0);
        assert_close(spread(&[1.0, 2.0, 3.0, 4.0, 5.0]), 2.0 / 3.0);
    }

    #[test]
    fn more_rounds_are_run_while_the_spread_is_wide_but_not_for_ever() {
        let (calm, wild) = (vec![1.0; ROUNDS], [1.0, 2.0, 3.0].repeat(ROUNDS));
        assert!(wants_more(&calm[1..], ROUNDS, |x| *x));
        assert!(!wants_more(&calm, ROUNDS, |x| *x));
        assert!(wants_more(&wild[1..], ROUNDS, |x| *x));
        assert!(!wants_more(&wild, ROUNDS, |x| *x));
    }

    #[test]
    fn the_exponent_of_a_power_is_found() {
        for power in [0.0, 1.0, 1.5, 2.0] {
            let points: Vec<_> =
                [10.0_f64, 100.0, 1_000.0, 5_000.0].iter().map(|x| (*x, 7.0 * x.powf(power))).collect();
            assert_close(fitted_exponent(&points).unwrap(), power);
        }
        assert_eq!(fitted_exponent(&[(10.0, 1.0), (10.0, 2.0)]), None, "one size says nothing about growth");
    }

    #[test]
    fn a_goal_is_met_up_to_its_limit_and_not_beyond() {
        assert!(Goal::ratio(0.5).met_by(900.0, Some(0.5)));
        assert!(!Goal::ratio(0.5).met_by(0.1, Some(0.51)));
        assert!(!Goal::ratio(0.5).met_by(0.1, None), "no other side, no ratio, not met");
        assert!(Goal::value(10.0).met_by(10.0, Some(99.0)));
        assert!(!Goal::exponent(1.1).met_by(1.2, None));
        assert!(!Goal::value(10.0).met_by(f64::NAN, None));
    }

    #[test]
    fn a_row_that_spreads_too_far_is_refused_and_fails_the_run() {
        let mut bench = bench();
        bench.judge(row(0.16, true)).unwrap();
        assert!(bench.rows.is_empty());
        assert_eq!(bench.refused, ["row: spread 16 % is over 15 %"]);
        assert_eq!(bench.report(&mut Vec::new()).unwrap(), ExitCode::FAILURE);
    }

    #[test]
    fn the_exit_status_is_the_verdict() {
        for (met, expected) in [(true, ExitCode::SUCCESS), (false, ExitCode::FAILURE)] {
            let mut bench = bench();
            bench.judge(row(0.01, met)).unwrap();
            assert_eq!(bench.report(&mut Vec::new()).unwrap(), expected);
        }
        assert!(bench().report(&mut Vec::new()).is_err(), "a benchmark without a row has no verdict");
    }

    #[test]
    fn a_row_is_written_with_the_agreed_fields() {
        let json = serde_json::to_value(row(0.01, true)).unwrap();
        for field in ["name", "unit", "ours", "against", "other", "ratio", "spread", "goal", "met"] {
            assert!(json.get(field).is_some(), "{field} is missing: {json}");
        }
    }

    #[test]
    fn the_table_lines_up() {
        let text = table(&[row(0.01, true), row(0.02, false)]);
        let column = text.lines().next().unwrap().find("GOAL").unwrap();
        assert!(text.lines().skip(1).all(|line| line[column..].starts_with("ratio <= 0.5")), "{text}");
    }

    #[test]
    fn ten_times_the_work_costs_more_cpu_time() {
        let work = |steps: u64| {
            std::hint::black_box((0..steps).fold(0_u64, |sum, n| std::hint::black_box(sum ^ n)));
            Ok(1)
        };
        let once = Side::new("once", || work(2_000_000)).turn().unwrap();
        let more = Side::new("ten times", || work(20_000_000)).turn().unwrap();
        assert!(more.cpu > once.cpu, "{more:?} {once:?}");
    }

    #[test]
    fn short_work_takes_several_turns_in_a_round_and_long_work_one() {
        let spent = |millis, turns| Spent { cpu: Duration::from_millis(millis), turns, ..Spent::default() };
        assert!(unfinished(&[spent(0, 0)]));
        assert!(unfinished(&[spent(900, 3), spent(20, 3)]));
        assert!(!unfinished(&[spent(900, 1), spent(300, 1)]));
        assert!(!unfinished(&[spent(1, TURNS)]));
        let (mut ours, mut theirs) = (0, 0);
        let count = |turns: &mut usize| {
            *turns += 1;
            Ok(1)
        };
        round(&mut [&mut Side::new("ours", || count(&mut ours)), &mut Side::new("theirs", || count(&mut theirs))])
            .unwrap();
        assert_eq!((ours, theirs), (TURNS, TURNS));
    }

    fn assert_close(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-9, "{value} is not {expected}");
    }

    fn bench() -> Bench {
        let (name, only) = ("test".to_owned(), String::new());
        Bench { name, json: None, only, against: None, rounds: ROUNDS, rows: Vec::new(), refused: Vec::new() }
    }

    fn row(spread: f64, met: bool) -> Row {
        let alone = Row::alone("row", "ns of CPU per thing".to_owned(), 12.0, spread, Goal::ratio(0.5));
        Row { against: Some("theirs".to_owned()), other: Some(30.0), ratio: Some(0.4), met, ..alone }
    }
}
