//! Units: what each Envoy does, and whether it does it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use super::super::problem::Problem;
use super::super::types::World;
use super::super::unit::{Listener, Report, State, Unit, UnitId};
use super::endpoints::{Judged, Used};
use super::services::{Service, Services};

/// The unit that serves a load balancer. One that lost its claim goes on while it is claimed again.
pub(super) fn unit_of(services: &Services<'_>, service: &Service<'_>) -> Option<UnitId> {
    let id = service.object.unit(service.name)?;
    (service.is_served() && services.held(service).is_some()).then_some(id)
}

fn keeps_running(world: &World, services: &Services<'_>, service: &Service<'_>) -> Option<UnitId> {
    let id = service.object.unit(service.name)?;
    let address = service.object.address?;
    let uid = &service.object.identity.uid;
    let is_claimed_again = services.addresses.claims.get(&address).is_some_and(|claim| claim.holders.contains_key(uid));
    let runs = || serves(world.reports.as_ref()?.get(&id)?.answered.as_ref()?, service).then_some(());
    (service.is_served() && is_claimed_again && runs().is_some()).then_some(id)
}

fn serves(unit: &Unit, service: &Service<'_>) -> bool {
    Some(unit.address) == service.object.address
        && unit.listeners.values().any(|listener| listener.load_balancer == service.name.name)
}

pub(super) fn units(world: &World, services: &Services<'_>, judged: &Judged<'_>) -> BTreeMap<UnitId, Arc<Unit>> {
    let mut units: BTreeMap<UnitId, Unit> = BTreeMap::new();
    for service in &services.all {
        let id = unit_of(services, service).or_else(|| keeps_running(world, services, service));
        let (Some(id), Some(address)) = (id, service.object.address) else { continue };
        let claim = services.addresses.claims.get(&address);
        let unit = units.entry(id).or_insert_with(|| Unit {
            address,
            image: Arc::clone(&service.image),
            prefix: claim.map(|claim| Arc::clone(&claim.pool)).unwrap_or_default(),
            listeners: BTreeMap::new(),
        });
        for port in &service.object.ports {
            let load_balancer = Arc::clone(&service.name.name);
            let listener = Listener { load_balancer, endpoints: std::collections::BTreeSet::new() };
            unit.listeners.entry(port.number).or_insert(listener);
        }
        let endpoints = judged.get(service.name).into_iter().flat_map(BTreeMap::values);
        for used in endpoints.filter_map(|judgement| judgement.used.as_ref().ok()) {
            if let Some(listener) = unit.listeners.get_mut(&used.feeds)
                && listener.load_balancer == service.name.name
            {
                listener.endpoints.insert(socket(used));
            }
        }
    }
    units.into_iter().map(|(id, unit)| (id, Arc::new(unit))).collect()
}

fn socket(used: &Used<'_>) -> SocketAddr {
    SocketAddr::new(used.spec.address, used.spec.port.number.port)
}

/// Why a load balancer is not in effect; none if it is.
pub(super) fn programmed(world: &World, services: &Services<'_>, service: &Service<'_>) -> Option<Problem> {
    let id = unit_of(services, service).or_else(|| keeps_running(world, services, service));
    let Some(id) = id else { return Some(Problem::NotAllocated) };
    let report = match report(world, &id) {
        Ok(report) => report,
        Err(problem) => return Some(problem),
    };
    let rejected = service.object.ports.iter().find_map(|port| report.rejected.get(&port.number));
    if let Some(why) = rejected {
        return Some(Problem::EnvoyRejected(Arc::clone(why)));
    }
    let Some(answered) = &report.answered else { return Some(Problem::EnvoyStarting) };
    let has_port = |port: &super::super::ports::PublicPort| {
        answered.listeners.get(&port.number).is_some_and(|listener| listener.load_balancer == service.name.name)
    };
    let is_in_effect = Some(answered.address) == service.object.address && service.object.ports.iter().all(has_port);
    (!is_in_effect).then_some(Problem::EnvoyStarting)
}

/// Why an endpoint is not in effect; none if it is.
pub(super) fn endpoint_programmed(
    world: &World,
    services: &Services<'_>,
    service: &Service<'_>,
    used: &Used<'_>,
) -> Option<Problem> {
    let id = unit_of(services, service).or_else(|| keeps_running(world, services, service));
    let Some(id) = id else {
        return Some(Problem::LoadBalancerNotReady { name: Arc::clone(&service.name.name) });
    };
    let report = match report(world, &id) {
        Ok(report) => report,
        Err(problem) => return Some(problem),
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
        State::Crashed(why) => Err(Problem::EnvoyCrashed(Arc::clone(why))),
        State::Missing(why) => Err(Problem::EnvoyMissing(Arc::clone(why))),
        State::TooOld(why) => Err(Problem::EnvoyTooOld(Arc::clone(why))),
        State::NodeMismatch(why) => Err(Problem::NodeMismatch(Arc::clone(why))),
    }
}
