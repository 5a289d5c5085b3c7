//! The gateway client in numbers: `portolan_gateway_client_*`.

use std::time::Duration;

use portolan_core::gateway_client::{Announced, Call, Decision, Shown};
use portolan_drivers::gateway::GatewayError;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::runtime::gauges::Gauges;

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct CallLabel {
    call: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct NameLabel {
    call: &'static str,
}

/// What users watch.
#[derive(Debug, Clone)]
pub(super) struct Metrics {
    services: Gauges<StateLabel>,
    calls: Family<CallLabel, Counter>,
    call_seconds: Family<NameLabel, Histogram, fn() -> Histogram>,
    orphans: Counter,
    reachable: Gauge,
}

impl Metrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix("portolan_gateway_client");
        // from 1 ms to 16 s
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 4.0, 8));
        let metrics = Self {
            services: Gauges::register(registry, "services", "Services of class portolan.dev/gateway by state"),
            calls: Family::default(),
            call_seconds: Family::new_with_constructor(seconds),
            orphans: Counter::default(),
            reachable: Gauge::default(),
        };
        registry.register("calls", "Calls to the gateway by kind and result", metrics.calls.clone());
        registry.register("call_seconds", "Time that calls to the gateway take", metrics.call_seconds.clone());
        let help = "Load balancers deleted at the gateway because their Service is gone";
        registry.register("orphans_deleted", help, metrics.orphans.clone());
        let help = "1 if the gateway answered the last call that was made";
        registry.register("reachable", help, metrics.reachable.clone());
        metrics
    }

    /// A call ended.
    pub(super) fn called(&self, call: &'static str, error: Option<&GatewayError>, took: Duration) {
        let result = error.map_or("Ok", GatewayError::result);
        self.calls.get_or_create(&CallLabel { call, result }).inc();
        self.call_seconds.get_or_create(&NameLabel { call }).observe(took.as_secs_f64());
        let is_answered = matches!(error, None | Some(GatewayError::Rejected { .. }));
        self.reachable.set(i64::from(is_answered));
    }

    pub(super) fn orphan_deleted(&self) {
        self.orphans.inc();
    }

    /// Shows how many Services there are.
    pub(super) fn show<'a>(&self, decisions: impl Iterator<Item = &'a Decision>) {
        self.services.show(decisions.map(|decision| (StateLabel { state: state(decision) }, 1)));
    }

    /// Another replica leads and shows them.
    pub(super) fn forget(&self) {
        self.services.clear();
        self.reachable.set(0);
    }
}

fn state(decision: &Decision) -> &'static str {
    match &decision.shown {
        Shown::Untouched | Shown::Nothing => "withdrawing",
        Shown::Ours { announced: Announced::Whole, .. } => "announced",
        Shown::Ours { announced: Announced::Partly, .. } => "pending",
        Shown::Ours { announced: Announced::Refused(_), .. } => "refused",
    }
}

/// The label of a call.
pub(super) const fn name(call: &Call) -> &'static str {
    match call {
        Call::Read | Call::ReadLater => "read",
        Call::Create { .. } => "create",
        Call::Update { .. } => "update",
        Call::ReadEndpoints => "read-endpoints",
        Call::PutEndpoints { .. } => "put-endpoints",
        Call::Delete => "delete",
    }
}
