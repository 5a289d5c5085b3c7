//! Which exports count, and what they make together: one case for each rule.

use std::collections::BTreeSet;

use super::lab::{View, both, exports, headless, importer, port, remote, service, web};
use crate::mirror::mcs::*;
use crate::mirror::{NamespacePattern, Protocol, ServiceName, ServiceType};
use crate::net::Family;
use crate::select::Labels;

#[test]
fn of_exports_of_one_age_the_lower_cluster_id_decides() {
    let mut view = View::new("b", exports(1, headless(), 2), [remote("a", exports(1, service(), 1))]);
    assert_eq!(view.decide().exporters, ["a".into(), "b".into()]);
    assert_eq!(view.settle().spec().import_type, ImportType::ClusterSetIp);
    let mut view = View::new("a", exports(1, headless(), 2), [remote("b", exports(1, service(), 1))]);
    assert_eq!(view.settle().spec().import_type, ImportType::Headless);
}

#[test]
fn a_younger_port_gives_way_by_name_and_by_protocol_and_number() {
    let mut west = service();
    west.spec.ports =
        vec![port("tcp", Protocol::Udp, 1), port("other", Protocol::Tcp, 42), port("third", Protocol::Sctp, 42)];
    let mut view = View::new("west", exports(2, west, 2), [remote("east", exports(1, service(), 1))]);
    let names: Vec<String> = view.settle().spec().ports.iter().map(|port| port.name.to_string()).collect();
    assert_eq!(names, ["tcp", "udp", "third"]);
}

#[test]
fn a_port_without_a_name_stays_alone() {
    let mut unnamed = service();
    unnamed.spec.ports = vec![port("", Protocol::Tcp, 80)];
    for (older, younger, expected) in [(unnamed.clone(), service(), vec![""]), (service(), unnamed, vec!["tcp", "udp"])]
    {
        let mut view = View::new("west", exports(2, younger, 2), [remote("east", exports(1, older, 1))]);
        let names: Vec<&str> = view.settle().spec().ports.iter().map(|port| &*port.name).collect();
        assert_eq!(names, expected);
        assert_eq!(view.status().conflict.reason, "PortConflict");
    }
}

#[test]
fn a_slice_carries_a_port_only_if_its_service_has_the_name_protocol_and_number_of_the_import() {
    let mut west = service();
    west.spec.ports = vec![port("tcp", Protocol::Tcp, 43), port("udp", Protocol::Udp, 42)];
    let mut view = View::new("west", exports(2, west, 2), [remote("east", exports(1, service(), 1))]);
    view.settle();
    for slice in view.slices() {
        let names: Vec<&str> = slice.slice.content.ports.iter().map(|port| &*port.name).collect();
        let expected = if &*slice.slice.cluster_id == "west" { vec!["udp"] } else { vec!["tcp", "udp"] };
        assert_eq!(names, expected);
    }
    let ports = &mut view.set.local.exports.services.get_mut(&web()).unwrap().spec.ports;
    ports.truncate(1);
    view.settle();
    assert!(view.addresses("west").is_empty(), "no port in common");
    assert!(view.import().unwrap().clusters.contains("west"), "but it still exports");
}

#[test]
fn every_conflict_has_its_reason_and_says_what_to_do() {
    let mut west = service();
    west.spec.ports.pop();
    west.spec.headless = true;
    west.spec.session_affinity = None;
    west.spec.families = vec![Family::V4];
    west.internal_traffic_policy = InternalTrafficPolicy::Local;
    west.traffic_distribution = Some("PreferClose".into());
    let mut west = exports(2, west, 2);
    let export = west.exports.get_mut(&web()).unwrap();
    export.labels = [("a", "b")].into_iter().collect();
    export.annotations = [("a", "b")].into_iter().collect();
    let mut view = View::new("west", west, [remote("east", exports(1, service(), 1))]);
    let conflict = view.settle().status().conflict.clone();
    assert_eq!(
        conflict.reason,
        "PortConflict,TypeConflict,SessionAffinityConflict,LabelsConflict,AnnotationsConflict,\
         InternalTrafficPolicyConflict,TrafficDistributionConflict,IPFamilyConflict"
    );
    let messages: Vec<&str> = conflict.message.split("; ").collect();
    assert_eq!(
        messages[1],
        "the type is ClusterSetIP in east (the oldest export, which decides) and Headless in west: make them equal"
    );
    assert_eq!(
        messages[7],
        "ipFamilies is IPv4 and IPv6 in east (the oldest export, which decides) and IPv4 in west: make them equal"
    );
    assert!(messages.iter().all(|message| message.ends_with(": make them equal")), "{messages:?}");
    let mut timeout = service();
    timeout.spec.session_affinity = Some(11);
    timeout.spec.families.reverse();
    view.set.local.exports = exports(2, timeout, 2);
    assert_eq!(
        view.settle().status().conflict.reason,
        "SessionAffinityConfigConflict",
        "the order of families is none"
    );
    view.set.local.exports = exports(2, service(), 2);
    assert_eq!(view.settle().status().conflict.reason, "NoConflicts");
}

