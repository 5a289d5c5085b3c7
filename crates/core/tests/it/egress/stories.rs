//! What went wrong elsewhere, and what the brief promises, as small stories.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use portolan_core::egress::*;
use portolan_core::net::Pool;
use portolan_core::select::Selector;

use super::laws::carried_out;
use super::worlds::name;

#[test]
fn failed_nodes_eips_spread_over_survivors() {
    let mut world = world("10.6.1.1-10.6.1.30", 4);
    add(&mut world, 30, AddressRequest::FromPool(AllocationMode::PreferUnallocated));
    let before = plan(&world, &Ledger::default());
    world.nodes.remove("n0");
    let after = plan(&world, &carried_out(&before));
    let lost = before.addresses.values().filter(|placed| placed.record.node.as_deref() == Some("n0")).count();
    assert_eq!((after.moves.len(), lost >= 7), (lost, true));
    assert!(after.moves.iter().all(|m| m.cause == MoveCause::NodeDeleted));
    assert_eq!(loads(&after).into_values().collect::<Vec<_>>(), [10, 10, 10]);
}

#[test]
fn average_never_passes_over_a_survivor_with_a_lower_load() {
    let mut world = world("10.6.1.1-10.6.1.40", 5);
    add(&mut world, 100, AddressRequest::FromPool(AllocationMode::Limit(3)));
    let before = plan(&world, &Ledger::default());
    world.nodes.remove("n1");
    let after = plan(&world, &carried_out(&before));
    let use_of = |eip: Eip| before.bindings.values().filter(|binding| binding.eip == eip).count();
    let mut moves = after.moves.clone();
    moves.sort_by_key(|m| (std::cmp::Reverse(use_of(m.eip)), m.eip));
    let mut loads = loads(&before);
    loads.remove("n1");
    for m in moves {
        let to = m.to.unwrap();
        assert_eq!(loads[&to], *loads.values().min().unwrap(), "{} went to {to}", m.eip);
        *loads.get_mut(&to).unwrap() += use_of(m.eip);
    }
}

#[test]
fn node_with_200_eips_can_still_be_chosen() {
    let mut world = world("10.6.1.0-10.6.1.255", 1);
    add(&mut world, 201, AddressRequest::FromPool(AllocationMode::PreferUnallocated));
    let plan = plan(&world, &Ledger::default());
    assert!(plan.unmet.is_empty());
    assert_eq!(plan.views["g"].nodes["n0"].len(), 201);
}

#[test]
fn no_ready_node_is_unmet_not_a_crash() {
    let mut world = world("10.6.1.1-10.6.1.4", 0);
    add(&mut world, 3, AddressRequest::FromPool(AllocationMode::PreferUnallocated));
    let plan = plan(&world, &Ledger::default());
    assert!(plan.bindings.is_empty() && plan.addresses.is_empty());
    assert!(plan.unmet.values().all(|unmet| *unmet == Unmet::NoReadyNode) && plan.unmet.len() == 3);
}

#[test]
fn second_policy_on_default_eip_is_listed_and_keeps_it() {
    let mut world = world("10.6.1.1-10.6.1.4", 2);
    add(&mut world, 2, AddressRequest::FromPool(AllocationMode::Default));
    let mut planner = Planner::new(world, Ledger::default());
    let entries: Vec<EipUsers> = planner.plan().views["g"].nodes.values().flatten().cloned().collect();
    assert_eq!(entries, [EipUsers { eip: v4("10.6.1.1"), policies: vec![policy_name(0), policy_name(1)] }]);
    planner.change(Change::Policy(policy_name(0), None));
    assert_eq!(planner.binding(&policy_name(1)).unwrap().eip, v4("10.6.1.1"));
    assert!(planner.recycled().is_empty());
    let affected = planner.change(Change::Policy(policy_name(1), None));
    assert_eq!(planner.recycled(), BTreeSet::from([address("10.6.1.1")]));
    assert_eq!(affected.addresses, planner.recycled());
}

