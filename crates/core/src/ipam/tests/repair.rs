//! People, faults and other controllers interfere.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use super::cloud::By;
use super::lab::Lab;
use crate::ipam::*;

fn only(lab: &Lab) -> (Ipv4Addr, NodeName) {
    lab.served("shop")[0].clone()
}

#[test]
fn what_people_take_away_is_put_back_without_a_call() {
    type Edit = fn(&mut Lab, Ipv4Addr, &NodeName);
    let edits: [(&str, Edit); 5] = [
        ("NetNamespace emptied", |lab, _, _| lab.net_namespace("shop").egress_ips.clear()),
        ("NetNamespace edited", |lab, _, _| lab.net_namespace("shop").egress_ips = [[10, 0, 0, 99].into()].into()),
        ("NetNamespace annotation", |lab, _, _| lab.net_namespace("shop").annotation = None),
        ("HostSubnet emptied", |lab, _, node| *lab.host_subnet(node) = HostSubnet::default()),
        ("wrong HostSubnet", |lab, address, node| {
            let other = if **node == *"a1" { "a2" } else { "a1" };
            *lab.host_subnet(node) = HostSubnet::default();
            lab.host_subnet(other).egress_ips.insert(address);
        }),
    ];
    for (name, edit) in edits {
        let mut lab = Lab::serving(&[2], None);
        let (address, node) = only(&lab);
        let before = lab.world.clone();
        edit(&mut lab, address, &node);
        assert_eq!(lab.settle().unmet, [], "{name}");
        assert_eq!(lab.world.net_namespaces, before.net_namespaces, "{name}");
        assert_eq!(lab.world.host_subnets, before.host_subnets, "{name}");
        assert_eq!(lab.calls_made().len(), 0, "{name}");
    }
}

#[test]
fn an_address_missing_in_the_cloud_is_assigned_again_on_the_same_node() {
    let mut lab = Lab::serving(&[2], None);
    let (address, node) = only(&lab);
    lab.cloud.edit(&format!("i-{node}").into(), lab.world.now, std::collections::BTreeMap::clear);
    assert_eq!(lab.settle().unmet, []);
    assert_eq!((only(&lab), lab.calls_made().len()), ((address, node), 1));
}

/// Each of the five repairs of the original's checklist, done by hand before the controller looks.
#[test]
fn repairs_by_hand_are_recognised() {
    let mut lab = Lab::serving(&[2], None);
    let (address, node) = only(&lab);
    let whole = lab.world.clone();
    for repair in 0..5 {
        match repair {
            0 => lab.namespace("shop").egressips = None,
            1 => lab.net_namespace("shop").annotation = None,
            2 => lab.net_namespace("shop").egress_ips.clear(),
            3 => lab.host_subnet(&node).egress_ips.clear(),
            _ => lab.cloud.edit(&format!("i-{node}").into(), lab.world.now, std::collections::BTreeMap::clear),
        }
        lab.describe();
        assert!(!lab.plan().actions.is_empty());
        lab.world.namespaces.clone_from(&whole.namespaces);
        lab.world.net_namespaces.clone_from(&whole.net_namespaces);
        lab.world.host_subnets.clone_from(&whole.host_subnets);
        lab.cloud.edit(&format!("i-{node}").into(), lab.world.now, |secondary| {
            secondary.insert(address, By::Us);
        });
        lab.describe();
        assert_eq!(lab.plan(), Plan::default(), "repair {}", repair + 1);
    }
}

#[test]
fn hostsubnet_without_annotations_is_fine() {
    let lab = Lab::serving(&[1], None);
    let (address, node) = only(&lab);
    assert_eq!(lab.world.host_subnets[&node].annotations, [(address, "shop".into())].into());
}

#[test]
fn address_annotation_goes_with_the_address() {
    let mut lab = Lab::serving(&[1], None);
    let foreign: Ipv4Addr = [10, 0, 0, 99].into();
    lab.host_subnet("a1").annotations.insert(foreign, "other".into());
    lab.world.namespaces.clear();
    lab.settle();
    assert_eq!(lab.world.host_subnets["a1"].annotations, [(foreign, "other".into())].into());
}

