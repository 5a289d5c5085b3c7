//! Single rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::addresses::{Claim, Holding};
use super::super::keys::GueKey;
use super::super::reserve::Parent;
use super::super::unit::{Report, State};
use super::super::{ConditionKind, LoadBalancer, Plan, World, plan, settle};
use super::build::{endpoint, load_balancer, name, port, world};

fn reason(planned: &Plan, account: &str, balancer: &str, kind: ConditionKind) -> &'static str {
    let planned = &planned.load_balancers[&name(account, balancer)];
    planned.verdicts.problem(kind).map_or("", super::super::Problem::reason)
}

/// A world with an account `a` with key 1, and a load balancer in service.
fn served() -> World {
    let mut world = world("192.0.2.8/29", &["a"]);
    world.accounts.get_mut("a").unwrap().key = Some(1);
    add(&mut world, "lb", 1, 8);
    world
}

fn add(world: &mut World, balancer: &str, service: u16, last: u8) {
    let address = std::net::IpAddr::from([192, 0, 2, last]);
    let mut object: LoadBalancer = load_balancer(balancer, 10);
    object.identity.has_finalizer = true;
    object.key = Some(GueKey { account: 1, service }.pack());
    object.address = Some(address);
    let ports = object.ports.iter().map(|port| port.number).collect();
    let holding = Holding { account: "a".into(), name: balancer.into(), ports };
    let claim =
        Claim { pool: "default".into(), holders: BTreeMap::from([(balancer.into(), holding)]), ..Claim::default() };
    world.claims.insert(address, claim);
    world.load_balancers.insert(name("a", balancer), object);
}

/// Adds an endpoint.
fn serve(world: &mut World, balancer: &str, uid: &str) {
    let of_balancer = world.endpoints.entry(name("a", balancer)).or_default();
    Arc::make_mut(of_balancer).insert(uid.into(), endpoint(uid, 1, 1));
}

fn running(world: &mut World) {
    let units = plan(world).units;
    let report =
        |unit: &Arc<_>| Report { answered: Some(Arc::clone(unit)), rejected: BTreeMap::new(), state: State::Running };
    world.reports = Some(units.iter().map(|(id, unit)| (id.clone(), report(unit))).collect());
}

#[test]
fn a_plan_of_a_converged_world_changes_nothing() {
    let mut world = served();
    world.accounts.get_mut("a").unwrap().services = Parent { counter: 1, ..Parent::default() };
    serve(&mut world, "lb", "e");
    running(&mut world);
    let first = plan(&world);
    assert_eq!(first, plan(&world), "the same world gives the same plan");
    let balancer = &first.load_balancers[&name("a", "lb")];
    assert_eq!(balancer.completion, None);
    assert_eq!(first.claims, world.claims);
    assert_eq!(balancer.verdicts.first_problem(), None);
    assert!(first.endpoint(&name("a", "lb"), "e").is_some_and(|one| one.verdicts.first_problem().is_none()));
}

#[test]
fn a_settled_world_shows_which_keys_and_addresses_new_objects_would_get() {
    let mut world = world("192.0.2.8/29", &["a"]);
    world.load_balancers.insert(name("a", "lb"), load_balancer("lb", 10));
    serve(&mut world, "lb", "e");
    let (after, planned) = settle(world);
    assert_eq!(after.accounts["a"].key, Some(1));
    let balancer = &after.load_balancers[&name("a", "lb")];
    assert_eq!((balancer.key, balancer.address), (Some(65537), Some([192, 0, 2, 8].into())));
    assert_eq!(balancer.tunnels.values().map(|tunnel| tunnel.id).collect::<Vec<_>>(), [1]);
    assert_eq!(planned.units.values().map(|unit| unit.listeners.len()).collect::<Vec<_>>(), [1]);
    assert_eq!(settle(after).1, planned, "nothing more would change");
}

#[test]
fn an_endpoint_changes_nothing_but_the_endpoints_of_its_listener() {
    let mut world = served();
    let before = plan(&world).units;
    serve(&mut world, "lb", "e");
    let after = plan(&world).units;
    let (before, after) = (before.values().next().unwrap(), after.values().next().unwrap());
    assert_ne!(before, after);
    let emptied = |unit: &super::super::unit::Unit| {
        let mut unit = unit.clone();
        unit.listeners.values_mut().for_each(|listener| listener.endpoints.clear());
        unit
    };
    assert_eq!(emptied(before), emptied(after));
}

#[test]
fn who_gets_no_key_keeps_nobody_from_an_address() {
    let mut world = served();
    world.accounts.get_mut("a").unwrap().services = Parent { counter: u16::MAX.into(), ..Parent::default() };
    world.load_balancers.insert(name("a", "waits"), load_balancer("waits", 20));
    let planned = plan(&world);
    assert_eq!(reason(&planned, "a", "waits", ConditionKind::Allocated), "KeysExhausted");
    assert_eq!(planned.claims.len(), 1, "no address is taken for it");
    assert_eq!(planned.accounts["a"].services.pending.len(), 0);
}

