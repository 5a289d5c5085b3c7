//! Units: what each Envoy does, and whether it does it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use super::super::ports::{PortNumber, PublicPort};
use super::super::problem::Problem;
use super::super::types::World;
use super::super::unit::{Listener, Report, State, Unit, UnitId};
use super::endpoints::{Judged, Used};
use super::services::{Service, Services};

/// Which unit serves a load balancer, and what became of it.
pub(super) struct Effect<'a> {
    /// The unit of one that has all that it needs.
    pub(super) unit: Option<UnitId>,
    /// The same, or that of one that lost its claim: it goes on while it is claimed again.
    running: Option<UnitId>,
    /// What is reported of the latter, or why there is nothing.
    report: Result<&'a Report, Problem>,
}

impl<'a> Effect<'a> {
    fn of(world: &'a World, services: &Services<'_>, service: &Service<'_>) -> Self {
        let id = service.object.unit(service.name).filter(|_| service.is_served());
        let unit = id.clone().filter(|_| service.held.is_some());
        let running = unit.clone().or_else(|| id.filter(|id| keeps_running(world, services, service, id)));
        let report = running.as_ref().map_or(Err(Problem::NotAllocated), |id| report(world, id));
        Self { unit, running, report }
    }
}

/// By position of the service.
pub(super) fn effects<'a>(world: &'a World, services: &Services<'_>) -> Vec<Effect<'a>> {
    services.all.iter().map(|service| Effect::of(world, services, service)).collect()
}

fn keeps_running(world: &World, services: &Services<'_>, service: &Service<'_>, id: &UnitId) -> bool {
    let Some(address) = service.object.address else { return false };
    let uid = &service.object.identity.uid;
    let is_claimed_again = services.addresses.claims.get(&address).is_some_and(|claim| claim.holders.contains_key(uid));
    let report = world.reports.as_ref().and_then(|reports| reports.get(id));
    let answered = report.and_then(|report| report.answered.as_ref());
    is_claimed_again && answered.is_some_and(|unit| serves(unit, service))
}

fn serves(unit: &Unit, service: &Service<'_>) -> bool {
    Some(unit.address) == service.object.address
        && unit.listeners.values().any(|listener| listener.load_balancer == service.name.name)
}

pub(super) fn units(
    services: &Services<'_>,
    effects: &[Effect<'_>],
    judged: &Judged<'_>,
) -> BTreeMap<UnitId, Arc<Unit>> {
    let mut units: BTreeMap<UnitId, Unit> = BTreeMap::new();
    for (position, (service, effect)) in services.all.iter().zip(effects).enumerate() {
        let (Some(id), Some(address)) = (effect.running.clone(), service.object.address) else { continue };
        let unit = units.entry(id).or_insert_with(|| Unit {
            address,
            image: Arc::clone(&service.image),
            prefix: services.addresses.claims.get(&address).map(|claim| Arc::clone(&claim.pool)).unwrap_or_default(),
            listeners: BTreeMap::new(),
        });
        for port in &service.object.ports {
            let load_balancer = Arc::clone(&service.name.name);
            let listener = Listener { load_balancer, endpoints: BTreeSet::new() };
            unit.listeners.entry(port.number).or_insert(listener);
        }
        let mut endpoints: Vec<(PortNumber, SocketAddr)> =
            judged.used(position).map(|used| (used.feeds, socket(&used))).collect();
        endpoints.sort_unstable();
        for of_port in endpoints.chunk_by(|(one, _), (other, _)| one == other) {
            let Some((port, _)) = of_port.first() else { continue };
            if let Some(listener) = unit.listeners.get_mut(port)
                && listener.load_balancer == service.name.name
            {
                listener.endpoints = of_port.iter().map(|(_, socket)| *socket).collect();
            }
        }
    }
    units.into_iter().map(|(id, unit)| (id, Arc::new(unit))).collect()
}

fn socket(used: &Used) -> SocketAddr {
    let (address, PortNumber { port, .. }) = used.pod;
    SocketAddr::new(address, port)
}

/// Why a load balancer is not in effect; none if it is.
pub(super) fn programmed(effect: &Effect<'_>, service: &Service<'_>) -> Option<Problem> {
    let report = match &effect.report {
        Ok(report) => report,
        Err(problem) => return Some(problem.clone()),
    };
    let rejected = service.object.ports.iter().find_map(|port| report.rejected.get(&port.number));
    if let Some(why) = rejected {
        return Some(Problem::EnvoyRejected(Arc::clone(why)));
    }
    let Some(answered) = &report.answered else { return Some(Problem::EnvoyStarting) };
    let has_port = |port: &PublicPort| {
        answered.listeners.get(&port.number).is_some_and(|listener| listener.load_balancer == service.name.name)
    };
    let is_in_effect = Some(answered.address) == service.object.address && service.object.ports.iter().all(has_port);
    (!is_in_effect).then_some(Problem::EnvoyStarting)
}

/// Why an endpoint is not in effect; none if it is.
pub(super) fn endpoint_programmed(effect: &Effect<'_>, service: &Service<'_>, used: &Used) -> Option<Problem> {
    if effect.running.is_none() {
        return Some(Problem::LoadBalancerNotReady { name: Arc::clone(&service.name.name) });
    }
    let report = match &effect.report {
        Ok(report) => report,
        Err(problem) => return Some(problem.clone()),
    };
    if let Some(why) = report.rejected.get(&used.feeds) {
        return Some(Problem::EnvoyRejected(Arc::clone(why)));
    }
    let listener = report.answered.as_ref().and_then(|unit| unit.listeners.get(&used.feeds));
    let is_there = listener.is_some_and(|listener| {
        listener.load_balancer == service.name.name && listener.endpoints.contains(&socket(used))
    });
    (!is_there).then_some(Problem::EnvoyStarting)
}

fn report<'a>(world: &'a World, id: &UnitId) -> Result<&'a Report, Problem> {
    let report = world.reports.as_ref().and_then(|reports| reports.get(id)).ok_or(Problem::EnvoyStarting)?;
    match &report.state {
        State::Running => Ok(report),
        State::Starting | State::Draining => Err(Problem::EnvoyStarting),
        State::NotReady => Err(Problem::EnvoyNotReady),
        State::Crashed(why) => Err(Problem::EnvoyCrashed(Arc::clone(why))),
        State::Missing(why) => Err(Problem::EnvoyMissing(Arc::clone(why))),
        State::TooOld(why) => Err(Problem::EnvoyTooOld(Arc::clone(why))),
        State::NodeMismatch(why) => Err(Problem::NodeMismatch(Arc::clone(why))),
    }
}
