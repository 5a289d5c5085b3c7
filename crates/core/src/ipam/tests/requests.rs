//! Lists that people write.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use super::cloud::By;
use super::lab::Lab;
use crate::ipam::*;

fn set(addresses: &[&str]) -> BTreeSet<Ipv4Addr> {
    addresses.iter().map(|address| address.parse().unwrap()).collect()
}

#[test]
fn specified_addresses_on_a_new_namespace_are_assigned() {
    let lab = Lab::serving(&[2, 2], Some("10.0.0.70, 10.0.1.9,"));
    assert_eq!(lab.addresses("shop"), set(&["10.0.0.70", "10.0.1.9"]));
    assert!(lab.journal.claims.values().all(|claim| claim.spec.requested));
    assert!(lab.world.namespaces["shop"].modified);
}

#[test]
fn a_list_of_one_zone_serves_that_zone() {
    let mut lab = Lab::serving(&[2, 2], Some("10.0.1.9"));
    assert_eq!(lab.settle().unmet, []);
    assert_eq!(lab.served("shop").len(), 1);
}

#[test]
fn several_addresses_in_one_zone_are_on_several_nodes() {
    let mut lab = Lab::serving(&[3], Some("10.0.0.70,10.0.0.71,10.0.0.72"));
    let nodes: BTreeSet<NodeName> = lab.served("shop").into_iter().map(|(_, node)| node).collect();
    assert_eq!(nodes.len(), 3);
    lab.add_namespace("blog", Some("10.0.0.80,10.0.0.81,10.0.0.82,10.0.0.83"));
    let plan = lab.settle();
    assert_eq!(Lab::reasons(&plan), [Reason::NotEnoughNodes]);
    assert_eq!(lab.served("blog").len(), 0);
}

#[test]
fn changing_the_list_changes_the_addresses() {
    let mut lab = Lab::serving(&[2, 2], Some("10.0.0.70,10.0.1.9"));
    lab.namespace("shop").egressips = Some("10.0.1.9,10.0.0.71".into());
    let mut least = usize::MAX;
    for _ in 0..200 {
        lab.describe();
        let Some(action) = lab.plan().actions.into_iter().next() else { break };
        let seen = (lab.world.clone(), lab.journal.clone());
        lab.execute(&action, (&seen.0, &seen.1), super::lab::Outcome::Done);
        least = least.min(lab.world.net_namespaces["shop"].egress_ips.len());
    }
    lab.settle();
    assert_eq!(lab.addresses("shop"), set(&["10.0.0.71", "10.0.1.9"]));
    assert!(!lab.journal.claims.contains_key(&Ipv4Addr::new(10, 0, 0, 70)));
    assert_eq!(least, 2, "new ones come before old ones go");
}

#[test]
fn the_order_of_a_list_means_nothing() {
    let mut lab = Lab::serving(&[2, 2], Some("10.0.0.70,10.0.1.9"));
    lab.namespace("shop").egressips = Some("10.0.1.9,10.0.0.70".into());
    lab.describe();
    assert_eq!(lab.plan(), Plan::default());
}

#[test]
fn a_change_that_fails_leaves_the_old_addresses_in_service() {
    let mut lab = Lab::serving(&[2], Some("10.0.0.70"));
    lab.cloud.strangers.insert([10, 0, 0, 71].into());
    lab.namespace("shop").egressips = Some("10.0.0.71".into());
    let plan = lab.settle();
    assert_eq!(Lab::reasons(&plan), [Reason::AddressInUse]);
    assert_eq!(lab.addresses("shop"), set(&["10.0.0.70"]));
    assert_eq!(lab.world.net_namespaces["shop"].egress_ips, set(&["10.0.0.70"]));
    assert_eq!(lab.world.namespaces["shop"].egressips.as_deref(), Some("10.0.0.71"));
    lab.cloud.strangers.clear();
    assert_eq!(lab.settle().unmet, []);
    assert_eq!(lab.addresses("shop"), set(&["10.0.0.71"]));
}

#[test]
fn an_address_that_somebody_has_is_not_available() {
    let mut lab = Lab::serving(&[2], Some("10.0.0.70"));
    lab.cloud.strangers.insert([10, 0, 0, 71].into());
    lab.journal.other_use.insert([10, 0, 0, 72].into());
    lab.cloud.edit(&"i-a1".into(), lab.world.now, |secondary| {
        secondary.insert([10, 0, 0, 73].into(), By::Other);
    });
    for address in ["10.0.0.70", "10.0.0.71", "10.0.0.72", "10.0.0.73"] {
        lab.add_namespace("blog", Some(address));
        let plan = lab.settle();
        assert_eq!(Lab::reasons(&plan), [Reason::AddressInUse], "{address}");
        assert!(plan.unmet[0].message.starts_with("IP not available, already used"));
        assert!(lab.world.namespaces["blog"].status.as_deref().unwrap().contains("IP not available, already used"));
    }
    assert_eq!((lab.calls_made().len(), lab.journal.claims.len()), (0, 1));
}

