//! Plan -> due writes and calls. Each object goes its own way: a failure of one delays no other.

mod acting;
mod calls;
mod claims;
mod due;
mod ledger;
mod ovn;
mod private_ips;
mod publish;

use std::net::Ipv4Addr;
use std::sync::Arc;

use portolan_core::ipam::{NamespaceName, NodeName};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::acting::Acting;
use self::calls::Caller;
pub(super) use self::claims::Done;
pub(super) use self::due::Due;
pub(super) use self::ledger::Ledger;
use super::backend::Network;
use super::metrics::Metrics;
use super::model::Model;
use super::observe::Cache;
use super::settings::Options;
use crate::runtime::due::{DueWrites, Pace, WriteQueues};
use crate::runtime::lease::Term;
use crate::runtime::write::Writer;

/// What was written.
pub(super) struct Written {
    /// Steps that were recorded.
    pub(super) steps: Vec<Done>,
    /// Where something was written once more that others had undone.
    pub(super) repaired: Vec<&'static str>,
}

/// Everything that is yet to be done in this term.
pub(super) struct Writes {
    due: Due,
    claims: DueWrites<Ipv4Addr, Option<Done>>,
    host_subnets: DueWrites<NodeName>,
    net_namespaces: DueWrites<NamespaceName>,
    namespaces: DueWrites<NamespaceName>,
    nodes: DueWrites<NodeName>,
    private_ips: DueWrites<Ipv4Addr>,
    caller: Caller,
    next_call: Option<Instant>,
}

impl Writes {
    pub(super) fn new(
        queues: &WriteQueues,
        options: &Options,
        term: Term,
        wake: Arc<Notify>,
        metrics: Metrics,
    ) -> Self {
        Self {
            due: Due::default(),
            claims: queues.queue("ipam claims", Pace::URGENT),
            host_subnets: queues.queue("ipam hostsubnets", Pace::URGENT),
            net_namespaces: queues.queue("ipam netnamespaces", Pace::URGENT),
            namespaces: queues.queue("ipam namespaces", Pace::URGENT),
            nodes: queues.queue("ipam nodes", Pace::URGENT),
            private_ips: queues.queue("ipam cloudprivateipconfigs", Pace::URGENT),
            caller: Caller::new(options.cloud.clone(), options.calls_at_once, term, wake, metrics),
            next_call: None,
        }
    }

    /// Takes up a new plan; the old one no longer counts.
    pub(super) fn plan(&mut self, due: Due) {
        self.claims.extend(due.claims.keys().copied());
        self.host_subnets.extend(due.host_subnets.keys().cloned());
        self.net_namespaces.extend(due.net_namespaces.keys().cloned());
        self.namespaces.extend(due.namespaces.keys().cloned());
        self.nodes.extend(due.nodes.keys().cloned());
        self.private_ips.extend(due.private_ips.keys().copied());
        self.due = due;
    }

    /// Starts calls, and writes what is due.
    pub(super) async fn act(&mut self, writer: &Writer, cache: &Cache, model: &Model, ledger: &Ledger) -> Written {
        let Self { due, claims, host_subnets, net_namespaces, namespaces, nodes, private_ips, caller, next_call } =
            self;
        let acting = Acting { writer, cache, model, ledger, due };
        claims.extend(ledger.failed());
        claims.extend(model.without_status.iter().copied());
        *next_call = caller.start(&acting);
        let (done, hosts, lists, _, _, _) = tokio::join!(
            claims.pass(|address, _| claims::prepare(&acting, *address)),
            host_subnets.pass(|name, _| publish::host_subnet(&acting, name)),
            net_namespaces.pass(|name, _| publish::net_namespace(&acting, name)),
            namespaces.pass(|name, _| publish::namespace(&acting, name)),
            nodes.pass(|name, _| ovn::node(&acting, name)),
            private_ips.pass(|address, _| private_ips::private_ip(&acting, *address)),
        );
        let steps = done.into_iter().filter_map(|(_, done)| done.ok().flatten()).collect();
        let mut repaired = Vec::new();
        for (node, result) in hosts {
            let is_repair = result.is_ok() && acting.is_settled(|claim| claim.hosts().any(|host| *host == node));
            repaired.extend(is_repair.then_some("hostsubnet"));
        }
        for (namespace, result) in lists {
            let is_repair = result.is_ok() && acting.is_settled(|claim| claim.spec.owner.name == namespace);
            let place = if model.network == Network::Ovn { "egressip" } else { "netnamespace" };
            repaired.extend(is_repair.then_some(place));
        }
        Written { steps, repaired }
    }

    /// When something is due next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let Self { due: _, claims, host_subnets, net_namespaces, namespaces, nodes, private_ips, caller: _, next_call } =
            self;
        let published = [host_subnets.next_due(), net_namespaces.next_due(), namespaces.next_due()];
        let others = [claims.next_due(), nodes.next_due(), private_ips.next_due(), *next_call];
        published.into_iter().chain(others).flatten().min()
    }
}
