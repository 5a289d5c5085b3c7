//! Writes that are due, by object: the one way from a plan to the API server.
//!
//! A reconcile adds the keys of objects that may differ, then runs a [`pass`](DueWrites::pass): it prepares the write
//! of each key that is due (synchronously, from the plan) and sends it. A write that fails is retried by itself, later
//! and later, or when the server asked for; a write that hangs is left under way. Neither delays another object.
//! Dropping the queue abandons what is under way, so nothing outlives the leadership it was planned in.
//!
//! [`Schedule`](super::schedule::Schedule) is the rules, with time passed in; [`DueWrites`] is the requests around it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::error::Error;
use super::metrics::{Metrics, QueueLabel, RetryLabel};
use super::schedule::{Order, Schedule, Share};

/// How a kind of write is paced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Writes under way at a time.
    pub at_once: usize,
    /// One object is written at most this often.
    pub interval: Duration,
    /// A pass starts no further write after this time, so that more urgent ones get their turn.
    pub budget: Duration,
    /// Which of the objects that are due at the same moment comes first.
    pub order: Order,
}

impl Pace {
    /// Written as soon as possible, however long a pass takes.
    pub const URGENT: Self =
        Self { at_once: 16, interval: Duration::ZERO, budget: Duration::from_mins(1), order: Order::OfKeys };
    /// Status of single objects: nothing urgent waits for many of them.
    pub const STATUS: Self = Self { budget: Duration::from_millis(100), ..Self::URGENT };
    /// Objects that show many others: written once a second at most.
    pub const VIEW: Self = Self { interval: Duration::from_secs(1), ..Self::STATUS };
}

/// What a key needs.
pub enum Prepared<T> {
    /// Nothing, until the key is added again.
    Nothing,
    /// A look at this time; nothing before.
    At(Instant),
    /// This request.
    Write(BoxFuture<'static, Result<T, Error>>),
}

impl<T> Prepared<T> {
    /// A request to send.
    pub fn write(request: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        Self::Write(Box::pin(request))
    }
}

/// Makes the queues of one loop.
#[derive(Clone)]
pub struct WriteQueues {
    wake: Arc<Notify>,
    metrics: Metrics,
}

impl WriteQueues {
    /// `wake` wakes the loop when a write that a pass did not wait for has ended.
    pub fn new(wake: Arc<Notify>, metrics: Metrics) -> Self {
        Self { wake, metrics }
    }

    /// An empty queue; `name` is its label in metrics and logs.
    pub fn queue<K, T>(&self, name: &'static str, pace: Pace) -> DueWrites<K, T>
    where
        K: Ord + Clone + Debug + Send + 'static,
        T: Send + 'static,
    {
        DueWrites {
            name,
            schedule: Schedule::new(pace.interval, pace.order),
            pace,
            requests: JoinSet::new(),
            running: BTreeMap::new(),
            wake: self.wake.clone(),
            metrics: self.metrics.clone(),
        }
    }
}

/// A key, and how its write ended. One that failed is scheduled again already.
pub type Finished<K, T> = (K, Result<T, Error>);

/// The writes of one kind that a reconciler has to make.
pub struct DueWrites<K, T = ()> {
    name: &'static str,
    schedule: Schedule<K>,
    pace: Pace,
    requests: JoinSet<Finished<K, T>>,
    running: BTreeMap<K, Running>,
    wake: Arc<Notify>,
    metrics: Metrics,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Running {
    /// A pass waits for it.
    Awaited,
    /// A pass left it behind; it takes no slot.
    Hanging,
}

impl<K, T> DueWrites<K, T>
where
    K: Ord + Clone + Debug + Send + 'static,
    T: Send + 'static,
{
    /// Adds an object that may differ.
    pub fn add(&mut self, key: K) {
        self.extend([key]);
    }

    /// Adds objects that may differ.
    pub fn extend(&mut self, keys: impl IntoIterator<Item = K>) {
        self.extend_shared(keys.into_iter().map(|key| (key, None)));
    }

    /// Adds objects that may differ, each with its share: shares take turns.
    pub fn extend_shared(&mut self, keys: impl IntoIterator<Item = (K, Share)>) {
        let now = Instant::now();
        keys.into_iter().for_each(|(key, share)| self.schedule.add(key, share, now));
    }

    /// When the next write is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.schedule.next_due()
    }

