//! The loop of a capability: it reconciles whenever something changed, on settled watches, while this replica leads.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info_span};

use super::lease::{Leadership, Term};
use super::metrics::{CapabilityLabel, Metrics};
use super::watch::Watches;

/// When to reconcile next, unless something changes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// On the next change.
    OnChange,
    /// After this time at the latest.
    After(Duration),
}

impl Next {
    /// At the earliest of these times, or on the next change if there is none.
    pub fn at_earliest(times: impl IntoIterator<Item = Option<Instant>>) -> Self {
        let earliest = times.into_iter().flatten().min();
        earliest.map_or(Self::OnChange, |at| Self::After(at.saturating_duration_since(Instant::now())))
    }
}

/// A capability, as its loop sees it.
pub trait Reconciler: Send {
    /// This replica begins to lead: what was decided in an earlier term is forgotten.
    fn begin(&mut self, _term: &Term) {}

    /// This replica no longer leads: whatever acts in its name must end here.
    fn end(&mut self) {}

    /// Observe, validate, plan, act, status: once. Called when every watch is settled and this replica leads; abandoned
    /// when it no longer does. Failures are kept per object (see [`DueWrites`](super::due::DueWrites)): there is none
    /// of the whole.
    fn reconcile(&mut self) -> impl Future<Output = Next> + Send;
}

/// What a loop runs on.
pub struct Loop {
    pub capability: &'static str,
    pub leadership: Leadership,
    pub metrics: Metrics,
    pub stop: CancellationToken,
}

/// Changes that come within this time are reconciled together.
const GATHER: Duration = Duration::from_millis(5);

impl Loop {
    /// Reconciles until stopped; what is under way then is finished. A replica that begins to lead first lists
    /// everything anew, so that it sees what the one before it wrote.
    pub async fn run(self, watches: Watches, mut capability: impl Reconciler) {
        while let Some(term) = self.next_term(&watches).await {
            capability.begin(&term);
            tokio::select! {
                biased;
                () = term.ended() => debug!(capability = self.capability, "leadership ended"),
                () = self.lead(&watches, &mut capability) => {}
            }
            capability.end();
        }
    }

    /// None when the loop is to stop.
    async fn next_term(&self, watches: &Watches) -> Option<Term> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            term = self.leadership.acquired() => {
                watches.refresh();
                Some(term)
            }
        }
    }

    /// Reconciles until stopped.
    async fn lead(&self, watches: &Watches, capability: &mut impl Reconciler) {
        let mut wait = Duration::ZERO;
        while self.waited(watches, wait).await {
            if !watches.settled() {
                debug!(waiting_for = ?watches.unsettled(), "not settled");
                wait = UNTIL_CHANGED;
                continue;
            }
            wait = match self.timed(capability).await {
                Next::OnChange => UNTIL_CHANGED,
                Next::After(pause) => pause,
            };
        }
    }

    /// Waits for a change or for `at_most`; false when stopped.
    async fn waited(&self, watches: &Watches, at_most: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => return false,
            () = watches.changed() => tokio::time::sleep(GATHER).await,
            () = tokio::time::sleep(at_most) => {}
        }
        true
    }

    async fn timed(&self, reconciler: &mut impl Reconciler) -> Next {
        let (capability, began) = (self.capability, Instant::now());
        let next = reconciler.reconcile().instrument(info_span!("reconcile", capability)).await;
        self.metrics.reconcile_seconds.observe(began.elapsed().as_secs_f64());
        self.metrics.reconciles.get_or_create(&CapabilityLabel { capability }).inc();
        next
    }
}

/// Long enough to mean never; a timer needs a number.
const UNTIL_CHANGED: Duration = Duration::from_hours(24);
