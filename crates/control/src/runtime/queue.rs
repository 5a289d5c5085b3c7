//! A queue of keys: each runs when it is due, never twice at once, and after a failure later and later.
//!
//! [`Queue`] is the rules, with time passed in; [`run`] is the tasks around it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backoff::{Backoff, Delays};
use super::metrics::Metrics;

/// How a run of a key ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing more to do until the key is added again.
    Done,
    /// Look again after this time, without a failure.
    After(Duration),
    /// Failed: again after a growing delay, or after what the server asked for.
    Failed { after: Option<Duration> },
}

/// When each key runs next.
#[derive(Debug)]
pub struct Queue<K> {
    backoff: Backoff,
    entries: BTreeMap<K, Entry>,
    due: BTreeSet<(Instant, K)>,
}

#[derive(Debug)]
struct Entry {
    state: State,
    failures: Option<Delays>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting(Instant),
    Running,
    /// Added while it ran, so what it read may be old.
    RunningAndDueAt(Instant),
}

impl<K: Ord + Clone> Queue<K> {
    /// An empty queue whose failures are retried after `backoff`.
    pub fn new(backoff: Backoff) -> Self {
        Self { backoff, entries: BTreeMap::new(), due: BTreeSet::new() }
    }

    /// Adds a key to run at `at`; if it waits already, the earlier time counts.
    pub fn add(&mut self, key: K, at: Instant) {
        let entry = self.entries.entry(key.clone()).or_insert(Entry { state: State::Waiting(at), failures: None });
        entry.state = match entry.state {
            State::Waiting(before) => {
                self.due.remove(&(before, key.clone()));
                let at = before.min(at);
                self.due.insert((at, key));
                State::Waiting(at)
            }
            State::Running => State::RunningAndDueAt(at),
            State::RunningAndDueAt(before) => State::RunningAndDueAt(before.min(at)),
        };
    }

    /// Takes the key that has been due longest; it counts as running until [`Queue::finish`].
    pub fn take(&mut self, now: Instant) -> Option<K> {
        if self.due.first()?.0 > now {
            return None;
        }
        let (_, key) = self.due.pop_first()?;
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.state = State::Running;
        }
        Some(key)
    }

    /// Ends a run.
    pub fn finish(&mut self, key: &K, outcome: Outcome, now: Instant) {
        let Some(mut entry) = self.entries.remove(key) else { return };
        let again = match outcome {
            Outcome::Done => {
                entry.failures = None;
                None
            }
            Outcome::After(pause) => {
                entry.failures = None;
                Some(now + pause)
            }
            Outcome::Failed { after } => {
                let delay = entry.failures.get_or_insert_with(|| self.backoff.delays()).pause();
                Some(now + after.map_or(delay, |asked| asked.max(delay)))
            }
        };
        let added = match entry.state {
            State::RunningAndDueAt(at) => Some(at),
            State::Waiting(_) | State::Running => None,
        };
        // What was added meanwhile is news, and news does not wait for a retry's delay.
        if let Some(at) = [again, added].into_iter().flatten().min() {
            self.due.insert((at, key.clone()));
            entry.state = State::Waiting(at);
            self.entries.insert(key.clone(), entry);
        }
    }

    /// When [`Queue::take`] has something next.
    pub fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
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

/// A queue that many add to. Clones are the same queue.
#[derive(Debug)]
pub struct Work<K> {
    queue: Arc<Mutex<Queue<K>>>,
    added: Arc<Notify>,
}

impl<K> Clone for Work<K> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), added: self.added.clone() }
    }
}

impl<K: Ord + Clone> Work<K> {
    /// An empty queue.
    pub fn new(backoff: Backoff) -> Self {
        Self { queue: Arc::new(Mutex::new(Queue::new(backoff))), added: Arc::new(Notify::new()) }
    }

    /// Adds a key that is due now.
    pub fn add(&self, key: K) {
        self.queue.lock().add(key, Instant::now());
        self.added.notify_one();
    }

