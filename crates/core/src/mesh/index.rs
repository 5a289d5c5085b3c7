//! Finds the rules of a long rulelist that can match at all.
//!
//! Controllers write one rule per call, `test` of the same path against another text each, thousands of them.
//! Those are found by the text; all others are tried in order. The first match is the same as without an index.

use std::collections::BTreeMap;

use serde_json::Value;

use super::path::Path;
use super::predicate::Predicate;
use super::value::plain;

/// With fewer rules on one path than this, trying each is as fast.
const WORTHWHILE: usize = 8;

/// The rules of a rulelist, by what they test.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    /// Positions of rules that are always tried, ascending.
    tried: Vec<usize>,
    tests: Vec<TextTests>,
}

/// Rules that match only if the value at one path is a certain text.
#[derive(Debug, Clone)]
struct TextTests {
    path: Path,
    /// Their positions by text, ascending.
    by_text: BTreeMap<Box<str>, Vec<usize>>,
}

impl Index {
    /// An index of the predicates, by position; a rule without one is always tried.
    pub(crate) fn new<'a>(predicates: impl Iterator<Item = Option<&'a Predicate>>) -> Self {
        let mut by_path: BTreeMap<&str, Vec<(usize, &Path, &str)>> = BTreeMap::new();
        let mut index = Self::default();
        for (at, predicate) in predicates.enumerate() {
            match predicate.and_then(Predicate::required_text) {
                Some((path, text)) => by_path.entry(path.as_str()).or_default().push((at, path, text)),
                None => index.tried.push(at),
            }
        }
        for rules in by_path.into_values() {
            match rules.first() {
                Some((_, path, _)) if rules.len() >= WORTHWHILE => {
                    index.tests.push(TextTests::new((*path).clone(), &rules));
                }
                _ => index.tried.extend(rules.iter().map(|(at, _, _)| at)),
            }
        }
        index.tried.sort_unstable();
        index
    }

    /// The first position of a rule that matches, of those that can.
    pub(crate) fn first(&self, metadata: &Value, matches: impl Fn(usize) -> bool) -> Option<usize> {
        let found =
            self.tests.iter().filter_map(|test| test.positions(metadata)?.iter().copied().find(|at| matches(*at)));
        let best = found.min();
        let before = |at: &usize| best.is_none_or(|best| *at < best);
        self.tried.iter().copied().take_while(before).find(|at| matches(*at)).or(best)
    }
}

impl TextTests {
    fn new(path: Path, rules: &[(usize, &Path, &str)]) -> Self {
        let mut by_text: BTreeMap<Box<str>, Vec<usize>> = BTreeMap::new();
        for (at, _, text) in rules {
            by_text.entry(plain(text).into()).or_default().push(*at);
        }
        Self { path, by_text }
    }

    fn positions(&self, metadata: &Value) -> Option<&Vec<usize>> {
        let text = self.path.read(metadata)?.as_str()?;
        self.by_text.get(plain(text))
    }
}
