//! How long changes of remotes take until they are written here, and which writes repair what others changed here.

use std::collections::{BTreeMap, BTreeSet};

use portolan_core::mirror::{Action, ServiceName};
use tokio::time::Instant;

use super::metrics::Metrics;
use super::model::{Model, RemoteEvent, Touched};

/// Names whose writes are yet to be made or shown.
#[derive(Debug, Default)]
pub(super) struct Convergence {
    waiting: BTreeMap<ServiceName, Waiting>,
    /// Names with objects that somebody else changed.
    drifted: BTreeSet<ServiceName>,
}

#[derive(Debug)]
struct Waiting {
    /// The first that is not written.
    event: RemoteEvent,
    /// When the last write for it was answered.
    acknowledged: Option<Instant>,
}

impl Convergence {
    /// Takes up what changed. A name is done when there is nothing left to write for it; then its last write counts.
    pub(super) fn follow(&mut self, touched: &Touched, model: &Model, metrics: &Metrics) {
        for (name, event) in &touched.events {
            let waiting = || Waiting { event: event.clone(), acknowledged: None };
            self.waiting.entry(name.clone()).or_insert_with(waiting);
        }
        self.drifted.extend(touched.drifted.iter().cloned());
        if self.waiting.is_empty() && self.drifted.is_empty() {
            return;
        }
        for name in &touched.names {
            let is_done = model.decisions.get(name).is_none_or(|decision| {
                decision.is_settled() || (decision.action == Action::Delete && !model.may_delete(decision))
            });
            if !is_done {
                continue;
            }
            self.drifted.remove(name);
            if let Some(Waiting { event, acknowledged: Some(at) }) = self.waiting.remove(name) {
                metrics.converged(&event.remote, at.saturating_duration_since(event.received));
            }
        }
    }

    /// A write was answered.
    pub(super) fn acknowledged(&mut self, name: &ServiceName, at: Instant, object: &'static str, metrics: &Metrics) {
        if let Some(waiting) = self.waiting.get_mut(name) {
            waiting.acknowledged = waiting.acknowledged.max(Some(at));
        }
        if self.drifted.contains(name) {
            metrics.repaired(object);
        }
    }
}
