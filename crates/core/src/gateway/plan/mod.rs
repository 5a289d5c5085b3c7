//! World -> Plan: pure, global and total.
//!
//! ```text
//! prefixes --> pools --------------------------.
//! EGW --> account keys --> service keys --> addresses --> units
//!  '----> tunnel ids <-- endpoints <-----------'
//! ```
//! What is recorded already claims first, so a restart moves nothing.

mod accounts;
mod deletion;
mod endpoints;
mod order;
mod prefixes;
mod report;
mod result;
mod services;
mod tunnels;
mod units;

pub use result::{
    AccountPlan, Completion, EgwPlan, EndpointPlan, EndpointPlans, FinalizerChange, GroupPlan, LoadBalancerPlan,
    NamespaceChange, Plan, PrefixPlan,
};

use super::deny::DenyList;
use super::quarantine::Space;
use super::types::{Egw, World};

/// Decides everything.
pub fn plan(world: &World) -> Plan {
    let mut plan = Plan::default();
    let pools = prefixes::pools(world);
    let accounts = accounts::keys(world);
    let services = services::services(world, &accounts, pools.usable);
    let deny = DenyList::of(world);
    let judged = endpoints::judge(world, &services, &deny);
    let tunnels = tunnels::tunnels(world, &services, &judged);
    let effects = units::effects(world, &services);
    plan.units = units::units(&services, &effects, &judged);

    report::prefixes(world, &pools.overlaps, &services, &mut plan);
    report::accounts(world, &accounts, &services, &mut plan);
    plan.endpoints = report::endpoints(&services, &effects, judged, &tunnels);
    report::load_balancers(world, &services, &effects, tunnels.by_service, &mut plan);
    report::groups(world, &mut plan);

    let is_urgent = accounts.is_urgent || tunnels.reservations.is_urgent;
    let counts = |egw: &Egw| (egw.accounts.counter, egw.tunnels.counter);
    let wanted = (accounts.reservations.parent.counter, tunnels.reservations.parent.counter);
    plan.egw = EgwPlan {
        is_urgent: is_urgent || world.egw.as_ref().map(counts) != Some(wanted),
        accounts: accounts.reservations.parent,
        tunnels: tunnels.reservations.parent,
    };
    plan.live.insert(Space::Accounts, accounts.live);
    plan.live.insert(Space::Tunnels, tunnels.live);
    plan.live.extend(services.live);
    plan.wake_at(services.addresses.next);
    plan.claims = services.addresses.claims;
    plan
}
