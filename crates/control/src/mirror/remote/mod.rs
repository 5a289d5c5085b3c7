//! A remote as it is read: its connection, and what its watches have shown.

mod client;
mod connection;
mod objects;
mod target;

use std::sync::Arc;

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::Client;
use portolan_core::mirror::Sync;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{Instrument as _, info_span};

pub(super) use self::connection::{ClusterIdentity, ConnectionState, Moved};
pub(super) use self::objects::RemoteObjects;
pub(super) use self::target::{GkeKey, Google, Target};

use self::connection::{Connection, problem_of};
use super::mcs::Exported;
use super::observe::{trim_node, trim_service};
use super::slim::Slice;
use super::validate::Problem;
use crate::runtime::metrics::Metrics;
use crate::runtime::problem::Failure;
use crate::runtime::ready::Readiness;
use crate::runtime::store::Store;
use crate::runtime::switch::ClientSwitch;
use crate::runtime::tasks::Tasks;
use crate::runtime::watch::{Selection, WatchHealth, WatchRegistry, Watches};

/// What remotes are read with.
#[derive(Clone)]
pub(super) struct RemoteContext {
    pub(super) google: Google,
    pub(super) allow_loopback: bool,
    pub(super) metrics: Metrics,
    /// The process is not ready before the remotes it starts with are known, or are known to be away.
    pub(super) readiness: Readiness,
    /// Wakes the loop of the mirror.
    pub(super) wake: Arc<Notify>,
}

/// A remote that is being read; it ends when dropped.
pub(super) struct RemoteCache {
    pub(super) services: Store<Service>,
    pub(super) nodes: Store<Node>,
    /// None until a Service needs them.
    pub(super) slices: Option<Store<Slice>>,
    /// None unless Services are shared with it.
    pub(super) exported: Option<(Watches, Exported)>,
    registry: WatchRegistry,
    watches: Watches,
    connection: Connection,
    client: Client,
    tasks: Tasks,
}

impl RemoteCache {
    /// Connects and watches.
    pub(super) fn start(name: &str, context: &RemoteContext) -> Self {
        let RemoteContext { google, allow_loopback, metrics, readiness: _, wake } = context;
        let (tasks, switch) = (Tasks::new(), ClientSwitch::default());
        // Not the process's readiness: a remote that is away holds up nobody.
        let registry = WatchRegistry::new(switch.client(), tasks.clone(), Readiness::new(), metrics.clone());
        let mut watches = registry.watches_that_wake(wake.clone());
        let services = watches.add(Selection { trim: trim_service, ..Selection::default() });
        let nodes = watches.add(Selection { trim: trim_node, ..Selection::default() });
        let client = switch.client();
        let (connection, keeper) = Connection::new(google.clone(), *allow_loopback, switch, wake.clone());
        let span = info_span!("remote", name);
        tasks.spawn("remote", keeper.run(tasks.stop()).instrument(span.clone()));
        span.in_scope(|| registry.start());
        Self { services, nodes, slices: None, exported: None, registry, watches, connection, client, tasks }
    }

    pub(super) fn set_target(&self, target: Option<Target>) {
        self.connection.set_target(target);
    }

    pub(super) fn state(&self) -> ConnectionState {
        self.connection.state()
    }

    /// A client of the remote, for single reads.
    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// True when one of its tasks has ended: it has to be started anew.
    pub(super) fn is_broken(&self) -> bool {
        self.tasks.failed().now_or_never().is_some()
    }

    /// Reads EndpointSlices, too.
    pub(super) fn read_slices(&mut self) {
        if self.slices.is_none() {
            self.slices = Some(self.watches.add(Selection::default()));
        }
    }

    /// Whether we are let to read EndpointSlices; none while that is not known.
    pub(super) fn may_read_slices(&self) -> Option<bool> {
        let store = self.slices.as_ref()?;
        let forbidden = || {
            let problem = self.watches.health().nth(2)?.problem?;
            (problem.failure == Failure::Forbidden).then_some(false)
        };
        if store.synced() { Some(true) } else { forbidden() }
    }

    /// Reads what it exports, too.
    pub(super) fn read_exports(&mut self) {
        if self.exported.is_none() {
            let mut watches = self.registry.watches_that_wake(self.watches.waker());
            let exported = Exported::watched(&mut watches, Selection::default());
            self.exported = Some((watches, exported));
        }
    }

    /// Whether we are let to read the EndpointSlices of exports; none while that is not known.
    pub(super) fn may_read_exported_slices(&self) -> Option<bool> {
        let (watches, exported) = self.exported.as_ref()?;
        if exported.slices_synced() {
            return Some(true);
        }
        let problem = watches.health().nth(2)?.problem?;
        (problem.failure == Failure::Forbidden).then_some(false)
    }

    /// Why it cannot be read what it exports.
    pub(super) fn exports_problem(&self) -> Option<Problem> {
        let (watches, _) = self.exported.as_ref()?;
        watches.health().take(2).find_map(|health| health.problem).map(problem_of)
    }

    /// How much is known of what it exports.
    pub(super) fn exports_sync(&self) -> Sync {
        let Some((_, exported)) = &self.exported else { return Sync::Listing };
        match self.sync() {
            Sync::Listing => Sync::Listing,
            _ if !exported.synced() => Sync::Listing,
            Sync::Complete if exported.settled() && self.exports_problem().is_none() => Sync::Complete,
            Sync::Complete | Sync::Broken => Sync::Broken,
        }
    }

    /// How much of it is known.
    pub(super) fn sync(&self) -> Sync {
        if self.state().identity.is_none() || !self.services.synced() || !self.nodes.synced() {
            Sync::Listing
        } else if self.services.settled() && self.nodes.settled() && self.problem().is_none() {
            Sync::Complete
        } else {
            Sync::Broken
        }
    }

    /// When it was last in contact: on both of its watches, or by lists of both.
    pub(super) fn contact(&self) -> Option<Instant> {
        let mut watched: Option<Option<Instant>> = None;
        for WatchHealth { contact, .. } in self.watches.health().take(2) {
            watched = Some(watched.map_or(contact, |earlier| earlier.min(contact)));
        }
        watched.flatten().max(self.state().listed)
    }

    /// Why it cannot be read at the moment.
    pub(super) fn problem(&self) -> Option<Problem> {
        let watch = self.watches.health().take(2).find_map(|health| health.problem);
        self.state().problem.or_else(|| watch.map(problem_of))
    }

    /// Has the connection looked at when a watch has failed.
    pub(super) fn check(&self) {
        if self.watches.health().any(|health| health.problem.is_some()) {
            self.connection.check();
        }
    }
}

impl Drop for RemoteCache {
    fn drop(&mut self) {
        self.tasks.stop().cancel();
    }
}