#[test]
fn all_gateways_off_then_on_keeps_placement() {
    let mut world = world("10.6.1.1-10.6.1.8", 3);
    add(&mut world, 8, AddressRequest::FromPool(AllocationMode::PreferUnallocated));
    let mut planner = Planner::new(world.clone(), Ledger::default());
    let before = planner.plan();
    for (node, spec) in &world.nodes {
        planner.change(Change::Node(node.clone(), Some(Node { ready: false, ..spec.clone() })));
    }
    let dark = planner.plan();
    assert_eq!(dark.bindings.len(), 8, "what was granted stays granted");
    assert!(dark.addresses.values().all(|placed| placed.record.node.is_none()));
    assert!(dark.unmet.values().all(|unmet| *unmet == Unmet::NoReadyNode) && dark.unmet.len() == 8);
    for (node, spec) in &world.nodes {
        planner.change(Change::Node(node.clone(), Some(spec.clone())));
    }
    let after = planner.plan();
    assert!(after.unmet.is_empty());
    for (policy, binding) in &before.bindings {
        assert_eq!(after.bindings[policy].eip, binding.eip, "{policy} keeps its address");
    }
}

#[test]
fn nodes_that_go_and_come_together_are_planned_together() {
    let mut world = world("10.6.1.1-10.6.1.6", 3);
    add(&mut world, 6, AddressRequest::FromPool(AllocationMode::PreferUnallocated));
    let mut planner = Planner::new(world.clone(), Ledger::default());
    let set = |names: &[&'static str], ready: bool| {
        let spec = Node { ready, ..world.nodes["n0"].clone() };
        names.iter().map(|name| (NodeName::from(*name), Some(spec.clone()))).collect::<Vec<_>>()
    };
    let gone = planner.change_nodes(set(&["n0", "n1"], false));
    assert!(gone.moves.iter().all(|m| m.to.as_deref() == Some("n2")) && gone.moves.len() == 4, "each moves once");
    planner.change_nodes(set(&["n2"], false));
    let back = planner.change_nodes(set(&["n0", "n1"], true));
    assert_eq!(back.moves.len(), 6);
    assert_eq!(loads(&planner.plan()).into_values().collect::<Vec<_>>(), [3, 3, 0]);
}

#[test]
fn a_pool_shrunk_under_use_keeps_serving_and_gives_nothing_anew() {
    let mut world = world("10.6.1.1-10.6.1.4", 2);
    add(&mut world, 3, AddressRequest::FromPool(AllocationMode::PreferUnallocated));
    let mut planner = Planner::new(world.clone(), Ledger::default());
    let mut gateway = world.gateways["g"].clone();
    gateway.pool = Pool::parse(&["10.6.1.1"], &[]).unwrap();
    planner.change(Change::Gateway("g".into(), Some(gateway)));
    assert!(planner.planned(address("10.6.1.3")).unwrap().outside_pool);
    assert!(planner.plan().moves.is_empty() && planner.plan().unmet.is_empty());
    let new_policy = Policy {
        request: AddressRequest::Explicit(v4("10.6.1.3")),
        ..policy(9, AddressRequest::FromPool(AllocationMode::Default))
    };
    planner.change(Change::Policy(policy_name(9), Some(new_policy)));
    assert_eq!(planner.unmet(&policy_name(9)), Some(Unmet::OutsidePool(address("10.6.1.3"))));
    let view = planner.view("g", 1000).unwrap();
    assert_eq!((view.total, view.free, view.policies), ([1, 0], [0, 0], 3));
}

#[test]
fn usage_is_exact_after_churn() {
    let mut world = world("10.6.1.1-10.6.1.50", 4);
    add(&mut world, 40, AddressRequest::FromPool(AllocationMode::PreferUnallocated));
    let mut planner = Planner::new(world, Ledger::default());
    for round in 0..800usize {
        let (gone, come) = (policy_name(round % 40), policy_name(40 + (round * 7) % 40));
        planner.change(Change::Policy(gone, None));
        planner.change(Change::Policy(
            come.clone(),
            Some(policy(round, AddressRequest::FromPool(AllocationMode::Limit(2)))),
        ));
        if round % 3 == 0 {
            for recycled in planner.recycled() {
                planner.change(Change::ObservedRecord(recycled, None));
            }
        }
        let used: BTreeSet<Eip> = planner.ledger().bindings.values().map(|binding| binding.eip).collect();
        let view = planner.view("g", 0).unwrap();
        assert_eq!((view.total[0], view.free[0]), (50, 50 - used.len() as u64), "after round {round}");
    }
}

#[test]
fn a_slash_64_pool_costs_nothing() {
    let mut world = world("10.6.1.1", 2);
    world.gateways.get_mut("g").unwrap().pool = Pool::parse(&[], &["fd00::/64"]).unwrap();
    add(&mut world, 50, AddressRequest::FromPool(AllocationMode::PreferUnallocated));
    for n in 50..100 {
        world.policies.insert(policy_name(n), policy(n, AddressRequest::FromPool(AllocationMode::Random)));
    }
    let plan = plan(&world, &Ledger::default());
    assert_eq!((plan.unmet.len(), plan.views["g"].total[1]), (0, u64::MAX));
    assert!(plan.addresses.contains_key(&address("fd00::31")), "the 50th lowest");
}

