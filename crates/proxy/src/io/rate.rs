//! Token buckets for packets and bytes per second, used once per batch and shared by all workers.
//!
//! Rates apply to what clients send. Datagrams above the rate are dropped; reading from streams is delayed.

use crate::config::types::{DropPolicy, Qos};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Maximum number of sources; above it all are forgotten.
const SOURCES: usize = 65_536;
/// A bucket of bytes always takes one whole datagram.
const LARGEST: f64 = 65_536.0;
/// Longest pause of a stream; then it is looked at again.
const LONGEST_PAUSE_MS: f64 = 60_000.0;

/// The rates of a listener or cluster, if it has any.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    limits: AtomicBool,
    buckets: Mutex<Option<Buckets>>,
}

impl Limiter {
    /// Follows the configuration; levels stay where the rates do.
    pub(crate) fn set(&self, qos: Option<&Qos>, now: u64) {
        let qos = qos.filter(|qos| limits(qos) || qos.per_source.as_deref().is_some_and(limits));
        let mut buckets = self.buckets.lock();
        if buckets.as_ref().map(|buckets| &buckets.qos) != qos {
            *buckets = qos.map(|qos| Buckets::new(qos, now));
            self.limits.store(qos.is_some(), Relaxed);
        }
    }

    pub(crate) fn limits(&self) -> bool {
        self.limits.load(Relaxed)
    }

    /// How many of some datagrams may pass, and whether it is the first or the last of them.
    pub(crate) fn grant(&self, source: Option<IpAddr>, sizes: &[usize], now: u64) -> (usize, DropPolicy) {
        let mut buckets = self.buckets.lock();
        let Some(buckets) = buckets.as_mut() else { return (sizes.len(), DropPolicy::Newest) };
        let policy = buckets.qos.drop_policy;
        let granted = match policy {
            DropPolicy::Newest => sizes.iter().take_while(|bytes| buckets.take(source, **bytes, now)).count(),
            DropPolicy::Oldest => sizes.iter().rev().take_while(|bytes| buckets.take(source, **bytes, now)).count(),
        };
        (granted, policy)
    }

    /// Counts what was read of a stream, and says for how many milliseconds it has to pause.
    pub(crate) fn charge(&self, source: Option<IpAddr>, packets: u64, bytes: usize, now: u64) -> u64 {
        let mut buckets = self.buckets.lock();
        buckets.as_mut().map_or(0, |buckets| buckets.charge(source, packets as f64, bytes as f64, now))
    }
}

/// One bucket for all, and one per source.
#[derive(Debug)]
struct Buckets {
    qos: Qos,
    all: Bucket,
    sources: BTreeMap<IpAddr, Bucket>,
}

impl Buckets {
    fn new(qos: &Qos, now: u64) -> Self {
        Self { qos: qos.clone(), all: Bucket::new(qos, now), sources: BTreeMap::new() }
    }

    /// The bucket of a source, where sources have any.
    fn of(&mut self, source: Option<IpAddr>, now: u64) -> Option<&mut Bucket> {
        let (qos, source) = (self.qos.per_source.as_deref()?, source_of(source?));
        if self.sources.len() >= SOURCES && !self.sources.contains_key(&source) {
            self.sources.clear();
        }
        Some(self.sources.entry(source).or_insert_with(|| Bucket::new(qos, now)))
    }

    fn take(&mut self, source: Option<IpAddr>, bytes: usize, now: u64) -> bool {
        let of_source = self.of(source, now).is_none_or(|bucket| bucket.take(bytes, now));
        of_source && self.all.take(bytes, now)
    }

    fn charge(&mut self, source: Option<IpAddr>, packets: f64, bytes: f64, now: u64) -> u64 {
        let of_source = self.of(source, now).map_or(0, |bucket| bucket.charge(packets, bytes, now));
        of_source.max(self.all.charge(packets, bytes, now))
    }
}

/// A bucket of packets and one of bytes.
#[derive(Clone, Debug)]
struct Bucket {
    packets: Option<Level>,
    bytes: Option<Level>,
}

impl Bucket {
    fn new(qos: &Qos, now: u64) -> Self {
        let burst = |rate: f64| qos.burst.unwrap_or(rate / 10.0).max(1.0);
        Self {
            packets: qos.packets_per_second.map(|rate| Level::new(rate, burst(rate), now)),
            bytes: qos.bytes_per_second.map(|rate| Level::new(rate, (rate / 10.0).max(LARGEST), now)),
        }
    }

