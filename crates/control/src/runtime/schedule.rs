//! When each key of a queue runs next: never twice at once, not more often than an interval, and after a failure later
//! and later. Keys belong to shares, which take turns, so that many keys of one share delay no other. Time is passed in.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::backoff::{Backoff, Delays};
use super::error::Error;

/// Who a key is written for; None is a share like any other.
pub type Share = Option<Arc<str>>;

/// Which of the keys that became due at the same moment comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The lowest.
    OfKeys,
    /// Any: of two processes that write the same objects, each begins with others and finds what the other one wrote.
    Random,
}

/// When each key is written next.
#[derive(Debug)]
pub struct Schedule<K> {
    interval: Duration,
    order: Order,
    entries: BTreeMap<K, Entry>,
    /// By share; none is empty.
    due: BTreeMap<Share, BTreeSet<(Instant, Rank, K)>>,
    /// The share that was taken from last.
    last_share: Share,
    /// When keys were last written, within the last interval.
    written: BTreeMap<K, Instant>,
}

/// Orders the keys that became due at the same moment.
type Rank = u64;

#[derive(Debug)]
struct Entry {
    state: State,
    rank: Rank,
    share: Share,
    /// When it was added first since its last success.
    since: Instant,
    failed: Option<Box<Failed>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting(Instant),
    Running,
    /// Added while it ran, so what it was prepared from may be old.
    RunningAndAdded,
}

/// A key whose last write failed.
#[derive(Debug)]
struct Failed {
    delays: Delays,
    conflicts: Delays,
    times: u32,
    last: Instant,
}

impl<K: Ord + Clone> Schedule<K> {
    /// An empty schedule.
    pub fn new(interval: Duration, order: Order) -> Self {
        Self {
            interval,
            order,
            entries: BTreeMap::new(),
            due: BTreeMap::new(),
            last_share: None,
            written: BTreeMap::new(),
        }
    }

    /// Adds a key whose object may differ. After a failure it is retried early because of that, but not at once: a
    /// write that keeps failing must not be repeated with every change around it. A key that waits or runs already
    /// stays in its share.
    pub fn add(&mut self, key: K, share: Share, now: Instant) {
        let Some(entry) = self.entries.get_mut(&key) else {
            let at = self.written.get(&key).map_or(now, |last| now.max(*last + self.interval));
            let rank = match self.order {
                Order::OfKeys => 0,
                Order::Random => fastrand::u64(..),
            };
            let entry = Entry { state: State::Waiting(at), rank, share: share.clone(), since: now, failed: None };
            self.entries.insert(key.clone(), entry);
            self.due.entry(share).or_default().insert((at, rank, key));
            return;
        };
        match entry.state {
            State::Waiting(before) => {
                let soonest = match &entry.failed {
                    Some(failed) => failed.last + AFTER_CHANGE,
                    None => self.written.get(&key).map_or(now, |last| *last + self.interval),
                };
                let at = before.min(soonest.max(now));
                if at != before {
                    entry.state = State::Waiting(at);
                    let due = self.due.entry(entry.share.clone()).or_default();
                    due.remove(&(before, entry.rank, key.clone()));
                    due.insert((at, entry.rank, key));
                }
            }
            State::Running | State::RunningAndAdded => entry.state = State::RunningAndAdded,
        }
    }

    /// Takes the key of the next share that has been due longest, with the time at which it was added first since its
    /// last success; it counts as running until [`Schedule::succeeded`], [`Schedule::failed`], [`Schedule::put_off`] or
    /// [`Schedule::remove`].
    pub fn take(&mut self, now: Instant) -> Option<(K, Instant)> {
        let after = self.due.range((Bound::Excluded(&self.last_share), Bound::Unbounded));
        let mut shares = after.chain(self.due.range(..=&self.last_share));
        let is_due = |due: &BTreeSet<(Instant, Rank, K)>| due.first().is_some_and(|(at, ..)| *at <= now);
        self.last_share = shares.find_map(|(share, due)| is_due(due).then(|| share.clone()))?;
        let due = self.due.get_mut(&self.last_share)?;
        let (_, _, key) = due.pop_first()?;
        if due.is_empty() {
            self.due.remove(&self.last_share);
        }
        let entry = self.entries.get_mut(&key)?;
        entry.state = State::Running;
        Some((key, entry.since))
    }