    /// Prepares and sends what is due. `prepare` is given a key and when it was added for the first time since it was
    /// last written. At most [`Pace::at_once`] writes are under way at a time. Gives what has ended; writes that take
    /// longer than [`PATIENCE`] go on behind the pass and are given by a later one.
    pub async fn pass(&mut self, mut prepare: impl FnMut(&K, Instant) -> Prepared<T>) -> Vec<Finished<K, T>> {
        let mut ended = Vec::new();
        while let Some(joined) = self.requests.try_join_next() {
            ended.push(self.joined(joined));
        }
        let began = Instant::now();
        loop {
            while self.has_slot() && began.elapsed() < self.pace.budget {
                let Some((key, since)) = self.schedule.take(Instant::now()) else { break };
                match prepare(&key, since) {
                    Prepared::Nothing => self.schedule.remove(&key),
                    Prepared::At(at) => self.schedule.put_off(&key, at),
                    Prepared::Write(request) => ended.extend(self.send(key, request)),
                }
            }
            if self.awaited() == 0 {
                break;
            }
            match tokio::time::timeout(PATIENCE, self.requests.join_next()).await {
                Ok(Some(joined)) => ended.push(self.joined(joined)),
                Ok(None) => break,
                Err(_elapsed) => {
                    warn!(queue = self.name, writes = self.awaited(), "writes take long; others go on without them");
                    self.running.values_mut().for_each(|running| *running = Running::Hanging);
                }
            }
        }
        let waiting = i64::try_from(self.schedule.len()).unwrap_or(i64::MAX);
        self.metrics.writes_pending.get_or_create(&QueueLabel { queue: self.name }).set(waiting);
        ended
    }

    fn awaited(&self) -> usize {
        self.running.values().filter(|running| **running == Running::Awaited).count()
    }

    fn has_slot(&self) -> bool {
        let hanging = self.running.len() - self.awaited();
        self.running.len() < self.pace.at_once + hanging.min(MOST_HANGING)
    }

    /// Sends a request; one that ends without waiting needs no task.
    fn send(&mut self, key: K, mut request: BoxFuture<'static, Result<T, Error>>) -> Option<Finished<K, T>> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        if let Poll::Ready(result) = request.as_mut().poll(&mut context) {
            return Some(self.finish((key, result)));
        }
        self.running.insert(key.clone(), Running::Awaited);
        let wake = self.wake.clone();
        self.requests.spawn(async move {
            let began = Instant::now();
            let result = match tokio::time::timeout(LONGEST, request).await {
                Ok(result) => result,
                Err(_elapsed) => Err(Error::TimedOut { what: format!("writing {key:?}"), after: LONGEST }),
            };
            // no pass waits for it any more
            if began.elapsed() >= PATIENCE {
                wake.notify_one();
            }
            (key, result)
        });
        None
    }

    fn joined(&mut self, joined: Result<Finished<K, T>, JoinError>) -> Finished<K, T> {
        match joined {
            Ok(finished) => self.finish(finished),
            // nothing aborts a request while the queue lives
            Err(failed) => std::panic::resume_unwind(failed.into_panic()),
        }
    }

    fn finish(&mut self, (key, result): Finished<K, T>) -> Finished<K, T> {
        let now = Instant::now();
        self.running.remove(&key);
        match &result {
            Ok(_) => self.schedule.succeeded(&key, now),
            Err(problem) => {
                let label = RetryLabel { queue: self.name, reason: problem.reason() };
                self.metrics.write_retries.get_or_create(&label).inc();
                if let Some((at, times)) = self.schedule.failed(&key, problem, now) {
                    let retry_in = at.saturating_duration_since(now);
                    if times >= 4 && times.is_power_of_two() && !problem.is_unreachable() {
                        warn!(queue = self.name, object = ?key, %problem, times, ?retry_in, "a write keeps failing");
                    } else {
                        debug!(queue = self.name, object = ?key, %problem, ?retry_in, "a write failed");
                    }
                }
            }
        }
        (key, result)
    }
}

/// A pass waits this long for a write to end before it leaves the rest under way.
pub const PATIENCE: Duration = Duration::from_millis(500);
/// A write that got no answer for this long has failed.
const LONGEST: Duration = Duration::from_secs(30);
/// Hanging writes of one queue beside which others still go on.
const MOST_HANGING: usize = 256;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const PACE: Pace = Pace { at_once: 3, ..Pace::URGENT };

