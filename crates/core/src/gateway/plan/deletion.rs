//! How load balancers go: first their Envoy, then their endpoints, then their address, then they themselves.

use std::sync::Arc;

use super::super::types::{LoadBalancer, ObjectName, World};
use super::super::unit::{Report, State, Unit};

/// True if no Envoy serves a load balancer that is being deleted, or if that takes too long.
pub(super) fn is_released(world: &World, name: &ObjectName, object: &LoadBalancer) -> bool {
    let Some(deleted) = object.identity.deleted else { return false };
    if deleted.saturating_add(world.settings.drain_limit) <= world.now {
        return true;
    }
    let (Some(reports), Some(id)) = (&world.reports, object.unit(name)) else {
        return object.address.is_none();
    };
    reports.get(&id).is_none_or(|report| !serves(report, name))
}

/// An Envoy that does not run serves nothing.
fn serves(report: &Report, name: &ObjectName) -> bool {
    let has = |unit: &Arc<Unit>| unit.listeners.values().any(|listener| listener.load_balancer == name.name);
    match report.state {
        State::Running | State::NotReady => report.answered.as_ref().is_none_or(has),
        State::Draining => true,
        State::Starting | State::Crashed(_) | State::Missing(_) | State::TooOld(_) | State::NodeMismatch(_) => false,
    }
}