#[test]
fn a_list_outside_the_subnets_is_invalid_and_takes_nothing() {
    for list in ["192.168.0.1,10.0.0.70", "10.0.0.3,10.0.0.70", "10.0.0.255,10.0.0.70", "10.0.0.70,ten"] {
        let mut lab = Lab::new(&[2], 10);
        lab.add_namespace("shop", Some(list));
        let plan = lab.settle();
        assert_eq!(Lab::reasons(&plan), [Reason::InvalidRequest], "{list}");
        assert!(lab.journal.claims.is_empty());
        assert_eq!(lab.world.namespaces["shop"].egressips.as_deref(), Some(list));
    }
}

#[test]
fn short_list_or_bad_annotation_stops_only_its_namespace() {
    let mut lab = Lab::new(&[2, 2], 10);
    lab.add_namespace("bad", Some("10.0.0.7;10.0.1.9"));
    lab.add_namespace("short", Some("x"));
    lab.add_namespace("shop", None);
    let plan = lab.settle();
    assert_eq!(Lab::reasons(&plan), [Reason::InvalidRequest]);
    assert_eq!((lab.served("bad").len(), lab.served("short").len(), lab.served("shop").len()), (0, 2, 2));
}

#[test]
fn a_list_that_becomes_unreadable_changes_nothing() {
    let mut lab = Lab::serving(&[2, 2], None);
    let before = lab.addresses("shop");
    lab.namespace("shop").egressips = Some("none of these".into());
    let plan = lab.settle();
    assert_eq!(Lab::reasons(&plan), [Reason::InvalidRequest]);
    assert_eq!((lab.addresses("shop"), lab.calls_made().len()), (before, 0));
}

#[test]
fn a_list_without_opt_in_is_ignored() {
    let mut lab = Lab::new(&[2], 10);
    lab.add_namespace("shop", Some("10.0.0.70"));
    lab.namespace("shop").opted_in = false;
    let plan = lab.settle();
    assert_eq!(plan.events, [Event::NotOptedIn("shop".into())]);
    assert!(lab.log.is_empty());
}

#[test]
fn two_namespaces_that_name_one_address_do_not_share_it() {
    let mut lab = Lab::new(&[2], 10);
    lab.add_namespace("blog", Some("10.0.0.70"));
    lab.add_namespace("shop", Some("10.0.0.70"));
    let plan = lab.settle();
    assert_eq!(Lab::reasons(&plan), [Reason::AddressInUse]);
    assert_eq!((lab.served("blog").len(), lab.served("shop").len()), (1, 0));
}

#[test]
fn an_address_is_adopted_if_all_four_agree() {
    let setup = |describe: bool, host: bool, net: bool| {
        let mut lab = Lab::new(&[2], 10);
        lab.add_namespace("shop", Some("10.0.0.70"));
        let address: Ipv4Addr = [10, 0, 0, 70].into();
        if describe {
            lab.cloud.edit(&"i-a2".into(), lab.world.now, |secondary| {
                secondary.insert(address, By::Other);
            });
        }
        if host {
            lab.host_subnet("a2").egress_ips.insert(address);
        }
        if net {
            lab.net_namespace("shop").egress_ips.insert(address);
        }
        let plan = lab.settle();
        (lab, plan)
    };
    let (lab, plan) = setup(true, true, true);
    assert_eq!((plan.unmet.len(), lab.calls_made().len()), (0, 0));
    assert_eq!(lab.served("shop"), [([10, 0, 0, 70].into(), "a2".into())]);
    for (host, net) in [(true, false), (false, true), (false, false)] {
        let (lab, plan) = setup(true, host, net);
        assert_eq!((Lab::reasons(&plan), lab.served("shop").len()), (vec![Reason::AddressInUse], 0));
    }
    let (lab, _) = setup(false, true, true);
    assert_eq!((lab.served("shop").len(), lab.calls_made().len()), (1, 1), "any other list is a request");
}

#[test]
fn two_addresses_on_one_node_are_not_adopted_and_the_reason_is_the_node() {
    let mut lab = Lab::new(&[2], 10);
    lab.add_namespace("shop", Some("10.0.0.70,10.0.0.71"));
    for last in [70, 71] {
        let address: Ipv4Addr = [10, 0, 0, last].into();
        lab.cloud.edit(&"i-a2".into(), lab.world.now, |secondary| {
            secondary.insert(address, By::Other);
        });
        lab.host_subnet("a2").egress_ips.insert(address);
        lab.net_namespace("shop").egress_ips.insert(address);
    }
    let plan = lab.settle();
    assert_eq!(Lab::reasons(&plan), [Reason::NotEnoughNodes]);
    assert!(lab.calls_made().is_empty());
}

#[test]
fn while_the_cloud_cannot_be_read_those_who_wait_are_told_and_those_who_have_keep() {
    let mut lab = Lab::serving(&[1], None);
    lab.add_namespace("blog", None);
    (lab.world.cloud, lab.world.cloud_problem) = (None, Some(CloudError::Transient));
    let plan = lab.plan();
    let names: Vec<&str> = plan.unmet.iter().map(|unmet| &*unmet.namespace).collect();
    assert_eq!((names, Lab::reasons(&plan)), (vec!["blog"], vec![Reason::CloudUnavailable]));
    let [Action::AnnotateNamespace { name, egressips: None, status: Some(status) }] = &plan.actions[..] else {
        panic!("{:?}", plan.actions)
    };
    assert_eq!(&**name, "blog");
    let status = status.clone();
    lab.namespace("blog").status = Some(status);
    assert!(lab.plan().actions.is_empty(), "it is said once");
}
