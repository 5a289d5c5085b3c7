//! Ordered lists of rules: merging, and the fewest edits from one order to another without a gap.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::mesh::control::wire::Insertion;

/// An edit of a rulelist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ListEdit {
    /// Inserts a rule at a position.
    Insert(usize, Arc<str>),
    /// Deletes the rule at a position.
    Delete(usize),
}

/// Inserts rules into a list, by position and newest first; rules of the list keep their index.
pub(super) fn merge(standing: &[Arc<str>], inserted: &[&Insertion]) -> Vec<Arc<str>> {
    let mut inserted: Vec<&&Insertion> = inserted.iter().collect();
    inserted.sort_by(|one, other| {
        (one.position, std::cmp::Reverse(one.created), &one.rule).cmp(&(
            other.position,
            std::cmp::Reverse(other.created),
            &other.rule,
        ))
    });
    let mut merged = Vec::with_capacity(standing.len() + inserted.len());
    let mut inserted = inserted.into_iter().peekable();
    for (index, name) in standing.iter().enumerate() {
        while let Some(one) = inserted.next_if(|one| one.position <= index as u64) {
            merged.push(Arc::clone(&one.rule));
        }
        merged.push(Arc::clone(name));
    }
    merged.extend(inserted.map(|one| Arc::clone(&one.rule)));
    merged
}

/// The fewest edits from one list to another; all insertions come before deletions.
pub(super) fn edits(from: &[Arc<str>], to: &[Arc<str>]) -> Vec<ListEdit> {
    let kept = common(from, to);
    let stays = |name: &Arc<str>| kept.contains(name);
    let (mut edits, mut list) = (Vec::new(), from.to_vec());
    let mut place = 0;
    for name in to {
        if stays(name) {
            while list.get(place) != Some(name) {
                place += 1;
            }
        } else {
            edits.push(ListEdit::Insert(place, Arc::clone(name)));
            list.insert(place, Arc::clone(name));
        }
        place += 1;
    }
    // what is left over, including the old positions of moved rules
    let mut wanted = to.iter().peekable();
    let mut extra = Vec::new();
    for (place, name) in list.iter().enumerate() {
        if wanted.peek() == Some(&name) {
            wanted.next();
        } else {
            extra.push(place);
        }
    }
    edits.extend(extra.into_iter().rev().map(ListEdit::Delete));
    edits
}

/// Names that keep their order: the longest increasing sequence of old positions.
fn common(from: &[Arc<str>], to: &[Arc<str>]) -> BTreeSet<Arc<str>> {
    let places: BTreeMap<&Arc<str>, usize> = from.iter().enumerate().map(|(place, name)| (name, place)).collect();
    let known: Vec<(usize, &Arc<str>)> = to.iter().filter_map(|name| Some((*places.get(name)?, name))).collect();
    // tails[n] ends the best run of length n + 1; before[i] is who comes before i in its run
    let (mut tails, mut before): (Vec<usize>, Vec<Option<usize>>) = (Vec::new(), Vec::new());
    for (at, (place, _)) in known.iter().enumerate() {
        let length = tails.partition_point(|tail| known[*tail].0 < *place);
        before.push(length.checked_sub(1).map(|length| tails[length]));
        if length == tails.len() {
            tails.push(at);
        } else {
            tails[length] = at;
        }
    }
    let mut kept = BTreeSet::new();
    let mut next = tails.last().copied();
    while let Some(at) = next {
        kept.insert(Arc::clone(known[at].1));
        next = before[at];
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<Arc<str>> {
        text.chars().map(|letter| Arc::from(letter.to_string())).collect()
    }

    fn run(from: &str, to: &str) -> (String, usize) {
        let mut list = list(from);
        let edits = edits(&list, &self::list(to));
        let inserts = edits.iter().filter(|edit| matches!(edit, ListEdit::Insert(..))).count();
        let first_delete = edits.iter().position(|edit| matches!(edit, ListEdit::Delete(_))).unwrap_or(edits.len());
        assert_eq!(first_delete, inserts, "all inserts come first");
        for edit in &edits {
            match edit {
                ListEdit::Insert(place, name) => list.insert(*place, Arc::clone(name)),
                ListEdit::Delete(place) => drop(list.remove(*place)),
            }
        }
        (list.concat(), edits.len())
    }

    #[test]
    fn any_order_becomes_any_other_in_the_fewest_edits() {
        for (from, to, count) in [
            ("abc", "abc", 0),
            ("abc", "axc", 2),
            ("abc", "abcd", 1),
            ("abc", "", 3),
            ("", "abc", 3),
            ("abcd", "bcda", 2),
            ("abcd", "dabc", 2),
            ("abcdef", "acbdfe", 4),
            ("abc", "cba", 4),
        ] {
            assert_eq!(run(from, to), (to.to_owned(), count), "{from} -> {to}");
        }
    }

    #[test]
    fn insertions_go_by_position_then_newest_first() {
        let insertion = |position: u64, created: i64, rule: &str| Insertion {
            rulelist: Arc::from("l"),
            position,
            created,
            rule: Arc::from(rule),
        };
        let all = [insertion(0, 1, "p"), insertion(0, 2, "q"), insertion(2, 1, "r"), insertion(9, 1, "s")];
        assert_eq!(merge(&list("abc"), &all.iter().collect::<Vec<_>>()).concat(), "qpabrcs");
        assert_eq!(merge(&[], &all.iter().collect::<Vec<_>>()).concat(), "qprs");
    }
}