#[test]
fn an_export_that_cannot_be_says_why() {
    type Change = fn(&mut View);
    let cases: [(Change, [&str; 2], Excluded); 5] = [
        (|view| view.set.local.exports.services.clear(), ["NoService", "Pending"], Excluded::NoService),
        (|view| view.own().deleting = true, ["NoService", "Pending"], Excluded::ServiceDeleting),
        (|view| view.own().is_mirror = true, ["InvalidServiceType", "Failed"], Excluded::Mirror),
        (
            |view| view.own().spec.service_type = ServiceType::ExternalName,
            ["InvalidServiceType", "Failed"],
            Excluded::ExternalName,
        ),
        (
            |view| view.here.protected.push(NamespacePattern::new("shop")),
            ["Valid", "Failed"],
            Excluded::NamespaceProtected,
        ),
    ];
    for (change, expected, why) in cases {
        let mut view = View::new("west", exports(1, service(), 1), []);
        view.settle();
        change(&mut view);
        assert_eq!(view.excluded(), [(None, why)]);
        let ExportStatus { valid, ready, conflict } = view.settle().status();
        assert_eq!([&*valid.reason, &*ready.reason], expected);
        assert!(!ready.is_true && !conflict.is_true && ready.message == why.advice());
        assert!(view.import().is_none() && view.derived().is_none() && view.slices().is_empty());
    }
}

#[test]
fn an_export_that_is_being_deleted_no_longer_counts() {
    let mut view = both();
    view.remote("east").exports.exports.get_mut(&web()).unwrap().deleting = true;
    view.settle();
    assert_eq!(view.import().unwrap().clusters, BTreeSet::from(["west".into()]));
    view.set.local.exports.exports.get_mut(&web()).unwrap().deleting = true;
    let decision = view.decide();
    assert_eq!((decision.import, decision.export_status), (Action::Delete, None));
}

#[test]
fn protected_denied_and_excess_exports_give_no_import() {
    let mut view = importer();
    view.remote("east").rules.namespaces.deny = vec![NamespacePattern::new("sh*")];
    assert_eq!(view.excluded(), [(Some("east".into()), Excluded::NamespaceDenied)]);
    assert!(view.settle().import().is_none());
    let mut view = importer();
    view.here.protected.push(NamespacePattern::new("shop"));
    assert_eq!(view.excluded(), [(Some("east".into()), Excluded::NamespaceProtected)]);
    assert!(view.settle().import().is_none());
    let mut view = importer();
    view.remote("east").rules.limits.services = 1;
    let older = ServiceName::new("shop", "older");
    view.remote("east").exports.exports.insert(older, Export::default());
    assert_eq!(view.excluded(), [(Some("east".into()), Excluded::Limit)]);
    view.remote("east").rules.limits.services = 0;
    assert!(view.settle().import().is_none());
}

#[test]
fn of_two_clusters_with_one_id_the_second_does_not_count() {
    let mut view = both();
    view.remote("east").rules.cluster_id = "west".into();
    assert_eq!(view.excluded(), [(Some("east".into()), Excluded::ClusterIdTaken)]);
    assert_eq!(view.settle().addresses("west"), BTreeSet::from(["10.2.0.1".into(), "fd00:2::1".into()]));
}

#[test]
fn labels_by_which_objects_are_owned_are_not_taken_from_exports() {
    let mut view = importer();
    let keys = ["mirror.portolan.dev/remote", "portolan.dev/use", "tfw.io/barrelman", "kubernetes.io/service-name"];
    let hostile: Labels = keys.into_iter().map(|key| (key, "x")).chain([("app.kubernetes.io/name", "web")]).collect();
    view.remote("east").exports.exports.get_mut(&web()).unwrap().labels = hostile;
    let labels: Vec<String> =
        view.settle().import().unwrap().exported.labels.iter().map(|(key, _)| key.to_owned()).collect();
    assert_eq!(labels, ["app.kubernetes.io/name"]);
}
