//! How often a source may fail to log in, and how many requests an account may send.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Failed logins of a source within a minute.
const FAILURES: u32 = 10;
const WINDOW: Duration = Duration::from_mins(1);
/// Sources that are remembered; those of earlier minutes go first.
const SOURCES: usize = 65_536;

/// Failed logins by source.
#[derive(Default)]
pub(super) struct Failures {
    sources: Mutex<BTreeMap<IpAddr, Window>>,
}

#[derive(Clone, Copy)]
struct Window {
    began: Instant,
    /// Logins that failed or are under way.
    count: u32,
}

impl Failures {
    /// Says for how long a source is not heard.
    pub(super) fn blocked(&self, source: IpAddr) -> Option<Duration> {
        let window = self.sources.lock().get(&network(source)).copied()?;
        let left = WINDOW.checked_sub(window.began.elapsed()).filter(|left| !left.is_zero())?;
        (window.count >= FAILURES).then_some(left)
    }

    /// Counts an attempt as failed until it is forgiven: so many at the same time are no way around the limit.
    pub(super) fn attempt(&self, source: IpAddr) -> Result<Attempt<'_>, Duration> {
        if let Some(left) = self.blocked(source) {
            return Err(left);
        }
        let mut sources = self.sources.lock();
        if sources.len() >= SOURCES {
            sources.retain(|_, window| window.began.elapsed() < WINDOW);
        }
        let source = network(source);
        if sources.len() >= SOURCES && !sources.contains_key(&source) {
            return Err(WINDOW);
        }
        let fresh = Window { began: Instant::now(), count: 0 };
        let window = sources.entry(source).or_insert(fresh);
        if window.began.elapsed() >= WINDOW {
            *window = fresh;
        }
        window.count += 1;
        Ok(Attempt { failures: self, source })
    }
}

/// A login that is under way.
pub(super) struct Attempt<'a> {
    failures: &'a Failures,
    source: IpAddr,
}

impl Attempt<'_> {
    /// It went well, or could not be judged.
    pub(super) fn forgive(self) {
        if let Some(window) = self.failures.sources.lock().get_mut(&self.source) {
            window.count = window.count.saturating_sub(1);
        }
    }
}

/// An IPv6 host has all addresses of its /64.
fn network(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

/// Requests by account.
pub(super) struct Buckets {
    interval: Duration,
    burst: Duration,
    /// When each bucket is full again.
    full: Mutex<BTreeMap<String, Instant>>,
}

impl Buckets {
    /// So many a second, and twice as many at once.
    pub(super) fn per_second(count: u32) -> Self {
        let count = count.max(1);
        let interval = Duration::from_secs(1) / count;
        Self { interval, burst: interval * 2 * count, full: Mutex::default() }
    }

    /// Takes one, if it is there.
    pub(super) fn take(&self, account: &str) -> bool {
        let now = Instant::now();
        let mut full = self.full.lock();
        if full.len() > 10_000 {
            full.retain(|_, at| *at > now);
        }
        let at = full.entry(account.to_owned()).or_insert(now);
        let next = (*at).max(now) + self.interval;
        let fits = next.saturating_duration_since(now) <= self.burst;
        if fits {
            *at = next;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_source_fails_ten_times_a_minute() {
        let failures = Failures::default();
        let source: IpAddr = "2001:db8::1".parse().unwrap();
        let neighbour: IpAddr = "2001:db8::2".parse().unwrap();
        for _ in 0..10 {
            assert!(failures.attempt(source).is_ok());
        }
        assert!(failures.attempt(neighbour).is_err(), "it is the same host");
        assert!(failures.attempt("2001:db8:0:1::1".parse().unwrap()).is_ok());
        tokio::time::advance(WINDOW).await;
        for _ in 0..100 {
            failures.attempt(source).unwrap().forgive();
        }
        assert!(failures.blocked(source).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_has_a_burst_and_then_its_rate() {
        let buckets = Buckets::per_second(50);
        assert_eq!((0..200).filter(|_| buckets.take("a")).count(), 100);
        assert!(buckets.take("b"), "accounts do not share");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((0..200).filter(|_| buckets.take("a")).count(), 50);
    }
}
