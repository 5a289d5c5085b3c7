//! The plan of a whole world.

use std::collections::BTreeMap;

use super::decide::{Action, Decision};
use super::planner::Planner;
use super::types::{ServiceName, World};

/// What is decided about every local name.
pub type Plan = BTreeMap<ServiceName, Decision>;

/// Decides about everything.
pub fn plan(world: &World) -> Plan {
    let planner = Planner::new(world.clone());
    planner.names().into_iter().map(|name| (name.clone(), planner.decide(&name))).collect()
}

impl Decision {
    /// True if nothing is to be written.
    pub fn is_settled(&self) -> bool {
        self.action == Action::None && self.slices.is_empty()
    }
}
