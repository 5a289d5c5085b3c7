//! Token buckets: so many packets and bytes per second, checked once per batch.

use crate::config::types::Qos;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Sources that are told apart; beyond that the oldest knowledge goes.
const SOURCES: usize = 65_536;

/// A bucket of packets and one of bytes.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    packets: Option<Level>,
    bytes: Option<Level>,
}

#[derive(Clone, Debug)]
struct Level {
    rate: f64,
    most: f64,
    now: f64,
    at: u64,
}

impl Level {
    fn new(rate: f64, most: f64, now: u64) -> Self {
        Self { rate, most, now: most, at: now }
    }

    fn fill(&mut self, now: u64) {
        self.now = (self.now + (now - self.at) as f64 / 1000.0 * self.rate).min(self.most);
        self.at = now;
    }
}

impl Bucket {
    pub(super) fn new(qos: &Qos, now: u64) -> Self {
        let level = |rate: f64, burst: Option<f64>| Level::new(rate, burst.unwrap_or(rate / 10.0).max(1.0), now);
        Self {
            packets: qos.packets_per_second.map(|rate| level(rate, qos.burst)),
            // A byte bucket always takes one whole datagram.
            bytes: qos.bytes_per_second.map(|rate| Level::new(rate, (rate / 10.0).max(65_536.0), now)),
        }
    }

    /// Whether a packet of so many bytes may pass, and takes it out if so.
    pub(super) fn take(&mut self, bytes: usize, now: u64) -> bool {
        let bytes = bytes as f64;
        for level in [&mut self.packets, &mut self.bytes].into_iter().flatten() {
            level.fill(now);
        }
        let fits = |level: &Option<Level>, need: f64| level.as_ref().is_none_or(|level| level.now >= need);
        if !fits(&self.packets, 1.0) || !fits(&self.bytes, bytes) {
            return false;
        }
        if let Some(level) = &mut self.packets {
            level.now -= 1.0;
        }
        if let Some(level) = &mut self.bytes {
            level.now -= bytes;
        }
        true
    }
}

/// The buckets of a listener or cluster: one for all, and one per source.
#[derive(Debug)]
pub(super) struct Buckets {
    all: Bucket,
    per_source: Option<Qos>,
    sources: BTreeMap<IpAddr, Bucket>,
}

impl Buckets {
    /// Nothing where nothing is limited. Workers share a limit evenly.
    pub(super) fn new(qos: &Qos, workers: usize, now: u64) -> Option<Box<Self>> {
        let share = |qos: &Qos| Qos {
            packets_per_second: qos.packets_per_second.map(|rate| rate / workers as f64),
            bytes_per_second: qos.bytes_per_second.map(|rate| rate / workers as f64),
            ..qos.clone()
        };
        let limits = |qos: &Qos| qos.packets_per_second.is_some() || qos.bytes_per_second.is_some();
        let per_source = qos.per_source.as_deref().filter(|qos| limits(qos)).cloned();
        if !limits(qos) && per_source.is_none() {
            return None;
        }
        Some(Box::new(Self { all: Bucket::new(&share(qos), now), per_source, sources: BTreeMap::new() }))
    }

    pub(super) fn take(&mut self, source: Option<IpAddr>, bytes: usize, now: u64) -> bool {
        if let (Some(qos), Some(source)) = (&self.per_source, source) {
            if self.sources.len() >= SOURCES {
                self.sources.clear();
            }
            if !self.sources.entry(source).or_insert_with(|| Bucket::new(qos, now)).take(bytes, now) {
                return false;
            }
        }
        self.all.take(bytes, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_holds_over_time_and_a_burst_passes_at_once() {
        let qos = Qos { packets_per_second: Some(100.0), burst: Some(5.0), ..Qos::default() };
        let mut bucket = Bucket::new(&qos, 0);
        assert_eq!((0..10).filter(|_| bucket.take(1, 0)).count(), 5);
        let passed = (0..1000).filter(|ms| bucket.take(1, *ms)).count();
        assert!((99..=101).contains(&passed), "{passed}");
    }

    #[test]
    fn one_source_does_not_use_up_anothers_share() {
        let source = Qos { packets_per_second: Some(10.0), burst: Some(2.0), ..Qos::default() };
        let qos = Qos { per_source: Some(Box::new(source)), ..Qos::default() };
        let mut buckets = Buckets::new(&qos, 1, 0).unwrap();
        let of = |n: u8| Some(IpAddr::from([10, 0, 0, n]));
        assert_eq!((0..9).filter(|_| buckets.take(of(1), 1, 0)).count(), 2);
        assert_eq!((0..9).filter(|_| buckets.take(of(2), 1, 0)).count(), 2);
        assert!(Buckets::new(&Qos::default(), 1, 0).is_none());
    }
}