    /// Ends a run that wrote, or found nothing to write.
    pub fn succeeded(&mut self, key: &K, now: Instant) {
        let Some(entry) = self.entries.remove(key) else { return };
        if !self.interval.is_zero() {
            let interval = self.interval;
            self.written.retain(|_, last| *last + interval > now);
            self.written.insert(key.clone(), now);
        }
        if entry.state == State::RunningAndAdded {
            self.add(key.clone(), entry.share, now);
        }
    }

    /// Ends a run that failed; gives when it is retried, and how often it has failed in a row.
    pub fn failed(&mut self, key: &K, problem: &Error, now: Instant) -> Option<(Instant, u32)> {
        let entry = self.entries.get_mut(key)?;
        let failed = entry.failed.get_or_insert_with(|| {
            let (delays, conflicts) = (Backoff::REQUESTS.delays(), Backoff::CONFLICTS.delays());
            Box::new(Failed { delays, conflicts, times: 0, last: now })
        });
        let lost_a_race = matches!(problem, Error::Conflict { .. });
        let delay = if lost_a_race { failed.conflicts.pause() } else { failed.delays.pause() };
        let delay = problem.retry_after().map_or(delay, |asked| asked.max(delay));
        (failed.times, failed.last) = (failed.times + 1, now);
        let mut at = now + delay;
        // What the server asked for holds whatever changed meanwhile.
        if entry.state == State::RunningAndAdded && problem.retry_after().is_none() {
            at = at.min(now + AFTER_CHANGE);
        }
        entry.state = State::Waiting(at);
        let times = failed.times;
        self.due.entry(entry.share.clone()).or_default().insert((at, entry.rank, key.clone()));
        Some((at, times))
    }

    /// Ends a run that came too early.
    pub fn put_off(&mut self, key: &K, at: Instant) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.state = State::Waiting(at);
            self.due.entry(entry.share.clone()).or_default().insert((at, entry.rank, key.clone()));
        }
    }

    /// Ends a run of a key that needs nothing.
    pub fn remove(&mut self, key: &K) {
        self.entries.remove(key);
    }

    /// When [`Schedule::take`] has something next.
    pub fn next_due(&self) -> Option<Instant> {
        self.due.values().filter_map(|due| due.first()).map(|(at, ..)| *at).min()
    }

    /// Keys waiting or running.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when no key waits or runs.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// A change retries a failed write this long after the last try at the earliest.
