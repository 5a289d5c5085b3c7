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

fn served(nodes: &[usize]) -> Lab {
    let mut lab = Lab::new(nodes, 10);
    lab.add_namespace("shop", None);
    lab.settle();
    lab.log.clear();
    lab
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
    let mut lab = served(&[1]);
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
    let mut lab = served(&[2]);
    lab.world.cloud = None;
    lab.world.nodes.clear();
    assert_eq!(lab.plan(), Plan::default());
    lab.execute(&Action::DeleteClaim([10, 0, 0, 9].into()), (&lab.world.clone(), &lab.journal.clone()), Outcome::Done);
}
