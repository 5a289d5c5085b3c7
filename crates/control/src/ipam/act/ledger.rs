//! Calls to the cloud that were made in this term: what the planner must know of them, and what is to be recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use portolan_core::ipam::{CallKind, Calls, CloudCall, CloudError, InstanceId, Moment};
use portolan_drivers::cloud::Outcomes;
use tokio::time::Instant;

use crate::runtime::clock::Clock;

/// A failure that is yet to be recorded in its claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Failed {
    pub(in super::super) error: CloudError,
    pub(in super::super) at: Moment,
}

/// The calls of a term. Clones are the same ledger.
#[derive(Clone)]
pub(in super::super) struct Ledger {
    clock: Clock,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    calls: Calls,
    failed: BTreeMap<Ipv4Addr, Failed>,
    /// Addresses whose attempt failed and is not counted yet.
    uncounted: BTreeSet<Ipv4Addr>,
    tries: BTreeMap<Ipv4Addr, Tries>,
    /// Instances with calls under way, and how many.
    busy: BTreeMap<InstanceId, u32>,
    changed: bool,
    /// Calls that succeeded and were not asked for yet.
    succeeded: Vec<(Ipv4Addr, CallKind, Instant)>,
}

/// Failed tries in a row.
struct Tries {
    count: u32,
    next: Instant,
}

impl Ledger {
    pub(in super::super) fn new(clock: Clock) -> Self {
        Self { clock, state: Arc::default() }
    }

    /// Has the planner read the calls.
    pub(in super::super) fn read<T>(&self, read: impl FnOnce(&Calls) -> T) -> T {
        read(&self.state.lock().calls)
    }

    /// True if a call ended since this was asked last.
    pub(in super::super) fn take_changed(&self) -> bool {
        std::mem::take(&mut self.state.lock().changed)
    }

    /// True if a call ended since [`Ledger::take_changed`].
    pub(super) fn is_changed(&self) -> bool {
        self.state.lock().changed
    }

    /// Addresses with a failure that is yet to be recorded.
    pub(super) fn failed(&self) -> Vec<Ipv4Addr> {
        self.state.lock().failed.keys().copied().collect()
    }

    pub(super) fn failure(&self, address: Ipv4Addr) -> Option<Failed> {
        self.state.lock().failed.get(&address).cloned()
    }

    /// Forgets a failure that was recorded, unless a newer one came.
    pub(super) fn recorded(&self, address: Ipv4Addr, failed: &Failed) {
        let mut state = self.state.lock();
        if state.failed.get(&address) == Some(failed) {
            state.failed.remove(&address);
        }
    }

    /// Addresses whose attempt failed since this was asked last. Throttling is no failure.
    pub(in super::super) fn take_uncounted(&self) -> BTreeSet<Ipv4Addr> {
        std::mem::take(&mut self.state.lock().uncounted)
    }

    /// Calls that succeeded since this was asked last.
    pub(in super::super) fn take_succeeded(&self) -> Vec<(Ipv4Addr, CallKind, Instant)> {
        std::mem::take(&mut self.state.lock().succeeded)
    }

    /// True if a call for the instance is under way: a look at it would show nothing that can be used.
    pub(in super::super) fn is_busy(&self, instance: &InstanceId) -> bool {
        self.state.lock().busy.contains_key(instance)
    }

    /// When an address may be tried again; none if it may now. `recorded` are the attempts and the last failure in
    /// its claim, for those of an earlier term.
    pub(super) fn next_try(&self, address: Ipv4Addr, recorded: Option<(u32, Moment)>) -> Option<Instant> {
        let known = self.state.lock().tries.get(&address).map(|tries| tries.next);
        let next = known.or_else(|| {
            let (attempts, at) = recorded?;
            let pause = u64::try_from(pause(attempts).as_millis()).unwrap_or(u64::MAX);
            Some(self.clock.instant(at.saturating_add(pause)))
        });
        next.filter(|next| *next > Instant::now())
    }

