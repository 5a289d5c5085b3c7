//! Clusters while they run: balancing, circuits, the health of endpoints.

use super::rate::Buckets;
use super::stats::Meter;
use super::sync::Groups;
use crate::config::types::{Balancer as BalancerKind, Cluster, ClusterOptions, EndpointState as Wanted, ObjectId};
use parking_lot::Mutex;
use portolan_core::mesh::{Ask, Balancer, Member, Path, Policy};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// What all workers share of one cluster.
#[derive(Default)]
pub(super) struct Outlet {
    /// Stages that stand or connect.
    pub sessions: AtomicUsize,
    /// Stages that connect.
    pub pending: AtomicUsize,
    pub groups: Groups,
    pub meter: Arc<Meter>,
    /// A Stdio cluster serves one session at a time.
    pub taken: std::sync::atomic::AtomicBool,
}

/// What all workers share of one endpoint.
#[derive(Debug, Default)]
pub(super) struct EndpointState {
    pub sessions: AtomicUsize,
    failures: AtomicU32,
    /// Milliseconds of the monotonic clock.
    ejected_until: AtomicU64,
    ejections: AtomicU32,
}

/// Longest time an endpoint is left alone.
const LONGEST_EJECTION_MS: u64 = 300_000;

impl EndpointState {
    pub(super) fn is_ejected(&self, now: u64) -> bool {
        let until = self.ejected_until.load(Relaxed);
        if until == 0 || now < until {
            return until != 0;
        }
        // Half open: whoever comes first is the probe, others wait another second for what becomes of it.
        self.ejected_until.compare_exchange(until, now + 1000, Relaxed, Relaxed).is_err()
    }

    pub(super) fn succeeded(&self) {
        self.failures.store(0, Relaxed);
        if self.ejected_until.swap(0, Relaxed) != 0 {
            self.ejections.store(0, Relaxed);
        }
    }

    /// Counts a failure; after enough of them the endpoint is left alone, each time for twice as long.
    pub(super) fn failed(&self, options: &ClusterOptions, may_eject: bool, now: u64) {
        let Some(outlier) = &options.outlier else { return };
        let failures = self.failures.fetch_add(1, Relaxed) + 1;
        if failures < outlier.consecutive_failures || !may_eject {
            return;
        }
        let times = self.ejections.fetch_add(1, Relaxed).min(16);
        let first = (outlier.eject_for * 1000.0) as u64;
        self.ejected_until.store(now + (first << times).min(LONGEST_EJECTION_MS), Relaxed);
        self.failures.store(0, Relaxed);
    }

    pub(super) fn is_ejected_now(&self, now: u64) -> bool {
        let until = self.ejected_until.load(Relaxed);
        until != 0 && now < until
    }
}

/// Shared states by the id of their object; they live as long as someone uses them.
#[derive(Default)]
pub(super) struct Registry {
    outlets: Mutex<BTreeMap<ObjectId, Weak<Outlet>>>,
    endpoints: Mutex<BTreeMap<ObjectId, Weak<EndpointState>>>,
}

impl Registry {
    pub(super) fn outlet(&self, id: ObjectId) -> Arc<Outlet> {
        shared(&self.outlets, id)
    }

    pub(super) fn endpoint(&self, id: ObjectId) -> Arc<EndpointState> {
        shared(&self.endpoints, id)
    }
}

fn shared<T: Default>(map: &Mutex<BTreeMap<ObjectId, Weak<T>>>, id: ObjectId) -> Arc<T> {
    let mut map = map.lock();
    if let Some(found) = map.get(&id).and_then(Weak::upgrade) {
        return found;
    }
    if map.len().is_power_of_two() {
        map.retain(|_, weak| weak.strong_count() > 0);
    }
    let fresh = Arc::new(T::default());
    map.insert(id, Arc::downgrade(&fresh));
    fresh
}

/// One worker's view of a cluster.
pub(super) struct View {
    pub cluster: Arc<Cluster>,
    pub outlet: Arc<Outlet>,
    balancer: Balancer,
    states: Vec<Arc<EndpointState>>,
    turn: u64,
    /// This worker's share of the cluster's rates.
    pub buckets: Option<Box<Buckets>>,
}

