//! Nodes: lost, changed, full.

use std::collections::BTreeSet;

use super::cloud::By;
use super::lab::Lab;
use crate::ipam::*;

fn home(lab: &Lab) -> NodeName {
    lab.served("shop")[0].1.clone()
}

/// Loses the node of the only address, and says where the address went.
fn lose(lab: &mut Lab, lose: impl FnOnce(&mut Lab, &NodeName)) -> NodeName {
    let (before, addresses) = (home(lab), lab.addresses("shop"));
    lose(lab, &before);
    let plan = lab.settle();
    assert_eq!(plan.unmet, []);
    assert_eq!(lab.addresses("shop"), addresses, "the address stays the same");
    let after = home(lab);
    assert_ne!(before, after);
    after
}

#[test]
fn move_is_one_call_and_never_lands_on_the_lost_host() {
    let mut lab = Lab::serving(&[3, 2], None);
    let lost = home(&lab);
    lose(&mut lab, |lab, node| lab.node(node).deleting = true);
    let calls = lab.calls_made();
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert!(calls[0].contains("Take") && calls[0].contains("failover: true"));
    assert!(!lab.log.iter().any(|action| action.contains("Call") && action.contains(&format!("i-{lost}"))));
    // the old HostSubnet lets go before the call, the new one has it after
    let at = |what: &str| lab.log.iter().position(|action| action.starts_with(what)).unwrap();
    assert!(at("UpdateClaim") < at("SetHostSubnet") && at("SetHostSubnet") < at("Call"));
}

#[test]
fn every_kind_of_loss_moves_the_address() {
    type Loss = fn(&mut Lab, &NodeName);
    let losses: [(&str, Loss); 6] = [
        ("deleted", |lab, node| {
            lab.world.nodes.remove(node);
            lab.world.host_subnets.remove(node);
        }),
        ("stopped", |lab, node| {
            lab.cloud.set_state(&format!("i-{node}").into(), InstanceState::Stopped, lab.world.now);
        }),
        ("terminated", |lab, node| {
            lab.cloud.set_state(&format!("i-{node}").into(), InstanceState::Terminated, lab.world.now);
        }),
        ("egressCIDRs", |lab, node| lab.host_subnet(node).egress_cidrs = true),
        ("another zone", |lab, node| lab.node(node).zone = Some("z".into())),
        ("another instance", |lab, node| {
            lab.node(node).instance = Some("i-unknown".into());
        }),
    ];
    for (name, loss) in losses {
        let mut lab = Lab::serving(&[3], None);
        println!("{name}");
        lose(&mut lab, loss);
        assert_eq!(lab.calls_made().len(), 1, "{name}");
        assert_eq!(lab.calls_made()[0].contains("Take"), name != "terminated", "{name}");
    }
}

#[test]
fn not_ready_node_is_drained() {
    let mut lab = Lab::serving(&[2], None);
    let before = home(&lab);
    let since = lab.world.now;
    lab.node(&before).not_ready_since = Some(since);
    lab.describe();
    let plan = lab.plan();
    assert_eq!((plan.actions.len(), plan.wake), (0, Some(since + 30_000)), "within the grace nothing happens");
    lab.settle();
    assert_ne!(home(&lab), before);
}

#[test]
fn label_change_is_seen() {
    let mut lab = Lab::serving(&[2], None);
    lose(&mut lab, |lab, node| lab.node(node).compute = false);
}

#[test]
fn a_new_node_moves_nothing_and_is_chosen_next() {
    let mut lab = Lab::serving(&[1], None);
    lab.add_node("a9", "subnet-a", 10);
    lab.settle();
    assert!(lab.log.is_empty());
    lab.add_namespace("blog", None);
    lab.settle();
    assert_eq!(&*lab.served("blog")[0].1, "a9");
}

#[test]
fn without_another_node_the_address_stays_recorded_and_other_zones_go_on() {
    let mut lab = Lab::serving(&[1, 1], None);
    let addresses = lab.addresses("shop");
    lab.node("a1").deleting = true;
    let plan = lab.settle();
    assert_eq!(Lab::reasons(&plan), [Reason::NoNodeInZone]);
    assert_eq!(lab.world.net_namespaces["shop"].egress_ips, addresses);
    lab.add_node("a2", "subnet-a", 10);
    assert_eq!(lab.settle().unmet, []);
    assert_eq!(lab.addresses("shop"), addresses);
    assert_eq!(lab.served("shop").iter().map(|(_, node)| &**node).collect::<BTreeSet<_>>(), ["a2", "b1"].into());
}

