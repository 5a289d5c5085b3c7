//! Envoy: one process or Deployment for each unit, configured by xDS.
//!
//! A controller says which units it wants and reads what became of them. [`ProcessProxies`] runs Envoys as processes of
//! this machine, and [`UnavailableProxies`] stands in where that is impossible; [`MemoryProxies`] accepts every unit, for
//! tests of controllers. Envoys that somebody else starts, such as those of Deployments, connect to a [`Fleet`].

mod bootstrap;
#[cfg(test)]
mod contract;
mod fleet;
mod memory;
mod process;
mod proto;
mod resources;
mod unavailable;
mod xds;

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan_core::gateway::unit::{Unit, UnitId};

pub use bootstrap::{ContainerFiles, ContainerSetup, Folders, XDS_SERVER_NAME, of_container};
pub use fleet::{Fleet, Identify, Server, UnitReport};
pub use memory::MemoryProxies;
pub use portolan_core::gateway::unit::{Report, State};
pub use process::{Driver, ProcessError, ProcessOptions, ProcessProxies};
pub use unavailable::UnavailableProxies;

/// All units that are wanted.
pub type Units = BTreeMap<UnitId, Arc<Unit>>;

/// Runs and configures Envoys.
pub trait Proxies: Send + Sync {
    /// Wants exactly these units. One that is not wanted any more has its listeners removed, is drained, then stopped.
    fn want(&self, units: Units);

    /// Another replica leads: Envoys run on as they are, and nobody is configured from here.
    fn stand_by(&self);

    /// What became of each unit that runs, or is being started, drained or stopped. None until that is known.
    fn reports(&self) -> Option<BTreeMap<UnitId, Report>>;
}
