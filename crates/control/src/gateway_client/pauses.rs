//! When calls that failed are made again. A failure of one load balancer delays no other; one that every call would meet
//! delays all, so that a gateway that is away or refuses our login is asked once in a while.

use std::collections::BTreeMap;
use std::time::Duration;

use portolan_core::gateway_client::{Call, LbName};
use portolan_drivers::gateway::GatewayError;
use tokio::time::Instant;

use crate::runtime::backoff::{Backoff, Delays};

const RETRIES: Backoff = Backoff { first: Duration::from_millis(100), most: Duration::from_secs(15) };
/// A gateway that asks for more is asked again after this time.
const LONGEST_PAUSE: Duration = Duration::from_mins(10);
/// A load balancer that waits for its address, or is being deleted, is looked at this often.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Failures since the last success.
#[derive(Default)]
pub(super) struct Pauses {
    all: Option<Pause>,
    each: BTreeMap<LbName, (Call, Pause)>,
    later: BTreeMap<LbName, Instant>,
}

struct Pause {
    delays: Delays,
    until: Instant,
    times: u32,
    error: GatewayError,
}

impl Pause {
    fn next(before: Option<Self>, error: &GatewayError, now: Instant) -> Self {
        let (mut delays, times) = before.map_or_else(|| (RETRIES.delays(), 0), |before| (before.delays, before.times));
        let delay = delays.pause();
        let delay = error.retry_after().map_or(delay, |asked| asked.min(LONGEST_PAUSE).max(delay));
        Self { delays, until: now + delay, times: times.saturating_add(1), error: error.clone() }
    }

    /// One failure that may pass is not worth a condition.
    fn reported(&self) -> Option<&GatewayError> {
        let is_definite = matches!(&self.error, GatewayError::Rejected { status, .. } if *status < 500);
        (is_definite || self.times > 1).then_some(&self.error)
    }
}

impl Pauses {
    /// A call failed.
    pub(super) fn failed(&mut self, lb: &LbName, call: &Call, error: &GatewayError, now: Instant) {
        let before = self.each.remove(lb).map(|(_, before)| before);
        let mut pause = Pause::next(before, error, now);
        if error.concerns_all() {
            self.all_failed(error, now);
            pause.until = now;
            pause.delays.reset();
        }
        self.each.insert(lb.clone(), (call.clone(), pause));
    }

    /// A call that concerns none of them alone failed.
    pub(super) fn all_failed(&mut self, error: &GatewayError, now: Instant) {
        // calls that were under way together count once
        if self.all.as_ref().is_none_or(|all| all.until <= now) {
            self.all = Some(Pause::next(self.all.take(), error, now));
        }
    }

    /// A call was answered: somebody is there.
    pub(super) fn answered(&mut self) {
        self.all = None;
    }

    /// Everything about a load balancer is as wanted, or one more change was made.
    pub(super) fn succeeded(&mut self, lb: &LbName) {
        self.each.remove(lb);
    }

    /// Another login is used.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// When a call may be made; none is now.
    pub(super) fn until(&mut self, lb: &LbName, call: &Call, now: Instant) -> Option<Instant> {
        let own =
            self.each.get(lb).filter(|(failed, _)| !is_another_change(failed, call)).map(|(_, pause)| pause.until);
        let later = if *call == Call::ReadLater {
            Some(*self.later.entry(lb.clone()).or_insert(now + LOOK_AGAIN))
        } else {
            self.later.remove(lb);
            None
        };
        let until = [own, later, self.until_all()].into_iter().flatten().max().filter(|until| *until > now);
        if until.is_none() {
            self.later.remove(lb);
        }
        until
    }

    /// When a call that concerns no single load balancer may be made.
    pub(super) fn until_all(&self) -> Option<Instant> {
        self.all.as_ref().map(|all| all.until)
    }

