//! The laws of the planner, over random worlds and random sequences of changes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use portolan_core::egress::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use super::{model, worlds};

/// Worlds with any ledger, each planned by itself.
const WORLDS: u32 = 8_000;
/// Worlds that go through up to eight changes, each of which is a world planned again.
const SEQUENCES: u32 = 2_000;

/// Every run sees the same worlds; another seed is a soak.
const SEED: u8 = 1;

type Law = fn(&World, &Ledger, &Plan) -> bool;

const LAWS: [(&str, Law); 19] = [
    ("the plan is what the definition says", as_defined),
    ("no policy is lost: it has something, or there is a reason", no_policy_is_lost),
    ("a policy and its address agree on node and gateway", bindings_agree_with_addresses),
    ("an address is in the pool, or flagged as outside and recorded before", inside_the_pool_or_flagged),
    ("pairs are one to one and name each other", pairs_are_one_to_one),
    ("recorded pairs in service stay pairs", recorded_pairs_stay),
    ("what moves is exactly what could not stay", moves_are_the_ineligible),
    ("an epoch counts the moves", epochs_count_moves),
    ("planning the result again changes nothing", replanning_changes_nothing),
    ("recycling disturbs nobody", recycling_disturbs_nobody),
    ("the same input gives the same bytes", same_bytes_twice),
    ("what is recycled was recorded and has no user", recycled_has_no_user),
    ("free and used make the total", free_and_used_make_the_total),
    ("a slot stands for one egress address", slots_are_unique),
    ("standbys are where the addresses go when the node is lost", standbys_are_the_truth),
    ("a node that goes and comes back takes nothing back", a_returning_node_gets_nothing),
    ("a policy that comes and goes leaves no trace", a_passing_policy_leaves_no_trace),
    ("nobody new gets a taken address", taken_is_never_given),
    ("an exclusive address that is asked for by name serves one namespace", exclusive_means_one_namespace),
];

fn runner(cases: u32) -> TestRunner {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 500, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[SEED; 32]))
}

fn tape(length: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..length)
}

