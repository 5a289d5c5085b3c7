//! What the handle and the driver share: what is wanted, and what became of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use portolan_core::gateway::unit::UnitId;
use tokio::sync::Notify;

use crate::envoy::xds::Progress;
use crate::envoy::{Report, State, Units};

/// What is wanted, and what became of it.
pub(super) struct Shared {
    /// None while another replica leads.
    wanted: Mutex<Option<Units>>,
    units: Mutex<BTreeMap<UnitId, Arc<Status>>>,
    changed: Notify,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl Shared {
    pub(super) fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { wanted: Mutex::default(), units: Mutex::default(), changed: Notify::new(), wake: Arc::new(wake) }
    }

    pub(super) fn want(&self, units: Option<Units>) {
        *self.wanted.lock() = units;
        self.changed.notify_one();
    }

    pub(super) fn wanted(&self) -> Option<Units> {
        self.wanted.lock().clone()
    }

    /// Returns when something else may be wanted than before.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn reports(&self) -> BTreeMap<UnitId, Report> {
        self.units.lock().iter().map(|(id, status)| (id.clone(), status.report())).collect()
    }

    /// A unit that is started.
    pub(super) fn insert(&self, id: &UnitId) -> Arc<Status> {
        let status = Arc::new(Status::new(&self.wake));
        self.units.lock().insert(id.clone(), Arc::clone(&status));
        status
    }

    /// A unit that has ended.
    pub(super) fn remove(&self, id: &UnitId) {
        self.units.lock().remove(id);
        (self.wake)();
    }
}

/// What became of one unit.
pub(super) struct Status {
    process: Mutex<ProcessState>,
    pub(super) progress: Arc<Progress>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

/// What a unit's process does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProcessState {
    /// It runs, or is being started.
    Up,
    /// It is wanted no more.
    Draining,
    /// It does not run, for this reason.
    Down(State),
}

impl Status {
    fn new(wake: &Arc<dyn Fn() + Send + Sync>) -> Self {
        let on_progress = Arc::clone(wake);
        let progress = Arc::new(Progress::new(move || on_progress()));
        Self { process: Mutex::new(ProcessState::Up), progress, wake: Arc::clone(wake) }
    }

    pub(super) fn set(&self, state: ProcessState) {
        let mut process = self.process.lock();
        if *process == state {
            return;
        }
        *process = state;
        drop(process);
        (self.wake)();
    }

    fn report(&self) -> Report {
        let summary = self.progress.summary();
        let state = match (self.process.lock().clone(), summary.mismatch) {
            (ProcessState::Down(state), _) => state,
            (ProcessState::Draining, _) => State::Draining,
            (ProcessState::Up, Some(mismatch)) => State::NodeMismatch(mismatch),
            (ProcessState::Up, None) if summary.is_connected => State::Running,
            (ProcessState::Up, None) => State::Starting,
        };
        Report { answered: summary.answered, rejected: summary.rejected, state }
    }
}
