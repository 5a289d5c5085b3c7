//! Load balancers: their conditions, and what is written into them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::super::super::addresses::Moment;
use super::super::super::keys::GueKey;
use super::super::super::problem::Problem;
use super::super::super::types::World;
use super::super::super::verdict::{ConditionKind, Verdicts};
use super::super::result::{Completion, LoadBalancerPlan, Plan};
use super::super::services::{Service, Services};
use super::super::tunnels::OfLoadBalancer;
use super::super::units::{self, Effect};

pub(in super::super) fn load_balancers(
    world: &World,
    services: &Services<'_>,
    effects: &[Effect<'_>],
    mut tunnels: Vec<OfLoadBalancer>,
    plan: &mut Plan,
) {
    let is_any_going = services.all.iter().any(|service| service.object.identity.is_terminating());
    let claims = world.claims.values().filter(|_| is_any_going);
    let holders: BTreeSet<&str> = claims.flat_map(|claim| claim.holders.keys()).map(|uid| &**uid).collect();
    let mut all = Vec::with_capacity(services.all.len());
    for (_, position) in &services.by_name {
        let (service, effect, of_load_balancer) =
            (&services.all[*position], &effects[*position], &mut tunnels[*position]);
        let Service { name, object, refused, unresolved, .. } = service;
        let uid = &object.identity.uid;
        let held = services.addresses.held.get(uid).copied();
        let completion = completion(service, held);
        let waits = refused.is_none() && (object.key.is_none() || object.address.is_none());
        let unallocated = service.unallocated.clone().or_else(|| waits.then_some(Problem::Pending));
        let unallocated = refused.as_ref().map(|_| Problem::NotAllocated).filter(|_| waits).or(unallocated);
        let outside = services.addresses.outside.get(uid).zip(object.address);
        let outside = outside.map(|(why, address)| Problem::Outside { address, why: *why });
        let programmed = units::programmed(effect, service);
        let problems = [&unallocated, &outside, &programmed, refused, unresolved];
        let working = Verdicts::working_load_balancer(&of_load_balancer.problem);
        let verdicts = working.filter(|_| problems.iter().all(|problem| problem.is_none())).unwrap_or_else(|| {
            let verdicts = Verdicts::of([
                (ConditionKind::Accepted, refused.as_ref()),
                (ConditionKind::ResolvedRefs, unresolved.as_ref()),
                (ConditionKind::Allocated, unallocated.as_ref()),
                (ConditionKind::AddressInPool, outside.as_ref()),
                (ConditionKind::Programmed, programmed.as_ref()),
                (ConditionKind::TunnelsUp, Some(&of_load_balancer.problem)),
            ]);
            summarised(verdicts, service)
        });
        let planned = LoadBalancerPlan {
            verdicts,
            completion,
            is_finished: is_finished(world, service, &holders),
            is_deleted: false,
            tunnels: std::mem::take(&mut of_load_balancer.wanted),
            unit: effect.unit.clone(),
        };
        plan.wake_at(deadline(world, service));
        all.push(((*name).clone(), planned));
    }
    plan.load_balancers = all.into_iter().collect();
}

/// A load balancer that works is ready although what it names is gone.
fn summarised(verdicts: Verdicts, service: &Service<'_>) -> Verdicts {
    let works = service.refused.is_none() && verdicts.problem(ConditionKind::Allocated).is_none();
    let ignored = if works { Some(ConditionKind::ResolvedRefs) } else { None };
    verdicts.summarised_without(ignored)
}

/// What is to be written into a load balancer that lacks something.
fn completion(service: &Service<'_>, held: Option<IpAddr>) -> Option<Completion> {
    let Service { object, account, refused, granted, unallocated, .. } = service;
    if refused.is_some() || object.identity.is_terminating() {
        return None;
    }
    let of_account = account.and_then(|(_, account)| account.key)?;
    let granted = granted.map(|service| GueKey { account: of_account, service }.pack());
    let key = object.key.or(granted)?;
    let lacks = object.key.is_none() || object.address.is_none() || !object.identity.has_finalizer;
    // without an address for it the key is written alone, so that the reservation does not stay in the way of others
    let is_decided = held.is_some() || matches!(unallocated, Some(Problem::Address(_)));
    let address = held.filter(|held| object.address.is_none_or(|own| own == *held));
    let adds =
        object.key.is_none() || (object.address.is_none() && address.is_some()) || !object.identity.has_finalizer;
    (lacks && is_decided && adds).then_some(Completion { key, address })
}

/// True if nothing is left of a load balancer but itself.
fn is_finished(world: &World, service: &Service<'_>, holders: &BTreeSet<&str>) -> bool {
    let identity = &service.object.identity;
    let is_going = identity.is_terminating() && identity.has_finalizer && service.is_released;
    let has_endpoints = world.endpoints.get(service.name).is_some_and(|endpoints| !endpoints.is_empty());
    is_going && !has_endpoints && !holders.contains(&*identity.uid)
}

/// When a deletion goes on although its Envoy does not answer.
fn deadline(world: &World, service: &Service<'_>) -> Option<Moment> {
    let deleted = service.object.identity.deleted.filter(|_| !service.is_released)?;
    Some(deleted.saturating_add(world.settings.drain_limit))
}
