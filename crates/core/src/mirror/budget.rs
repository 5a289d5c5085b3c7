//! The deletion budget: a remote that suddenly lacks many Services is more likely broken than changed.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::names::short_hash;
use super::rules::DeletionBudget;
use super::types::ServiceName;

/// When mirrors of one remote were deleted lately. Times are durations since any fixed point.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecentDeletions(VecDeque<Duration>);

/// Deletions that wait for approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldDeletions {
    /// How many.
    pub count: usize,
    /// Names this very set: approving it approves no other.
    pub hash: String,
    /// How many mirrors may be deleted within the window.
    pub budget: usize,
}

impl RecentDeletions {
    /// Records a deletion.
    pub fn record(&mut self, now: Duration) {
        self.0.push_back(now);
    }

    fn within(&mut self, window: Duration, now: Duration) -> usize {
        while self.0.front().is_some_and(|at| *at + window <= now) {
            self.0.pop_front();
        }
        self.0.len()
    }

    /// When the next recorded deletion no longer counts.
    pub fn next_forgotten(&self, budget: &DeletionBudget) -> Option<Duration> {
        self.0.front().map(|at| *at + budget.window)
    }
}

/// Whether deletions are held: all of them, if together with those of late they are more than the budget allows and
/// not approved. `mirrors` is the number of mirrors that the remote has, those to be deleted included.
pub fn held(
    budget: &DeletionBudget,
    recent: &mut RecentDeletions,
    wanted: &BTreeSet<ServiceName>,
    mirrors: usize,
    approved: Option<&str>,
    now: Duration,
) -> Option<HeldDeletions> {
    if wanted.is_empty() {
        return None;
    }
    let past = recent.within(budget.window, now);
    let allowed = budget.floor.max((mirrors + past) * usize::from(budget.max_percent) / 100);
    let hash = set_hash(wanted);
    let fits = past + wanted.len() <= allowed;
    (!fits && approved != Some(&*hash)).then_some(HeldDeletions { count: wanted.len(), hash, budget: allowed })
}

fn set_hash(names: &BTreeSet<ServiceName>) -> String {
    let lines: Vec<String> = names.iter().map(ServiceName::to_string).collect();
    short_hash(&lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> BTreeSet<ServiceName> {
        (0..count).map(|number| ServiceName::new("shop", format!("s{number}"))).collect()
    }

    #[test]
    fn more_than_the_budget_is_held_until_that_very_set_is_approved() {
        let budget = DeletionBudget { max_percent: 30, floor: 10, window: Duration::from_mins(10) };
        let mut recent = RecentDeletions::default();
        let minutes = Duration::from_mins;
        assert_eq!(held(&budget, &mut recent, &names(10), 12, None, minutes(0)), None, "the floor");
        assert_eq!(held(&budget, &mut recent, &names(30), 100, None, minutes(0)), None, "the share");
        let over = held(&budget, &mut recent, &names(31), 100, None, minutes(0)).unwrap();
        assert_eq!((over.count, over.budget), (31, 30));
        assert_eq!(held(&budget, &mut recent, &names(31), 100, Some(&over.hash), minutes(0)), None);
        assert!(held(&budget, &mut recent, &names(32), 100, Some(&over.hash), minutes(0)).is_some(), "another set");
    }

    #[test]
    fn deletions_of_the_last_window_count() {
        let budget = DeletionBudget { max_percent: 0, floor: 3, window: Duration::from_mins(10) };
        let mut recent = RecentDeletions::default();
        recent.record(Duration::from_mins(1));
        recent.record(Duration::from_mins(5));
        let at = |recent: &mut RecentDeletions, minutes| {
            held(&budget, recent, &names(2), 50, None, Duration::from_mins(minutes)).is_some()
        };
        assert!(at(&mut recent, 6));
        assert_eq!(recent.next_forgotten(&budget), Some(Duration::from_mins(11)));
        assert!(!at(&mut recent, 11));
    }
}