    /// Why a load balancer is not as wanted.
    pub(super) fn problem(&self, lb: &LbName) -> Option<&GatewayError> {
        let own = self.each.get(lb).and_then(|(_, pause)| pause.reported());
        own.or_else(|| self.problem_of_all())
    }

    /// Why none can be.
    pub(super) fn problem_of_all(&self) -> Option<&GatewayError> {
        self.all.as_ref().and_then(Pause::reported)
    }
}

/// What was refused is not what would be sent now: somebody has edited the Service.
fn is_another_change(failed: &Call, call: &Call) -> bool {
    let is_change = |call: &Call| match call {
        Call::Create { .. } | Call::Update { .. } | Call::PutEndpoints { .. } | Call::Delete => true,
        Call::Read | Call::ReadLater | Call::ReadEndpoints => false,
    };
    is_change(failed) && is_change(call) && failed != call
}

#[cfg(test)]
mod tests {
    use portolan_core::gateway_client::{ClusterKey, ServiceName};

    use super::*;

    fn lb(name: &str) -> LbName {
        ClusterKey::new("c").name(&ServiceName::new("shop", name))
    }

    fn rejected(status: u16, retry_after: Option<u64>) -> GatewayError {
        let retry_after = retry_after.map(Duration::from_secs);
        GatewayError::Rejected { status, reason: Some("X".to_owned()), message: String::new(), retry_after }
    }

    #[test]
    fn a_failure_of_one_delays_no_other_and_one_of_all_delays_everybody() {
        let (mut pauses, now) = (Pauses::default(), Instant::now());
        pauses.failed(&lb("a"), &Call::Read, &GatewayError::TimedOut, now);
        assert!(
            pauses.until(&lb("a"), &Call::Read, now).is_some() && pauses.until(&lb("b"), &Call::Read, now).is_none()
        );
        assert_eq!(pauses.problem(&lb("a")), None, "once is no problem");
        pauses.failed(&lb("a"), &Call::Read, &GatewayError::TimedOut, now);
        assert_eq!(pauses.problem(&lb("a")), Some(&GatewayError::TimedOut));
        pauses.failed(&lb("a"), &Call::Read, &rejected(429, Some(7)), now);
        let until = pauses.until(&lb("b"), &Call::Read, now).unwrap();
        assert_eq!(until - now, Duration::from_secs(7));
        pauses.failed(&lb("c"), &Call::Read, &rejected(429, Some(9)), now);
        assert_eq!(pauses.until(&lb("b"), &Call::Read, now), Some(until), "both were under way");
        pauses.answered();
        assert_eq!(pauses.until(&lb("b"), &Call::Read, now), None);
    }

    #[test]
    fn an_edit_is_tried_at_once_and_the_same_again_is_not() {
        let (mut pauses, now) = (Pauses::default(), Instant::now());
        let create = |address: Option<[u8; 4]>| Call::Create { ports: Vec::new(), address: address.map(Into::into) };
        pauses.failed(&lb("a"), &create(None), &rejected(422, None), now);
        assert!(pauses.until(&lb("a"), &create(None), now).is_some());
        assert!(pauses.until(&lb("a"), &Call::Read, now).is_some());
        assert_eq!(pauses.until(&lb("a"), &create(Some([192, 0, 2, 1])), now), None);
        assert_eq!(pauses.problem(&lb("a")).map(GatewayError::reason), Some("X"));
    }

    #[test]
    fn a_look_in_a_while_is_one_look_in_a_while() {
        let (mut pauses, now) = (Pauses::default(), Instant::now());
        let first = pauses.until(&lb("a"), &Call::ReadLater, now).unwrap();
        assert_eq!(pauses.until(&lb("a"), &Call::ReadLater, now + LOOK_AGAIN / 2), Some(first));
        assert_eq!(pauses.until(&lb("a"), &Call::ReadLater, first), None);
        assert!(pauses.until(&lb("a"), &Call::ReadLater, first).is_some(), "then another");
    }
}