#[test]
fn an_address_that_is_nowhere_free_does_not_hold_the_key_up() {
    let mut world = world("192.0.2.8/32", &["a"]);
    world.accounts.get_mut("a").unwrap().key = Some(1);
    add(&mut world, "lb", 1, 8);
    world.load_balancers.insert(name("a", "waits"), load_balancer("waits", 20));
    let first = plan(&world);
    world.accounts.get_mut("a").unwrap().services = first.accounts["a"].services.clone();
    let second = plan(&world);
    assert_eq!(reason(&second, "a", "waits", ConditionKind::Allocated), "PoolExhausted");
    let completion = second.load_balancers[&name("a", "waits")].completion.unwrap();
    assert_eq!((GueKey::split(completion.key).service, completion.address), (2, None));
}

#[test]
fn a_forged_address_gets_neither_claim_nor_envoy() {
    let mut world = served();
    let mut forged = load_balancer("0-forged", 1);
    forged.identity.has_finalizer = true;
    forged.key = Some(GueKey { account: 1, service: 9 }.pack());
    forged.address = Some([192, 0, 2, 8].into());
    world.load_balancers.insert(name("a", "forged"), forged);
    let planned = plan(&world);
    assert_eq!(reason(&planned, "a", "forged", ConditionKind::Allocated), "AddressInUse");
    assert_eq!(planned.units.len(), 1);
    assert_eq!(planned.claims, world.claims, "it is older, and yet the claim decides");
}

#[test]
fn a_claim_that_vanished_is_made_again_and_traffic_goes_on() {
    let mut world = served();
    running(&mut world);
    let units = plan(&world).units;
    let claims = std::mem::take(&mut world.claims);
    world.load_balancers.insert(name("a", "new"), load_balancer("new", 5));
    let planned = plan(&world);
    assert_eq!(planned.units, units);
    assert_eq!(planned.claims.keys().collect::<Vec<_>>(), claims.keys().collect::<Vec<_>>());
}

#[test]
fn an_account_goes_with_its_contents_only_if_asked_to() {
    let mut world = served();
    running(&mut world);
    let account = world.accounts.get_mut("a").unwrap();
    account.identity.has_finalizer = true;
    account.identity.deleted = Some(world.now);
    let planned = plan(&world);
    assert!(!planned.load_balancers[&name("a", "lb")].is_deleted);
    assert_eq!(planned.units.len(), 1, "it goes on");
    let ready = planned.accounts["a"].verdicts.problem(ConditionKind::Ready).map(super::super::Problem::reason);
    assert_eq!(ready, Some("HasLoadBalancers"));
    world.accounts.get_mut("a").unwrap().is_deleted_with_contents = true;
    assert!(plan(&world).load_balancers[&name("a", "lb")].is_deleted);
    world.load_balancers.clear();
    world.claims.clear();
    let planned = plan(&world);
    assert!(planned.groups.values().all(|group| group.is_deleted));
    world.groups.clear();
    assert_eq!(plan(&world).namespaces.get("egw-a"), Some(&super::super::NamespaceChange::Delete));
}

#[test]
fn a_deleted_load_balancer_goes_step_by_step() {
    let mut world = served();
    running(&mut world);
    serve(&mut world, "lb", "e");
    let object = world.load_balancers.get_mut(&name("a", "lb")).unwrap();
    object.identity.deleted = Some(world.now);
    let first = plan(&world);
    assert!(first.units.is_empty() && first.claims == world.claims, "first its Envoy");
    assert!(!first.endpoint(&name("a", "lb"), "e").unwrap().is_deleted);
    world.reports = Some(BTreeMap::new());
    let second = plan(&world);
    assert!(second.endpoint(&name("a", "lb"), "e").unwrap().is_deleted, "then its endpoints");
    assert!(second.claims.values().all(|claim| claim.holders.is_empty() && claim.released_at.is_some()));
    assert!(!second.load_balancers[&name("a", "lb")].is_finished);
    world.endpoints.clear();
    world.claims = second.claims;
    assert!(plan(&world).load_balancers[&name("a", "lb")].is_finished);
}

#[test]
fn a_deletion_does_not_wait_for_an_envoy_for_ever() {
    let mut world = served();
    running(&mut world);
    for report in world.reports.iter_mut().flat_map(BTreeMap::values_mut) {
        report.state = State::Draining;
    }
    let deleted = world.now;
    world.load_balancers.get_mut(&name("a", "lb")).unwrap().identity.deleted = Some(deleted);
    let waits = plan(&world);
    assert_eq!(waits.claims, world.claims);
    assert_eq!(waits.next, Some(deleted + world.settings.drain_limit));
    world.now += world.settings.drain_limit;
    assert!(plan(&world).claims.values().all(|claim| claim.holders.is_empty()));
}

#[test]
fn ports_that_are_changed_are_not_programmed_until_envoy_has_them() {
    let mut world = served();
    running(&mut world);
    world.load_balancers.get_mut(&name("a", "lb")).unwrap().ports = vec![port(80), port(81)];
    assert_eq!(reason(&plan(&world), "a", "lb", ConditionKind::Programmed), "EnvoyStarting");
    running(&mut world);
    assert_eq!(reason(&plan(&world), "a", "lb", ConditionKind::Programmed), "");
}
