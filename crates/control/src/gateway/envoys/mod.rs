//! Envoys as Deployments in the operator's namespace: what each is made of, and what its pods say. No client here;
//! [`act::envoys`](super::act::envoys) writes and removes them.
//!
//! ```text
//! Gateway --units--> DeploymentProxies --> Fleet <--mTLS, delta xDS-- Envoy
//!                        |  ^                                           ^
//!            what to make v  | what became of the pods        kubelet --'
//!                    act::envoys <--> Secret, Deployment, Service of each unit
//! ```
//!
//! They are not in the tenant's namespace: who may edit there could read the key that its Envoy connects with, or change
//! its pod. Packets reach the pod by a Service of type LoadBalancer whose address is the public one, which kube-proxy
//! takes on every node; with Multus the pod also has that address itself, in the network of its prefix.

pub(super) mod manifest;
pub(super) mod networks;
pub(super) mod pods;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use portolan_core::gateway::unit::{Report, State, Unit, UnitId};
use portolan_drivers::envoy::{Fleet, Proxies, UnitReport, Units};
use tokio::sync::Notify;

use crate::runtime::authority::Schedule;

/// How Envoys run as Deployments.
#[derive(Debug, Clone)]
pub struct DeploymentOptions {
    /// Where: the operator's own namespace.
    pub namespace: String,
    /// The image of units that name none.
    pub image: String,
    /// The name or address, and the port, that Envoys connect to.
    pub xds_server: (String, u16),
    /// Where this process accepts them.
    pub xds_listen: SocketAddr,
    /// Pods are attached to the network of their prefix by Multus.
    pub multus: bool,
    /// How long an Envoy that is not wanted any more goes on with its connections.
    pub drain: Duration,
    /// The lives of the authority and of certificates.
    pub schedule: Schedule,
}

/// What the gateway's loop and the loop of Deployments share.
#[derive(Clone)]
pub struct DeploymentProxies {
    shared: Arc<Shared>,
}

struct Shared {
    fleet: Fleet,
    /// None while another replica leads.
    wanted: Mutex<Option<Units>>,
    /// What is known of the objects of units. None until this replica, while it leads, has looked.
    found: Mutex<Option<Found>>,
    /// Wakes the loop of Deployments.
    look: Arc<Notify>,
    /// Wakes the gateway's loop.
    wake: Arc<Notify>,
}

/// What the objects of units say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// What stops Envoys that are not connected.
    pub(super) problems: BTreeMap<UnitId, UnitProblem>,
    /// Units with a pod that nodes send packets to.
    pub(super) reachable: BTreeSet<UnitId>,
}

/// Why a unit does not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UnitProblem {
    /// Its objects cannot be written, so that packets may not reach its Envoy.
    Objects(Arc<str>),
    /// What is said of its pods; without effect while one of them is connected and ready.
    Pods(State),
}

impl DeploymentProxies {
    /// `wake` wakes the gateway's loop.
    pub fn new(wake: Arc<Notify>) -> Self {
        let on_report = Arc::clone(&wake);
        let fleet = Fleet::new(move || on_report.notify_one());
        let (wanted, found) = (Mutex::default(), Mutex::default());
        Self { shared: Arc::new(Shared { fleet, wanted, found, look: Arc::default(), wake }) }
    }

    pub(super) fn fleet(&self) -> &Fleet {
        &self.shared.fleet
    }

    pub(super) fn look(&self) -> Arc<Notify> {
        Arc::clone(&self.shared.look)
    }

    /// None while another replica leads.
    pub(super) fn wanted(&self) -> Option<Units> {
        self.shared.wanted.lock().clone()
    }

    /// What a look has found; none when this replica no longer leads.
    pub(super) fn found(&self, found: Option<Found>) {
        let mut current = self.shared.found.lock();
        if *current != found {
            *current = found;
            self.shared.wake.notify_one();
        }
    }
}

impl Proxies for DeploymentProxies {
    fn want(&self, units: Units) {
        self.shared.fleet.want(&units);
        let mut wanted = self.shared.wanted.lock();
        let is_same_work = wanted.as_ref().is_some_and(|before| {
            let pairs = || before.iter().zip(&units);
            before.len() == units.len()
                && pairs().all(|((id, one), (other_id, other))| id == other_id && is_same(one, other))
        });
        *wanted = Some(units);
        if !is_same_work {
            self.shared.look.notify_one();
        }
    }

    fn stand_by(&self) {
        *self.shared.wanted.lock() = None;
        *self.shared.found.lock() = None;
        self.shared.fleet.stand_by();
        self.shared.look.notify_one();
    }

    fn reports(&self) -> Option<BTreeMap<UnitId, Report>> {
        self.shared.wanted.lock().as_ref()?;
        let Found { problems, reachable } = self.shared.found.lock().clone()?;
        let report = |(id, report): (UnitId, UnitReport)| {
            let state = state(&report, problems.get(&id), reachable.contains(&id));
            (id, Report { answered: report.answered, rejected: report.rejected, state })
        };
        Some(self.shared.fleet.reports().into_iter().map(report).collect())
    }
}

/// True if both need the same objects: endpoints are in none.
pub(super) fn is_same(one: &Unit, other: &Unit) -> bool {
    let ports = one.listeners.keys().eq(other.listeners.keys());
    ports && one.address == other.address && one.image == other.image
}

fn state(report: &UnitReport, problem: Option<&UnitProblem>, is_reachable: bool) -> State {
    if !report.is_wanted {
        return State::Draining;
    }
    match (problem, &report.mismatch) {
        (Some(UnitProblem::Objects(why)), _) => State::Missing(Arc::clone(why)),
        (_, Some(mismatch)) => State::NodeMismatch(Arc::clone(mismatch)),
        (_, None) if report.is_connected && is_reachable => State::Running,
        (Some(UnitProblem::Pods(state)), None) => state.clone(),
        (None, None) if report.is_connected => State::NotReady,
        (None, None) => State::Starting,
    }
}