#[test]
fn third_zone_fails_first_two_are_given_back() {
    let mut lab = Lab::new(&[1, 1, 1], 10);
    lab.add_namespace("shop", None);
    let denied = CloudError::Denied { action: Arc::from("ec2:AssignPrivateIpAddresses") };
    let mut attached = 0;
    while lab.journal.claims.values().all(|claim| claim.status.rolled_back.is_none()) {
        lab.describe();
        let action = lab.plan().actions.remove(0);
        let fails = matches!(&action, Action::Call(call) if &*call.instance == "i-c1");
        lab.faults = if fails { vec![denied.clone()] } else { Vec::new() };
        let seen = (lab.world.clone(), lab.journal.clone());
        lab.execute(&action, (&seen.0, &seen.1), super::lab::Outcome::Done);
        attached = attached.max(lab.cloud.instances.values().map(|instance| instance.secondary.len()).sum());
    }
    assert_eq!(attached, 2, "two zones had theirs");
    assert!(!lab.journal.claims.values().any(|claim| claim.status.state == State::Published));
    assert!(lab.world.net_namespaces["shop"].egress_ips.is_empty());
    lab.describe();
    assert_eq!(Lab::reasons(&lab.plan()), [Reason::CloudDenied]);
    // once the addresses have cooled down it is tried again
    assert_eq!(lab.settle().unmet, []);
    assert_eq!((lab.served("shop").len(), lab.journal.claims.len()), (3, 3));
}

#[test]
fn retries_take_no_more_addresses() {
    let mut lab = Lab::new(&[1, 1, 1], 10);
    lab.add_namespace("shop", None);
    let denied = CloudError::Denied { action: Arc::from("ec2:AssignPrivateIpAddresses") };
    let mut most = 0;
    for _ in 0..400 {
        lab.describe();
        let plan = lab.plan();
        let action = plan.actions.first().cloned();
        let Some(action) = action else {
            lab.world.now = plan.wake.unwrap_or(lab.world.now + 1_000);
            continue;
        };
        let fails = matches!(&action, Action::Call(call) if call.kind == CallKind::Assign && &*call.instance == "i-c1");
        lab.faults = if fails { vec![denied.clone()] } else { Vec::new() };
        let seen = (lab.world.clone(), lab.journal.clone());
        lab.execute(&action, (&seen.0, &seen.1), super::lab::Outcome::Done);
        most = most.max(lab.journal.claims.len());
    }
    assert!(most <= 6, "{most} addresses are recorded at once");
    assert_eq!(lab.served("shop").len(), 0);
    lab.faults.clear();
    lab.settle();
    assert_eq!((lab.served("shop").len(), lab.journal.claims.len()), (3, 3));
}

#[test]
fn transient_failures_roll_back_after_ten_minutes() {
    let mut lab = Lab::new(&[1, 1], 10);
    lab.add_namespace("shop", None);
    let started = lab.world.now;
    let rolled_back = loop {
        lab.faults = vec![CloudError::Throttled; 4];
        lab.describe();
        let plan = lab.plan();
        for action in plan.actions {
            let seen = (lab.world.clone(), lab.journal.clone());
            lab.execute(&action, (&seen.0, &seen.1), super::lab::Outcome::Done);
        }
        if lab.journal.claims.values().any(|claim| claim.status.state == State::Releasing) {
            break lab.world.now;
        }
        lab.world.now += 10_000;
    };
    assert!((600_000..700_000).contains(&(rolled_back - started)));
}

/// A node in each of two zones; the one in zone b has no room.
fn partial() -> Lab {
    let mut lab = Lab::new(&[1, 1], 2);
    lab.world.options.partial = true;
    lab.cloud.edit(&"i-b1".into(), lab.world.now, |secondary| {
        secondary.insert([10, 0, 1, 99].into(), By::Other);
    });
    lab
}

#[test]
fn partial_publishes_the_zones_that_work() {
    let mut lab = partial();
    lab.add_namespace("shop", None);
    let plan = lab.settle();
    assert_eq!((lab.served("shop").len(), Lab::reasons(&plan)), (1, vec![Reason::NoCapacity]));
    let namespace = &lab.world.namespaces["shop"];
    assert_eq!((&namespace.egressips, namespace.modified), (&None, false), "a list would be a request for less");
    assert!(namespace.status.is_some());
    // once there is room the rest follows, and what serves stays
    let served: Vec<_> = lab.journal.claims.keys().copied().collect();
    lab.cloud.edit(&"i-b1".into(), lab.world.now, BTreeMap::clear);
    let plan = lab.settle();
    assert_eq!((lab.served("shop").len(), Lab::reasons(&plan)), (2, vec![]));
    assert!(lab.journal.claims.contains_key(&served[0]));
    assert_eq!(lab.world.namespaces["shop"].status, None);
}