#[test]
fn addresses_of_one_owner_never_meet_on_one_node() {
    let mut lab = Lab::serving(&[3], Some("10.0.0.70,10.0.0.71"));
    let lost = home(&lab);
    lab.node(&lost).deleting = true;
    lab.settle();
    assert_eq!(lab.served("shop").iter().map(|(_, node)| node.clone()).collect::<BTreeSet<_>>().len(), 2);
    let lost = home(&lab);
    lab.node(&lost).deleting = true;
    let plan = lab.settle();
    assert_eq!(Lab::reasons(&plan), [Reason::NotEnoughNodes]);
}

#[test]
fn a_zone_that_gains_a_node_is_reported_and_not_filled() {
    let mut lab = Lab::serving(&[1, 0], None);
    lab.add_node("b1", "subnet-b", 10);
    let plan = lab.settle();
    assert_eq!(Lab::reasons(&plan), [Reason::ZoneWithoutAddress]);
    assert!(lab.log.is_empty());
}

#[test]
fn a_terminated_instance_may_have_lost_its_address_to_a_stranger() {
    let mut lab = Lab::serving(&[2], None);
    let [address] = lab.addresses("shop").into_iter().collect::<Vec<_>>()[..] else { panic!("one address") };
    let instance = format!("i-{}", home(&lab)).into();
    lab.cloud.set_state(&instance, InstanceState::Terminated, lab.world.now);
    lab.cloud.strangers.insert(address);
    let plan = lab.settle();
    assert_eq!(Lab::reasons(&plan), [Reason::AddressInUse]);
    assert_eq!(lab.journal.claims[&address].status.state, State::Blocked);
    assert!(lab.cloud.strangers.contains(&address) && lab.cloud.wrongs.is_empty());
    assert!(lab.world.host_subnets.values().all(|subnet| subnet.egress_ips.is_empty()));
    lab.cloud.strangers.clear();
    assert_eq!(lab.settle().unmet, []);
    assert_eq!(lab.served("shop").len(), 1, "it is taken back once it is free");
}

#[test]
fn an_address_is_taken_only_after_a_look_that_is_newer_than_the_loss() {
    let mut lab = Lab::serving(&[2], None);
    let lost = home(&lab);
    lab.node(&lost).deleting = true;
    // only this describe, from before the loss was recorded
    for _ in 0..2 {
        let action = lab.plan().actions.remove(0);
        let seen = (lab.world.clone(), lab.journal.clone());
        lab.execute(&action, (&seen.0, &seen.1), super::lab::Outcome::Done);
    }
    let plan = lab.plan();
    assert_eq!((plan.actions.len(), plan.awaiting), (0, BTreeSet::from([format!("i-{lost}").into()])));
    lab.describe();
    assert!(matches!(&lab.plan().actions[..], [Action::Call(call)] if call.kind == CallKind::Take));
}

#[test]
fn addresses_of_others_are_never_unassigned() {
    let mut lab = Lab::serving(&[2], None);
    let other = [10, 0, 0, 200].into();
    for node in ["i-a1", "i-a2"] {
        lab.cloud.edit(&node.into(), lab.world.now, |secondary| {
            secondary.insert(other, By::Other);
        });
    }
    lab.host_subnet("a1").egress_ips.insert([10, 0, 0, 201].into());
    let plan = lab.settle();
    assert_eq!(plan.events, [Event::ForeignEgressIp("a1".into(), [10, 0, 0, 201].into())]);
    assert!(lab.log.is_empty());
    lab.world.namespaces.clear();
    lab.settle();
    assert!(lab.cloud.instances.values().all(|instance| instance.secondary.keys().eq([&other])));
    assert!(lab.world.host_subnets["a1"].egress_ips.contains(&[10, 0, 0, 201].into()));
}

#[test]
fn a_node_that_refuses_is_replaced() {
    let mut lab = Lab::new(&[2], 10);
    lab.add_namespace("shop", None);
    lab.faults.push(CloudError::LimitExceeded);
    lab.settle();
    assert_eq!((lab.served("shop").len(), lab.calls_made().len()), (1, 2));
}

#[test]
fn an_interface_that_is_full_is_not_chosen() {
    let mut lab = Lab::new(&[2], 3);
    lab.cloud.edit(&"i-a1".into(), lab.world.now, |secondary| {
        secondary.insert([10, 0, 0, 200].into(), By::Other);
        secondary.insert([10, 0, 0, 201].into(), By::Other);
    });
    for name in ["blog", "shop"] {
        lab.add_namespace(name, None);
    }
    assert_eq!(lab.settle().unmet, []);
    assert!(["blog", "shop"].iter().all(|name| &*lab.served(name)[0].1 == "a2"));
}

#[test]
fn egress_cidrs_bar_a_node() {
    let mut lab = Lab::new(&[1], 10);
    lab.host_subnet("a1").egress_cidrs = true;
    lab.add_namespace("shop", None);
    let plan = lab.settle();
    assert_eq!(plan.events, [Event::EgressCidrsSet("a1".into())]);
    assert_eq!(Lab::reasons(&plan), [Reason::NoNodeInZone]);
}