    fn queue(pace: Pace) -> (DueWrites<u32>, Arc<Notify>) {
        let wake = Arc::new(Notify::new());
        let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
        (WriteQueues::new(wake.clone(), metrics).queue("test", pace), wake)
    }

    fn failed() -> Error {
        Error::Stopped { what: "a test".into() }
    }

    async fn sleep(seconds: u64) -> Result<(), Error> {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn at_most_so_many_writes_are_under_way_and_all_are_made() {
        let (mut due, _) = queue(PACE);
        due.extend(0..10);
        let (under_way, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let ended = due
            .pass(|_, _| {
                let (under_way, most) = (under_way.clone(), most.clone());
                Prepared::write(async move {
                    most.fetch_max(under_way.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    under_way.fetch_sub(1, Ordering::SeqCst);
                    Ok(())
                })
            })
            .await;
        assert_eq!((ended.len(), most.load(Ordering::SeqCst), due.next_due()), (10, 3, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_fails_is_retried_by_itself() {
        let (mut due, _) = queue(PACE);
        due.extend([1, 2]);
        let fails = |key: &u32, _| {
            let result = if *key == 1 { Err(failed()) } else { Ok(()) };
            Prepared::write(std::future::ready(result))
        };
        let ended = due.pass(fails).await;
        assert!(matches!(&ended[..], [(1, Err(_)), (2, Ok(()))]), "{ended:?}");
        let retry = due.next_due().expect("it is retried");
        assert!(due.pass(fails).await.is_empty(), "not at once");
        tokio::time::sleep_until(retry).await;
        assert_eq!(due.pass(fails).await.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn writes_that_hang_are_left_behind_and_take_no_slot() {
        let (mut due, wake) = queue(PACE);
        due.extend(0..4);
        // three that hang would fill every slot
        let hangs = |key: &u32, _| Prepared::write(sleep(if *key < 3 { 20 } else { 0 }));
        let began = Instant::now();
        let ended = due.pass(hangs).await;
        assert!(ended.is_empty() || matches!(&ended[..], [(3, Ok(()))]), "{ended:?}");
        let mut ended = ended;
        ended.extend(due.pass(hangs).await);
        assert!(matches!(&ended[..], [(3, Ok(()))]), "{ended:?}");
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        due.add(0);
        assert!(due.pass(hangs).await.is_empty(), "one object is written once at a time");
        wake.notified().await;
        assert!(began.elapsed() >= Duration::from_secs(20));
        let mut keys: Vec<u32> = due.pass(|_, _| Prepared::Nothing).await.into_iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        assert!(!keys.is_empty() && keys.iter().all(|key| *key < 3), "{keys:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_without_an_answer_fails_after_a_while_and_dropping_the_queue_abandons_it() {
        let (mut due, wake) = queue(PACE);
        due.add(1);
        let dropped = Arc::new(());
        let hang = |_: &u32, _| {
            let dropped = dropped.clone();
            Prepared::write(async move {
                std::future::pending::<()>().await;
                drop(dropped);
                Ok(())
            })
        };
        assert!(due.pass(hang).await.is_empty());
        wake.notified().await;
        let ended = due.pass(hang).await;
        assert!(matches!(&ended[..], [(1, Err(Error::TimedOut { .. }))]), "{ended:?}");
        tokio::time::sleep_until(due.next_due().expect("it is retried")).await;
        assert!(due.pass(hang).await.is_empty());
        assert_eq!(Arc::strong_count(&dropped), 2);
        drop(due);
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&dropped), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_keeps_to_its_budget_and_an_object_to_its_interval() {
        let (mut due, _) =
            queue(Pace { at_once: 1, interval: Duration::from_secs(5), budget: Duration::from_secs(1), ..PACE });
        due.extend(0..4);
        let slow = |_: &u32, _| {
            Prepared::write(async {
                tokio::time::sleep(Duration::from_millis(400)).await;
                Ok(())
            })
        };
        assert_eq!(due.pass(slow).await.len(), 3, "the rest waits for the next pass");
        due.add(0);
        let ended = due.pass(slow).await;
        assert!(matches!(&ended[..], [(3, Ok(()))]), "{ended:?}");
        let next = due.next_due().expect("it may differ again") - Instant::now();
        assert!(next > Duration::from_secs(3), "{next:?}");
    }
}