    /// Runs `work` on due keys, at most `at_once` of them at a time, until stopped; runs under way are finished.
    pub async fn run<F: Future<Output = Outcome>>(
        &self,
        at_once: usize,
        stop: &CancellationToken,
        metrics: &Metrics,
        work: impl Fn(K) -> F,
    ) {
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < at_once && !stop.is_cancelled() {
                let Some(key) = self.queue.lock().take(Instant::now()) else { break };
                let run = work(key.clone());
                running.push(async move { (key, run.await) });
            }
            metrics.queue_depth.set(i64::try_from(self.queue.lock().len()).unwrap_or(i64::MAX));
            if stop.is_cancelled() && running.is_empty() {
                return;
            }
            let next = self.queue.lock().next_due().filter(|_| running.len() < at_once && !stop.is_cancelled());
            tokio::select! {
                Some((key, outcome)) = running.next() => {
                    if matches!(outcome, Outcome::Failed { .. }) {
                        metrics.queue_retries.inc();
                    }
                    self.queue.lock().finish(&key, outcome, Instant::now());
                }
                () = self.added.notified() => {}
                () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
                () = stop.cancelled(), if !stop.is_cancelled() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_mins(1) };

    #[derive(Debug, Clone)]
    enum Step {
        Add(u8, u8),
        Take,
        Finish(usize, Outcome),
        Pass(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let outcome = prop_oneof![
            Just(Outcome::Done),
            (0u64..5).prop_map(|seconds| Outcome::After(Duration::from_secs(seconds))),
            Just(Outcome::Failed { after: None }),
            Just(Outcome::Failed { after: Some(Duration::from_secs(3)) }),
        ];
        let step = prop_oneof![
            3 => (0u8..4, 0u8..5).prop_map(|(key, later)| Step::Add(key, later)),
            3 => Just(Step::Take),
            3 => (0usize..4, outcome).prop_map(|(which, outcome)| Step::Finish(which, outcome)),
            1 => (1u8..5).prop_map(Step::Pass),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn a_key_never_runs_twice_at_once_and_no_addition_is_lost(steps in steps()) {
            let mut now = Instant::from_std(std::time::Instant::now());
            let mut queue = Queue::new(BACKOFF);
            let mut running: Vec<u8> = Vec::new();
            // Keys that must still run once more, whatever happens.
            let mut owed: BTreeSet<u8> = BTreeSet::new();
            for step in steps {
                match step {
                    Step::Add(key, later) => {
                        queue.add(key, now + Duration::from_secs(later.into()));
                        owed.insert(key);
                    }
                    Step::Take => if let Some(key) = queue.take(now) {
                        prop_assert!(!running.contains(&key), "{key} runs already");
                        owed.remove(&key);
                        running.push(key);
                    },
                    Step::Finish(which, outcome) => if !running.is_empty() {
                        let key = running.swap_remove(which % running.len());
                        queue.finish(&key, outcome, now);
                        if outcome != Outcome::Done { owed.insert(key); }
                    },
                    Step::Pass(seconds) => now += Duration::from_secs(seconds.into()),
                }
            }
            for key in running.drain(..) {
                queue.finish(&key, Outcome::Done, now);
            }
            let mut ran = BTreeSet::new();
            while let Some(at) = queue.next_due() {
                let key = queue.take(at.max(now)).expect("what is due can be taken");
                queue.finish(&key, Outcome::Done, at);
                ran.insert(key);
            }
            prop_assert_eq!(ran, owed);
            prop_assert!(queue.is_empty());
        }
    }

    #[test]
    fn a_retry_waits_longer_each_time_and_at_least_as_long_as_the_server_asked() {
        let now = Instant::from_std(std::time::Instant::now());
        let mut queue = Queue::new(BACKOFF);
        queue.add("a", now);
        let mut at = now;
        let mut last = Duration::ZERO;
        for _ in 0..4 {
            let key = queue.take(at).unwrap();
            queue.finish(&key, Outcome::Failed { after: None }, at);
            let pause = queue.next_due().unwrap() - at;
            assert!(pause >= last, "{pause:?} after {last:?}");
            last = pause / 2;
            at += pause;
        }
        let key = queue.take(at).unwrap();
        queue.finish(&key, Outcome::Failed { after: Some(Duration::from_mins(10)) }, at);
        assert_eq!(queue.next_due().unwrap() - at, Duration::from_mins(10));
    }

    #[tokio::test(start_paused = true)]
    async fn work_is_bounded_and_what_is_under_way_is_finished_on_stop() {
        let mut registry = prometheus_client::registry::Registry::default();
        let metrics = Metrics::register(&mut registry);
        let (work, stop) = (Work::new(BACKOFF), CancellationToken::new());
        (0..10).for_each(|key| work.add(key));
        let (at_once, most, done) = (Mutex::new(0), Mutex::new(0), Mutex::new(Vec::new()));
        let run = work.run(3, &stop, &metrics, |key| {
            let (at_once, most, done) = (&at_once, &most, &done);
            async move {
                *at_once.lock() += 1;
                let seen = *at_once.lock();
                let before = *most.lock();
                *most.lock() = before.max(seen);
                tokio::time::sleep(Duration::from_secs(1)).await;
                *at_once.lock() -= 1;
                done.lock().push(key);
                Outcome::Done
            }
        });
        let stopping = async {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            stop.cancel();
        };
        tokio::join!(run, stopping);
        assert_eq!((*most.lock(), done.lock().len()), (3, 6));
    }
}
