//! When the claim of an address that nobody uses may go.
//!
//! A claim may be seen before the policy that uses it. What was in use in this term and no longer is goes at once; what
//! this term never saw in use goes only after a while, and after everybody who could use it was listed once more.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use portolan_core::egress::Planner;
use tokio::time::Instant;

/// What this term knows of the addresses that have a claim, or should have one.
#[derive(Debug, Default)]
pub(super) struct ClaimGc {
    /// Nobody was seen to use these since then.
    waiting: BTreeMap<IpAddr, Instant>,
    /// They waited, and whoever could use them is being listed once more.
    asked: BTreeSet<IpAddr>,
    /// Seen in use, or still unused after that list.
    may_go: BTreeSet<IpAddr>,
}

impl ClaimGc {
    /// Looks at addresses that may have changed, `claimed` or not.
    pub(super) fn note(
        &mut self,
        addresses: &BTreeSet<IpAddr>,
        planner: &Planner,
        claimed: impl Fn(IpAddr) -> bool,
        now: Instant,
    ) {
        for address in addresses {
            let used = planner.planned(*address).is_some();
            if !used && claimed(*address) {
                if !self.asked.contains(address) && !self.may_go.contains(address) {
                    self.waiting.entry(*address).or_insert(now);
                }
                continue;
            }
            self.waiting.remove(address);
            self.asked.remove(address);
            if used {
                self.may_go.insert(*address);
            } else {
                self.may_go.remove(address);
            }
        }
    }

    /// What may go from here on, as everybody was listed since the last call.
    pub(super) fn answered(&mut self) -> BTreeSet<IpAddr> {
        let answered = std::mem::take(&mut self.asked);
        self.may_go.extend(&answered);
        answered
    }

    /// True when something has waited long enough: then whoever could use it must be listed before the next turn.
    pub(super) fn asks(&mut self, patience: Duration, now: Instant) -> bool {
        self.asked.extend(self.waiting.extract_if(.., |_, since| *since + patience <= now).map(|(address, _)| address));
        !self.asked.is_empty()
    }

    /// When the next address has waited long enough.
    pub(super) fn due(&self, patience: Duration) -> Option<Instant> {
        self.waiting.values().min().map(|since| *since + patience)
    }

    pub(super) fn may_go(&self, address: IpAddr) -> bool {
        self.may_go.contains(&address)
    }
}

#[cfg(test)]
mod tests {
    use portolan_core::egress::{Ledger, World};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_never_seen_in_use_waits_and_is_asked_after() {
        let (mut gc, planner) = (ClaimGc::default(), Planner::new(World::default(), Ledger::default()));
        let (patience, start) = (Duration::from_secs(5), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let address: IpAddr = "10.6.1.60".parse().unwrap();
        for seconds in [0, 3] {
            gc.note(&[address].into(), &planner, |_| true, at(seconds));
        }
        assert_eq!(gc.due(patience), Some(at(5)), "looking again does not put it off");
        assert!(!gc.asks(patience, at(4)));
        assert!(gc.asks(patience, at(5)) && !gc.may_go(address), "it waits for the list");
        assert_eq!(gc.answered(), [address].into());
        assert!(gc.may_go(address));
        gc.note(&[address].into(), &planner, |_| false, at(6));
        assert!(!gc.may_go(address), "the next claim of that name is another one");
    }
}
