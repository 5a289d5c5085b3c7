//! The runtime's own metrics. Each process makes one set and passes it on.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// A kind of object: bounded by the kinds a capability watches and writes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabel {
    pub kind: String,
}

/// One write: what kind, which verb, how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct WriteLabel {
    pub kind: String,
    pub verb: &'static str,
    pub outcome: &'static str,
}

/// A capability's loop.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CapabilityLabel {
    pub capability: &'static str,
}

/// A queue of due writes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct QueueLabel {
    pub queue: &'static str,
}

/// A write that failed: of which queue, and why.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RetryLabel {
    pub queue: &'static str,
    pub reason: &'static str,
}

/// Counters and gauges of one process. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    pub relists: Family<KindLabel, Counter>,
    pub undecodable: Family<KindLabel, Gauge>,
    pub writes: Family<WriteLabel, Counter>,
    pub unchanged: Family<KindLabel, Counter>,
    pub fenced: Counter,
    pub leads: Gauge,
    pub reconciles: Family<CapabilityLabel, Counter>,
    pub reconcile_seconds: Histogram,
    pub writes_pending: Family<QueueLabel, Gauge>,
    pub write_retries: Family<RetryLabel, Counter>,
    pub events_dropped: Counter,
}

impl Metrics {
    /// Makes the set and registers it.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            relists: Family::default(),
            undecodable: Family::default(),
            writes: Family::default(),
            unchanged: Family::default(),
            fenced: Counter::default(),
            leads: Gauge::default(),
            reconciles: Family::default(),
            // 1 ms to 16 s.
            reconcile_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 15)),
            writes_pending: Family::default(),
            write_retries: Family::default(),
            events_dropped: Counter::default(),
        };
        let registry = registry.sub_registry_with_prefix("portolan_runtime");
        registry.register("watch_relists", "Complete lists requested, by kind", metrics.relists.clone());
        registry.register(
            "watch_undecodable_objects",
            "Objects ignored because they cannot be decoded, by kind",
            metrics.undecodable.clone(),
        );
        registry.register("writes", "Write requests by kind, verb and outcome", metrics.writes.clone());
        registry.register("writes_unchanged", "Writes skipped because nothing differed", metrics.unchanged.clone());
        registry.register(
            "writes_fenced",
            "Writes not sent because this replica does not lead",
            metrics.fenced.clone(),
        );
        registry.register("leads", "1 while this replica leads", metrics.leads.clone());
        registry.register("reconciles", "Runs of a capability's loop", metrics.reconciles.clone());
        registry.register("reconcile_seconds", "Duration of one reconcile", metrics.reconcile_seconds.clone());
        registry.register("writes_pending", "Objects with a write due or under way", metrics.writes_pending.clone());
        registry.register(
            "write_retries",
            "Writes that failed and will be retried, by queue and reason",
            metrics.write_retries.clone(),
        );
        registry.register(
            "events_dropped",
            "Events not sent because too many were waiting",
            metrics.events_dropped.clone(),
        );
        metrics
    }
}
