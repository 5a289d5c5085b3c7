//! How ipam runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use portolan_core::ipam;
use portolan_core::select::{Expression, Operator, Selector};
use portolan_drivers::cloud::Cloud;

use super::backend::Backend;
use crate::runtime::clock::millis;

/// How ipam runs.
#[derive(Clone)]
pub struct Options {
    /// The cloud that addresses are attached on.
    pub cloud: Arc<dyn Cloud>,
    /// The network plugin that gets the addresses.
    pub backend: Backend,
    /// Nodes that can host addresses.
    pub node_selector: Selector,
    /// A node that is not ready for longer has lost its addresses.
    pub node_grace: Duration,
    /// The zones that work are published although another one fails.
    pub partial: bool,
    /// How often everything is compared with the cloud.
    pub verify_interval: Duration,
    /// A released address is not drawn again for this long.
    pub cooling: Duration,
    /// An assignment that fails for this long is rolled back.
    pub rollback_after: Duration,
    /// Most calls to the cloud at a time; as many again for addresses whose node was lost.
    pub calls_at_once: usize,
}

/// The label of nodes that can host addresses, unless a flag says otherwise.
pub(super) const WORKERS: &str = "node-role.kubernetes.io/worker";

/// The selector of that label.
pub(super) fn workers() -> Selector {
    let worker = Expression { key: WORKERS.into(), operator: Operator::Exists };
    Selector { expressions: vec![worker], ..Selector::default() }
}

impl Options {
    /// The usual settings, on this cloud.
    pub fn on(cloud: Arc<dyn Cloud>) -> Self {
        Self {
            cloud,
            backend: Backend::Auto,
            node_selector: workers(),
            node_grace: Duration::from_secs(30),
            partial: false,
            verify_interval: Duration::from_mins(1),
            cooling: Duration::from_mins(2),
            rollback_after: Duration::from_mins(10),
            calls_at_once: 16,
        }
    }

    /// What the planner needs of them.
    pub(super) fn planner(&self) -> ipam::Options {
        ipam::Options {
            node_grace: millis(self.node_grace),
            partial: self.partial,
            cooling: millis(self.cooling),
            rollback_after: millis(self.rollback_after),
            ..ipam::Options::default()
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("node_grace", &self.node_grace)
            .field("partial", &self.partial)
            .field("verify_interval", &self.verify_interval)
            .finish_non_exhaustive()
    }
}
