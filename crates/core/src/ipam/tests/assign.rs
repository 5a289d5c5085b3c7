//! Namespaces: addresses come, change and go.

use std::collections::BTreeSet;

use super::lab::{Lab, Outcome};
use crate::ipam::*;

/// The kinds of actions in the order of a settled lab's log, without repetition.
fn kinds(lab: &Lab) -> Vec<&str> {
    let mut kinds: Vec<&str> = Vec::new();
    for action in &lab.log {
        let kind = action.split(['(', ' ']).next().unwrap_or_default();
        if kinds.last() != Some(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

#[test]
fn a_namespace_that_opts_in_gets_one_address_per_zone() {
    let mut lab = Lab::new(&[2, 2, 2], 10);
    lab.add_namespace("shop", None);
    let plan = lab.settle();
    assert_eq!(plan.unmet, []);
    assert_eq!(lab.zones("shop").iter().map(|zone| &**zone).collect::<BTreeSet<_>>(), BTreeSet::from(["a", "b", "c"]));
    let namespace = &lab.world.namespaces["shop"];
    let list: BTreeSet<_> = lab.served("shop").into_iter().map(|(address, _)| address).collect();
    assert_eq!(AddressList::parse(namespace.egressips.as_deref()), AddressList::Addresses(list.clone()));
    assert!(namespace.modified);
    assert_eq!(lab.world.net_namespaces["shop"].egress_ips, list);
    assert_eq!(lab.world.net_namespaces["shop"].annotation.as_deref(), namespace.egressips.as_deref());
}

#[test]
fn the_journal_is_written_before_each_call_and_the_objects_after_all_of_them() {
    let mut lab = Lab::new(&[1, 1], 10);
    lab.add_namespace("shop", None);
    lab.settle();
    assert_eq!(
        kinds(&lab),
        [
            "CreateClaim",
            "UpdateClaim",
            "Call",
            "ConfirmClaim",
            "UpdateClaim",
            "Call",
            "ConfirmClaim",
            "SetHostSubnet",
            "SetNetNamespace",
            "AnnotateNamespace",
            "UpdateClaim"
        ]
    );
}

#[test]
fn opting_out_gives_everything_back_in_the_opposite_order() {
    let mut lab = Lab::serving(&[1], None);
    lab.namespace("shop").opted_in = false;
    lab.settle();
    assert_eq!(
        kinds(&lab),
        ["UpdateClaim", "SetNetNamespace", "SetHostSubnet", "Call", "ConfirmClaim", "AnnotateNamespace", "DeleteClaim"]
    );
    assert!(lab.journal.claims.is_empty());
    let namespace = &lab.world.namespaces["shop"];
    assert_eq!((&namespace.egressips, namespace.modified), (&None, false));
    assert!(lab.cloud.instances.values().all(|instance| instance.secondary.is_empty()));
}

#[test]
fn nothing_is_decided_before_the_cloud_has_answered() {
    let mut lab = Lab::serving(&[2], None);
    lab.world.cloud = None;
    lab.world.nodes.clear();
    assert_eq!(lab.plan(), Plan::default());
}

#[test]
fn a_served_namespace_is_left_alone() {
    let mut lab = Lab::serving(&[2, 2, 2], None);
    for _ in 0..3 {
        lab.world.now += 60_000;
        lab.describe();
        assert_eq!(lab.plan(), Plan::default());
    }
}

#[test]
fn a_list_or_timestamp_that_was_deleted_is_written_again() {
    let mut lab = Lab::serving(&[2, 2], None);
    let list = lab.world.namespaces["shop"].egressips.clone();
    lab.namespace("shop").egressips = None;
    lab.settle();
    assert_eq!(lab.world.namespaces["shop"].egressips, list);
    lab.namespace("shop").modified = false;
    lab.settle();
    assert!(lab.world.namespaces["shop"].modified);
    assert_eq!(lab.calls_made().len(), 0);
}

#[test]
fn namespace_delete_frees() {
    let mut lab = Lab::serving(&[2, 2], None);
    lab.world.namespaces.remove("shop");
    lab.world.net_namespaces.remove("shop");
    lab.settle();
    assert!(lab.journal.claims.is_empty());
    assert!(lab.cloud.instances.values().all(|instance| instance.secondary.is_empty()));
    assert!(lab.world.host_subnets.values().all(|subnet| *subnet == HostSubnet::default()));
}

#[test]
fn a_namespace_made_again_is_another_owner() {
    let mut lab = Lab::serving(&[2, 2], None);
    let before = lab.addresses("shop");
    lab.add_namespace("shop", None);
    lab.settle();
    assert_eq!(lab.served("shop").len(), 2);
    assert!(lab.addresses("shop").is_disjoint(&before), "the old ones cool down");
}

#[test]
fn a_terminating_namespace_keeps_what_it_has_and_gets_no_more() {
    let mut lab = Lab::serving(&[2, 2], None);
    lab.namespace("shop").terminating = true;
    lab.add_namespace("blog", None);
    lab.namespace("blog").terminating = true;
    lab.settle();
    assert_eq!((lab.served("shop").len(), lab.served("blog").len(), lab.log.len()), (2, 0, 0));
}

#[test]
fn released_address_is_usable_again_after_cooling() {
    let mut lab = Lab::serving(&[1], None);
    let [(address, _)] = lab.served("shop")[..] else { panic!("one address") };
    lab.namespace("shop").opted_in = false;
    let cooling = |lab: &Lab| lab.journal.claims.get(&address).is_some_and(Claim::is_cooling);
    while !cooling(&lab) {
        lab.describe();
        let action = lab.plan().actions.remove(0);
        let seen = (lab.world.clone(), lab.journal.clone());
        lab.execute(&action, (&seen.0, &seen.1), Outcome::Done);
    }
    // drawn: not before it has cooled down; requested by name: at once
    let uid = lab.world.namespaces["shop"].uid.clone();
    lab.add_namespace("twin", None);
    lab.namespace("twin").uid = uid;
    lab.describe();
    let drawn = lab.plan().actions.into_iter().find_map(|action| match action {
        Action::CreateClaim(write) => Some(write.address),
        Action::UpdateClaim(_)
        | Action::ConfirmClaim(_)
        | Action::DeleteClaim(_)
        | Action::Call(_)
        | Action::SetHostSubnet { .. }
        | Action::SetNetNamespace { .. }
        | Action::AnnotateNamespace { .. } => None,
    });
    assert!(drawn.is_some_and(|drawn| drawn != address));
    lab.namespace("twin").egressips = Some(address.to_string().into());
    let started = lab.world.now;
    lab.settle();
    assert_eq!(lab.addresses("twin"), BTreeSet::from([address]));
    assert!(lab.world.now < started + 120_000);
}

#[test]
fn network_faults_stop_the_assignment_before_any_call() {
    let mut lab = Lab::new(&[2], 10);
    lab.add_namespace("shop", None);
    lab.add_namespace("blog", None);
    lab.world.net_namespaces.remove("shop");
    let plan = lab.settle();
    assert_eq!(Lab::reasons(&plan), [Reason::NetNamespaceMissing]);
    assert!(lab.world.namespaces["shop"].status.as_deref().unwrap().starts_with("NetNamespaceMissing: "));
    let netid = lab.world.net_namespaces["blog"].netid;
    lab.world.net_namespaces.insert("shop".into(), NetNamespace { netid, ..NetNamespace::default() });
    let plan = lab.settle();
    assert_eq!(Lab::reasons(&plan), [Reason::SharedNetId; 2]);
    assert_eq!((lab.served("shop").len(), lab.served("blog").len()), (0, 1), "what is in service stays");
    lab.net_namespace("shop").netid = netid + 1;
    assert_eq!(lab.settle().unmet, []);
    assert_eq!(lab.served("shop").len(), 1);
    assert_eq!(lab.world.namespaces["shop"].status, None);
}

#[test]
fn two_namespaces_in_one_second_spread_over_nodes() {
    let mut lab = Lab::new(&[3, 3], 10);
    for name in ["blog", "mail", "shop"] {
        lab.add_namespace(name, None);
    }
    lab.describe();
    let plan = lab.plan();
    let nodes: BTreeSet<String> = plan
        .actions
        .iter()
        .map(|action| format!("{action:?}"))
        .filter_map(|text| Some(text.split_once("node: \"")?.1.split_once('"')?.0.to_owned()))
        .collect();
    assert_eq!(nodes.len(), 6, "each node is chosen once: {nodes:?}");
}

#[test]
fn ties_are_broken_by_seed() {
    let chosen = |seed: u64| {
        let mut lab = Lab::new(&[8], 10);
        lab.world.seed = seed;
        lab.add_namespace("shop", None);
        lab.settle();
        lab.served("shop")
    };
    assert_eq!(chosen(3), chosen(3));
    assert!((0..8).map(chosen).collect::<BTreeSet<_>>().len() > 3);
}

#[test]
fn two_subnets_in_one_zone_both_serve() {
    let mut lab = Lab::new(&[1], 10);
    lab.cloud.subnets.insert("subnet-a2".into(), ("a".into(), "10.0.9.0/28".parse().unwrap()));
    lab.add_node("a2", "subnet-a2", 10);
    lab.add_namespace("blog", None);
    lab.add_namespace("shop", None);
    lab.settle();
    let nodes: BTreeSet<NodeName> = ["blog", "shop"].iter().map(|name| lab.served(name)[0].1.clone()).collect();
    assert_eq!(nodes.len(), 2, "one address each, on both nodes");
    lab.add_namespace("list", Some("10.0.9.9"));
    lab.settle();
    assert_eq!(&*lab.served("list")[0].1, "a2");
}

#[test]
fn aws_reserved_and_load_balancer_addresses_are_not_chosen() {
    let mut lab = Lab::new(&[], 10);
    lab.cloud.subnets.insert("subnet-a".into(), ("a".into(), "10.0.0.0/28".parse().unwrap()));
    lab.add_node("a1", "subnet-a", 50);
    lab.cloud.strangers.extend((6..14).map(|last| std::net::Ipv4Addr::new(10, 0, 0, last)));
    lab.add_namespace("shop", None);
    lab.settle();
    let free = |lab: &Lab| lab.addresses("shop").iter().all(|address| [5, 14].contains(&address.octets()[3]));
    assert!(free(&lab) && lab.served("shop").len() == 1);
    lab.add_namespace("blog", None);
    lab.add_namespace("mail", None);
    let plan = lab.settle();
    assert_eq!(Lab::reasons(&plan), [Reason::SubnetFull], "{plan:#?}");
}

#[test]
fn full_interface_is_refused_before_netnamespace_changes() {
    let mut lab = Lab::new(&[1], 2);
    lab.add_namespace("blog", None);
    lab.settle();
    lab.log.clear();
    lab.add_namespace("shop", None);
    let plan = lab.settle();
    assert_eq!(Lab::reasons(&plan), [Reason::NoCapacity]);
    assert!(plan.unmet[0].message.contains("add nodes or use larger instances"));
    assert_eq!(lab.log.len(), 1, "only the status is written: {:?}", lab.log);
}