impl View {
    /// `share`: which of how many workers this is.
    pub(super) fn new(cluster: &Arc<Cluster>, registry: &Registry, share: (usize, usize), now: u64) -> Self {
        Self {
            cluster: Arc::clone(cluster),
            outlet: registry.outlet(cluster.id),
            balancer: Balancer::new(policy(&cluster.balancer), members(cluster)),
            states: states(cluster, registry),
            turn: share.0 as u64,
            buckets: cluster.options.qos.as_ref().and_then(|qos| Buckets::new(qos, share.1, now)),
        }
    }

    /// Follows a change of the cluster.
    pub(super) fn update(&mut self, cluster: &Arc<Cluster>, registry: &Registry) {
        self.balancer = if self.cluster.balancer == cluster.balancer {
            self.balancer.rebuilt(members(cluster))
        } else {
            Balancer::new(policy(&cluster.balancer), members(cluster))
        };
        self.states = states(cluster, registry);
        self.cluster = Arc::clone(cluster);
    }

    /// Whether the choice looks at the metadata.
    pub(super) fn needs_metadata(&self) -> bool {
        matches!(self.cluster.balancer, BalancerKind::HashRing { key: Some(_) } | BalancerKind::Maglev { key: Some(_) })
    }

    /// Chooses an endpoint by its place in the cluster.
    pub(super) fn pick(
        &mut self,
        metadata: &serde_json::Value,
        client: Option<std::net::SocketAddr>,
        random: u64,
        now: u64,
    ) -> Option<usize> {
        let sessions = |at: usize| self.states.get(at).map_or(0, |state| state.sessions.load(Relaxed) as u64);
        let ask = Ask { metadata, client, random, turn: self.turn, sessions: &sessions };
        self.turn += 1;
        let picked = self.balancer.pick(&ask)?;
        if self.cluster.options.outlier.is_none() || !self.states[picked].is_ejected(now) {
            return Some(picked);
        }
        let count = self.states.len();
        let others = (1..count).map(|step| (picked + step) % count);
        let mut open = others.filter(|at| takes_sessions(&self.cluster, *at));
        Some(open.find(|at| !self.states[*at].is_ejected(now)).unwrap_or(picked))
    }

    pub(super) fn state(&self, at: usize) -> &Arc<EndpointState> {
        &self.states[at]
    }

    /// Whether one more endpoint may be left alone.
    pub(super) fn may_eject(&self, now: u64) -> bool {
        let Some(outlier) = &self.cluster.options.outlier else { return false };
        let ejected = self.states.iter().filter(|state| state.is_ejected_now(now)).count() + 1;
        ejected as f64 * 100.0 <= self.states.len() as f64 * outlier.max_ejected
    }
}

fn takes_sessions(cluster: &Cluster, at: usize) -> bool {
    cluster.endpoints.get(at).is_some_and(|endpoint| endpoint.weight > 0 && endpoint.state == Wanted::Active)
}

fn states(cluster: &Cluster, registry: &Registry) -> Vec<Arc<EndpointState>> {
    cluster.endpoints.iter().map(|endpoint| registry.endpoint(endpoint.id)).collect()
}

fn members(cluster: &Cluster) -> Vec<Member> {
    let weight = |at: usize| if takes_sessions(cluster, at) { f64::from(cluster.endpoints[at].weight) } else { 0.0 };
    cluster
        .endpoints
        .iter()
        .enumerate()
        .map(|(at, endpoint)| Member { address: endpoint.address.clone(), weight: weight(at) })
        .collect()
}

fn policy(kind: &BalancerKind) -> Policy {
    let path = |key: &Option<String>| key.as_deref().map(Path::new);
    match kind {
        BalancerKind::Trivial => Policy::Trivial,
        BalancerKind::HashRing { key } => Policy::HashRing(path(key)),
        BalancerKind::Maglev { key } => Policy::Maglev(path(key)),
        BalancerKind::RoundRobin => Policy::RoundRobin,
        BalancerKind::Random2 => Policy::Random2,
        BalancerKind::LeastSessions => Policy::LeastSessions,
    }
}
