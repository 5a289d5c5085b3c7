//! How long steps take, from what was recorded and called in this term.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use portolan_core::ipam::{CallKind, Step};
use tokio::time::Instant;

use super::act::Done;
use super::metrics::Metrics;

/// What has begun and not ended, by address.
#[derive(Default)]
pub(super) struct Timings {
    reserved: BTreeMap<Ipv4Addr, Instant>,
    moved: BTreeMap<Ipv4Addr, Instant>,
    called: BTreeMap<(Ipv4Addr, CallKind), Instant>,
}

impl Timings {
    /// Calls that succeeded: from now on they may become visible.
    pub(super) fn called(&mut self, calls: Vec<(Ipv4Addr, CallKind, Instant)>) {
        self.called.extend(calls.into_iter().map(|(address, kind, at)| ((address, kind), at)));
    }

    /// A step was recorded.
    pub(super) fn done(&mut self, metrics: &Metrics, done: &Done) {
        let (address, now) = (done.address, Instant::now());
        match done.step {
            Step::Reserve => {
                self.reserved.insert(address, now);
            }
            Step::Move => {
                self.moved.insert(address, now);
            }
            Step::Attached => self.shown(metrics, address, &[CallKind::Assign, CallKind::Take]),
            Step::Gone => {
                self.shown(metrics, address, &[CallKind::Release]);
                self.forget(address);
            }
            Step::Published => {
                if let Some(since) = self.reserved.remove(&address) {
                    metrics.assigned(since.elapsed());
                }
                if let Some(since) = self.moved.remove(&address) {
                    metrics.failed_over(since.elapsed());
                }
            }
            Step::RollBack | Step::Block => self.forget(address),
            Step::Adopt | Step::Target | Step::Repair | Step::Release => {}
        }
    }

    fn shown(&mut self, metrics: &Metrics, address: Ipv4Addr, kinds: &[CallKind]) {
        for kind in kinds {
            if let Some(since) = self.called.remove(&(address, *kind)) {
                metrics.visible(*kind, since.elapsed());
            }
        }
    }

    fn forget(&mut self, address: Ipv4Addr) {
        self.reserved.remove(&address);
        self.moved.remove(&address);
    }
}
