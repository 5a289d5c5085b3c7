//! Decisions -> due writes. A failure of one object delays no other.

pub(super) mod acting;
mod adoption;
mod endpoints;
mod gone;
mod imports;
mod services;
mod slices;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use portolan_core::mirror::{Action, Change, RemoteName, ServiceName};
use tokio::time::Instant;

use self::acting::Parts;
use self::services::Written;
use super::convergence::Convergence;
use super::mcs::LocalStores;
use super::model::{Model, Touched};
use super::observe::Cache;
use super::settings::Options;
use super::status;
use crate::runtime::due::{DueWrites, Pace, Prepared, WriteQueues};

/// Everything that is yet to be written in this term.
pub(super) struct Writes {
    services: DueWrites<ServiceName, (Written, Instant)>,
    /// How often the nodePorts of a mirror were refused.
    refusals: BTreeMap<ServiceName, u32>,
    slices: DueWrites<ServiceName, ((), Instant)>,
    /// Endpoints of Barrelman on Services that are ours now.
    adoptions: DueWrites<ServiceName>,
    /// Endpoints that we write.
    endpoints: DueWrites<ServiceName>,
    /// RemoteClusters that seem to be gone.
    gone: DueWrites<Arc<str>, bool>,
    conditions: DueWrites<ServiceName>,
    imports: DueWrites<ServiceName>,
    import_statuses: DueWrites<ServiceName>,
    remotes: DueWrites<RemoteName>,
}

impl Writes {
    pub(super) fn new(queues: &WriteQueues, options: &Options) -> Self {
        let quick = |at_once| Pace { at_once, budget: PASS, ..Pace::URGENT };
        Self {
            services: queues.queue("mirror services", quick(options.service_writes)),
            refusals: BTreeMap::new(),
            slices: queues.queue("mirror slices", quick(options.slice_writes)),
            adoptions: queues.queue("mirror adoptions", Pace::STATUS),
            endpoints: queues.queue("mirror endpoints", Pace::STATUS),
            gone: queues.queue("mirror gone remotes", Pace::STATUS),
            conditions: queues.queue("mirror conditions", Pace::STATUS),
            imports: queues.queue("mirror imports", quick(options.slice_writes)),
            import_statuses: queues.queue("mirror import status", Pace::STATUS),
            remotes: queues.queue("mirror remotes", Pace { interval: options.status_interval, ..Pace::STATUS }),
        }
    }

    /// Takes up what may differ.
    pub(super) fn add(&mut self, touched: Touched, model: &mut Model, cache: &Cache) {
        let Touched { names, remotes, .. } = touched;
        self.gone.extend(model.suspects_of(&names));
        let remote_of = |name| model.decisions.get(name).and_then(|decision| decision.remote.clone());
        let shared = || names.iter().map(|name| (name.clone(), remote_of(name)));
        self.services.extend_shared(shared());
        self.slices.extend_shared(shared());
        self.adoptions.extend(names.iter().filter(|name| adoption::is_due(cache, name)).cloned());
        self.endpoints.extend(names.iter().filter(|name| endpoints::is_due(model, cache, name)).cloned());
        self.conditions.extend_shared(shared());
        self.remotes.extend(remotes);
    }

