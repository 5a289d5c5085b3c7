//! Envoys as processes of this machine, one for each unit.
//!
//! ```text
//! ProcessProxies  the handle           -->  Status   of each unit, shared with
//! Driver          starts and ends      -->  runner   one unit: its folder, its socket, its process
//!                                           '--> binary, folder, spawn
//! ```
//!
//! A unit has a folder of mode 0700 with its bootstrap, its log and two sockets: one that Envoy is configured over, and
//! its admin interface, which is nowhere else. An Envoy ends with the process that started it, whatever ends that.

mod binary;
mod driver;
mod error;
mod folder;
mod options;
mod runner;
mod spawn;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan_core::gateway::unit::UnitId;

use super::{Proxies, Report, State, Units};
pub use driver::Driver;
pub use error::ProcessError;
pub use options::ProcessOptions;
use spawn::Spawner;
use status::Shared;

/// The Envoys of this machine.
#[derive(Clone)]
pub struct ProcessProxies {
    shared: Arc<Shared>,
}

impl ProcessProxies {
    /// The handle, and what does the work: [`Driver::run`] must be awaited for anything to happen. `wake` is called
    /// when a report changes.
    pub fn new(
        options: ProcessOptions,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<(Self, Driver), ProcessError> {
        folder::prepare(&options.folder)?;
        let shared = Arc::new(Shared::new(wake));
        let spawner = Spawner::start().map_err(ProcessError::StartThread)?;
        Ok((Self { shared: Arc::clone(&shared) }, Driver::new(options, spawner, shared)))
    }
}

impl Proxies for ProcessProxies {
    fn want(&self, units: Units) {
        self.shared.want(Some(units));
    }

    fn stand_by(&self) {
        self.shared.want(None);
    }

    fn reports(&self) -> Option<BTreeMap<UnitId, Report>> {
        let wanted = self.shared.wanted()?;
        let starting = || Report { answered: None, rejected: BTreeMap::new(), state: State::Starting };
        let mut reports: BTreeMap<_, _> = wanted.keys().map(|id| (id.clone(), starting())).collect();
        reports.extend(self.shared.reports());
        Some(reports)
    }
}
