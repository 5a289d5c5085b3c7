//! Gateway in numbers: the names of the original, and `portolan_gateway_*`.

use std::time::Duration;

use portolan_core::gateway::{Plan, Space, Verdicts};
use prometheus_client::encoding::EncodeLabelSet;
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
        };
        registry.register("units", "Envoys that should run", metrics.units.clone());
        registry.register("plan_seconds", "Time spent planning one change", metrics.plan_seconds.clone());
        metrics
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
        self.endpoints.show(plan.endpoints.values().map(|planned| (state(&planned.verdicts), 1)));
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