#[test]
fn partial_rolls_back_the_zone_that_fails_alone() {
    let mut lab = Lab::new(&[1, 1], 5);
    lab.world.options.partial = true;
    lab.add_namespace("shop", None);
    // of two calls the second one is denied, until its address has cooled down
    let denied = CloudError::Denied { action: "ec2:AssignPrivateIpAddresses".into() };
    let mut calls = 0;
    let mut denials = 0;
    for _ in 0..60 {
        lab.describe();
        let Some(action) = lab.plan().actions.into_iter().next() else { break };
        if matches!(&action, Action::Call(call) if call.kind == CallKind::Assign) {
            calls += 1;
            if calls == 2 {
                denials += 1;
                lab.faults = vec![denied.clone()];
            }
        }
        let seen = (lab.world.clone(), lab.journal.clone());
        lab.execute(&action, (&seen.0, &seen.1), super::lab::Outcome::Done);
    }
    assert_eq!((lab.served("shop").len(), denials), (1, 1), "the first one serves while the second one waits");
    let plan = lab.plan();
    assert_eq!(Lab::reasons(&plan), [Reason::CloudDenied]);
    let plan = lab.settle();
    assert_eq!((lab.served("shop").len(), Lab::reasons(&plan)), (2, vec![]));
}

#[test]
fn failed_release_is_retried_until_gone() {
    let mut lab = Lab::serving(&[1], None);
    lab.world.namespaces.clear();
    lab.faults = vec![CloudError::Transient, CloudError::Throttled, CloudError::Denied { action: "x".into() }];
    lab.settle();
    assert!(lab.journal.claims.is_empty());
    assert!(lab.cloud.instances.values().all(|instance| instance.secondary.is_empty()));
}

#[test]
fn a_claim_goes_only_after_a_look_that_is_newer_than_its_cooling() {
    let mut lab = Lab::serving(&[1], None);
    lab.world.namespaces.clear();
    while !lab.journal.claims.values().all(Claim::is_cooling) {
        lab.describe();
        let action = lab.plan().actions.remove(0);
        let seen = (lab.world.clone(), lab.journal.clone());
        lab.execute(&action, (&seen.0, &seen.1), super::lab::Outcome::Done);
    }
    lab.describe();
    let wake = lab.plan().wake;
    lab.world.now = wake.unwrap();
    let plan = lab.plan();
    assert_eq!((plan.actions.len(), plan.awaiting), (0, BTreeSet::from(["i-a1".into()])));
    lab.describe();
    assert!(matches!(lab.plan().actions[..], [Action::DeleteClaim(_)]));
}

#[test]
fn an_answer_that_got_lost_is_found_by_the_next_look() {
    // the call happened, its answer did not arrive, and the process ended
    let mut lab = Lab::new(&[2], 10);
    lab.add_namespace("shop", None);
    loop {
        lab.describe();
        let action = lab.plan().actions.remove(0);
        let seen = (lab.world.clone(), lab.journal.clone());
        if matches!(action, Action::Call(_)) {
            lab.execute(&action, (&seen.0, &seen.1), super::lab::Outcome::CrashBetween);
            break;
        }
        lab.execute(&action, (&seen.0, &seen.1), super::lab::Outcome::Done);
    }
    assert_eq!(lab.plan(), Plan::default());
    lab.log.clear();
    lab.settle();
    assert_eq!((lab.served("shop").len(), lab.calls_made().len()), (1, 0));
}

#[test]
fn a_describe_that_is_older_than_the_last_call_decides_nothing() {
    let mut lab = Lab::serving(&[2], None);
    let (address, node) = only(&lab);
    lab.cloud.edit(&format!("i-{node}").into(), lab.world.now, std::collections::BTreeMap::clear);
    lab.describe();
    let interface: InterfaceId = format!("eni-i-{node}").into();
    assert_eq!(lab.plan().actions.len(), 2, "it is missing: {address}");
    lab.calls.begin(&interface);
    assert_eq!(lab.plan().actions, [], "a call is under way");
    lab.calls.end(&interface, lab.world.now);
    let plan = lab.plan();
    assert_eq!((plan.actions.len(), plan.awaiting), (0, BTreeSet::from([format!("i-{node}").into()])));
    lab.describe();
    assert_eq!(lab.plan().actions.len(), 2);
}

