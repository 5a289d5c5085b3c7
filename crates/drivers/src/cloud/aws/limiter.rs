//! Keeps calls below the account's rate: one token bucket for reads, one for writes.
//!
//! Urgent calls pass those that wait. A throttled call halves the rate, and calls that succeed raise it again little by
//! little, so that a rate that is nearly right is exceeded about once in thirty calls.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// What a call is for. Earlier ones go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Priority {
    Move,
    Assign,
    Release,
    Verify,
}

/// How many calls an account may make.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Calls at once.
    pub burst: f64,
    /// Calls a second in the long run.
    pub per_second: f64,
}

/// A token bucket with a queue.
pub(super) struct Limiter {
    full: Rate,
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    tokens: f64,
    per_second: f64,
    updated: Instant,
    /// When the rate was last halved.
    halved: Option<Instant>,
    waiting: BTreeSet<Ticket>,
    tickets: u64,
    in_flight: usize,
}

type Ticket = (Priority, u64);

/// Removes a ticket from the queue, also when its call is given up.
struct Queued<'a> {
    limiter: &'a Limiter,
    ticket: Ticket,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.limiter.state.lock().waiting.remove(&self.ticket);
        self.limiter.changed.notify_waiters();
    }
}

/// A call in flight.
pub(super) struct Permit<'a>(&'a Limiter);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.state.lock().in_flight -= 1;
        self.0.changed.notify_waiters();
    }
}

impl Limiter {
    pub(super) fn new(rate: Rate) -> Self {
        let state = State {
            tokens: rate.burst,
            per_second: rate.per_second,
            updated: Instant::now(),
            halved: None,
            waiting: BTreeSet::new(),
            tickets: 0,
            in_flight: 0,
        };
        Self { full: rate, state: Mutex::new(state), changed: Notify::new() }
    }

    /// Waits for a turn. The call is in flight while the permit lives.
    pub(super) async fn acquire(&self, priority: Priority) -> Permit<'_> {
        let queued = self.enqueue(priority);
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            match self.turn(queued.ticket) {
                Turn::Now => break,
                Turn::In(pause) => drop(tokio::time::timeout(pause, changed).await),
                Turn::AfterOthers => changed.await,
            }
        }
        drop(queued);
        Permit(self)
    }

    /// A call that began then was throttled. Those in flight when the rate was halved say nothing about the new one.
    pub(super) fn throttled(&self, began: Instant) {
        let mut state = self.state.lock();
        state.refill(self.full.burst);
        if state.halved.is_some_and(|halved| began <= halved) {
            return;
        }
        state.halved = Some(Instant::now());
        state.per_second = (state.per_second / 2.0).max(self.full.per_second * SLOWEST);
        state.tokens = state.tokens.min(0.0);
    }

    /// A call was not throttled.
    pub(super) fn passed(&self) {
        let mut state = self.state.lock();
        state.refill(self.full.burst);
        state.per_second = (state.per_second * CLIMB).min(self.full.per_second);
    }

    /// Calls a second in the long run, as of now.
    pub(super) fn per_second(&self) -> f64 {
        self.state.lock().per_second
    }

    fn enqueue(&self, priority: Priority) -> Queued<'_> {
        let mut state = self.state.lock();
        state.tickets += 1;
        let ticket = (priority, state.tickets);
        state.waiting.insert(ticket);
        Queued { limiter: self, ticket }
    }

    fn turn(&self, ticket: Ticket) -> Turn {
        let mut state = self.state.lock();
        state.refill(self.full.burst);
        let (priority, _) = ticket;
        // Calls that hang never hold up a failover.
        let most = if priority == Priority::Move { 2 * AT_ONCE } else { AT_ONCE };
        if state.waiting.first() != Some(&ticket) || state.in_flight >= most {
            return Turn::AfterOthers;
        }
        if state.tokens >= 1.0 {
            state.tokens -= 1.0;
            state.in_flight += 1;
            return Turn::Now;
        }
        Turn::In(Duration::from_secs_f64((1.0 - state.tokens) / state.per_second))
    }
}