    /// Writes Services and EndpointSlices; gives what changed by it.
    pub(super) async fn objects(
        &mut self,
        parts: &Parts<'_>,
        model: &mut Model,
        convergence: &mut Convergence,
    ) -> BTreeSet<ServiceName> {
        let mut names = BTreeSet::new();
        let acting = parts.acting(model);
        let ended = self.gone.pass(|uid, _| gone::prepare(&acting, uid)).await;
        for (uid, is_gone) in ended {
            if is_gone.is_ok_and(|is_gone| is_gone) {
                names.extend(model.gone(uid));
            }
        }
        let acting = parts.acting(model);
        let is_last_try = |name: &ServiceName| self.refusals.get(name).is_some_and(|times| *times >= MOST_REFUSALS);
        let mut making = BTreeSet::new();
        let prepare = |name: &ServiceName, _| timed(services::prepare(&acting, name, is_last_try(name), &mut making));
        let ended = self.services.pass(prepare).await;
        for (name, written) in ended {
            let action = model.decisions.get(&name).map_or(&Action::None, |decision| &decision.action);
            parts.metrics.service(action, written.is_ok());
            match &written {
                Err(problem) if services::refuses_node_ports(problem) => {
                    *self.refusals.entry(name.clone()).or_default() += 1;
                }
                Err(_) => {}
                Ok((_, at)) => {
                    self.refusals.remove(&name);
                    convergence.acknowledged(&name, *at, "service", parts.metrics);
                }
            }
            match written {
                Ok((Written::Deleted { remote, was_known }, at)) => {
                    parts.metrics.swept(&remote);
                    if was_known {
                        model.deleted(&remote, at);
                    }
                }
                Ok((Written::NodePortsRefused, _)) => {
                    names.extend(model.planner.change(Change::RefusedNodePorts(name, true)));
                }
                Ok(_) | Err(_) => {}
            }
        }
        let acting = parts.acting(model);
        for (name, written) in self.slices.pass(|name, _| timed(slices::prepare(&acting, name))).await {
            parts.metrics.endpoints(written.is_ok());
            if let Ok(((), at)) = written {
                convergence.acknowledged(&name, at, "endpointslice", parts.metrics);
            }
        }
        self.adoptions.pass(|name, _| adoption::prepare(&acting, name)).await;
        self.endpoints.pass(|name, _| endpoints::prepare(&acting, name)).await;
        names
    }

    /// Takes up imports that may differ.
    pub(super) fn add_imports(&mut self, names: &BTreeSet<ServiceName>, remotes: BTreeSet<RemoteName>, model: &Model) {
        self.gone.extend(model.import_suspects_of(names));
        let exporter_of = |name| model.clusterset.decisions.get(name)?.exporters.first().cloned();
        let shared = || names.iter().map(|name| (name.clone(), exporter_of(name)));
        self.imports.extend_shared(shared());
        self.import_statuses.extend_shared(shared());
        self.remotes.extend(remotes);
    }

    /// Writes ServiceImports and what belongs to them.
    pub(super) async fn imports(&mut self, parts: &Parts<'_>, model: &Model, stores: &LocalStores) {
        let acting = parts.acting(model);
        self.imports.pass(|name, _| imports::prepare(&acting, stores, name)).await;
        self.import_statuses.pass(|name, _| imports::prepare_status(&acting, stores, name)).await;
    }

    /// Writes what only shows what was done.
    pub(super) async fn views(&mut self, parts: &Parts<'_>, model: &Model) {
        let acting = parts.acting(model);
        self.conditions.pass(|name, _| status::prepare_service(&acting, name)).await;
        self.remotes.pass(|name, _| status::prepare_remote(&acting, name)).await;
    }

    /// When the next write is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let Self {
            services,
            refusals: _,
            slices,
            adoptions,
            endpoints,
            gone,
            conditions,
            imports,
            import_statuses,
            remotes,
        } = self;
        let due = [
            services.next_due(),
            slices.next_due(),
            adoptions.next_due(),
            endpoints.next_due(),
            gone.next_due(),
            conditions.next_due(),
            imports.next_due(),
            import_statuses.next_due(),
            remotes.next_due(),
        ];
        due.into_iter().flatten().min()
    }
}

/// The same, with the time when it was answered.
fn timed<T: Send + 'static>(prepared: Prepared<T>) -> Prepared<(T, Instant)> {
    match prepared {
        Prepared::Nothing => Prepared::Nothing,
        Prepared::At(at) => Prepared::At(at),
        Prepared::Write(request) => Prepared::write(async move { Ok((request.await?, Instant::now())) }),
    }
}

/// A pass ends after this time, so that what changes meanwhile is seen.
const PASS: Duration = Duration::from_millis(500);
/// Refusals of nodePorts after which one more is believed.
const MOST_REFUSALS: u32 = 5;