    /// Whether a packet of so many bytes may pass, and takes it out if so.
    fn take(&mut self, bytes: usize, now: u64) -> bool {
        let needs = [(&mut self.packets, 1.0), (&mut self.bytes, bytes as f64)];
        let mut levels = needs.into_iter().filter_map(|(level, need)| Some((level.as_mut()?, need)));
        let mut found = [levels.next(), levels.next()];
        let fits = found.iter_mut().flatten().all(|(level, need)| level.fill(now) >= *need);
        if fits {
            found.iter_mut().flatten().for_each(|(level, need)| level.now -= *need);
        }
        fits
    }

    /// Takes out what has passed already; milliseconds until it is made up for.
    fn charge(&mut self, packets: f64, bytes: f64, now: u64) -> u64 {
        let wait = |level: &mut Option<Level>, need: f64| {
            level.as_mut().map_or(0.0, |level| {
                level.now = level.fill(now) - need;
                if level.now < 0.0 { (-level.now / level.rate * 1000.0).min(LONGEST_PAUSE_MS) } else { 0.0 }
            })
        };
        wait(&mut self.packets, packets).max(wait(&mut self.bytes, bytes)).ceil() as u64
    }
}

#[derive(Clone, Debug)]
struct Level {
    rate: f64,
    most: f64,
    now: f64,
    at: u64,
}

impl Level {
    const fn new(rate: f64, most: f64, now: u64) -> Self {
        Self { rate, most, now: most, at: now }
    }

    fn fill(&mut self, now: u64) -> f64 {
        let passed = now.saturating_sub(self.at) as f64 / 1000.0;
        self.now = (self.now + passed * self.rate).min(self.most);
        self.at = self.at.max(now);
        self.now
    }
}

const fn limits(qos: &Qos) -> bool {
    qos.packets_per_second.is_some() || qos.bytes_per_second.is_some()
}

/// What counts as one source: an IPv4 address, or a /64 of IPv6.
pub(crate) fn source_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from(u128::from(v6) >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(qos: &Qos) -> Limiter {
        let limiter = Limiter::default();
        limiter.set(Some(qos), 0);
        limiter
    }

    #[test]
    fn a_rate_holds_over_time_and_a_burst_passes_at_once() {
        let qos = Qos { packets_per_second: Some(100.0), burst: Some(5.0), ..Qos::default() };
        let limiter = limiter(&qos);
        assert_eq!(limiter.grant(None, &[1; 10], 0), (5, DropPolicy::Newest));
        limiter.set(Some(&qos), 0);
        let passed: usize = (0..1000).map(|ms| limiter.grant(None, &[1], ms).0).sum();
        assert!((99..=101).contains(&passed), "{passed}: the same rates fill no bucket");
        limiter.set(None, 1000);
        assert_eq!((limiter.grant(None, &[1; 10], 1000).0, limiter.limits()), (10, false));
    }

    #[test]
    fn one_source_does_not_use_up_anothers_share() {
        let source = Qos { packets_per_second: Some(10.0), burst: Some(2.0), ..Qos::default() };
        let limiter = limiter(&Qos { per_source: Some(Box::new(source)), ..Qos::default() });
        let grant = |address: &str| limiter.grant(Some(address.parse().unwrap()), &[1; 9], 0).0;
        assert_eq!((grant("10.0.0.1"), grant("10.0.0.2"), grant("10.0.0.1")), (2, 2, 0));
        assert_eq!((grant("2001:db8::1"), grant("2001:db8::2")), (2, 0), "a /64 is one source");
    }

    #[test]
    fn the_oldest_go_first_where_that_is_asked_for() {
        let qos = Qos { bytes_per_second: Some(1.0), drop_policy: DropPolicy::Oldest, ..Qos::default() };
        let sizes = [30_000, 40_000, 20_000];
        assert_eq!(limiter(&qos).grant(None, &sizes, 0), (2, DropPolicy::Oldest));
        assert_eq!(limiter(&Qos { drop_policy: DropPolicy::Newest, ..qos }).grant(None, &sizes, 0).0, 1);
    }

    #[test]
    fn a_stream_pauses_until_its_bytes_are_made_up_for() {
        let limiter = limiter(&Qos { bytes_per_second: Some(10_000.0), ..Qos::default() });
        assert_eq!(limiter.charge(None, 1, 65_536, 0), 0);
        assert_eq!(limiter.charge(None, 1, 5_000, 0), 500);
        assert_eq!(limiter.charge(None, 1, 0, 500), 0);
    }
}
