//! What an import gets here: addresses, the derived Service and EndpointSlices. One case for each rule.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::lab::{BOTH, View, both, endpoint, exports, importer, remote, service, slice, slices_of, web};
use crate::mirror::mcs::*;
use crate::mirror::{Namespace, Reason};
use crate::net::Family;

#[test]
fn an_import_needs_a_namespace_and_is_not_made_over_that_of_somebody_else() {
    let mut view = View::new("west", Exports::default(), [remote("east", exports(1, service(), 1))]);
    let shop = view.here.namespaces.remove("shop").unwrap();
    let outcome = |view: &View| (view.decide().outcome, view.decide().is_settled());
    assert_eq!(outcome(&view), (Outcome::NotImported(NotImported::NamespaceMissing), true));
    view.here.namespaces.insert("shop".into(), Namespace { terminating: true, ..shop.clone() });
    assert_eq!(outcome(&view), (Outcome::NotImported(NotImported::NamespaceTerminating), true));
    view.here.namespaces.insert("shop".into(), shop);
    view.set.local.imports.insert(web(), RecordedImport::default());
    assert_eq!(outcome(&view), (Outcome::NotImported(NotImported::NameConflict), true));
    assert_eq!(view.reasons(), [Reason::NameConflict]);
}

#[test]
fn the_service_of_somebody_else_is_not_taken() {
    let mut view = View::new("west", Exports::default(), [remote("east", exports(1, service(), 1))]);
    let foreign = RecordedDerived { cluster_ips: vec!["10.96.0.9".parse().unwrap()], ..RecordedDerived::default() };
    view.set.local.derived.insert(web(), foreign.clone());
    view.settle();
    assert_eq!(view.derived(), Some(&foreign));
    assert!(view.spec().ips.is_empty() && view.slices().is_empty());
    assert_eq!(view.import().unwrap().ready.as_ref().unwrap().reason, "Pending");
    assert_eq!(view.reasons(), [Reason::NameConflict]);
}

#[test]
fn special_local_and_disallowed_addresses_are_left_out_and_reported() {
    let mut view = importer();
    let east = view.remote("east");
    east.rules.allowed = vec!["10.0.0.0/8".parse().unwrap()];
    let addresses = ["10.1.0.9", "127.0.0.1", "169.254.169.254", "10.96.0.1", "192.0.2.1"];
    slices_of(&mut east.exports).insert("v4".into(), slice(&addresses));
    slices_of(&mut east.exports).insert("v6".into(), slice(&["::ffff:10.1.0.1"]));
    view.settle();
    assert_eq!(view.addresses("east"), BTreeSet::from(["10.1.0.9".into()]));
    assert_eq!(view.reasons(), [Reason::AddressNotAllowed]);
}

#[test]
fn endpoint_ports_below_the_node_port_range_are_used() {
    let view = importer();
    assert_eq!(view.set.remotes["east"].rules.ports, (30000, 32767));
    assert!(view.slices().iter().all(|slice| slice.slice.content.ports.iter().all(|port| port.port == 8042)));
}

#[test]
fn own_slices_keep_nodes_and_those_of_other_clusters_have_none() {
    let mut view = both();
    for slice in view.slices() {
        let is_own = slice.slice.remote.is_empty();
        assert_eq!(is_own, &*slice.slice.cluster_id == "west");
        assert_eq!(slice.nodes.len(), usize::from(is_own));
    }
    slices_of(&mut view.set.local.exports).get_mut("v4").unwrap().endpoints = vec![endpoint("10.2.0.1", Some("n2"))];
    let decision = view.decide();
    assert_eq!(decision.slices.len(), 1, "a moved endpoint writes its slice");
    let node = view.settle().slices().into_iter().find_map(|slice| slice.nodes.get(&"10.2.0.1".parse().unwrap()));
    assert_eq!(node.map(|node| &**node), Some("n2"));
}

