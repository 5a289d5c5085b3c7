//! Gateway in numbers: the names of the original, and `portolan_gateway_*`.

use std::collections::BTreeMap;
use std::time::Duration;

use portolan_core::gateway::unit::{Report, State, UnitId};
use portolan_core::gateway::{EndpointPlans, Plan, Space, Verdicts};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::runtime::gauges::Gauges;

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct PoolLabel {
    pool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct AddressLabel {
    pool: String,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct SpaceLabel {
    space: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

/// What users watch.
#[derive(Debug, Clone)]
pub(super) struct Metrics {
    pool_size: Gauges<PoolLabel>,
    pool_in_use: Gauges<PoolLabel>,
    addresses: Gauges<AddressLabel>,
    keys_used: Gauges<SpaceLabel>,
    load_balancers: Gauges<StateLabel>,
    endpoints: Gauges<StateLabel>,
    units: Gauge,
    plan_seconds: Histogram,
    envoy_crashes: Counter,
    listeners_rejected: Counter,
}

impl Metrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let pool_size = Gauges::register(registry, "egw_address_pool_size", "Addresses that a pool can give");
        let help = "Addresses of a pool that load balancers have";
        let pool_in_use = Gauges::register(registry, "egw_address_pool_addresses_in_use", help);
        let registry = registry.sub_registry_with_prefix("portolan_gateway");
        let metrics = Self {
            pool_size,
            pool_in_use,
            addresses: Gauges::register(registry, "addresses", "Claimed addresses by pool and state"),
            keys_used: Gauges::register(registry, "keys_used", "Keys and ids in use by space"),
            load_balancers: Gauges::register(registry, "load_balancers", "LoadBalancers by the first problem"),
            endpoints: Gauges::register(registry, "endpoints", "Endpoints by the first problem"),
            units: Gauge::default(),
            plan_seconds: Histogram::new(exponential_buckets(0.0001, 4.0, 9)),
            envoy_crashes: Counter::default(),
            listeners_rejected: Counter::default(),
        };
        registry.register("units", "Envoys that should run", metrics.units.clone());
        registry.register("plan_seconds", "Time spent planning one change", metrics.plan_seconds.clone());
        registry.register(
            "envoy_crashes",
            "Envoys that ended although they were wanted",
            metrics.envoy_crashes.clone(),
        );
        let help = "Listeners that Envoy did not accept";
        registry.register("listeners_rejected", help, metrics.listeners_rejected.clone());
        metrics
    }

    /// Counts what is new in the reports of Envoys.
    pub(super) fn reported(&self, last: Option<&BTreeMap<UnitId, Report>>, now: Option<&BTreeMap<UnitId, Report>>) {
        for (id, report) in now.into_iter().flatten() {
            let before = last.and_then(|reports| reports.get(id));
            let has_crashed = matches!(report.state, State::Crashed(_));
            if has_crashed && before.is_none_or(|before| before.state != report.state) {
                self.envoy_crashes.inc();
            }
            let is_new = |port| before.is_none_or(|before| before.rejected.get(port) != report.rejected.get(port));
            self.listeners_rejected.inc_by(report.rejected.keys().filter(|port| is_new(*port)).count() as u64);
        }
    }

    pub(super) fn planned(&self, took: Duration, plan: &Plan) {
        self.plan_seconds.observe(took.as_secs_f64());
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let pools = || plan.prefixes.iter().map(|(pool, planned)| (pool.to_string(), planned));
        self.pool_size.show(
            pools().map(|(pool, planned)| (PoolLabel { pool }, i64::try_from(planned.capacity).unwrap_or(i64::MAX))),
        );
        self.pool_in_use.show(pools().map(|(pool, planned)| (PoolLabel { pool }, count(planned.in_use))));
        self.addresses.show(pools().flat_map(|(pool, planned)| {
            let label = |state| AddressLabel { pool: pool.clone(), state };
            [(label("in-use"), count(planned.in_use)), (label("quarantined"), count(planned.quarantined))]
        }));
        self.keys_used.show(plan.live.iter().map(|(space, numbers)| {
            let space = match space {
                Space::Accounts => "account",
                Space::Tunnels => "tunnel",
                Space::Services(_) => "service",
            };
            (SpaceLabel { space }, count(numbers.len()))
        }));
        self.load_balancers.show(plan.load_balancers.values().map(|planned| (state(&planned.verdicts), 1)));
        let endpoints = plan.endpoints.values().flat_map(EndpointPlans::iter);
        self.endpoints.show(endpoints.map(|(_, planned)| (state(&planned.verdicts), 1)));
        self.units.set(count(plan.units.len()));
    }

    /// Another replica leads and shows them.
    pub(super) fn forget(&self) {
        self.pool_size.clear();
        self.pool_in_use.clear();
        self.addresses.clear();
        self.keys_used.clear();
        self.load_balancers.clear();
        self.endpoints.clear();
        self.units.set(0);
    }
}

fn state(verdicts: &Verdicts) -> StateLabel {
    StateLabel { state: verdicts.first_problem().map_or("Ready", portolan_core::gateway::Problem::reason) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use portolan_core::gateway::ports::{PortNumber, Protocol};

    use super::super::rest::metrics::Metrics as RestMetrics;
    use super::*;

    #[test]
    fn every_metric_of_the_gateway_that_is_shown_or_documented_exists() {
        let mut registry = Registry::default();
        drop(Metrics::register(&mut registry));
        drop(RestMetrics::register(&mut registry));
        // Not as a scrape has it: there a metric is missing until it has a value.
        let registered = format!("{registry:?}");
        for file in ["deploy/monitoring/alerts.yaml", "deploy/monitoring/dashboard.json", "docs/reference/gateway.md"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
            let text = std::fs::read_to_string(path).expect("it is in the checkout");
            let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            let is_ours = |word: &&str| word.starts_with("portolan_gateway_") || word.starts_with("egw_address_");
            let shown: Vec<_> = words.filter(is_ours).filter(|word| !word.contains("_client_")).collect();
            assert!(!shown.is_empty(), "{file} shows none");
            for word in shown {
                let name = word.trim_start_matches("portolan_gateway_");
                let name = name.trim_end_matches("_bucket").trim_end_matches("_total");
                assert!(registered.contains(&format!("name: {name:?}")), "{file} shows {word}, which does not exist");
            }
        }
    }

    #[test]
    fn a_crash_and_a_rejected_listener_are_counted_once() {
        let metrics = Metrics::register(&mut Registry::default());
        let id = UnitId { namespace: "egw-acme".into(), name: "web".into() };
        let port = PortNumber { protocol: Protocol::Tcp, port: 80 };
        let report =
            |state| BTreeMap::from([(id.clone(), Report { answered: None, rejected: BTreeMap::new(), state })]);
        let running = report(State::Running);
        let crashed = report(State::Crashed("signal 9".into()));
        let mut rejected = running.clone();
        for report in rejected.values_mut() {
            report.rejected.insert(port, "in use".into());
        }
        let sequence = [&running, &crashed, &crashed, &running, &rejected, &rejected, &running, &rejected];
        let mut last = None;
        for reports in sequence {
            metrics.reported(last, Some(reports));
            last = Some(reports);
        }
        assert_eq!((metrics.envoy_crashes.get(), metrics.listeners_rejected.get()), (1, 2));
    }
}
