//! What a cluster takes and what not: circuits, the retry budget, and the health of endpoints as stages tell it.

use super::cluster::Layout;
use super::session::Stage;
use super::worker::Worker;
use crate::config::types::Cluster;
use crate::proto::session::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

impl Worker {
    /// Circuits: a cluster takes so many sessions and attempts, and no more.
    pub(super) fn count_stage(&self, stage: &mut Stage, layout: &Layout) -> Result<(), Failure> {
        let Layout { cluster, outlet, .. } = layout;
        let over = |limit: Option<usize>, count: &AtomicUsize| limit.is_some_and(|most| count.load(Relaxed) >= most);
        if over(cluster.options.max_sessions, &outlet.sessions) {
            return Err(self.open_circuit(cluster, "max_sessions"));
        }
        if over(cluster.options.max_pending, &outlet.pending) {
            return Err(self.open_circuit(cluster, "max_pending"));
        }
        outlet.sessions.fetch_add(1, Relaxed);
        outlet.pending.fetch_add(1, Relaxed);
        if stage.retrying.is_none() {
            outlet.budget.lock().attempt(self.now.ms);
        }
        stage.cluster = Some(Arc::clone(cluster));
        stage.outlet = Some(Arc::clone(outlet));
        stage.pending = true;
        self.stats.by_name.lock().clusters.count(&cluster.name, cluster.spec.protocol());
        Ok(())
    }

    /// Counts a failure against the endpoint of a stage.
    pub(super) fn blame(&self, stage: &Stage) {
        let (Some(state), Some(cluster)) = (&stage.state, &stage.cluster) else { return };
        let outlier = &cluster.options.outlier;
        // All endpoints are looked at only if it matters.
        let matters = state.health.lock().is_last_failure(outlier);
        let may_eject = matters && self.layouts.get(&cluster.name).is_some_and(|layout| layout.may_eject());
        state.health.lock().failed(outlier, may_eject, self.now.ms);
    }

    /// Lets a stage be tried again, unless its cluster has enough of that.
    pub(super) fn admit_retry(&mut self, stage: &mut Stage) -> Option<Failure> {
        let (outlet, cluster) = (stage.outlet.as_ref()?, stage.cluster.as_ref()?);
        let most = cluster.options.max_retries.filter(|_| stage.retrying.is_none());
        let crowded = most.is_some_and(|most| outlet.retrying.load(Relaxed) >= most);
        if crowded || !outlet.budget.lock().retry(self.now.ms) {
            let limit = if crowded { "max_retries" } else { "retry_budget" };
            return Some(self.open_circuit(cluster, limit));
        }
        if stage.retrying.is_none() {
            outlet.retrying.fetch_add(1, Relaxed);
            stage.retrying = Some(Arc::clone(outlet));
        }
        None
    }

    /// A cluster takes no more of something.
    fn open_circuit(&self, cluster: &Cluster, limit: &'static str) -> Failure {
        self.stats.by_name.lock().circuits.count(&cluster.name, limit);
        Failure::unavailable(format!("Circuit of cluster \"{}\" is open: {limit}", cluster.name))
    }
}

/// The endpoint of a stage answers.
pub(super) fn prove(stage: &mut Stage) {
    stage.unproven = false;
    if let Some(state) = &stage.state {
        state.health.lock().succeeded();
    }
}

/// A stage is not about to be tried again any more.
pub(super) fn settle_retry(stage: &mut Stage) {
    if let Some(outlet) = stage.retrying.take() {
        outlet.retrying.fetch_sub(1, Relaxed);
    }
}

/// An attempt is over, for better or worse.
pub(super) fn settle_pending(stage: &mut Stage) {
    if let Some(outlet) = stage.outlet.as_ref().filter(|_| std::mem::replace(&mut stage.pending, false)) {
        outlet.pending.fetch_sub(1, Relaxed);
    }
}
