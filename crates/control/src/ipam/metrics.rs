//! Ipam in numbers: the names of the originals, and `portolan_ipam_*`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use portolan_core::ipam::{CallKind, Claim, CloudCall, CloudError, NamespaceName, State, Step};
use portolan_drivers::cloud::Outcomes;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family as Metric;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::model::Model;
use crate::runtime::gauges::Gauges;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NamespaceLabel {
    namespace: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct AddressLabel {
    zone: String,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct NodeLabel {
    node: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct SubnetLabel {
    subnet: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhereLabel {
    r#where: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabel {
    action: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ActionLabel {
    action: &'static str,
}

/// What users watch.
#[derive(Debug, Clone)]
pub(super) struct Metrics {
    /// One value under both names of the original: that of its document, and that of its program.
    failures: Metric<NamespaceLabel, Gauge>,
    addresses: Gauges<AddressLabel>,
    node_capacity: Gauges<NodeLabel>,
    node_used: Gauges<NodeLabel>,
    foreign_addresses: Gauges<NodeLabel>,
    subnet_free: Gauges<SubnetLabel>,
    calls: Metric<CallLabel, Counter>,
    call_seconds: Metric<ActionLabel, Histogram, fn() -> Histogram>,
    throttled: Metric<ActionLabel, Counter>,
    repairs: Metric<WhereLabel, Counter>,
    rollbacks: Counter,
    plan_seconds: Histogram,
    visible_seconds: Metric<ActionLabel, Histogram, fn() -> Histogram>,
    assign_seconds: Histogram,
    failover_seconds: Histogram,
    oldest_unsettled: Gauge,
}

impl Metrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        // from 10 ms to 20 s
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(0.01, 2.0, 12));
        let failures: Metric<NamespaceLabel, Gauge> = Metric::default();
        let help = "Failed attempts to serve a namespace in a row; 0 once it is served";
        registry.register("egress_handle_failure", help, failures.clone());
        registry.register("egressip_handling_failures", help, failures.clone());
        let registry = registry.sub_registry_with_prefix("portolan_ipam");
        let metrics = Self {
            failures,
            addresses: Gauges::register(registry, "addresses", "Recorded addresses by zone and state"),
            node_capacity: Gauges::register(registry, "node_capacity", "Addresses of ours that a node could have"),
            node_used: Gauges::register(registry, "node_used", "Addresses of ours that a node should have"),
            foreign_addresses: Gauges::register(
                registry,
                "foreign_addresses",
                "Secondary addresses of a node that are not ours",
            ),
            subnet_free: Gauges::register(registry, "subnet_free", "Free addresses of a subnet"),
            calls: Metric::default(),
            call_seconds: Metric::new_with_constructor(seconds),
            throttled: Metric::default(),
            repairs: Metric::default(),
            rollbacks: Counter::default(),
            plan_seconds: Histogram::new(exponential_buckets(0.0001, 4.0, 9)),
            visible_seconds: Metric::new_with_constructor(seconds),
            assign_seconds: seconds(),
            failover_seconds: seconds(),
            oldest_unsettled: Gauge::default(),
        };
        registry.register("cloud_calls", "Calls to the cloud by action and result", metrics.calls.clone());
        registry.register("cloud_call_seconds", "How long calls to the cloud take", metrics.call_seconds.clone());
        registry.register("throttled", "Calls that the cloud refused for their rate", metrics.throttled.clone());
        let help = "What others undid and was done again, by where it was";
        registry.register("drift_repairs", help, metrics.repairs.clone());
        registry.register("rollbacks", "Addresses given back because an assignment failed", metrics.rollbacks.clone());
        registry.register("plan_seconds", "How long a plan takes", metrics.plan_seconds.clone());
        let help = "From a call until a describe shows what it did";
        registry.register("visible_seconds", help, metrics.visible_seconds.clone());
        let help = "From the choice of an address until it is in service";
        registry.register("assign_seconds", help, metrics.assign_seconds.clone());
        let help = "From the decision to move an address until it is in service again";
        registry.register("failover_seconds", help, metrics.failover_seconds.clone());
        let help = "For how long the oldest address is on its way, in or out; 0 if none is";
        registry.register("journal_oldest_unsettled_seconds", help, metrics.oldest_unsettled.clone());
        metrics
    }

    /// Another replica leads, and its numbers count.
    pub(super) fn forget(&self) {
        self.oldest_unsettled.set(0);
        self.failures.clear();
        self.addresses.clear();
        self.node_capacity.clear();
        self.node_used.clear();
        self.foreign_addresses.clear();
        self.subnet_free.clear();
    }

    pub(super) fn planned(&self, took: Duration) {
        self.plan_seconds.observe(took.as_secs_f64());
    }

    pub(super) fn failures(&self, namespace: &NamespaceName, count: Option<i64>) {
        let label = NamespaceLabel { namespace: namespace.to_string() };
        match count {
            Some(count) => drop(self.failures.get_or_create(&label).set(count)),
            None => drop(self.failures.remove(&label)),
        }
    }

    pub(super) fn described(&self, took: Duration, result: &'static str) {
        self.call("describe", result, took);
    }

    pub(super) fn visible(&self, kind: CallKind, after: Duration) {
        let label = ActionLabel { action: action(kind) };
        self.visible_seconds.get_or_create(&label).observe(after.as_secs_f64());
    }

    pub(super) fn assigned(&self, took: Duration) {
        self.assign_seconds.observe(took.as_secs_f64());
    }

    pub(super) fn failed_over(&self, took: Duration) {
        self.failover_seconds.observe(took.as_secs_f64());
    }

    pub(super) fn called(&self, call: &CloudCall, outcomes: &Outcomes, took: Duration) {
        let failed = outcomes.values().find_map(|outcome| outcome.as_ref().err());
        let result = match failed {
            Some(error) => error.reason(),
            None if outcomes.is_empty() => CloudError::Transient.reason(),
            None => "Ok",
        };
        self.call(action(call.kind), result, took);
    }

    fn call(&self, action: &'static str, result: &'static str, took: Duration) {
        self.calls.get_or_create(&CallLabel { action, result }).inc();
        self.call_seconds.get_or_create(&ActionLabel { action }).observe(took.as_secs_f64());
        if result == CloudError::Throttled.reason() {
            self.throttled.get_or_create(&ActionLabel { action }).inc();
        }
    }

    pub(super) fn step(&self, step: Step) {
        match step {
            Step::Repair => self.repaired("cloud"),
            Step::RollBack => drop(self.rollbacks.inc()),
            Step::Reserve
            | Step::Adopt
            | Step::Target
            | Step::Move
            | Step::Attached
            | Step::Published
            | Step::Release
            | Step::Gone
            | Step::Block => {}
        }
    }

    /// What was written there had been undone.
    pub(super) fn repaired(&self, place: &'static str) {
        self.repairs.get_or_create(&WhereLabel { r#where: place }).inc();
    }

    /// Shows how many addresses there are, and how many there could be.
    pub(super) fn show(&self, model: &Model) {
        let claims = || model.journal.claims.values();
        let unsettled = claims().filter(|claim| is_on_its_way(claim));
        let oldest = unsettled.map(|claim| model.world.now.saturating_sub(claim.status.since)).max().unwrap_or(0);
        self.oldest_unsettled.set(i64::try_from(oldest / 1000).unwrap_or(i64::MAX));
        self.addresses.show(claims().map(|claim| {
            let label = AddressLabel { zone: claim.spec.zone.to_string(), state: claim.status.state.as_str() };
            (label, 1)
        }));
        let mut used: BTreeMap<&str, i64> = BTreeMap::new();
        for node in claims().flat_map(|claim| claim.hosts().collect::<BTreeSet<_>>()) {
            *used.entry(node).or_default() += 1;
        }
        let cloud = model.world.cloud.as_ref();
        let nodes: Vec<NodeNumbers> = model
            .world
            .nodes
            .iter()
            .filter(|(_, node)| node.compute)
            .filter_map(|(name, node)| {
                let seen = &cloud?.nodes.get(node.instance.as_ref()?)?.what;
                let interface = seen.interface.as_ref()?;
                let ours = |address: &_| model.journal.claims.contains_key(address);
                let foreign = interface.secondary.iter().filter(|address| !ours(address)).count();
                let taken = 1 + usize::from(interface.prefixes) + foreign;
                Some(NodeNumbers {
                    label: NodeLabel { node: name.to_string() },
                    capacity: number(usize::from(seen.address_limit).saturating_sub(taken)),
                    foreign: number(foreign),
                    used: used.get(&**name).copied().unwrap_or_default(),
                })
            })
            .collect();
        self.node_capacity.show(nodes.iter().map(|node| (node.label.clone(), node.capacity)));
        self.foreign_addresses.show(nodes.iter().map(|node| (node.label.clone(), node.foreign)));
        self.node_used.show(nodes.iter().map(|node| (node.label.clone(), node.used)));
        self.subnet_free.show(cloud.into_iter().flat_map(|cloud| &cloud.subnets).map(|(id, seen)| {
            // the cloud keeps five for itself
            let size = 1_i64 << (32 - u32::from(seen.what.cidr.prefix_len()));
            let free = (size - 5 - number(seen.what.used.len())).max(0);
            (SubnetLabel { subnet: id.to_string() }, free)
        }));
    }
}

struct NodeNumbers {
    label: NodeLabel,
    capacity: i64,
    foreign: i64,
    used: i64,
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

const fn action(kind: CallKind) -> &'static str {
    match kind {
        CallKind::Assign => "assign",
        CallKind::Take => "take",
        CallKind::Release => "release",
    }
}

const fn is_on_its_way(claim: &Claim) -> bool {
    match claim.status.state {
        State::Reserved | State::Assigning | State::Attached | State::Moving => true,
        State::Releasing => !claim.status.gone,
        State::Published | State::Blocked => false,
    }
}