#[test]
fn every_plan_keeps_every_law() {
    let outcome = runner(WORLDS).run(&tape(260), |bytes| {
        let mut tape = worlds::Tape::new(&bytes);
        let world = worlds::world(&mut tape);
        let ledger = worlds::ledger(&mut tape, &world);
        keeps_every_law(&world, &ledger, &plan(&world, &ledger))
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn every_change_gives_what_planning_anew_would_give() {
    let outcome = runner(SEQUENCES).run(&tape(420), |bytes| {
        let mut tape = worlds::Tape::new(&bytes);
        let world = worlds::world(&mut tape);
        let ledger = worlds::ledger(&mut tape, &world);
        let mut planner = Planner::new(world, ledger);
        for _ in 0..8 {
            if tape.is_done() {
                break;
            }
            let (before, mut ledger) = (planner.plan(), planner.ledger());
            let change = worlds::change(&mut tape, &planner);
            adjust(&mut ledger, &change, &planner.world());
            let affected = planner.change(change.clone());
            let after = planner.plan();
            let anew = model::plan(&planner.world(), &ledger);
            let full = plan(&planner.world(), &ledger);
            prop_assert!(full == anew, "full\n{}\nfrom {ledger:?}\nin {:?}", difference(&full, &anew), planner.world());
            let told = || difference(&after, &anew);
            prop_assert!(after == anew, "{change:?}\n{}\nfrom {ledger:?}\nin {:?}", told(), planner.world());
            prop_assert_eq!(&affected.moves, &anew.moves);
            let missed = untouched(&before, &after, &affected);
            prop_assert!(missed.is_empty(), "{change:?} changed but did not touch {missed:?}\n{before:#?}\n{after:#?}");
        }
        keeps_every_law(&planner.world(), &planner.ledger(), &plan(&planner.world(), &planner.ledger()))
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

fn keeps_every_law(world: &World, ledger: &Ledger, plan: &Plan) -> Result<(), TestCaseError> {
    for (law, holds) in LAWS {
        prop_assert!(holds(world, ledger, plan), "broken: {law}\n{world:#?}\n{ledger:#?}\n{plan:#?}");
    }
    Ok(())
}

/// The ledger as it is when a change has happened but nothing has been decided yet.
fn adjust(ledger: &mut Ledger, change: &Change, world: &World) {
    match change {
        Change::Policy(name, after) => {
            let before = world.policies.get(name).map(|policy| &policy.uid);
            if before != after.as_ref().map(|policy| &policy.uid) {
                ledger.bindings.remove(name);
            }
        }
        Change::ObservedRecord(address, None) => drop(ledger.addresses.remove(address)),
        Change::ObservedRecord(address, Some(record)) => match ledger.addresses.get_mut(address) {
            Some(own) if own.gateway == record.gateway => {
                if record.epoch > own.epoch {
                    (own.node, own.epoch) = (record.node.clone(), record.epoch);
                }
            }
            _ => drop(ledger.addresses.insert(*address, record.clone())),
        },
        Change::ObservedBinding(name, Some(binding)) => {
            let Some(policy) = world.policies.get(name) else { return };
            let lawful = policy.gateway == binding.gateway
                && world.gateways.contains_key(&binding.gateway)
                && match recorded_eip(ledger, binding) {
                    Some(eip) => model::fits(policy.request, eip) && may_share(ledger, world, name, binding),
                    None => binding.eip.is_none() && policy.request == AddressRequest::NodeAddress,
                };
            if lawful {
                ledger.bindings.insert(name.clone(), binding.clone());
            }
        }
        Change::Node(..)
        | Change::Gateway(..)
        | Change::Taken(..)
        | Change::ExcludedNodes(..)
        | Change::KeepUnused(_)
        | Change::ObservedBinding(_, None) => {}
    }
}

/// True if the exclusive gateways among all let the policy share that address with those who have it.
fn may_share(ledger: &Ledger, world: &World, name: &PolicyName, binding: &Binding) -> bool {
    let eip = recorded_eip(ledger, binding);
    let mut users = ledger.bindings.iter().filter(|(user, other)| {
        other.gateway == binding.gateway && recorded_eip(ledger, other) == eip && world.policies.contains_key(*user)
    });
    let explicit = |name: &PolicyName| matches!(world.policies[name].request, AddressRequest::Explicit(_));
    !world.gateways[&binding.gateway].exclusive
        || (!explicit(name) && !users.clone().any(|(user, _)| explicit(user)))
        || users.all(|(user, _)| user.namespace == name.namespace)
}

fn recorded_eip(ledger: &Ledger, binding: &Binding) -> Option<Eip> {
    for (address, record) in &ledger.addresses {
        if record.gateway != binding.gateway {
            continue;
        }
        let halves = [Some(*address), record.pair];
        let mut wanted = binding.eip.addresses();
        if wanted.next().is_some_and(|first| halves.contains(&Some(first)))
            || wanted.next().is_some_and(|second| halves.contains(&Some(second)))
        {
            return Some(halves.into_iter().flatten().collect());
        }
    }
    None
}

/// What differs between two plans without being named.
fn untouched(before: &Plan, after: &Plan, affected: &Affected) -> Vec<String> {
    let mut missed = Vec::new();
    let placed = |plan: &Plan, a: &IpAddr| plan.addresses.get(a).map(|p| (p.record.clone(), p.outside_pool));
    for a in before.addresses.keys().chain(after.addresses.keys()).chain(&before.recycled).chain(&after.recycled) {
        let same = placed(before, a) == placed(after, a) && before.recycled.contains(a) == after.recycled.contains(a);
        if !same && !affected.addresses.contains(a) {
            missed.push(a.to_string());
        }
    }
    let policies =
        before.bindings.keys().chain(after.bindings.keys()).chain(before.unmet.keys()).chain(after.unmet.keys());
    for p in policies {
        let same = before.bindings.get(p) == after.bindings.get(p) && before.unmet.get(p) == after.unmet.get(p);
        if !same && !affected.policies.contains(p) {
            missed.push(p.to_string());
        }
    }
    for g in before.views.keys().chain(after.views.keys()) {
        if before.views.get(g) != after.views.get(g) && !affected.gateways.contains(g) {
            missed.push(g.to_string());
        }
    }
    missed
}

/// The ledger once the plan has been carried out and what it recycles is gone.
pub(crate) fn carried_out(plan: &Plan) -> Ledger {
    let addresses = plan.addresses.iter().map(|(address, placed)| (*address, placed.record.clone())).collect();
    Ledger { addresses, bindings: plan.bindings.clone() }
}

/// The ledger once the plan has been written, with what it recycles still there.
fn written(world: &World, ledger: &Ledger) -> Ledger {
    Planner::new(world.clone(), ledger.clone()).ledger()
}

/// The parts in which a plan differs from what was expected.
fn difference(plan: &Plan, expected: &Plan) -> String {
    let mut lines = String::new();
    let parts = [
        (format!("{:?}", plan.addresses), format!("{:?}", expected.addresses)),
        (format!("{:?}", plan.bindings), format!("{:?}", expected.bindings)),
        (format!("{:?}", plan.recycled), format!("{:?}", expected.recycled)),
        (format!("{:?}", plan.moves), format!("{:?}", expected.moves)),
        (format!("{:?}", plan.views), format!("{:?}", expected.views)),
        (format!("{:?}", plan.unmet), format!("{:?}", expected.unmet)),
    ];
    for (is, should_be) in parts.into_iter().filter(|(is, should_be)| is != should_be) {
        lines.extend(["is        ", &is, "\nshould be ", &should_be, "\n"]);
    }
    lines
}

fn as_defined(world: &World, ledger: &Ledger, plan: &Plan) -> bool {
    *plan == model::plan(world, ledger)
}

fn no_policy_is_lost(world: &World, _: &Ledger, plan: &Plan) -> bool {
    world.policies.keys().all(|name| plan.bindings.contains_key(name) || plan.unmet.contains_key(name))
        && plan.bindings.keys().all(|name| world.policies.contains_key(name))
}

fn bindings_agree_with_addresses(_: &World, _: &Ledger, plan: &Plan) -> bool {
    plan.bindings.values().all(|binding| {
        binding.eip.addresses().all(|address| {
            let placed = plan.addresses.get(&address);
            placed.is_some_and(|placed| placed.record.node == binding.node && placed.record.gateway == binding.gateway)
        })
    }) && plan.addresses.keys().all(|address| plan.bindings.values().any(|b| b.eip.addresses().any(|a| a == *address)))
}

fn inside_the_pool_or_flagged(world: &World, ledger: &Ledger, plan: &Plan) -> bool {
    plan.addresses.iter().all(|(address, placed)| {
        let inside = world.gateways[&placed.record.gateway].pool.contains(*address);
        let halves = [Some(*address), placed.record.pair];
        let recorded = halves.iter().flatten().any(|half| ledger.addresses.contains_key(half));
        placed.outside_pool != inside && (inside || recorded)
    })
}

fn pairs_are_one_to_one(_: &World, _: &Ledger, plan: &Plan) -> bool {
    plan.addresses.iter().all(|(address, placed)| {
        placed.record.pair.is_none_or(|pair| {
            let other = plan.addresses.get(&pair).map(|other| &other.record);
            other.is_some_and(|other| {
                other.pair == Some(*address)
                    && (other.slot, other.epoch, &other.node)
                        == (placed.record.slot, placed.record.epoch, &placed.record.node)
            })
        })
    })
}

fn recorded_pairs_stay(_: &World, ledger: &Ledger, plan: &Plan) -> bool {
    plan.addresses.iter().all(|(address, placed)| {
        let Some(record) = ledger.addresses.get(address).filter(|record| record.gateway == placed.record.gateway)
        else {
            return true;
        };
        let agreed = record.pair.and_then(|pair| ledger.addresses.get(&pair)).is_some_and(|other| {
            other.pair == Some(*address)
                && other.gateway == record.gateway
                && record.pair.unwrap().is_ipv4() != address.is_ipv4()
        });
        !agreed || placed.record.pair == record.pair
    })
}

fn eligible(world: &World, gateway: &GatewayName, node: &NodeName, eip: Eip) -> bool {
    let barred = eip.addresses().any(|a| world.excluded_nodes.get(&a).is_some_and(|nodes| nodes.contains(node)));
    let selector = &world.gateways[gateway].selector;
    world.nodes.get(node).is_some_and(|node| node.ready && selector.matches(&node.labels)) && !barred
}

fn moves_are_the_ineligible(world: &World, ledger: &Ledger, plan: &Plan) -> bool {
    let moved: BTreeSet<Eip> = plan.moves.iter().filter(|m| m.policy.is_none()).map(|m| m.eip).collect();
    let causes = plan.moves.iter().all(|m| {
        let from_ineligible = m.from.as_ref().is_none_or(|from| !eligible(world, &m.gateway, from, m.eip));
        let to_eligible = m.to.as_ref().is_none_or(|to| eligible(world, &m.gateway, to, m.eip));
        from_ineligible && to_eligible && m.from != m.to && (m.from.is_none() == (m.cause == MoveCause::NodeReady))
    });
    causes
        && plan.addresses.iter().all(|(address, placed)| {
            let eip: Eip = [Some(*address), placed.record.pair].into_iter().flatten().collect();
            let newest =
                eip.addresses().filter_map(|a| ledger.addresses.get(&a)).filter(|h| h.gateway == placed.record.gateway);
            let newest = newest.rev_max();
            match newest {
                None => !moved.contains(&eip),
                Some(record) => match &record.node {
                    Some(node) if eligible(world, &record.gateway, node, eip) => {
                        placed.record.node.as_ref() == Some(node) && !moved.contains(&eip)
                    }
                    before => moved.contains(&eip) == (*before != placed.record.node),
                },
            }
        })
}

trait Newest<'a> {
    fn rev_max(self) -> Option<&'a AddressRecord>;
}

impl<'a, I: Iterator<Item = &'a AddressRecord>> Newest<'a> for I {
    fn rev_max(self) -> Option<&'a AddressRecord> {
        let all: Vec<&AddressRecord> = self.collect();
        all.into_iter().rev().max_by_key(|record| record.epoch)
    }
}

fn epochs_count_moves(_: &World, ledger: &Ledger, plan: &Plan) -> bool {
    plan.addresses.iter().all(|(address, placed)| {
        let eip: Eip = [Some(*address), placed.record.pair].into_iter().flatten().collect();
        let halves =
            eip.addresses().filter_map(|a| ledger.addresses.get(&a)).filter(|h| h.gateway == placed.record.gateway);
        let moved = plan.moves.iter().filter(|m| m.eip == eip).count() as u64;
        placed.record.epoch == halves.map(|record| record.epoch).max().map_or(1, |epoch| epoch + moved)
    })
}

fn replanning_changes_nothing(world: &World, ledger: &Ledger, plan: &Plan) -> bool {
    let mut again = self::plan(world, &written(world, ledger));
    let still = again.moves.is_empty();
    again.moves.clone_from(&plan.moves);
    still && again == *plan
}

fn recycling_disturbs_nobody(world: &World, _: &Ledger, plan: &Plan) -> bool {
    let after = self::plan(world, &carried_out(plan));
    plan.bindings.iter().all(|(name, binding)| {
        let kept = after.bindings.get(name);
        kept.is_some_and(|kept| kept.eip == binding.eip && (kept.node == binding.node || binding.node.is_none()))
    })
}

fn same_bytes_twice(world: &World, ledger: &Ledger, plan: &Plan) -> bool {
    format!("{plan:?}") == format!("{:?}", self::plan(world, ledger))
}

fn recycled_has_no_user(world: &World, ledger: &Ledger, plan: &Plan) -> bool {
    let used: BTreeSet<IpAddr> = plan.bindings.values().flat_map(|binding| binding.eip.addresses()).collect();
    let idle: BTreeSet<IpAddr> =
        ledger.addresses.keys().filter(|a| !plan.addresses.contains_key(*a)).copied().collect();
    plan.recycled.iter().all(|address| !used.contains(address))
        && plan.recycled == if world.keep_unused { BTreeSet::new() } else { idle }
}

fn free_and_used_make_the_total(world: &World, _: &Ledger, plan: &Plan) -> bool {
    world.gateways.iter().all(|(name, gateway)| {
        let view = &plan.views[name];
        let mine =
            plan.addresses.iter().filter(|(a, placed)| placed.record.gateway == *name && gateway.pool.contains(**a));
        let mut used = [0, 0];
        mine.for_each(|(address, _)| used[usize::from(address.is_ipv6())] += 1);
        (0..2).all(|family| view.free[family] + used[family] == view.total[family])
    })
}

fn slots_are_unique(_: &World, _: &Ledger, plan: &Plan) -> bool {
    let mut slots = BTreeMap::new();
    plan.addresses.iter().all(|(address, placed)| {
        let eip: Eip = [Some(*address), placed.record.pair].into_iter().flatten().collect();
        (2..=16383).contains(&placed.record.slot) && *slots.entry(placed.record.slot).or_insert(eip) == eip
    })
}

fn standbys_are_the_truth(world: &World, ledger: &Ledger, plan: &Plan) -> bool {
    let ledger = written(world, ledger);
    let owners: BTreeSet<&NodeName> =
        plan.addresses.values().filter_map(|placed| placed.record.node.as_ref()).collect();
    owners.into_iter().all(|lost| {
        let mut world = world.clone();
        world.nodes.remove(lost);
        let after = self::plan(&world, &ledger);
        plan.addresses.iter().filter(|(_, placed)| placed.record.node.as_ref() == Some(lost)).all(
            |(address, placed)| {
                let three = placed.standby.len() <= 3 && !placed.standby.contains(lost);
                three && after.addresses[address].record.node.as_ref() == placed.standby.first()
            },
        )
    })
}

fn a_returning_node_gets_nothing(world: &World, _: &Ledger, plan: &Plan) -> bool {
    world.nodes.keys().all(|name| {
        let mut away = world.clone();
        away.nodes.remove(name);
        let gone = self::plan(&away, &carried_out(plan));
        let back = self::plan(world, &carried_out(&gone));
        back.moves.iter().all(|m| m.from.is_none()) && !back.moves.iter().any(|m| m.from.as_ref() == Some(name))
    })
}

fn a_passing_policy_leaves_no_trace(world: &World, _: &Ledger, plan: &Plan) -> bool {
    let name = PolicyName { namespace: Some("z".into()), name: "passing".into() };
    let Some(gateway) = world.gateways.keys().next() else { return true };
    // everything waiting was refused before; the guest must not change why
    [
        AddressRequest::FromPool(AllocationMode::PreferUnallocated),
        AddressRequest::FromPool(AllocationMode::Random),
        AddressRequest::FromPool(AllocationMode::Limit(2)),
        AddressRequest::NodeAddress,
    ]
    .into_iter()
    .all(|ask| {
        let mut planner = Planner::new(world.clone(), carried_out(plan));
        let before = planner.plan();
        let guest = Policy { uid: "guest".into(), gateway: gateway.clone(), created: 99, request: ask, refused: false };
        planner.change(Change::Policy(name.clone(), Some(guest)));
        planner.change(Change::Policy(name.clone(), None));
        for address in planner.recycled() {
            planner.change(Change::ObservedRecord(address, None));
        }
        let mut after = planner.plan();
        after.moves.clone_from(&before.moves);
        world.keep_unused || after == before || !before.unmet.is_empty()
    })
}

fn taken_is_never_given(world: &World, ledger: &Ledger, plan: &Plan) -> bool {
    plan.bindings.iter().all(|(name, binding)| {
        let kept = ledger.bindings.get(name).is_some_and(|before| {
            before.gateway == binding.gateway && before.eip.addresses().any(|a| binding.eip.addresses().any(|b| a == b))
        });
        kept || !binding.eip.addresses().any(|address| world.taken.contains(&address))
    })
}

fn exclusive_means_one_namespace(world: &World, _: &Ledger, plan: &Plan) -> bool {
    let users_of = |address: &IpAddr| -> Vec<&PolicyName> {
        let on_it = plan.bindings.iter().filter(|(_, binding)| binding.eip.addresses().any(|a| a == *address));
        on_it.map(|(name, _)| name).collect()
    };
    plan.addresses.iter().filter(|(_, placed)| world.gateways[&placed.record.gateway].exclusive).all(|(address, _)| {
        let users = users_of(address);
        let by_name = users.iter().any(|user| matches!(world.policies[*user].request, AddressRequest::Explicit(_)));
        !by_name || users.iter().all(|user| user.namespace == users[0].namespace)
    })
}
