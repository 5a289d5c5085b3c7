//! Circuit breakers, the retry budget, and passive health checks.

use super::cluster::ClusterRuntime;
use super::session::Stage;
use super::worker::Worker;
use crate::config::types::Cluster;
use crate::proto::session::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

impl Worker {
    /// Counts a stage against the limits of its cluster.
    pub(crate) fn count_stage(&self, stage: &mut Stage, cluster_runtime: &ClusterRuntime) -> Result<(), Failure> {
        let ClusterRuntime { cluster, cluster_state, .. } = cluster_runtime;
        let over = |limit: Option<usize>, count: &AtomicUsize| limit.is_some_and(|most| count.load(Relaxed) >= most);
        if over(cluster.options.max_sessions, &cluster_state.sessions) {
            return Err(self.open_circuit(cluster, "max_sessions"));
        }
        if over(cluster.options.max_pending, &cluster_state.pending) {
            return Err(self.open_circuit(cluster, "max_pending"));
        }
        cluster_state.sessions.fetch_add(1, Relaxed);
        cluster_state.pending.fetch_add(1, Relaxed);
        if stage.retrying.is_none() {
            cluster_state.budget.lock().attempt(self.now.ms);
        }
        stage.cluster = Some(Arc::clone(cluster));
        stage.cluster_state = Some(Arc::clone(cluster_state));
        stage.pending = true;
        self.stats.by_name.lock().clusters.count(&cluster.name, cluster.spec.protocol());
        Ok(())
    }

    /// Counts a failure against the endpoint of a stage.
    pub(crate) fn record_failure(&self, stage: &Stage) {
        let (Some(state), Some(cluster)) = (&stage.state, &stage.cluster) else { return };
        let outlier = &cluster.options.outlier;
        // all endpoints are checked only if needed
        let matters = state.health.lock().is_last_failure(outlier);
        let may_eject =
            matters && self.clusters.get(&cluster.name).is_some_and(|cluster_runtime| cluster_runtime.may_eject());
        state.health.lock().failed(outlier, may_eject, self.now.ms);
    }

    /// Allows a retry, unless the cluster is at its limit.
    pub(crate) fn admit_retry(&mut self, stage: &mut Stage) -> Option<Failure> {
        let (cluster_state, cluster) = (stage.cluster_state.as_ref()?, stage.cluster.as_ref()?);
        let most = cluster.options.max_retries.filter(|_| stage.retrying.is_none());
        let crowded = most.is_some_and(|most| cluster_state.retrying.load(Relaxed) >= most);
        if crowded || !cluster_state.budget.lock().retry(self.now.ms) {
            let limit = if crowded { "max_retries" } else { "retry_budget" };
            return Some(self.open_circuit(cluster, limit));
        }
        if stage.retrying.is_none() {
            cluster_state.retrying.fetch_add(1, Relaxed);
            stage.retrying = Some(Arc::clone(cluster_state));
        }
        None
    }

    /// Counts and reports a refusal.
    fn open_circuit(&self, cluster: &Cluster, limit: &'static str) -> Failure {
        self.stats.by_name.lock().circuits.count(&cluster.name, limit);
        Failure::unavailable(format!("Circuit breaker of cluster \"{}\" is open: {limit}", cluster.name))
    }
}

/// The endpoint of a stage has responded.
pub(crate) fn confirm_endpoint(stage: &mut Stage) {
    stage.unconfirmed = false;
    if let Some(state) = &stage.state {
        state.health.lock().succeeded();
    }
}

/// A stage is not retrying any more.
pub(crate) fn finish_retry(stage: &mut Stage) {
    if let Some(cluster_state) = stage.retrying.take() {
        cluster_state.retrying.fetch_sub(1, Relaxed);
    }
}

/// An attempt has ended.
pub(crate) fn finish_pending(stage: &mut Stage) {
    if let Some(cluster_state) = stage.cluster_state.as_ref().filter(|_| std::mem::replace(&mut stage.pending, false)) {
        cluster_state.pending.fetch_sub(1, Relaxed);
    }
}