#[test]
fn a_pair_moves_and_goes_as_one() {
    let mut world = world("10.6.1.1-10.6.1.3", 2);
    world.gateways.get_mut("g").unwrap().pool = Pool::parse(&["10.6.1.1-10.6.1.3"], &["fd00::1-fd00::3"]).unwrap();
    add(&mut world, 1, AddressRequest::FromPool(AllocationMode::PreferUnallocated));
    let mut planner = Planner::new(world, Ledger::default());
    let v4 = planner.planned(address("10.6.1.1")).unwrap().record;
    let affected = planner.change(Change::Node(v4.node.clone().unwrap(), None));
    let (v4, v6) =
        (planner.planned(address("10.6.1.1")).unwrap().record, planner.planned(address("fd00::1")).unwrap().record);
    assert_eq!((v4.epoch, v4.slot, &v4.node), (2, v6.slot, &v6.node));
    assert_eq!((affected.moves.len(), affected.addresses.len()), (1, 2));
    planner.change(Change::Policy(policy_name(0), None));
    assert_eq!(planner.recycled(), BTreeSet::from([address("10.6.1.1"), address("fd00::1")]));
}

#[test]
fn a_lost_claim_is_written_again_for_the_same_policies() {
    let mut world = world("10.6.1.1-10.6.1.9", 2);
    add(&mut world, 3, AddressRequest::FromPool(AllocationMode::Default));
    let mut planner = Planner::new(world, Ledger::default());
    let before = planner.plan();
    let affected = planner.change(Change::ObservedRecord(address("10.6.1.1"), None));
    assert_eq!(planner.plan(), before, "same address, same node, first epoch");
    assert!(affected.addresses.contains(&address("10.6.1.1")));
}

#[test]
fn a_takeover_by_the_agents_is_followed() {
    let mut world = world("10.6.1.1-10.6.1.9", 3);
    add(&mut world, 1, AddressRequest::FromPool(AllocationMode::Default));
    let mut planner = Planner::new(world, Ledger::default());
    let record = planner.planned(address("10.6.1.1")).unwrap().record;
    let standby = planner.standby(&record.gateway, record.node.as_ref().unwrap())[&address("10.6.1.1")].clone();
    let taken_over = AddressRecord { node: Some(standby[0].clone()), epoch: record.epoch + 1, ..record.clone() };
    let affected = planner.change(Change::ObservedRecord(address("10.6.1.1"), Some(taken_over.clone())));
    assert_eq!(planner.planned(address("10.6.1.1")).unwrap().record, taken_over);
    assert!(affected.moves.is_empty() && affected.policies.contains(&policy_name(0)));
    let stale = planner.change(Change::ObservedRecord(address("10.6.1.1"), Some(record)));
    assert_eq!(planner.planned(address("10.6.1.1")).unwrap().record, taken_over, "an older epoch changes nothing");
    assert!(stale.addresses.contains(&address("10.6.1.1")), "but is repaired");
}

#[test]
fn slots_run_out_with_a_reason_and_come_back() {
    let mut world = world("10.6.0.0/17", 1);
    add(&mut world, 16_383, AddressRequest::FromPool(AllocationMode::PreferUnallocated));
    let mut planner = Planner::new(world, Ledger::default());
    let last = planner.plan().unmet;
    assert_eq!(last.into_values().collect::<Vec<_>>(), [Unmet::SlotsExhausted]);
    planner.change(Change::Policy(policy_name(5), None));
    assert!(planner.plan().unmet.is_empty(), "the idle address and its slot go to the one who waits");
}

#[test]
fn nodes_share_their_room_between_gateways() {
    let mut world = world("10.6.1.1-10.6.1.9", 1);
    world.nodes.get_mut("n0").unwrap().capacity = Some(2);
    let mut other = world.gateways["g"].clone();
    other.pool = Pool::parse(&["10.7.1.1-10.7.1.9"], &[]).unwrap();
    world.gateways.insert("h".into(), other);
    add(&mut world, 2, AddressRequest::FromPool(AllocationMode::PreferUnallocated));
    world.policies.insert(
        policy_name(7),
        Policy { gateway: "h".into(), ..policy(7, AddressRequest::FromPool(AllocationMode::PreferUnallocated)) },
    );
    let mut planner = Planner::new(world, Ledger::default());
    assert_eq!(planner.unmet(&policy_name(7)), Some(Unmet::NoCapacity));
    planner.change(Change::Policy(policy_name(0), None));
    let affected = planner.change(Change::ObservedRecord(address("10.6.1.1"), None));
    assert_eq!(planner.unmet(&policy_name(7)), None, "room comes free when the record is gone");
    assert!(affected.policies.contains(&policy_name(7)));
}

