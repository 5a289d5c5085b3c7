//! Decisions about all names, or about those that changed.

use std::collections::{BTreeMap, BTreeSet};

use super::decide::decide;
use super::decision::Decision;
use super::exporters::Limits;
use super::types::ClusterSet;
use crate::mirror::{Local, ServiceName};

/// What is decided about every name.
pub type Plan = BTreeMap<ServiceName, Decision>;

/// Decides about everything.
pub fn plan(here: &Local, set: &ClusterSet) -> Plan {
    let planner = Planner::new(here, set);
    planner.names().into_iter().map(|name| (name.clone(), planner.decide(&name))).collect()
}

/// Decides from what is known of a clusterset. It costs little to make, as long as no remote exceeds its limit.
#[derive(Debug)]
pub struct Planner<'a> {
    here: &'a Local,
    set: &'a ClusterSet,
    limits: Limits<'a>,
}

impl<'a> Planner<'a> {
    /// A planner for this clusterset. Of what mirrors know of the local cluster it uses namespaces, families, ranges,
    /// protected namespaces, gone remotes and the size of slices.
    pub fn new(here: &'a Local, set: &'a ClusterSet) -> Self {
        Self { here, set, limits: Limits::of(set) }
    }

    /// Decides about a name. It depends on the objects of that name, and on what holds for whole clusters.
    pub fn decide(&self, name: &ServiceName) -> Decision {
        decide(self.here, self.set, &self.limits, name)
    }

    /// Every name about which there is something to decide.
    pub fn names(&self) -> BTreeSet<ServiceName> {
        let local = &self.set.local;
        let exports = self.set.remotes.values().map(|remote| &remote.exports).chain([&local.exports]);
        let exports = exports.flat_map(|exports| exports.exports.keys());
        let managed = local.imports.iter().filter(|(_, import)| import.managed).map(|(name, _)| name);
        exports.chain(managed).chain(local.derived.keys()).chain(local.slices.keys()).cloned().collect()
    }
}
