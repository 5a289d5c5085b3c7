//! Finds the rules of a long rulelist that can match at all.
//!
//! Controllers write one rule per call, `test` of the same path against another text each, thousands of them.
//! Those are found by the text; all others are tried in order. The first match is the same as without an index.

use std::collections::BTreeMap;

use serde_json::Value;

use super::path::Path;
use super::predicate::Predicate;
use super::value::plain;

/// Rules on one path that are worth a look at that path, at least.
const WORTHWHILE: usize = 8;

/// Where in a rulelist which rules stand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    /// Places that have to be tried, lowest first.
    tried: Vec<usize>,
    gates: Vec<Gate>,
}

/// Rules that match only if one text is at the path.
#[derive(Debug, Clone)]
struct Gate {
    path: Path,
    /// Their places, lowest first.
    by_text: BTreeMap<Box<str>, Vec<usize>>,
}

impl Index {
    /// An index of predicates by their place; one that is absent has to be tried.
    pub(crate) fn new<'a>(predicates: impl Iterator<Item = Option<&'a Predicate>>) -> Self {
        let mut by_path: BTreeMap<&str, Vec<(usize, &Path, &str)>> = BTreeMap::new();
        let mut index = Self::default();
        for (place, predicate) in predicates.enumerate() {
            match predicate.and_then(Predicate::gate) {
                Some((path, text)) => by_path.entry(path.as_str()).or_default().push((place, path, text)),
                None => index.tried.push(place),
            }
        }
        for rules in by_path.into_values() {
            match rules.first() {
                Some((_, path, _)) if rules.len() >= WORTHWHILE => index.gates.push(Gate::new((*path).clone(), &rules)),
                _ => index.tried.extend(rules.iter().map(|(place, _, _)| place)),
            }
        }
        index.tried.sort_unstable();
        index
    }

    /// The first place that is a hit for some metadata.
    pub(crate) fn first(&self, metadata: &Value, is_hit: impl Fn(usize) -> bool) -> Option<usize> {
        let found = self.gates.iter().filter_map(|gate| gate.places(metadata)?.iter().copied().find(|at| is_hit(*at)));
        let best = found.min();
        let before = |place: &usize| best.is_none_or(|best| *place < best);
        self.tried.iter().copied().take_while(before).find(|place| is_hit(*place)).or(best)
    }
}

impl Gate {
    fn new(path: Path, rules: &[(usize, &Path, &str)]) -> Self {
        let mut by_text: BTreeMap<Box<str>, Vec<usize>> = BTreeMap::new();
        for (place, _, text) in rules {
            by_text.entry(plain(text).into()).or_default().push(*place);
        }
        Self { path, by_text }
    }

    fn places(&self, metadata: &Value) -> Option<&Vec<usize>> {
        let text = self.path.read(metadata)?.as_str()?;
        self.by_text.get(plain(text))
    }
}