#[test]
fn an_address_that_must_leave_makes_room_for_another_gateway() {
    let mut world = world("10.6.1.1-10.6.1.9", 1);
    world.nodes.get_mut("n0").unwrap().capacity = Some(1);
    let mut other = world.gateways["g"].clone();
    other.pool = Pool::parse(&["10.7.1.1-10.7.1.9"], &[]).unwrap();
    world.gateways.insert("h".into(), other);
    add(&mut world, 1, AddressRequest::FromPool(AllocationMode::Default));
    world.policies.insert(
        policy_name(7),
        Policy { gateway: "h".into(), ..policy(7, AddressRequest::FromPool(AllocationMode::PreferUnallocated)) },
    );
    let mut planner = Planner::new(world, Ledger::default());
    assert_eq!(planner.unmet(&policy_name(7)), Some(Unmet::NoCapacity));
    planner.change(Change::ExcludedNodes(address("10.6.1.1"), BTreeSet::from(["n0".into()])));
    assert_eq!((planner.unmet(&policy_name(7)), planner.unmet(&policy_name(0))), (None, Some(Unmet::NoReadyNode)));
}

#[test]
fn an_address_whose_old_record_is_gone_can_be_given() {
    let mut world = world("10.6.1.1-10.6.1.2", 1);
    add(&mut world, 1, AddressRequest::Explicit(v4("10.6.1.1")));
    let old = AddressRecord { gateway: "gone".into(), pair: None, slot: 2, node: None, epoch: 1 };
    let ledger = Ledger { addresses: BTreeMap::from([(address("10.6.1.1"), old)]), ..Ledger::default() };
    let mut planner = Planner::new(world, ledger);
    assert_eq!(planner.unmet(&policy_name(0)), Some(Unmet::Taken(address("10.6.1.1"))));
    planner.change(Change::ObservedRecord(address("10.6.1.1"), None));
    assert_eq!(planner.unmet(&policy_name(0)), None);
}

#[test]
fn whoever_waits_is_asked_again_when_a_later_one_was_served() {
    let mut world = world("10.6.1.1-10.6.1.2", 1);
    world.nodes.get_mut("n0").unwrap().capacity = Some(1);
    add(&mut world, 1, AddressRequest::FromPool(AllocationMode::Limit(2)));
    world.policies.insert(policy_name(1), policy(1, AddressRequest::Explicit(v4("10.6.1.2"))));
    let idle = AddressRecord { gateway: "g".into(), pair: None, slot: 2, node: Some("n0".into()), epoch: 1 };
    let ledger = Ledger { addresses: BTreeMap::from([(address("10.6.1.2"), idle)]), ..Ledger::default() };
    // the first finds no room for an unused address until the second has put the idle one to use
    let plan = plan(&world, &ledger);
    assert!(plan.unmet.is_empty(), "{:?}", plan.unmet);
    assert!(plan.bindings.values().all(|binding| binding.eip == v4("10.6.1.2")));
}

#[test]
fn an_exclusive_address_serves_one_namespace() {
    let mut world = world("10.6.1.1-10.6.1.2", 1);
    world.gateways.get_mut("g").unwrap().exclusive = true;
    add(&mut world, 1, AddressRequest::Explicit(v4("10.6.1.1")));
    let other_policy = PolicyName { namespace: Some("other".into()), name: "x".into() };
    world.policies.insert(other_policy.clone(), policy(3, AddressRequest::Explicit(v4("10.6.1.1"))));
    world.policies.insert(policy_name(4), policy(4, AddressRequest::Explicit(v4("10.6.1.1"))));
    let plan = plan(&world, &Ledger::default());
    assert_eq!(plan.unmet, BTreeMap::from([(other_policy, Unmet::NotAllowed(address("10.6.1.1")))]));
}

