//! Records on gateways what became of their addresses, and counts it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use portolan_core::egress::{GatewayName, Move, MoveCause, NodeName};
use tokio::time::Instant;
use tracing::info;

use super::metrics::Metrics;
use super::model::Model;
use super::observe::{Cache, is_drained};
use super::status::is_held;
use crate::runtime::events::{EventDetails, EventType, Recorder};
use crate::runtime::store::Key;

/// Where events go, and what they are counted with.
pub(super) struct GatewayEvents<'a> {
    pub(super) recorder: &'a Recorder,
    pub(super) cache: &'a Cache,
    pub(super) metrics: &'a Metrics,
}

impl GatewayEvents<'_> {
    /// Something moved. What left a node that is lost is a failover until all of it is held elsewhere.
    pub(super) fn moves(&self, moves: Vec<Move>, failovers: &mut Failovers, now: Instant) {
        let mut lost: BTreeMap<(GatewayName, NodeName), BTreeSet<IpAddr>> = BTreeMap::new();
        for Move { eip, policy, gateway, from, to, cause } in moves {
            self.metrics.moved(cause);
            let what =
                policy.map_or_else(|| eip.to_string(), |policy| format!("policy {policy}, on its node's own address,"));
            let at = |node: Option<&str>| node.unwrap_or("no node").to_owned();
            let note = format!("{what} goes from {} to {}: {}", at(from.as_deref()), at(to.as_deref()), because(cause));
            info!(gateway = &*gateway, note, "moved");
            self.event(&gateway, "EIPMoved", "Move", &note);
            if let Some(from) = from.filter(|from| !eip.is_none() && self.is_lost(from, cause)) {
                lost.entry((gateway, from)).or_default().extend(eip.addresses());
            }
        }
        for ((gateway, node), addresses) in lost {
            let note = format!("node `{node}` is lost: {} must go elsewhere", counted(addresses.len()));
            self.event(&gateway, "FailoverStarted", "Failover", &note);
            failovers.begin(gateway, node, addresses, now);
        }
    }

    /// Failovers that are over.
    pub(super) fn failovers(&self, failovers: &mut Failovers, model: &Model, now: Instant) {
        for ((gateway, node), Failover { began, moved, .. }) in failovers.end(self.cache, model) {
            let took = now.saturating_duration_since(began);
            self.metrics.failed_over(took);
            let note = format!("{} of node `{node}` live elsewhere after {} ms", counted(moved), took.as_millis());
            self.event(&gateway, "FailoverDone", "Failover", &note);
        }
    }

    /// Addresses whose claims are gone.
    pub(super) fn released(&self, released: &[(IpAddr, GatewayName)]) {
        for (address, gateway) in released {
            let note = format!("{address} can be given again: no policy uses it, and no node has it");
            self.event(gateway, "EIPReleased", "Release", &note);
        }
    }

    /// A node that is drained still works: what leaves it does so in its own time.
    fn is_lost(&self, node: &NodeName, cause: MoveCause) -> bool {
        match cause {
            MoveCause::NodeDeleted => true,
            MoveCause::NodeNotReady => {
                let node = self.cache.nodes.get(&Key::of_cluster(node));
                node.is_none_or(|node| !is_drained(&node))
            }
            MoveCause::NotSelected | MoveCause::NodeExcluded | MoveCause::NodeReady => false,
        }
    }

    fn event(&self, gateway: &GatewayName, reason: &str, action: &str, note: &str) {
        if let Some(gateway) = self.cache.gateways.get(&Key::of_cluster(gateway)) {
            self.recorder.record(gateway.as_ref(), EventType::Normal, &EventDetails { reason, action, note });
        }
    }
}

/// What left lost nodes and is not held elsewhere yet, by gateway and node.
#[derive(Debug, Default)]
pub(super) struct Failovers {
    under_way: BTreeMap<(GatewayName, NodeName), Failover>,
}

#[derive(Debug)]
struct Failover {
    began: Instant,
    /// How many addresses had to leave.
    moved: usize,
    pending: BTreeSet<IpAddr>,
}

impl Failovers {
    fn begin(&mut self, gateway: GatewayName, node: NodeName, addresses: BTreeSet<IpAddr>, now: Instant) {
        let new = || Failover { began: now, moved: 0, pending: BTreeSet::new() };
        let failover = self.under_way.entry((gateway, node)).or_insert_with(new);
        failover.moved += addresses.len();
        failover.pending.extend(addresses);
    }

    /// Takes out those whose addresses are all held by their nodes, or no longer in use.
    fn end(&mut self, cache: &Cache, model: &Model) -> BTreeMap<(GatewayName, NodeName), Failover> {
        let arrived = |address: &IpAddr| {
            let placed = model.planner.planned(*address);
            placed.is_none_or(|placed| placed.record.node.is_some_and(|node| is_held(cache, *address, &node)))
        };
        for failover in self.under_way.values_mut() {
            failover.pending.retain(|address| !arrived(address));
        }
        self.under_way.extract_if(.., |_, failover| failover.pending.is_empty()).collect()
    }
}

fn counted(addresses: usize) -> String {
    if addresses == 1 { "1 address".to_owned() } else { format!("{addresses} addresses") }
}

/// Why something moved, in words.
pub(super) const fn because(cause: MoveCause) -> &'static str {
    match cause {
        MoveCause::NodeDeleted => "the node is gone",
        MoveCause::NodeNotReady => "the node is not ready, or is being drained",
        MoveCause::NotSelected => "the gateway no longer selects the node",
        MoveCause::NodeExcluded => "the node is excluded for this address",
        MoveCause::NodeReady => "a node is ready again",
    }
}
