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

/// One turn of a loop: which loop, how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TurnLabel {
    pub capability: &'static str,
    pub outcome: &'static str,
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
    pub turns: Family<TurnLabel, Counter>,
    pub turn_seconds: Histogram,
    pub queue_depth: Gauge,
    pub queue_retries: Counter,
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
            turns: Family::default(),
            // 1 ms to 16 s.
            turn_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 15)),
            queue_depth: Gauge::default(),
            queue_retries: Counter::default(),
        };
        let registry = registry.sub_registry_with_prefix("portolan_runtime");
        registry.register("watch_relists", "Whole lists taken, by kind", metrics.relists.clone());
        registry.register(
            "watch_undecodable_objects",
            "Objects left out because they cannot be read, by kind",
            metrics.undecodable.clone(),
        );
        registry.register("writes", "Writing requests, by kind, verb and outcome", metrics.writes.clone());
        registry.register("writes_unchanged", "Writes not sent as nothing differed", metrics.unchanged.clone());
        registry.register("writes_fenced", "Writes not sent as this replica does not lead", metrics.fenced.clone());
        registry.register("leads", "1 while this replica leads", metrics.leads.clone());
        registry.register("turns", "Turns of a capability's loop, by outcome", metrics.turns.clone());
        registry.register("turn_seconds", "Duration of a turn", metrics.turn_seconds.clone());
        registry.register("queue_depth", "Keys waiting or running in work queues", metrics.queue_depth.clone());
        registry.register(
            "queue_retries",
            "Runs of a key that failed and will be retried",
            metrics.queue_retries.clone(),
        );
        metrics
    }
}