    /// Notes that a call begins. It ends with the value that is given.
    pub(super) fn begin(&self, call: CloudCall) -> UnderWay {
        let mut state = self.state.lock();
        state.calls.begin(&call.interface);
        *state.busy.entry(call.instance.clone()).or_default() += 1;
        drop(state);
        UnderWay { ledger: self.clone(), call, outcomes: None }
    }

    fn end(&self, call: &CloudCall, outcomes: Option<&Outcomes>) {
        let at = self.clock.now();
        let mut state = self.state.lock();
        state.changed = true;
        state.calls.end(&call.interface, at);
        if let Some(count) = state.busy.get_mut(&call.instance) {
            *count -= 1;
            if *count == 0 {
                state.busy.remove(&call.instance);
            }
        }
        for address in &call.addresses {
            // No answer at all: it may have happened.
            let outcome = outcomes.and_then(|outcomes| outcomes.get(address));
            match outcome.cloned().unwrap_or(Err(CloudError::Transient)) {
                Ok(()) => {
                    state.calls.succeeded(call.kind, &call.interface, *address, at);
                    state.tries.remove(address);
                    state.succeeded.push((*address, call.kind, Instant::now()));
                }
                Err(error) => {
                    let count = state.tries.get(address).map_or(1, |tries| tries.count.saturating_add(1));
                    state.tries.insert(*address, Tries { count, next: Instant::now() + pause(count) });
                    if error != CloudError::Throttled {
                        state.uncounted.insert(*address);
                    }
                    state.failed.insert(*address, Failed { error, at });
                }
            }
        }
    }
}

/// A call that is under way; one that is given up has ended without an answer.
pub(super) struct UnderWay {
    ledger: Ledger,
    call: CloudCall,
    outcomes: Option<Outcomes>,
}

impl UnderWay {
    pub(super) fn call(&self) -> &CloudCall {
        &self.call
    }

    pub(super) fn answered(mut self, outcomes: Outcomes) {
        self.outcomes = Some(outcomes);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.ledger.end(&self.call, self.outcomes.as_ref());
    }
}

/// The pause after so many failed tries: 200 ms, doubled with each, up to 20 s.
fn pause(count: u32) -> Duration {
    let doubled = 1_u32.checked_shl(count.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST_PAUSE.saturating_mul(doubled).min(LAST_PAUSE)
}

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LAST_PAUSE: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;
    use portolan_core::ipam::CallKind;

    fn call(addresses: &[Ipv4Addr]) -> CloudCall {
        CloudCall {
            kind: CallKind::Assign,
            failover: false,
            interface: "eni-1".into(),
            instance: "i-1".into(),
            addresses: addresses.iter().copied().collect(),
        }
    }

    #[test]
    fn pauses_double_up_to_their_bound() {
        let pauses: Vec<u128> = [1, 2, 3, 7, 8, 40].map(|count| pause(count).as_millis()).into();
        assert_eq!(pauses, [200, 400, 800, 12_800, 20_000, 20_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_given_up_failed_and_may_have_happened() {
        let ledger = Ledger::new(Clock::start());
        let [one, two] = [Ipv4Addr::new(10, 0, 0, 7), Ipv4Addr::new(10, 0, 0, 8)];
        let under_way = ledger.begin(call(&[one, two]));
        assert!(ledger.is_busy(&"i-1".into()) && !ledger.take_changed());
        under_way.answered(Outcomes::from([(one, Ok(())), (two, Err(CloudError::Throttled))]));
        assert!(!ledger.is_busy(&"i-1".into()) && ledger.take_changed());
        assert_eq!(ledger.failed(), [two]);
        assert!(ledger.take_uncounted().is_empty(), "throttling is no failure");
        assert!(ledger.next_try(one, None).is_none() && ledger.next_try(two, None).is_some());
        drop(ledger.begin(call(&[one])));
        let failed = ledger.failure(one).unwrap();
        assert_eq!(failed.error, CloudError::Transient);
        assert_eq!(ledger.take_uncounted(), BTreeSet::from([one]));
        ledger.recorded(one, &failed);
        assert_eq!(ledger.failed(), [two]);
    }
}
