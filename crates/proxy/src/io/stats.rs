//! Counters. Each worker writes its own; readers add them up.

use crate::config::engine::{Histogram, Traffic};
use crate::config::snapshot::Snapshot;
use crate::config::types::Name;
use crate::proto::session::Finish;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that one thread writes and others read.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds without a locked instruction: there is one writer.
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Why packets are dropped; the order is that of [`DROPS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drop {
    KernelQueue,
    SetupQueue,
    Send,
    Rate,
    Cap,
    NoRoute,
    /// A routing loop.
    Loop,
}

pub(crate) const DROPS: [&str; 7] = ["kernel_queue", "setup_queue", "send", "rate", "cap", "no_route", "loop"];

/// Limits, those of `admin.limits` unless noted; the order is that of [`LIMITS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Metadata,
    JsonSocketHeader,
    HttpHead,
    HttpHeaders,
    WsMessage,
    Sessions,
    SetupQueue,
    Body,
    ApiConnections,
    ApiRequestMs,
    /// Of the operating system.
    Descriptors,
    /// Of a listener.
    SetupTimeout,
}

pub(crate) const LIMITS: [&str; 12] = [
    "metadata",
    "jsonsocket_header",
    "http_head",
    "http_headers",
    "ws_message",
    "sessions",
    "setup_queue",
    "body",
    "api_connections",
    "api_request_ms",
    "descriptors",
    "setup_timeout",
];

/// Upper bounds of time histograms, in milliseconds.
const BOUNDS: [u64; 10] = [1, 2, 5, 10, 25, 50, 100, 500, 2000, 10_000];

#[derive(Debug, Default)]
pub(crate) struct Times {
    buckets: [Counter; BOUNDS.len() + 1],
    sum_ms: Counter,
}

impl Times {
    pub(crate) fn observe(&self, ms: u64) {
        let at = BOUNDS.iter().position(|bound| ms <= *bound).unwrap_or(BOUNDS.len());
        self.buckets[at].add(1);
        self.sum_ms.add(ms);
    }

    /// Adds what was observed to a histogram.
    pub(crate) fn add_to(&self, total: &mut Histogram) {
        if total.buckets.is_empty() {
            total.buckets = BOUNDS.iter().map(|bound| (*bound as f64 / 1000.0, 0)).collect();
        }
        for (sum, bucket) in total.buckets.iter_mut().zip(&self.buckets) {
            sum.1 += bucket.get();
        }
        total.over += self.buckets[BOUNDS.len()].get();
        total.sum += self.sum_ms.get() as f64 / 1000.0;
    }
}

/// What one worker counts.
#[derive(Debug, Default)]
pub(crate) struct WorkerStats {
    pub packets_in: Counter,
    pub bytes_in: Counter,
    pub packets_out: Counter,
    pub bytes_out: Counter,
    pub drops: [Counter; DROPS.len()],
    pub limits: [Counter; LIMITS.len()],
    /// Log lines dropped because the writer was too slow.
    pub log_drops: Counter,
    pub retries: Counter,
    pub segments_in: Counter,
    pub segments_out: Counter,
    pub opened: Counter,
    pub ended: [Counter; Finish::ALL.len()],
    pub active: Counter,
    pub connect: Times,
    pub setup: Times,
    /// Thousandths of the last second that the worker was busy.
    pub busy: Counter,
    pub restarts: Counter,
    /// By name: sessions of listeners (with protocol), stages of clusters, matches of rules. Set-up only.
    pub by_name: Mutex<ByName>,
}

#[derive(Debug, Default)]
pub(crate) struct ByName {
    pub listeners: Labelled,
    pub clusters: Labelled,
    pub rules: BTreeMap<Name, u64>,
    /// Refusals by cluster and the limit that was reached.
    pub circuits: Labelled,
}

/// Counts by name and a label. A known name is not cloned: workers would contend on its reference count.
#[derive(Debug, Default)]
pub(crate) struct Labelled(BTreeMap<Name, BTreeMap<&'static str, u64>>);

impl Labelled {
    pub(crate) fn count(&mut self, name: &Name, label: &'static str) {
        if let Some(count) = self.0.get_mut(name).and_then(|labels| labels.get_mut(label)) {
            *count += 1;
        } else {
            self.0.entry(Name::clone(name)).or_default().insert(label, 1);
        }
    }

    /// Adds these counts to a total.
    pub(crate) fn add_to(&self, total: &mut BTreeMap<(Name, &'static str), u64>) {
        for (name, labels) in &self.0 {
            for (label, count) in labels {
                *total.entry((Name::clone(name), *label)).or_default() += count;
            }
        }
    }

    fn retain(&mut self, stays: impl Fn(&Name) -> bool) {
        self.0.retain(|name, _| stays(name));
    }
}

impl WorkerStats {
    pub(crate) fn drop_packets(&self, why: Drop, n: u64) {
        self.drops[why as usize].add(n);
    }

    pub(crate) fn reach_limit(&self, limit: Limit) {
        self.limits[limit as usize].add(1);
    }

    /// Drops the counters of deleted objects.
    pub(crate) fn forget_gone(&self, snapshot: &Snapshot) {
        let mut by_name = self.by_name.lock();
        let ByName { listeners, clusters, rules, circuits } = &mut *by_name;
        listeners.retain(|name| snapshot.listeners.get(name).is_some());
        clusters.retain(|name| snapshot.clusters.get(name).is_some());
        circuits.retain(|name| snapshot.clusters.get(name).is_some());
        rules.retain(|name, _| snapshot.rules.get(name).is_some());
    }

    pub(crate) fn traffic(&self) -> Traffic {
        Traffic {
            packets_in: self.packets_in.get(),
            packets_out: self.packets_out.get(),
            bytes_in: self.bytes_in.get(),
            bytes_out: self.bytes_out.get(),
        }
    }
}

/// What a Metric cluster has counted, all workers together.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub packets: AtomicU64,
    pub bytes: AtomicU64,
}

impl Meter {
    pub(crate) fn count(&self, bytes: usize) {
        self.packets.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }
}