enum Turn {
    Now,
    In(Duration),
    AfterOthers,
}

impl State {
    fn refill(&mut self, burst: f64) {
        let now = Instant::now();
        let earned = now.duration_since(self.updated).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + earned).min(burst);
        self.updated = now;
    }
}

/// Calls in flight: what is on its way when the first is throttled is throttled, too.
const AT_ONCE: usize = 8;
/// The least rate, as a part of the full one.
const SLOWEST: f64 = 1.0 / 64.0;
/// What a call that succeeds multiplies the rate by.
const CLIMB: f64 = 1.02;

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;

    const RATE: Rate = Rate { burst: 2.0, per_second: 4.0 };

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_the_rest_follows_at_the_rate() {
        let limiter = Limiter::new(RATE);
        let started = Instant::now();
        let calls = join_all((0..10).map(|_| async {
            drop(limiter.acquire(Priority::Assign).await);
            started.elapsed()
        }));
        let mut times = calls.await;
        times.sort_unstable();
        assert!(times[1] < Duration::from_millis(10), "{times:?}");
        let last = times[9].as_secs_f64();
        assert!((1.9..2.2).contains(&last), "8 calls at 4 a second: {times:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn urgent_calls_pass_those_that_wait() {
        let limiter = Limiter::new(Rate { burst: 1.0, per_second: 1.0 });
        drop(limiter.acquire(Priority::Verify).await);
        let order = Mutex::new(Vec::new());
        let queue = [Priority::Verify, Priority::Release, Priority::Assign, Priority::Move, Priority::Move];
        join_all(queue.map(|priority| {
            let (limiter, order) = (&limiter, &order);
            async move {
                drop(limiter.acquire(priority).await);
                order.lock().push(priority);
            }
        }))
        .await;
        let mut expected = queue;
        expected.sort_unstable();
        assert_eq!(*order.lock(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn throttling_halves_the_rate_and_success_raises_it_again() {
        let limiter = Limiter::new(RATE);
        let began = Instant::now();
        tokio::time::advance(Duration::from_millis(1)).await;
        for _ in 0..5 {
            limiter.throttled(began);
        }
        assert!((limiter.per_second() - 2.0).abs() < 0.001, "calls of one burst count once");
        let started = Instant::now();
        drop(limiter.acquire(Priority::Assign).await);
        assert!(started.elapsed() >= Duration::from_millis(499), "the burst is gone: {:?}", started.elapsed());
        for _ in 0..100 {
            tokio::time::advance(Duration::from_millis(1)).await;
            limiter.throttled(Instant::now());
        }
        assert!(limiter.per_second() > 0.05, "it never stops");
        for _ in 0..500 {
            limiter.passed();
        }
        assert!((limiter.per_second() - 4.0).abs() < 0.001, "it is never above the full rate");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_given_up_holds_nobody_up() {
        let limiter = Limiter::new(Rate { burst: 1.0, per_second: 0.1 });
        drop(limiter.acquire(Priority::Move).await);
        let given_up = tokio::time::timeout(Duration::from_secs(1), limiter.acquire(Priority::Move)).await;
        assert!(given_up.is_err());
        let next = tokio::time::timeout(Duration::from_secs(15), limiter.acquire(Priority::Verify)).await;
        assert!(next.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_hang_hold_up_others_but_no_move() {
        let limiter = Limiter::new(Rate { burst: 100.0, per_second: 100.0 });
        let hanging = join_all((0..AT_ONCE).map(|_| limiter.acquire(Priority::Release))).await;
        let deadline = Duration::from_secs(5);
        assert!(tokio::time::timeout(deadline, limiter.acquire(Priority::Assign)).await.is_err());
        assert!(tokio::time::timeout(deadline, limiter.acquire(Priority::Move)).await.is_ok());
        drop(hanging);
        assert!(tokio::time::timeout(deadline, limiter.acquire(Priority::Assign)).await.is_ok());
    }
}