const AFTER_CHANGE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Add(u8),
        Take,
        Succeed(usize),
        Fail(usize, bool),
        PutOff(usize, u8),
        Pass(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0u8..4).prop_map(Step::Add),
            3 => Just(Step::Take),
            2 => (0usize..4).prop_map(Step::Succeed),
            2 => (0usize..4, any::<bool>()).prop_map(|(which, conflict)| Step::Fail(which, conflict)),
            1 => (0usize..4, 0u8..5).prop_map(|(which, later)| Step::PutOff(which, later)),
            1 => (1u8..5).prop_map(Step::Pass),
        ];
        prop::collection::vec(step, 0..60)
    }

    fn conflict() -> Error {
        Error::Conflict { what: "test".into() }
    }

    fn stopped() -> Error {
        Error::Stopped { what: "test".into() }
    }

    proptest! {
        #[test]
        fn a_key_never_runs_twice_at_once_nor_too_often_and_no_addition_is_lost(
            steps in steps(),
            interval in 0u64..3,
            is_random in any::<bool>(),
        ) {
            let interval = Duration::from_secs(interval);
            let mut now = Instant::from_std(std::time::Instant::now());
            let order = if is_random { Order::Random } else { Order::OfKeys };
            let mut schedule = Schedule::new(interval, order);
            let mut running: Vec<u8> = Vec::new();
            // Keys that must still run once more, whatever happens.
            let mut owed: BTreeSet<u8> = BTreeSet::new();
            let mut written: BTreeMap<u8, Instant> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Add(key) => {
                        schedule.add(key, (key % 2 == 0).then(|| "even".into()), now);
                        owed.insert(key);
                    }
                    Step::Take => if let Some((key, _)) = schedule.take(now) {
                        prop_assert!(!running.contains(&key), "{key} runs already");
                        let last = written.get(&key);
                        prop_assert!(last.is_none_or(|last| *last + interval <= now), "{key} was just written");
                        owed.remove(&key);
                        running.push(key);
                    },
                    Step::Succeed(which) => if !running.is_empty() {
                        let key = running.swap_remove(which % running.len());
                        schedule.succeeded(&key, now);
                        written.insert(key, now);
                    },
                    Step::Fail(which, lost_a_race) => if !running.is_empty() {
                        let key = running.swap_remove(which % running.len());
                        schedule.failed(&key, &if lost_a_race { conflict() } else { stopped() }, now);
                        owed.insert(key);
                    },
                    Step::PutOff(which, later) => if !running.is_empty() {
                        let key = running.swap_remove(which % running.len());
                        schedule.put_off(&key, now + Duration::from_secs(later.into()));
                        owed.insert(key);
                    },
                    Step::Pass(seconds) => now += Duration::from_secs(seconds.into()),
                }
            }
            for key in running.drain(..) {
                schedule.succeeded(&key, now);
            }
            let mut ran = BTreeSet::new();
            while let Some(at) = schedule.next_due() {
                now = at.max(now);
                let (key, _) = schedule.take(now).expect("what is due can be taken");
                schedule.succeeded(&key, now);
                ran.insert(key);
            }
            prop_assert_eq!(ran, owed);
            prop_assert!(schedule.is_empty());
        }
    }

    #[test]
    fn a_failed_write_waits_longer_each_time_and_a_change_retries_it_after_a_second() {
        let mut at = Instant::from_std(std::time::Instant::now());
        let mut schedule = Schedule::new(Duration::ZERO, Order::OfKeys);
        schedule.add("a", None, at);
        let mut last = Duration::ZERO;
        for _ in 0..9 {
            let (key, _) = schedule.take(at).unwrap();
            let (again, _) = schedule.failed(&key, &stopped(), at).unwrap();
            assert!(again - at >= last, "{:?} after {last:?}", again - at);
            last = (again - at) / 2;
            at = again;
        }
        let (key, _) = schedule.take(at).unwrap();
        schedule.failed(&key, &stopped(), at);
        assert!(schedule.next_due().unwrap() > at + Duration::from_secs(10));
        schedule.add("a", None, at);
        assert_eq!(schedule.next_due().unwrap() - at, Duration::from_secs(1), "not with every change");
        schedule.add("b", None, at);
        assert_eq!(schedule.take(at).map(|(key, _)| key), Some("b"), "it delays only itself");
    }

    #[test]
    fn keys_of_the_same_moment_come_in_another_order_in_each_random_schedule() {
        let now = Instant::from_std(std::time::Instant::now());
        let taken = |order: Order| -> Vec<u32> {
            let mut schedule = Schedule::new(Duration::ZERO, order);
            (0..100).for_each(|key| schedule.add(key, None, now));
            std::iter::from_fn(|| schedule.take(now).map(|(key, _)| key)).collect()
        };
        let sorted: Vec<u32> = (0..100).collect();
        assert_eq!(taken(Order::OfKeys), sorted);
        let (mut one, mut other) = (taken(Order::Random), taken(Order::Random));
        assert_ne!(one, other);
        one.sort_unstable();
        other.sort_unstable();
        assert_eq!((&one, &other), (&sorted, &sorted));
    }

    #[test]
    fn shares_take_turns_and_one_alone_gets_everything() {
        let now = Instant::from_std(std::time::Instant::now());
        let mut schedule = Schedule::new(Duration::ZERO, Order::OfKeys);
        (0..6).for_each(|key| schedule.add(key, Some("a".into()), now));
        (10..12).for_each(|key| schedule.add(key, Some("b".into()), now + Duration::from_millis(1)));
        schedule.add(20, None, now + Duration::from_millis(1));
        let now = now + Duration::from_millis(1);
        let taken: Vec<i32> = std::iter::from_fn(|| schedule.take(now).map(|(key, _)| key)).collect();
        assert_eq!(taken, [0, 10, 20, 1, 11, 2, 3, 4, 5]);
    }
}