#[test]
fn local_traffic_only_reaches_the_derived_service_where_the_service_is_exported() {
    let local_only = ExportedService { internal_traffic_policy: InternalTrafficPolicy::Local, ..service() };
    for (own, expected) in [
        (Exports::default(), InternalTrafficPolicy::Cluster),
        (exports(2, local_only.clone(), 2), InternalTrafficPolicy::Local),
    ] {
        let mut view = View::new("west", own, [remote("east", exports(1, local_only.clone(), 1))]);
        assert_eq!(view.settle().spec().internal_traffic_policy, InternalTrafficPolicy::Local);
        assert_eq!(view.derived().unwrap().spec.internal_traffic_policy, expected);
    }
}

#[test]
fn a_family_that_services_cannot_have_here_is_left_out() {
    let mut view = importer();
    view.here.families = Some(BTreeSet::from([Family::V4]));
    view.settle();
    assert_eq!((view.spec().families.clone(), view.spec().ips.len()), (vec![Family::V4], 1));
    assert_eq!(view.addresses("east"), BTreeSet::from(["10.1.0.1".into()]));
    view.remote("east").exports.services.get_mut(&web()).unwrap().spec.families = vec![Family::V6];
    view.settle();
    let ready = view.import().unwrap().ready.clone().unwrap();
    assert_eq!((ready.is_true, &*ready.reason), (false, "IPFamilyNotSupported"));
    assert!(view.derived().is_none() && view.spec().ips.is_empty());
}

#[test]
fn addresses_appear_when_the_derived_service_has_them() {
    let mut view = View::new("west", Exports::default(), [remote("east", exports(1, service(), 1))]);
    let step = |view: &mut View| {
        let decision = view.decide();
        view.carry_out(&web(), decision);
    };
    step(&mut view);
    assert!(view.derived().is_none(), "the import is made first, as it owns the Service");
    step(&mut view);
    assert_eq!(view.import().unwrap().ready.as_ref().unwrap().reason, "Pending");
    let first_only = &mut view.set.local.derived.get_mut(&web()).unwrap().cluster_ips;
    let second = first_only.pop().unwrap();
    step(&mut view);
    assert_eq!((view.spec().families.len(), view.spec().ips.len()), (1, 1), "families and addresses go together");
    assert_eq!(view.import().unwrap().ready.as_ref().unwrap().reason, "Pending");
    view.set.local.derived.get_mut(&web()).unwrap().cluster_ips.push(second);
    view.settle();
    assert_eq!(view.spec().families, BOTH);
    assert_eq!(view.import().unwrap().ready.as_ref().unwrap().reason, "Ready");
}

#[test]
fn another_first_family_makes_the_derived_service_anew() {
    let mut view = importer();
    view.remote("east").exports.services.get_mut(&web()).unwrap().spec.families.reverse();
    let decision = view.decide();
    assert_eq!(decision.derived, Action::Recreate);
    assert!(decision.slices.is_empty(), "they wait for the Service that will own them");
    view.settle();
    assert_eq!(view.spec().ips[0], "fd96::7".parse::<IpAddr>().unwrap());
    assert!(view.slices().iter().all(|slice| slice.slice.service_uid == view.derived().unwrap().uid));
}

#[test]
fn hand_edits_are_repaired() {
    let mut view = importer();
    let settled = view.clone();
    view.set.local.imports.get_mut(&web()).unwrap().spec.ports.clear();
    view.set.local.derived.get_mut(&web()).unwrap().spec.session_affinity = None;
    view.set.local.slices.get_mut(&web()).unwrap().values_mut().for_each(|slice| slice.service_name = None);
    assert_eq!(view.settle().set, settled.set);
}

#[test]
fn one_endpoint_more_writes_one_slice() {
    let mut view = importer();
    slices_of(&mut view.remote("east").exports).get_mut("v4").unwrap().endpoints.push(endpoint("10.1.0.2", None));
    let decision = view.decide();
    assert_eq!(decision.slices.len(), 1);
    assert_eq!((decision.import, decision.derived, decision.import_status), (Action::None, Action::None, None));
}
