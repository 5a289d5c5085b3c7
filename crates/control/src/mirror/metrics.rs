//! The mirror in numbers: the names of the original, and `portolan_mirror_*`.

use std::time::Duration;

use portolan_core::mirror::{Action, AddressRefused, RemoteName, Sync};
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

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectLabel {
    object: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabel {
    call: &'static str,
    code: String,
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
    node_flips: Metric<RemoteLabel, Counter>,
    mirrors: Metric<StateLabel, Gauge>,
    unmet: Metric<ReasonLabel, Gauge>,
    held: Metric<RemoteLabel, Gauge>,
    plan_seconds: Histogram,
    convergence: Metric<RemoteLabel, Histogram, fn() -> Histogram>,
    swept: Metric<RemoteLabel, Counter>,
    refused_addresses: Metric<ReasonLabel, Counter>,
    repaired: Metric<ObjectLabel, Counter>,
    unclaimed: Gauge,
    gke_requests: Metric<RequestLabel, Counter>,
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
            // 5 ms to 82 s
            convergence: Metric::new_with_constructor(|| Histogram::new(exponential_buckets(0.005, 2.0, 15))),
            swept: Metric::default(),
            refused_addresses: Metric::default(),
            repaired: Metric::default(),
            unclaimed: Gauge::default(),
            gke_requests: Metric::default(),
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
        let help = "Time from a change that a remote showed to the answer to the last write it took";
        registry.register("convergence_seconds", help, metrics.convergence.clone());
        registry.register("swept", "Mirrors deleted because source or remote are gone", metrics.swept.clone());
        let help = "Addresses of a remote that are refused as endpoints, by reason";
        registry.register("addresses_rejected", help, metrics.refused_addresses.clone());
        let help = "Writes that restored what somebody else had changed or deleted";
        registry.register("drift_repaired", help, metrics.repaired.clone());
        let help = "Mirrors of remotes that nobody knows, left alone";
        registry.register("unclaimed_objects", help, metrics.unclaimed.clone());
        registry.register("gke_requests", "Requests to Google, by call and status", metrics.gke_requests.clone());
        metrics
    }

    /// Everything that a change of a remote took was written.
    pub(super) fn converged(&self, remote: &RemoteName, took: Duration) {
        self.convergence.get_or_create(&RemoteLabel { remote: remote.to_string() }).observe(took.as_secs_f64());
    }

    /// A mirror was deleted.
    pub(super) fn swept(&self, remote: &RemoteName) {
        self.swept.get_or_create(&RemoteLabel { remote: remote.to_string() }).inc();
    }

    /// Addresses were refused that were not before.
    pub(super) fn refused(&self, addresses: &[(RemoteName, AddressRefused)]) {
        for (remote, why) in addresses {
            let label = ReasonLabel { remote: remote.to_string(), reason: why.as_str() };
            self.refused_addresses.get_or_create(&label).inc();
        }
    }

    /// An object that somebody else had changed was written.
    pub(super) fn repaired(&self, object: &'static str) {
        self.repaired.get_or_create(&ObjectLabel { object }).inc();
    }

    /// Google was asked for something.
    pub(super) fn gke_request(&self, call: &'static str, code: Option<u16>) {
        let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        self.gke_requests.get_or_create(&RequestLabel { call, code }).inc();
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
            let flips = self.node_flips.get_or_create(&label);
            flips.inc_by(reading.flips.saturating_sub(flips.get()));
            let held = reading.held.as_ref().map_or(0, |held| held.count);
            self.held.get_or_create(&label).set(signed(held));
            let all = model.planner.world().remotes.get(name).map_or(0, |remote| remote.nodes.len());
            nodes += all;
        }
        self.original.nodes.set(signed(nodes));
        self.unclaimed.set(signed(model.unclaimed.len()));
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
        for metric in [&self.up, &self.synced, &self.staleness, &self.expiry, &self.held] {
            metric.clear();
        }
        self.node_flips.clear();
        self.unclaimed.set(0);
        self.nodes.clear();
        self.mirrors.clear();
        self.unmet.clear();
        self.original.nodes.set(0);
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::mirror::mcs::ImportMetrics;

    #[test]
    fn every_metric_of_the_mirror_that_is_shown_exists() {
        let mut registry = Registry::default();
        drop(Metrics::register(&mut registry));
        drop(ImportMetrics::register(&mut registry));
        // Not as a scrape has it: there a metric is missing until it has a value.
        let registered = format!("{registry:?}");
        for file in ["alerts.yaml", "dashboard.json"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/monitoring").join(file);
            let text = std::fs::read_to_string(path).expect("it is in the checkout");
            let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            let ours = words.map(|word| (word, word.strip_prefix("portolan_mirror_").unwrap_or(word)));
            let shown: Vec<_> = ours.filter(|(word, name)| word != name || name.starts_with("barrelman_")).collect();
            assert!(!shown.is_empty(), "{file} shows none");
            for (word, name) in shown {
                let name = name.trim_end_matches("_bucket").trim_end_matches("_total");
                assert!(registered.contains(&format!("name: {name:?}")), "{file} shows {word}, which does not exist");
            }
        }
    }
}