#[test]
fn an_exclusive_address_is_not_kept_by_whoever_has_it_recorded() {
    let mut world = world("10.6.1.1-10.6.1.2", 1);
    world.gateways.get_mut("g").unwrap().exclusive = true;
    add(&mut world, 1, AddressRequest::Explicit(v4("10.6.1.1")));
    let other_policy = PolicyName { namespace: Some("other".into()), name: "a".into() };
    world.policies.insert(other_policy.clone(), policy(1, AddressRequest::FromPool(AllocationMode::PreferUnallocated)));
    let mut ledger = carried_out(&plan(&world, &Ledger::default()));
    assert_eq!(ledger.bindings[&other_policy].eip, v4("10.6.1.2"));
    // a status says that the other policy has the address of another namespace
    let lie = ledger.bindings[&policy_name(0)].clone();
    ledger.bindings.insert(other_policy.clone(), lie.clone());
    let after = plan(&world, &ledger);
    assert_eq!(
        (after.bindings[&policy_name(0)].eip, after.bindings[&other_policy].eip),
        (v4("10.6.1.1"), v4("10.6.1.2"))
    );
    let mut planner = Planner::new(world, carried_out(&after));
    planner.change(Change::ObservedBinding(other_policy.clone(), Some(lie)));
    assert_eq!(planner.plan().bindings, after.bindings, "nor is it adopted later");
}

#[test]
fn an_explanation_tells_address_node_standby_and_users() {
    let mut world = world("10.6.1.1-10.6.1.2", 2);
    add(&mut world, 1, AddressRequest::FromPool(AllocationMode::Default));
    let planner = Planner::new(world, Ledger::default());
    let steps = explain(&planner, &policy_name(0));
    let topics: Vec<ExplainTopic> = steps.iter().map(|step| step.topic).collect();
    assert_eq!(
        topics,
        [
            ExplainTopic::Request,
            ExplainTopic::Gateway,
            ExplainTopic::Address,
            ExplainTopic::Node,
            ExplainTopic::Standby,
            ExplainTopic::Users
        ]
    );
    assert_eq!(steps[2].text, "10.6.1.1 is number 1 in the pool of gateway g, slot 2");
    assert!(steps[3].text.contains("which serves 1 policy on 1 address of this gateway"), "{}", steps[3].text);
    assert_eq!(steps[5].text, "it serves 1 policy: team/p0000");
    assert_eq!(explain_address(&planner, address("10.6.1.1")), steps[2..]);
}

#[test]
fn a_view_is_cut_but_counts_all() {
    let mut world = world("10.6.1.1-10.6.1.9", 2);
    add(&mut world, 20, AddressRequest::FromPool(AllocationMode::Limit(4)));
    let view = Planner::new(world, Ledger::default()).view("g", 7).unwrap();
    let listed: usize = view.nodes.values().flatten().map(|entry| entry.policies.len()).sum();
    assert_eq!((listed, view.policies), (7, 20));
}

fn world(pool: &str, nodes: usize) -> World {
    let pool = Pool::parse(&[pool], &[]).unwrap();
    let default = Eip { v4: pool.v4_at(0), v6: None };
    let selector = Selector { labels: [("egress", "true")].into_iter().collect(), expressions: Vec::new() };
    let gateway = Gateway {
        uid: "g-uid".into(),
        pool,
        default,
        selector: selector.clone(),
        mode: NodeMode::Average,
        exclusive: false,
    };
    let node = Node { labels: selector.labels, ready: true, capacity: None };
    World {
        seed: 7,
        gateways: BTreeMap::from([("g".into(), gateway)]),
        nodes: (0..nodes).map(|n| (name("n", n), node.clone())).collect(),
        ..World::default()
    }
}

fn add(world: &mut World, policies: usize, ask: AddressRequest) {
    world.policies.extend((0..policies).map(|n| (policy_name(n), policy(n, ask))));
}

fn policy(n: usize, ask: AddressRequest) -> Policy {
    Policy { uid: format!("uid-{n}").into(), gateway: "g".into(), created: n as i64, request: ask, refused: false }
}

fn policy_name(n: usize) -> PolicyName {
    PolicyName { namespace: Some("team".into()), name: format!("p{n:04}").into() }
}

fn v4(text: &str) -> Eip {
    Eip { v4: Some(text.parse().unwrap()), v6: None }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn loads(plan: &Plan) -> BTreeMap<NodeName, usize> {
    let mut loads: BTreeMap<NodeName, usize> = plan.views["g"].nodes.keys().map(|node| (node.clone(), 0)).collect();
    for node in plan.bindings.values().filter_map(|binding| binding.node.as_ref()) {
        *loads.entry(node.clone()).or_default() += 1;
    }
    loads
}
