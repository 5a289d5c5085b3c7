//! Plan -> due writes. The claims are the truth and come first; a failure of one object delays no other.

pub(super) mod acting;
mod claims;
mod cluster_info;
mod finalizers;
mod slices;
mod tunnels;

use std::net::IpAddr;

use portolan_core::egress::{GatewayName, PolicyName};
use tokio::time::Instant;

pub use tunnels::Subnets;

use self::acting::Acting;
use self::claims::Standbys;
use self::tunnels::{Numbering, Reserved};
use super::claim_gc::ClaimGc;
use super::metrics::Metrics;
use super::model::{Dirty, Model};
use super::observe::Cache;
use super::status;
use crate::runtime::due::{DueWrites, Pace, WriteQueues};
use crate::runtime::write::Writer;

/// Everything that is yet to be written in this term.
pub(super) struct Writes {
    finalizers: DueWrites<GatewayName>,
    claims: DueWrites<IpAddr, Option<GatewayName>>,
    tunnels: DueWrites<String>,
    reserved: Reserved,
    cluster_info: DueWrites<()>,
    policies: DueWrites<PolicyName>,
    gateways: DueWrites<GatewayName>,
    slices: DueWrites<PolicyName>,
}

impl Writes {
    pub(super) fn new(queues: &WriteQueues) -> Self {
        Self {
            finalizers: queues.queue("egress finalizers", Pace::URGENT),
            claims: queues.queue("egress claims", Pace::URGENT),
            tunnels: queues.queue("egress tunnels", Pace::URGENT),
            reserved: Reserved::default(),
            cluster_info: queues.queue("egress cluster info", Pace::STATUS),
            policies: queues.queue("egress policies", Pace::STATUS),
            gateways: queues.queue("egress gateways", Pace::VIEW),
            slices: queues.queue("egress slices", Pace::VIEW),
        }
    }

    /// Takes up what may differ.
    pub(super) fn add(&mut self, dirty: &mut Dirty, model: &Model) {
        let Dirty { addresses, policies, gateways, slices, tunnels, info, moves: _, standby } = dirty;
        if std::mem::take(standby) {
            addresses.extend(model.planner.addresses());
        }
        self.claims.extend(std::mem::take(addresses));
        self.policies.extend(std::mem::take(policies));
        self.finalizers.extend(gateways.iter().cloned());
        self.gateways.extend(std::mem::take(gateways));
        self.slices.extend(std::mem::take(slices));
        self.tunnels.extend(std::mem::take(tunnels));
        self.cluster_info.extend(std::mem::take(info).then_some(()));
    }

    /// Writes claims and what holds gateways; gives the addresses that were released, and whose they were.
    pub(super) async fn claims(&mut self, acting: &Acting<'_>, gc: &ClaimGc) -> Vec<(IpAddr, GatewayName)> {
        self.finalizers.pass(|name, _| finalizers::prepare(acting, name)).await;
        let mut standbys = Standbys::new(acting.model);
        let ended = self.claims.pass(|address, _| claims::prepare(acting, gc, &mut standbys, *address)).await;
        ended.into_iter().filter_map(|(address, released)| Some((address, released.ok()??))).collect()
    }

    /// Gives numbers to the tunnels of these nodes as well; needs no plan.
    pub(super) async fn tunnels(
        &mut self,
        nodes: impl IntoIterator<Item = String>,
        (writer, cache, metrics): (&Writer, &Cache, &Metrics),
        subnets: Subnets,
    ) {
        self.tunnels.extend(nodes);
        let mut numbering = Numbering::new(writer, cache, metrics, subnets, &mut self.reserved);
        for (node, _) in self.tunnels.pass(|node, _| numbering.prepare(node)).await {
            self.reserved.release(&node);
        }
    }

    /// Writes what only shows what was done.
    pub(super) async fn views(&mut self, acting: &Acting<'_>, await_holder: std::time::Duration) {
        self.cluster_info.pass(|(), _| cluster_info::prepare(acting)).await;
        self.policies.pass(|name, since| status::prepare_policy(acting, name, since, await_holder)).await;
        self.gateways.pass(|name, since| status::prepare_gateway(acting, name, since, await_holder)).await;
        self.slices.pass(|policy, _| slices::prepare(acting, policy)).await;
    }

    /// When the next write is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let Self { finalizers, claims, tunnels, reserved: _, cluster_info, policies, gateways, slices } = self;
        let due = [
            finalizers.next_due(),
            claims.next_due(),
            tunnels.next_due(),
            cluster_info.next_due(),
            policies.next_due(),
            gateways.next_due(),
            slices.next_due(),
        ];
        due.into_iter().flatten().min()
    }
}
