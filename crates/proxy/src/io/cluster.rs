//! Running clusters: load balancing, circuit breakers, endpoint health.

use super::cache_padded::CachePadded;
use super::health::Health;
use super::rate::Limiter;
use super::stats::Meter;
use super::sync::Groups;
use crate::config::snapshot::Names;
use crate::config::types::{Cluster, EndpointState as Wanted, Name, ObjectId};
use parking_lot::Mutex;
use portolan_core::mesh::{Balancer, PickContext, WeightedEndpoint};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// The state of one cluster, shared by all workers.
#[derive(Default)]
pub(crate) struct ClusterState {
    /// Stages that are connected or connecting.
    pub sessions: AtomicUsize,
    /// Stages that are connecting.
    pub pending: AtomicUsize,
    /// Stages between a failed attempt and the outcome of the next.
    pub retrying: AtomicUsize,
    pub budget: Mutex<RetryBudget>,
    pub groups: Groups,
    pub meter: Meter,
    /// The same by session, where that is asked for; live sessions only.
    pub meters: Mutex<BTreeMap<String, Arc<Meter>>>,
    pub limiter: CachePadded<Limiter>,
    /// Sessions placed so far, for policies that go by turns.
    turns: AtomicU64,
}

/// Retries that a cluster may have: a fifth of its first attempts, and a few in any case.
#[derive(Debug, Default)]
pub(crate) struct RetryBudget {
    window: u64,
    attempts: u64,
    retries: u64,
}

impl RetryBudget {
    /// How long attempts and retries are counted against each other.
    const WINDOW_MS: u64 = 10_000;
    /// Retries per window without any attempts: ten a second.
    const FLOOR: u64 = 100;

    pub(crate) fn attempt(&mut self, now: u64) {
        self.turn(now);
        self.attempts += 1;
    }

    /// Whether one more retry fits, and counts it if so.
    pub(crate) fn retry(&mut self, now: u64) -> bool {
        self.turn(now);
        let fits = self.retries < Self::FLOOR + self.attempts / 5;
        self.retries += u64::from(fits);
        fits
    }

    fn turn(&mut self, now: u64) {
        let window = now / Self::WINDOW_MS;
        if self.window != window {
            *self = Self { window, ..Self::default() };
        }
    }
}

/// The state of one endpoint, shared by all workers.
#[derive(Debug, Default)]
pub(crate) struct EndpointState {
    pub sessions: AtomicUsize,
    pub health: Mutex<Health>,
}

/// Shared states by the id of their object; they live as long as someone uses them.
#[derive(Default)]
pub(crate) struct Registry {
    cluster_states: Mutex<BTreeMap<ObjectId, Weak<ClusterState>>>,
    endpoints: Mutex<BTreeMap<ObjectId, Weak<EndpointState>>>,
}

impl Registry {
    fn cluster_state(&self, id: ObjectId) -> Arc<ClusterState> {
        shared(&mut self.cluster_states.lock(), id)
    }

    fn endpoints(&self, cluster: &Cluster) -> Vec<Arc<EndpointState>> {
        let mut known = self.endpoints.lock();
        cluster.endpoints.iter().map(|endpoint| shared(&mut known, endpoint.id)).collect()
    }
}

