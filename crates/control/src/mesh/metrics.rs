//! The mesh in numbers: `portolan_mesh_*`.

use std::time::Duration;

use portolan_core::mesh::control::Flavour;
use portolan_drivers::l7mp::Failed;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabel {
    flavour: &'static str,
    verb: &'static str,
    outcome: &'static str,
}

/// What users watch.
#[derive(Debug, Clone)]
pub(super) struct Metrics {
    proxies: Family<StateLabel, Gauge>,
    calls: Family<CallLabel, Counter>,
    call_seconds: Histogram,
    plan_seconds: Histogram,
    lag_seconds: Histogram,
    generated: Gauge,
}

impl Metrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let seconds = || Histogram::new(exponential_buckets(0.001, 2.0, 14));
        let metrics = Self {
            proxies: Family::default(),
            calls: Family::default(),
            call_seconds: seconds(),
            plan_seconds: Histogram::new(exponential_buckets(0.000_01, 4.0, 10)),
            lag_seconds: seconds(),
            generated: Gauge::default(),
        };
        let mesh = registry.sub_registry_with_prefix("portolan_mesh");
        mesh.register("proxies", "Proxies, by whether they answer", metrics.proxies.clone());
        mesh.register("calls", "Calls that change a proxy", metrics.calls.clone());
        mesh.register("call_duration_seconds", "How long such a call takes", metrics.call_seconds.clone());
        mesh.register("plan_duration_seconds", "How long a change is thought about", metrics.plan_seconds.clone());
        mesh.register("apply_lag_seconds", "From an object's change to all its proxies", metrics.lag_seconds.clone());
        mesh.register("generated", "Objects that were generated", metrics.generated.clone());
        metrics
    }

    pub(super) fn called<T>(&self, flavour: Flavour, verb: &'static str, answer: &Result<T, Failed>, took: Duration) {
        let flavour = match flavour {
            Flavour::Portolan => "portolan",
            Flavour::L7mp => "l7mp",
        };
        let outcome = match answer {
            Ok(_) => "ok",
            Err(Failed::Refused { .. }) => "refused",
            Err(Failed::Unreachable(_) | Failed::TimedOut | Failed::BrokeOff(_) | Failed::NotUnderstood(_)) => "failed",
        };
        self.calls.get_or_create(&CallLabel { flavour, verb, outcome }).inc();
        self.call_seconds.observe(took.as_secs_f64());
    }

    pub(super) fn thought(&self, took: Duration) {
        self.plan_seconds.observe(took.as_secs_f64());
    }

    pub(super) fn lagged(&self, took: Duration) {
        self.lag_seconds.observe(took.as_secs_f64());
    }

    pub(super) fn count(&self, (proxies, away): (usize, usize), generated: usize) {
        let set = |state, count| self.proxies.get_or_create(&StateLabel { state }).set(number(count));
        set("answers", proxies - away);
        set("away", away);
        self.generated.set(number(generated));
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
