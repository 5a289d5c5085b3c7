//! The loop of a capability: a turn whenever something changed, on settled watches, while this replica leads.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info_span, warn};

use super::backoff::Backoff;
use super::error::{Class, Error};
use super::lease::Leadership;
use super::metrics::{Metrics, TurnLabel};
use super::watch::Watches;

/// When to take the next turn, unless something changes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// On the next change.
    OnChange,
    /// After this time at the latest.
    After(Duration),
}

/// A capability, as its loop sees it.
pub trait Turn: Send {
    /// This replica begins to lead: what was decided in an earlier term is forgotten.
    fn begin(&mut self) {}

    /// Observe, validate, plan, act, status: once. Called when every watch is settled and this replica leads.
    fn turn(&mut self) -> impl Future<Output = Result<Next, Error>> + Send;
}

/// What a loop runs on.
pub struct Loop {
    pub capability: &'static str,
    pub leadership: Leadership,
    pub metrics: Metrics,
    pub stop: CancellationToken,
}

/// Changes that come within this time share a turn.
const GATHER: Duration = Duration::from_millis(5);

impl Loop {
    /// Takes turns until stopped; a turn under way is finished. A turn that fails is taken again after a growing delay;
    /// one that lost a race soon, as the other's write is on its way to us.
    /// A replica that begins to lead first lists everything anew, so that it sees what the one before it wrote.
    pub async fn run(self, watches: Watches, mut capability: impl Turn) {
        let (mut conflicts, mut failures) = (Backoff::CONFLICTS.delays(), Backoff::REQUESTS.delays());
        while self.begins_to_lead(&watches).await {
            capability.begin();
            let mut wait = Duration::ZERO;
            while self.waited(&watches, wait).await {
                if !watches.settled() {
                    debug!(waiting_for = ?watches.unsettled(), "not settled");
                    wait = UNTIL_CHANGED;
                    continue;
                }
                wait = match self.timed(&mut capability).await {
                    Ok(Next::OnChange) => UNTIL_CHANGED,
                    Ok(Next::After(pause)) => pause,
                    Err(problem) => {
                        let lost_a_race = matches!(problem, Error::Conflict { .. });
                        let delays = if lost_a_race { &mut conflicts } else { &mut failures };
                        let pause = problem.retry_after().unwrap_or_default().max(delays.pause());
                        match problem.class() {
                            Class::Transient => debug!(%problem, ?pause, "turn failed, trying again"),
                            Class::Invalid => warn!(%problem, "turn failed"),
                        }
                        // A change must not cut the delay short, or a failing write would be hammered.
                        tokio::select! { () = self.stop.cancelled() => {} () = tokio::time::sleep(pause) => {} }
                        Duration::ZERO
                    }
                };
                if wait > Duration::ZERO {
                    conflicts.reset();
                    failures.reset();
                }
            }
        }
    }

    /// False when the loop is to stop.
    async fn begins_to_lead(&self, watches: &Watches) -> bool {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => return false,
            () = self.leadership.acquired() => watches.refresh(),
        }
        true
    }

    /// Waits for a change or for `at_most`; false when stopped or no longer leading.
    async fn waited(&self, watches: &Watches, at_most: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => return false,
            () = self.leadership.ran_out() => return false,
            () = watches.changed() => tokio::time::sleep(GATHER).await,
            () = tokio::time::sleep(at_most) => {}
        }
        true
    }

    async fn timed(&self, turning: &mut impl Turn) -> Result<Next, Error> {
        let (capability, began) = (self.capability, Instant::now());
        let ended = turning.turn().instrument(info_span!("turn", capability)).await;
        self.metrics.turn_seconds.observe(began.elapsed().as_secs_f64());
        let outcome = ended.as_ref().map_or_else(Error::reason, |_| "ok");
        self.metrics.turns.get_or_create(&TurnLabel { capability, outcome }).inc();
        ended
    }
}

/// Long enough to mean never; a timer needs a number.
const UNTIL_CHANGED: Duration = Duration::from_hours(24);
