//! Envoys that exist in memory only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use portolan_core::gateway::ports::PortNumber;
use portolan_core::gateway::unit::{Report, State, UnitId};

use super::{Proxies, Units};

/// Accepts every unit at once, unless a test has it reject, crash or keep on draining.
#[derive(Clone)]
pub struct MemoryProxies {
    inner: Arc<Mutex<Inner>>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Inner {
    /// None while another replica leads.
    wanted: Option<Units>,
    running: Units,
    rejected: BTreeMap<(UnitId, PortNumber), Arc<str>>,
    states: BTreeMap<UnitId, State>,
    /// Units that go on draining.
    held: BTreeSet<UnitId>,
}

impl MemoryProxies {
    /// `wake` is called when a report changes by itself.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { inner: Arc::default(), wake: Arc::new(wake) }
    }

    /// The units that run.
    pub fn running(&self) -> Units {
        self.inner.lock().running.clone()
    }

    /// Makes a listener be rejected, or accepted again.
    pub fn reject(&self, unit: UnitId, port: PortNumber, why: Option<&str>) {
        let mut inner = self.inner.lock();
        match why {
            Some(why) => drop(inner.rejected.insert((unit, port), why.into())),
            None => drop(inner.rejected.remove(&(unit, port))),
        }
        drop(inner);
        (self.wake)();
    }

    /// Sets what a unit's state is reported as; None is as it is.
    pub fn set_state(&self, unit: UnitId, state: Option<State>) {
        let mut inner = self.inner.lock();
        match state {
            Some(state) => drop(inner.states.insert(unit, state)),
            None => drop(inner.states.remove(&unit)),
        }
        drop(inner);
        (self.wake)();
    }

    /// Keeps a unit draining when it is not wanted any more, or lets it end.
    pub fn hold(&self, unit: UnitId, is_held: bool) {
        let mut inner = self.inner.lock();
        if is_held {
            inner.held.insert(unit);
        } else {
            inner.held.remove(&unit);
            inner.stop_unwanted();
        }
        drop(inner);
        (self.wake)();
    }
}

impl Inner {
    fn stop_unwanted(&mut self) {
        let Self { wanted: Some(wanted), running, held, .. } = self else { return };
        running.retain(|id, _| wanted.contains_key(id) || held.contains(id));
    }
}

impl Proxies for MemoryProxies {
    fn want(&self, units: Units) {
        let mut inner = self.inner.lock();
        inner.running.extend(units.iter().map(|(id, unit)| (id.clone(), Arc::clone(unit))));
        inner.wanted = Some(units);
        inner.stop_unwanted();
    }

    fn stand_by(&self) {
        self.inner.lock().wanted = None;
    }

    fn reports(&self) -> Option<BTreeMap<UnitId, Report>> {
        let inner = self.inner.lock();
        let wanted = inner.wanted.as_ref()?;
        let report = |id: &UnitId| {
            let natural = if wanted.contains_key(id) { State::Running } else { State::Draining };
            let state = inner.states.get(id).cloned().unwrap_or(natural);
            let of_unit = inner.rejected.iter().filter(|((unit, _), _)| unit == id);
            let rejected = of_unit.map(|((_, port), why)| (*port, Arc::clone(why))).collect();
            let answered = matches!(state, State::Running).then(|| wanted.get(id).cloned()).flatten();
            Report { answered, rejected, state }
        };
        Some(inner.running.keys().map(|id| (id.clone(), report(id))).collect())
    }
}
