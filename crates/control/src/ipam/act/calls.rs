//! Calls to the cloud, each in its own task.
//!
//! They are not in a queue of due writes, because a pass waits for what it sent, and calls may wait long for their turn.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use portolan_core::ipam::{CallKind, CloudCall, InterfaceId};
use portolan_drivers::cloud::{Cloud, Outcomes};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::super::metrics::Metrics;
use super::acting::Acting;
use super::ledger::UnderWay;
use crate::runtime::lease::Term;

/// One such call is made at a time.
type CallKey = (InterfaceId, CallKind);

/// Makes calls in one term; those under way are given up when it is dropped.
pub(super) struct Caller {
    cloud: Arc<dyn Cloud>,
    at_once: usize,
    term: Term,
    wake: Arc<Notify>,
    metrics: Metrics,
    requests: JoinSet<CallKey>,
    /// What is under way, and whether it serves addresses whose node was lost.
    running: BTreeMap<CallKey, bool>,
}

impl Caller {
    pub(super) fn new(cloud: Arc<dyn Cloud>, at_once: usize, term: Term, wake: Arc<Notify>, metrics: Metrics) -> Self {
        Self { cloud, at_once, term, wake, metrics, requests: JoinSet::new(), running: BTreeMap::new() }
    }

    /// Starts what is due, in order; gives when the next call may be made that has to wait.
    pub(super) fn start(&mut self, acting: &Acting<'_>) -> Option<Instant> {
        while let Some(joined) = self.requests.try_join_next() {
            match joined {
                Ok(key) => drop(self.running.remove(&key)),
                // nothing aborts a call while this lives
                Err(failed) => std::panic::resume_unwind(failed.into_panic()),
            }
        }
        // A call that ended after the plan was made would be made again.
        if acting.ledger.is_changed() {
            return Some(Instant::now());
        }
        let mut next = None;
        for call in &acting.due.calls {
            let key = (call.interface.clone(), call.kind);
            if self.running.contains_key(&key) || !self.has_slot(call.failover) || !self.term.held() {
                continue;
            }
            let (ready, later) = ready(acting, call);
            next = next.into_iter().chain(later).min();
            if !ready.addresses.is_empty() {
                self.running.insert(key.clone(), call.failover);
                self.send(key, acting.ledger.begin(ready));
            }
        }
        next
    }

    /// Whatever serves lost addresses waits for no other call.
    fn has_slot(&self, failover: bool) -> bool {
        self.running.values().filter(|running| **running == failover).count() < self.at_once
    }

    fn send(&mut self, key: CallKey, under_way: UnderWay) {
        let (cloud, wake, metrics) = (self.cloud.clone(), self.wake.clone(), self.metrics.clone());
        self.requests.spawn(async move {
            let began = Instant::now();
            let outcomes = tokio::time::timeout(LONGEST, request(&*cloud, under_way.call())).await;
            let outcomes = outcomes.unwrap_or_default();
            metrics.called(under_way.call(), &outcomes, began.elapsed());
            under_way.answered(outcomes);
            wake.notify_one();
            key
        });
    }
}

async fn request(cloud: &dyn Cloud, call: &CloudCall) -> Outcomes {
    let addresses: Vec<Ipv4Addr> = call.addresses.iter().copied().collect();
    match call.kind {
        CallKind::Assign => cloud.assign(&call.interface, &addresses).await,
        CallKind::Take => cloud.take(&call.interface, &addresses).await,
        CallKind::Release => cloud.release(&call.interface, &addresses).await,
    }
}

/// The call with those addresses that may be tried now, and when the next of the others may be.
fn ready(acting: &Acting<'_>, call: &CloudCall) -> (CloudCall, Option<Instant>) {
    let mut later: Option<Instant> = None;
    let mut ready = call.clone();
    ready.addresses.retain(|address| {
        // The journal must say what the plan read in it, and every failure before.
        let claim = acting.model.journal.claims.get(address);
        if claim.is_none() || acting.claim(*address).as_ref() != claim || acting.ledger.failure(*address).is_some() {
            return false;
        }
        let status = claim.map(|claim| &claim.status);
        let recorded = status.and_then(|status| Some((status.attempts, status.last_error.as_ref()?.at)));
        let Some(at) = acting.ledger.next_try(*address, recorded) else { return true };
        later = Some(later.map_or(at, |later| later.min(at)));
        false
    });
    (ready, later)
}

/// A call without an answer for this long is given up.
const LONGEST: Duration = Duration::from_mins(1);