#[test]
fn a_call_that_succeeded_is_not_repeated_before_it_can_be_seen() {
    let mut lab = Lab::new(&[1], 10);
    lab.add_namespace("shop", None);
    lab.lag = 0;
    let mut calls = 0;
    for _ in 0..30 {
        let before = lab.cloud.clone();
        lab.describe();
        let plan = lab.plan();
        let Some(action) = plan.actions.first() else { break };
        let seen = (lab.world.clone(), lab.journal.clone());
        lab.execute(action, (&seen.0, &seen.1), super::lab::Outcome::Done);
        if matches!(action, Action::Call(_)) {
            calls += 1;
            lab.cloud = before; // not visible yet
        }
    }
    assert_eq!(calls, 1);
    lab.world.now += lab.world.options.visible_within;
    lab.settle();
    assert_eq!((lab.served("shop").len(), lab.calls_made().len()), (1, 1));
}

#[test]
fn a_claim_that_somebody_deletes_is_replaced_by_name() {
    let mut lab = Lab::serving(&[2], None);
    let (address, _) = only(&lab);
    lab.journal.claims.get_mut(&address).unwrap().deleting = true;
    lab.settle();
    assert_eq!(lab.addresses("shop"), BTreeSet::from([address]));
    assert!(!lab.journal.claims[&address].deleting);
}

#[test]
fn another_controller_does_the_calls() {
    let mut lab = Lab::new(&[2, 2], 10);
    lab.world.cloud_controller = Some([].into());
    lab.add_namespace("shop", None);
    for _ in 0..3 {
        for _ in 0..100 {
            lab.describe();
            // it attaches what the HostSubnets list
            let listed = lab.world.host_subnets.iter();
            let assigned = listed.flat_map(|(node, subnet)| {
                let status = PrivateIpStatus { node: Some(node.clone()), assigned: Assigned::Yes };
                subnet
                    .egress_ips
                    .iter()
                    .map(move |ip| (*ip, PrivateIp { status: status.clone(), ..PrivateIp::default() }))
            });
            lab.world.cloud_controller = Some(assigned.collect());
            let plan = lab.plan();
            let Some(action) = plan.actions.first() else {
                lab.world.now = plan.wake.unwrap_or(lab.world.now + 1_000);
                continue;
            };
            let seen = (lab.world.clone(), lab.journal.clone());
            lab.log.push(format!("{action:?}"));
            lab.execute(action, (&seen.0, &seen.1), super::lab::Outcome::Done);
        }
        if lab.world.namespaces["shop"].opted_in && lab.world.nodes["a1"].compute && lab.world.nodes["a2"].compute {
            assert_eq!(lab.served("shop").len(), 2);
            let node = lab.served("shop")[0].1.clone();
            lab.node(&node).compute = false;
        } else if lab.world.namespaces["shop"].opted_in {
            assert_eq!(lab.served("shop").len(), 2, "{:#?}", lab.journal);
            lab.namespace("shop").opted_in = false;
        }
    }
    assert!(lab.journal.claims.is_empty());
    assert_eq!(lab.calls_made().len(), 0);
}

#[test]
fn what_another_controller_could_not_attach_is_reported() {
    let mut lab = Lab::new(&[1], 10);
    lab.world.cloud_controller = Some([].into());
    lab.add_namespace("shop", None);
    let status = PrivateIpStatus { node: None, assigned: Assigned::Failed("the interface is full".into()) };
    let failed = PrivateIp { wanted: "a1".into(), status, ..PrivateIp::default() };
    for _ in 0..20 {
        lab.describe();
        let addresses = lab.journal.claims.keys();
        lab.world.cloud_controller = Some(addresses.map(|address| (*address, failed.clone())).collect());
        let Some(action) = lab.plan().actions.into_iter().next() else { break };
        let seen = (lab.world.clone(), lab.journal.clone());
        lab.execute(&action, (&seen.0, &seen.1), super::lab::Outcome::Done);
    }
    assert_eq!((Lab::reasons(&lab.plan()), lab.journal.claims.len()), (vec![Reason::CloudError], 1));
    let status = lab.world.namespaces["shop"].status.as_deref().unwrap();
    assert!(status.starts_with("CloudError: ") && status.ends_with("the interface is full"), "{status}");
}