fn shared<T: Default>(map: &mut BTreeMap<ObjectId, Weak<T>>, id: ObjectId) -> Arc<T> {
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

/// A cluster prepared for sessions: built once per change outside of the workers, and shared by them.
pub(crate) struct ClusterRuntime {
    pub cluster: Arc<Cluster>,
    pub cluster_state: Arc<ClusterState>,
    balancer: Balancer,
    states: Vec<Arc<EndpointState>>,
}

/// Builds the clusters that changed; the others are kept.
pub(crate) fn update_clusters(
    clusters: &Names<ClusterRuntime>,
    changes: impl Iterator<Item = (Name, Option<Arc<Cluster>>)>,
    registry: &Registry,
    now: u64,
) -> Names<ClusterRuntime> {
    let mut clusters = clusters.clone();
    for (name, after) in changes {
        if let Some(cluster) = after {
            let cluster_runtime = ClusterRuntime::new(cluster, clusters.get(&name).map(AsRef::as_ref), registry, now);
            clusters.insert(name, Arc::new(cluster_runtime));
        } else {
            clusters.remove(&name);
        }
    }
    clusters
}

impl ClusterRuntime {
    fn new(cluster: Arc<Cluster>, before: Option<&Self>, registry: &Registry, now: u64) -> Self {
        let balancer = match before.filter(|before| before.cluster.balancer == cluster.balancer) {
            Some(before) => before.balancer.rebuilt(members(&cluster)),
            None => Balancer::new(cluster.balancer.clone(), members(&cluster)),
        };
        let cluster_state = registry.cluster_state(cluster.id);
        cluster_state.limiter.set(cluster.options.qos.as_ref(), now);
        Self { cluster_state, balancer, states: registry.endpoints(&cluster), cluster }
    }

    /// Whether the choice looks at the metadata.
    pub(crate) fn needs_metadata(&self) -> bool {
        self.cluster.balancer.key().is_some()
    }

    /// Picks an endpoint, by its index in the cluster; ejected ones are skipped.
    pub(crate) fn pick(
        &self,
        metadata: &serde_json::Value,
        client: Option<std::net::SocketAddr>,
        random: u64,
        now: u64,
    ) -> Option<usize> {
        let sessions = |at: usize| self.states.get(at).map_or(0, |state| state.sessions.load(Relaxed) as u64);
        let turn = if self.cluster.balancer.takes_turns() { self.cluster_state.turns.fetch_add(1, Relaxed) } else { 0 };
        let picked =
            self.balancer.pick(&PickContext { metadata, client, random, sequence: turn, sessions: &sessions })?;
        if self.states[picked].health.lock().takes(now) {
            return Some(picked);
        }
        let count = self.states.len();
        let mut others = (1..count).map(|step| (picked + step) % count).filter(|at| takes_sessions(&self.cluster, *at));
        Some(others.find(|at| self.states[*at].health.lock().takes(now)).unwrap_or(picked))
    }

    pub(crate) fn state(&self, at: usize) -> &Arc<EndpointState> {
        &self.states[at]
    }

    /// Whether one more endpoint may be ejected.
    pub(crate) fn may_eject(&self) -> bool {
        let ejected = self.states.iter().filter(|state| !state.health.lock().is_fine()).count() + 1;
        ejected as f64 * 100.0 <= self.states.len() as f64 * self.cluster.options.outlier.max_ejected
    }

    /// Which endpoints take sessions, in the cluster's order.
    pub(crate) fn open(&self) -> impl Iterator<Item = bool> {
        let state = |at: usize| takes_sessions(&self.cluster, at) && self.states[at].health.lock().is_fine();
        (0..self.states.len()).map(state)
    }
}

fn takes_sessions(cluster: &Cluster, at: usize) -> bool {
    cluster.endpoints.get(at).is_some_and(|endpoint| endpoint.weight > 0 && endpoint.state == Wanted::Active)
}

fn members(cluster: &Cluster) -> Vec<WeightedEndpoint> {
    let weight = |at: usize| if takes_sessions(cluster, at) { f64::from(cluster.endpoints[at].weight) } else { 0.0 };
    let endpoints = cluster.endpoints.iter().enumerate();
    endpoints.map(|(at, endpoint)| WeightedEndpoint { address: endpoint.address.clone(), weight: weight(at) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan_core::mesh::LbPolicy;

    use crate::config::types::{ClusterOptions, ClusterSpec};

    #[test]
    fn a_fifth_of_the_attempts_may_be_retries_and_a_new_window_begins_afresh() {
        let mut budget = RetryBudget::default();
        (0..1000).for_each(|_| budget.attempt(5));
        assert_eq!((0..1000).filter(|_| budget.retry(6)).count(), 300);
        assert_eq!((0..1000).filter(|_| budget.retry(10_000)).count(), 100);
    }

    #[test]
    fn a_change_puts_together_the_cluster_that_changed_and_no_other() {
        let cluster = |id: u64, name: &str| {
            let (spec, balancer) = (ClusterSpec::Echo, LbPolicy::Trivial);
            let (name, options) = (Name::from(name), ClusterOptions::default());
            Arc::new(Cluster { id: ObjectId(id), name, spec, endpoints: Vec::new(), balancer, options })
        };
        let registry = Registry::default();
        let mut before = Names::default();
        for (id, name) in [(1, "a"), (2, "b")] {
            before.insert(Name::from(name), cluster(id, name));
        }
        let changes = |now: &Names<Cluster>, then: &Names<Cluster>| {
            now.changes(then).map(|(name, cluster)| (name.clone(), cluster.cloned())).collect::<Vec<_>>().into_iter()
        };
        let first = update_clusters(&Names::default(), changes(&before, &Names::default()), &registry, 0);
        let mut after = before.clone();
        after.insert("b".into(), cluster(2, "b"));
        after.insert("c".into(), cluster(3, "c"));
        let second = update_clusters(&first, changes(&after, &before), &registry, 0);
        let same = |name: &str| Arc::ptr_eq(first.get(name).unwrap(), second.get(name).unwrap());
        assert_eq!((same("a"), same("b"), second.len()), (true, false, 3));
        assert!(
            Arc::ptr_eq(&first.get("b").unwrap().cluster_state, &second.get("b").unwrap().cluster_state),
            "counts go on"
        );
        after.remove("a");
        assert!(update_clusters(&second, changes(&after, &after), &registry, 0).get("a").is_some(), "nothing changed");
    }
}
