//! What was measured, against its goals, as people and programs read it.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Serialize;

/// What a row must reach to be met.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goal {
    what: Measure,
    at_most: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    /// Ours through theirs.
    Ratio,
    /// Ours alone, in the row's unit.
    Value,
    /// How the work grows with its size: 1 is linear.
    Exponent,
}

impl Goal {
    /// Ours takes at most this share of what the other side takes.
    pub const fn ratio(at_most: f64) -> Self {
        Self { what: Measure::Ratio, at_most }
    }

    /// Ours takes at most this much, in the row's unit.
    pub const fn value(at_most: f64) -> Self {
        Self { what: Measure::Value, at_most }
    }

    /// The work grows with at most this power of its size.
    pub const fn exponent(at_most: f64) -> Self {
        Self { what: Measure::Exponent, at_most }
    }

    pub(super) fn met_by(self, value: f64, ratio: Option<f64>) -> bool {
        match self.what {
            Measure::Ratio => ratio.is_some_and(|ratio| ratio <= self.at_most),
            Measure::Value | Measure::Exponent => value <= self.at_most,
        }
    }

    pub(super) fn text(self) -> String {
        let what = match self.what {
            Measure::Ratio => "ratio",
            Measure::Value => "ours",
            Measure::Exponent => "exponent",
        };
        let limit = format!("{:.3}", self.at_most);
        format!("{what} <= {}", limit.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) unit: String,
    pub(super) ours: f64,
    pub(super) against: Option<String>,
    pub(super) other: Option<f64>,
    pub(super) ratio: Option<f64>,
    pub(super) spread: f64,
    pub(super) goal: String,
    pub(super) met: bool,
    /// Wall time per unit, where CPU time is the measure.
    pub(super) ours_wall: Option<f64>,
    pub(super) other_wall: Option<f64>,
}

impl Row {
    /// A figure of ours with nothing to compare it to.
    pub(super) fn alone(name: &str, unit: String, ours: f64, spread: f64, goal: Goal) -> Self {
        Self {
            name: name.to_owned(),
            unit,
            ours,
            against: None,
            other: None,
            ratio: None,
            spread,
            goal: goal.text(),
            met: goal.met_by(ours, None),
            ours_wall: None,
            other_wall: None,
        }
    }
}

/// What `--json` writes.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    pub(super) bench: &'a str,
    pub(super) date: String,
    pub(super) machine: String,
    pub(super) rows: &'a [Row],
}

pub(super) fn table(rows: &[Row]) -> String {
    let head = ["NAME", "OURS", "WALL", "AGAINST", "OTHER", "WALL", "UNIT", "RATIO", "SPREAD", "GOAL", "MET"];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for row in rows {
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), significant);
        lines.push(vec![
            row.name.clone(),
            significant(row.ours),
            number(row.ours_wall),
            row.against.clone().unwrap_or_else(|| "-".to_owned()),
            number(row.other),
            number(row.other_wall),
            row.unit.clone(),
            number(row.ratio),
            format!("{:.1} %", row.spread * 100.0),
            row.goal.clone(),
            if row.met { "yes" } else { "NO" }.to_owned(),
        ]);
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// Three digits that matter for small numbers, none behind the point for large ones.
pub(super) fn significant(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

pub(super) fn now() -> anyhow::Result<String> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let date = Timestamp::from_second(i64::try_from(seconds)?).ok().context("the clock is set beyond all dates")?;
    Ok(date.to_string())
}

/// The processors and the kernel, for those who compare reports.
pub(super) fn machine() -> String {
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model);
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{count} x {model}, Linux {}", kernel.trim())
}
