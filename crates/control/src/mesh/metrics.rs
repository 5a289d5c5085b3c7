//! The mesh in numbers: `portolan_mesh_*`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use portolan_core::mesh::control::{CallMethod, ProxyCall, ProxyImplementation};
use portolan_drivers::l7mp::CallError;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::owner::Owner;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProxyLabel {
    flavour: &'static str,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectLabel {
    kind: &'static str,
    condition: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabel {
    flavour: &'static str,
    verb: &'static str,
    kind: &'static str,
    code: String,
}

/// How an object stands: one of a few words, and how many endpoints it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stands {
    pub(super) condition: &'static str,
    pub(super) endpoints: i64,
}

/// What users watch.
#[derive(Debug, Clone)]
pub(super) struct Metrics {
    proxies: Family<ProxyLabel, Gauge>,
    objects: Family<ObjectLabel, Gauge>,
    calls: Family<CallLabel, Counter>,
    call_seconds: Histogram,
    plan_seconds: Histogram,
    lag_seconds: Histogram,
    drift: Counter,
    queue: Gauge,
    endpoints: Gauge,
    generated: Gauge,
    stand: Arc<Mutex<BTreeMap<Owner, Stands>>>,
}

impl Metrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let seconds = || Histogram::new(exponential_buckets(0.001, 2.0, 14));
        let metrics = Self {
            proxies: Family::default(),
            objects: Family::default(),
            calls: Family::default(),
            call_seconds: seconds(),
            plan_seconds: Histogram::new(exponential_buckets(0.000_01, 4.0, 10)),
            lag_seconds: seconds(),
            drift: Counter::default(),
            queue: Gauge::default(),
            endpoints: Gauge::default(),
            generated: Gauge::default(),
            stand: Arc::default(),
        };
        let mesh = registry.sub_registry_with_prefix("portolan_mesh");
        mesh.register("proxies", "Proxies, by whose they are and whether they answer", metrics.proxies.clone());
        mesh.register("objects", "Objects, by the condition that says most", metrics.objects.clone());
        mesh.register("calls", "Calls that change a proxy", metrics.calls.clone());
        mesh.register("call_duration_seconds", "How long such a call takes", metrics.call_seconds.clone());
        mesh.register("plan_duration_seconds", "How long a change is thought about", metrics.plan_seconds.clone());
        mesh.register("apply_lag_seconds", "From an object's change to all its proxies", metrics.lag_seconds.clone());
        mesh.register("drift", "Proxies that held something else when looked at again", metrics.drift.clone());
        mesh.register("queue_depth", "Proxies that have not done all they were told", metrics.queue.clone());
        mesh.register("endpoints", "Endpoints of Targets", metrics.endpoints.clone());
        mesh.register("generated", "Objects that were generated", metrics.generated.clone());
        metrics
    }

    pub(super) fn called<T>(
        &self,
        flavour: ProxyImplementation,
        call: &ProxyCall,
        answer: &Result<T, CallError>,
        took: Duration,
    ) {
        let verb = match call.method {
            CallMethod::Post => "post",
            CallMethod::Delete => "delete",
        };
        let code = match answer {
            Ok(_) => "200".to_owned(),
            Err(CallError::Rejected { status, .. }) => status.as_u16().to_string(),
            Err(CallError::LaterTerm(_)) => "409".to_owned(),
            Err(
                CallError::Unreachable(_)
                | CallError::TimedOut
                | CallError::ConnectionLost(_)
                | CallError::InvalidResponse(_)
                | CallError::NotLeading,
            ) => "none".to_owned(),
        };
        let label = CallLabel { flavour: word(Some(flavour)), verb, kind: kind(&call.path), code };
        self.calls.get_or_create(&label).inc();
        self.call_seconds.observe(took.as_secs_f64());
    }

    pub(super) fn thought(&self, took: Duration) {
        self.plan_seconds.observe(took.as_secs_f64());
    }

    pub(super) fn lagged(&self, took: Duration) {
        self.lag_seconds.observe(took.as_secs_f64());
    }

    pub(super) fn drifted(&self) {
        self.drift.inc();
    }

    /// An object stands like this, or is no more.
    pub(super) fn stands(&self, owner: &Owner, now: Option<Stands>) {
        let mut stand = self.stand.lock();
        let before = match now {
            Some(now) => stand.insert(owner.clone(), now),
            None => stand.remove(owner),
        };
        drop(stand);
        let count = |stands: Stands, by: i64| {
            let label = ObjectLabel { kind: owner.0.as_str(), condition: stands.condition };
            self.objects.get_or_create(&label).inc_by(by);
            self.endpoints.inc_by(by * stands.endpoints);
        };
        if before != now {
            if let Some(stands) = before {
                count(stands, -1);
            }
            if let Some(stands) = now {
                count(stands, 1);
            }
        }
    }

    /// A new term begins with nothing known.
    pub(super) fn forget(&self) {
        self.stand.lock().clear();
        self.objects.clear();
        self.endpoints.set(0);
    }

    pub(super) fn count(&self, fleet: &Census, generated: usize) {
        for flavour in [None, Some(ProxyImplementation::Portolan), Some(ProxyImplementation::L7mp)] {
            for state in ["answers", "away"] {
                let count = fleet.proxies.get(&(flavour, state == "away")).copied().unwrap_or_default();
                self.proxies.get_or_create(&ProxyLabel { flavour: word(flavour), state }).set(number(count));
            }
        }
        self.queue.set(number(fleet.behind));
        self.generated.set(number(generated));
    }
}

/// How many proxies there are.
#[derive(Debug, Default)]
pub(super) struct Census {
    /// By whose they are, as far as they have said, and whether they are away.
    pub(super) proxies: BTreeMap<(Option<ProxyImplementation>, bool), usize>,
    /// Those that have not done all they were told.
    pub(super) behind: usize,
}

const fn word(flavour: Option<ProxyImplementation>) -> &'static str {
    match flavour {
        Some(ProxyImplementation::Portolan) => "portolan",
        Some(ProxyImplementation::L7mp) => "l7mp",
        None => "unknown",
    }
}

/// What a call is about, by its path.
fn kind(path: &str) -> &'static str {
    let kinds = ["endpoints", "listeners", "clusters", "rulelists", "rules", "routes"];
    let is_in = |kind: &&&str| path.split(['/', '?']).any(|part| part == **kind);
    kinds.iter().find(is_in).copied().unwrap_or("apply")
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
