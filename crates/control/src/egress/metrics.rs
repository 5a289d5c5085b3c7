//! Egress in numbers: `portolan_egress_*`, and the names of the original.

use std::time::Duration;

use portolan_core::egress::MoveCause;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family as Metric;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::model::Model;
use super::status::obstacles;
use crate::runtime::gauges::Gauges;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct AddressLabel {
    gateway: String,
    family: &'static str,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct PolicyLabel {
    gateway: String,
    ready: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhyLabel {
    why: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VersionLabel {
    version: &'static str,
}

/// What users watch.
#[derive(Debug, Clone)]
pub(super) struct Metrics {
    addresses: Gauges<AddressLabel>,
    policies: Gauges<PolicyLabel>,
    moves: Metric<WhyLabel, Counter>,
    unmet: Gauges<ReasonLabel>,
    failover_seconds: Histogram,
    tunnels: Tunnels,
}

const VERSIONS: [&str; 2] = ["ipv4", "ipv6"];

/// Numbers of tunnels given and taken back, under the names of the original. They count up, but a counter's name would
/// have to end in `_total`.
#[derive(Debug, Clone, Default)]
struct Tunnels {
    addresses_given: Metric<VersionLabel, Gauge>,
    addresses_released: Metric<VersionLabel, Gauge>,
    marks_given: Gauge,
    marks_released: Gauge,
}

impl Tunnels {
    fn register(registry: &mut Registry) -> Self {
        let tunnels = Self::default();
        let Self { addresses_given, addresses_released, marks_given, marks_released } = tunnels.clone();
        let help = "Tunnel addresses given to nodes, by family";
        registry.register("egress_ip_allocate_next_restore_calls", help, addresses_given);
        let help = "Tunnel addresses of nodes that are gone, by family";
        registry.register("egress_ip_allocate_release_calls", help, addresses_released);
        registry.register("egress_mark_allocate_next_calls", "Marks given to nodes", marks_given);
        registry.register("egress_mark_release_calls", "Marks of nodes that are gone", marks_released);
        tunnels
    }
}

impl Metrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let tunnels = Tunnels::register(registry);
        let registry = registry.sub_registry_with_prefix("portolan_egress");
        let metrics = Self {
            addresses: Gauges::register(registry, "addresses", "Egress addresses by gateway, family and state"),
            policies: Gauges::register(
                registry,
                "policies",
                "Policies by gateway and whether they were granted a way out",
            ),
            moves: Metric::default(),
            unmet: Gauges::register(registry, "unmet", "Policies without all they ask for, by reason"),
            // from 100 ms to almost two minutes
            failover_seconds: Histogram::new(exponential_buckets(0.1, 2.0, 11)),
            tunnels,
        };
        registry.register("moves", "Addresses that changed their node, by cause", metrics.moves.clone());
        let help = "From the loss of a node to its addresses being held elsewhere";
        registry.register("failover_seconds", help, metrics.failover_seconds.clone());
        metrics
    }

    pub(super) fn failed_over(&self, took: Duration) {
        self.failover_seconds.observe(took.as_secs_f64());
    }

    /// A node got its mark and the tunnel addresses that follow from it.
    pub(super) fn tunnel_numbered(&self) {
        for version in VERSIONS {
            self.tunnels.addresses_given.get_or_create(&VersionLabel { version }).inc();
        }
        self.tunnels.marks_given.inc();
    }

    /// A node is gone, and its mark and tunnel addresses can be given again.
    pub(super) fn tunnel_released(&self) {
        for version in VERSIONS {
            self.tunnels.addresses_released.get_or_create(&VersionLabel { version }).inc();
        }
        self.tunnels.marks_released.inc();
    }

    pub(super) fn moved(&self, why: MoveCause) {
        let why = match why {
            MoveCause::NodeDeleted => "NodeDeleted",
            MoveCause::NodeNotReady => "NodeNotReady",
            MoveCause::NotSelected => "NotSelected",
            MoveCause::NodeExcluded => "NodeExcluded",
            MoveCause::NodeReady => "NodeReady",
        };
        self.moves.get_or_create(&WhyLabel { why }).inc();
    }

    /// Sets every gauge from the plan.
    pub(super) fn show(&self, model: &Model) {
        let gauge = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let (mut addresses, mut policies) = (Vec::new(), Vec::new());
        for gateway in model.gateways.by_name.keys() {
            let usage = model.planner.usage(gateway);
            for (number, family) in VERSIONS.into_iter().enumerate() {
                let (total, free) = (usage.total[number], usage.free[number]);
                let label = |state| AddressLabel { gateway: gateway.to_string(), family, state };
                addresses.push((label("free"), gauge(free)));
                addresses.push((label("used"), gauge(total.saturating_sub(free))));
            }
            let label = |ready| PolicyLabel { gateway: gateway.to_string(), ready };
            policies.push((label("true"), gauge(usage.granted)));
            policies.push((label("false"), gauge(usage.waiting)));
        }
        self.addresses.show(addresses);
        self.policies.show(policies);
        self.unmet.show(model.planner.unmet_policies().filter_map(|policy| {
            let (edit, lack) = obstacles(model, policy);
            Some((ReasonLabel { reason: edit.or(lack)?.reason }, 1))
        }));
    }
}
