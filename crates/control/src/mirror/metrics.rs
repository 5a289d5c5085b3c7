//! The mirror in numbers: the names of the original, and `portolan_mirror_*`.

use std::time::Duration;

use portolan_core::mirror::{Action, RemoteName, Sync};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family as Metric;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::counts::Counts;
use super::model::Model;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ActionLabel {
    action: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueuedLabel {
    controller: &'static str,
    requeued: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RemoteLabel {
    remote: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    remote: String,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    remote: String,
    reason: &'static str,
}

/// What users watch.
#[derive(Debug, Clone)]
pub(super) struct Metrics {
    original: Original,
    up: Metric<RemoteLabel, Gauge>,
    synced: Metric<RemoteLabel, Gauge>,
    staleness: Metric<RemoteLabel, Gauge>,
    expiry: Metric<RemoteLabel, Gauge>,
    nodes: Metric<StateLabel, Gauge>,
    node_flips: Metric<RemoteLabel, Gauge>,
    mirrors: Metric<StateLabel, Gauge>,
    unmet: Metric<ReasonLabel, Gauge>,
    held: Metric<RemoteLabel, Gauge>,
    plan_seconds: Histogram,
}

/// The names of the original, summed over remotes.
#[derive(Debug, Clone, Default)]
struct Original {
    nodes: Gauge,
    endpoint_updates: Counter,
    endpoint_errors: Counter,
    service_updates: Metric<ActionLabel, Counter>,
    service_errors: Metric<ActionLabel, Counter>,
    queued: Metric<QueuedLabel, Counter>,
}

impl Original {
    fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let Self { nodes, endpoint_updates, endpoint_errors, service_updates, service_errors, queued } =
            metrics.clone();
        registry.register("barrelman_current_nodes_count", "Nodes of all remotes", nodes);
        registry.register("barrelman_endpoint_update", "Services whose endpoints were looked at", endpoint_updates);
        registry.register("barrelman_endpoint_update_error", "Failed writes of endpoints", endpoint_errors);
        registry.register(
            "barrelman_service_update",
            "Services that were looked at, by what was done",
            service_updates,
        );
        registry.register("barrelman_service_update_error", "Failed writes of Services, by action", service_errors);
        registry.register("barrelman_services_queued", "Services to look at, by controller", queued);
        metrics
    }
}

const NODE_ENDPOINTS: &str = "NodeEndpointController";
const SERVICES: &str = "ServiceController";

impl Metrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            original: Original::register(registry),
            up: Metric::default(),
            synced: Metric::default(),
            staleness: Metric::default(),
            expiry: Metric::default(),
            nodes: Metric::default(),
            node_flips: Metric::default(),
            mirrors: Metric::default(),
            unmet: Metric::default(),
            held: Metric::default(),
            plan_seconds: Histogram::new(exponential_buckets(0.0001, 4.0, 8)),
        };
        let registry = registry.sub_registry_with_prefix("portolan_mirror");
        registry.register("remote_up", "1 if the remote can be read", metrics.up.clone());
        registry.register("remote_synced", "1 if all of the remote is known", metrics.synced.clone());
        registry.register("remote_staleness_seconds", "Time since the last contact", metrics.staleness.clone());
        let help = "When the credentials expire, in seconds since 1970";
        registry.register("credential_expiry_timestamp_seconds", help, metrics.expiry.clone());
        registry.register("nodes", "Nodes of the remote, usable or not", metrics.nodes.clone());
        registry.register("node_flips", "How often nodes of the remote came or went", metrics.node_flips.clone());
        registry.register("mirrors", "Services of the remote, by state", metrics.mirrors.clone());
        registry.register("unmet", "Services that are not as they should be, by reason", metrics.unmet.clone());
        registry.register("deletions_held", "Deletions that wait for approval", metrics.held.clone());
        registry.register("plan_duration_seconds", "Time to follow changes and decide", metrics.plan_seconds.clone());
        metrics
    }

    /// Names were marked for a look.
    pub(super) fn queued(&self, names: usize) {
        let names = u64::try_from(names).unwrap_or_default();
        for controller in [NODE_ENDPOINTS, SERVICES] {
            self.original.queued.get_or_create(&QueuedLabel { controller, requeued: "false" }).inc_by(names);
        }
    }

    /// Nothing had to be written for a Service.
    pub(super) fn service_unchanged(&self) {
        self.original.service_updates.get_or_create(&ActionLabel { action: "None" }).inc();
    }

    /// A Service was written, or could not be.
    pub(super) fn service(&self, action: &Action, is_fine: bool) {
        let action = match action {
            Action::Add(_) => "Add",
            Action::Update(_) => "Update",
            Action::Recreate | Action::Delete => "Delete",
            Action::None => "None",
        };
        let original = &self.original;
        if is_fine {
            original.service_updates.get_or_create(&ActionLabel { action }).inc();
        } else {
            original.service_errors.get_or_create(&ActionLabel { action }).inc();
            original.queued.get_or_create(&QueuedLabel { controller: SERVICES, requeued: "true" }).inc();
        }
    }

    /// The endpoints of a Service were looked at, and written if they differed.
    pub(super) fn endpoints(&self, is_fine: bool) {
        if is_fine {
            self.original.endpoint_updates.inc();
        } else {
            self.original.endpoint_errors.inc();
            self.original.queued.get_or_create(&QueuedLabel { controller: NODE_ENDPOINTS, requeued: "true" }).inc();
        }
    }

    pub(super) fn planned(&self, took: Duration) {
        self.plan_seconds.observe(took.as_secs_f64());
    }

    /// What is known of all remotes now.
    pub(super) fn remotes(&self, model: &Model, now: Instant) {
        let mut nodes = 0;
        for (name, reading) in &model.readings {
            let label = RemoteLabel { remote: name.to_string() };
            let cache = &reading.cache;
            self.up.get_or_create(&label).set(i64::from(cache.problem().is_none()));
            self.synced.get_or_create(&label).set(i64::from(cache.sync() == Sync::Complete));
            let since = cache.contact().map(|contact| now.saturating_duration_since(contact).as_secs());
            self.staleness
                .get_or_create(&label)
                .set(since.map_or(-1, |since| i64::try_from(since).unwrap_or(i64::MAX)));
            if let Some(expires) = cache.state().expires {
                self.expiry.get_or_create(&label).set(expires.as_second());
            }
            self.node_flips.get_or_create(&label).set(i64::try_from(reading.flips).unwrap_or(i64::MAX));
            let held = reading.held.as_ref().map_or(0, |held| held.count);
            self.held.get_or_create(&label).set(signed(held));
            let all = model.planner.world().remotes.get(name).map_or(0, |remote| remote.nodes.len());
            nodes += all;
        }
        self.original.nodes.set(signed(nodes));
    }

    /// How the Services of a remote fare.
    pub(super) fn counts(&self, remote: &RemoteName, counts: &Counts) {
        let label = |state| StateLabel { remote: remote.to_string(), state };
        self.nodes.get_or_create(&label("usable")).set(signed(counts.usable_nodes));
        self.nodes.get_or_create(&label("unusable")).set(signed(counts.nodes.saturating_sub(counts.usable_nodes)));
        for (state, count) in
            [("mirrored", counts.mirrored), ("frozen", counts.frozen), ("candidate", counts.candidates)]
        {
            self.mirrors.get_or_create(&label(state)).set(signed(count));
        }
        for (reason, count) in &counts.unmet {
            let label = ReasonLabel { remote: remote.to_string(), reason: reason.as_str() };
            self.unmet.get_or_create(&label).set(signed(*count));
        }
    }

    /// A remote is no longer read.
    pub(super) fn forget(&self) {
        for metric in [&self.up, &self.synced, &self.staleness, &self.expiry, &self.node_flips, &self.held] {
            metric.clear();
        }
        self.nodes.clear();
        self.mirrors.clear();
        self.unmet.clear();
        self.original.nodes.set(0);
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
