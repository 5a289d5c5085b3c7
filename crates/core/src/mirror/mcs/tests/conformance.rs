//! The behaviours that the conformance suite of the MCS API checks, one test each.

use std::collections::BTreeSet;

use super::lab::{BOTH, Lab, View, exports, headless, port, service, web};
use crate::mirror::mcs::*;
use crate::mirror::{Protocol, ServiceType, SourceSlices};
use crate::net::Family;
use crate::select::Labels;

fn one_exporter(service: ExportedService) -> Lab {
    Lab::new([("east", exports(1, service, 1)), ("west", Exports::default())])
}

/// East is older.
fn two_exporters(east: ExportedService, west: ExportedService) -> Lab {
    Lab::new([("east", exports(1, east, 1)), ("west", exports(2, west, 2))])
}

fn conflict(lab: &Lab, cluster_id: &str) -> String {
    let conflict = &lab.view(cluster_id).status().conflict;
    assert_eq!(conflict.is_true, conflict.reason != "NoConflicts");
    conflict.reason.clone().into_owned()
}

fn ports(lab: &Lab, cluster_id: &str) -> Vec<(String, Protocol, u16)> {
    let ports = &lab.view(cluster_id).spec().ports;
    ports.iter().map(|port| (port.name.to_string(), port.protocol, port.port)).collect()
}

#[test]
fn an_import_lives_while_one_exporter_remains() {
    let mut lab = two_exporters(service(), service());
    let clusters = |lab: &Lab| lab.view("east").import().map(|import| import.clusters.clone());
    assert_eq!(clusters(&lab), Some(BTreeSet::from(["east".into(), "west".into()])));
    lab.unexport("east");
    assert_eq!(clusters(&lab), Some(BTreeSet::from(["west".into()])));
    lab.unexport("west");
    assert_eq!(clusters(&lab), None);
}

#[test]
fn a_cluster_ip_export_is_valid_and_imported_everywhere_until_it_is_deleted() {
    let mut lab = one_exporter(service());
    let status = lab.view("east").status();
    assert_eq!((status.valid.is_true, &*status.valid.reason), (true, "Valid"));
    assert_eq!((status.ready.is_true, &*status.ready.reason), (true, "Ready"));
    for cluster in ["east", "west"] {
        let view = lab.view(cluster);
        assert_eq!(view.spec().import_type, ImportType::ClusterSetIp);
        assert_eq!(view.import().unwrap().ready.as_ref().unwrap().reason, "Ready");
    }
    lab.unexport("east");
    for cluster in ["east", "west"] {
        let local = &lab.view(cluster).set.local;
        assert!(local.imports.is_empty() && local.derived.is_empty() && local.slices.is_empty(), "{cluster}");
    }
}

#[test]
fn session_affinity_and_its_timeout_are_copied() {
    let lab = one_exporter(service());
    for cluster in ["east", "west"] {
        assert_eq!(lab.view(cluster).spec().session_affinity, Some(10));
        assert_eq!(lab.view(cluster).derived().unwrap().spec.session_affinity, Some(10));
    }
}

#[test]
fn the_internal_traffic_policy_is_copied() {
    for policy in [InternalTrafficPolicy::Cluster, InternalTrafficPolicy::Local] {
        let lab = one_exporter(ExportedService { internal_traffic_policy: policy, ..service() });
        assert_eq!(lab.view("east").spec().internal_traffic_policy, policy);
        assert_eq!(lab.view("west").spec().internal_traffic_policy, policy);
    }
}

#[test]
fn the_traffic_distribution_is_copied() {
    let lab = one_exporter(ExportedService { traffic_distribution: Some("PreferClose".into()), ..service() });
    for cluster in ["east", "west"] {
        assert_eq!(lab.view(cluster).spec().traffic_distribution.as_deref(), Some("PreferClose"));
        assert_eq!(lab.view(cluster).derived().unwrap().spec.traffic_distribution.as_deref(), Some("PreferClose"));
    }
}

#[test]
fn there_is_one_address_per_family_in_the_order_of_the_families() {
    for families in [vec![Family::V4], vec![Family::V6], BOTH.to_vec(), vec![Family::V6, Family::V4]] {
        let mut exported = service();
        exported.spec.families.clone_from(&families);
        let lab = one_exporter(exported);
        let spec = lab.view("west").spec();
        assert_eq!(spec.families, families);
        assert_eq!(spec.ips.iter().map(|ip| Family::of(*ip)).collect::<Vec<_>>(), families);
    }
}

#[test]
fn ports_are_those_of_the_service_also_with_one_number_on_tcp_and_udp() {
    let lab = one_exporter(service());
    let expected = [("tcp".to_owned(), Protocol::Tcp, 42), ("udp".to_owned(), Protocol::Udp, 42)];
    assert_eq!(ports(&lab, "east"), expected);
    assert_eq!(ports(&lab, "west"), expected);
}

#[test]
fn two_exporters_make_the_union_of_their_ports_and_a_conflict_on_both() {
    let mut other = service();
    other.spec.ports = vec![port("tcp", Protocol::Tcp, 42), port("stcp", Protocol::Sctp, 142)];
    let lab = two_exporters(service(), other);
    for cluster in ["east", "west"] {
        let names: Vec<String> = ports(&lab, cluster).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["tcp", "udp", "stcp"]);
        assert_eq!(conflict(&lab, cluster), "PortConflict");
    }
    let message = &lab.view("west").status().conflict.message;
    assert_eq!(
        message,
        "ports differ: east (the oldest export, which decides) has udp 42/UDP, west has stcp 142/SCTP: make them equal"
    );
}

#[test]
fn of_two_numbers_for_a_port_the_oldest_wins_with_a_conflict_on_both() {
    let mut other = service();
    other.spec.ports = vec![port("tcp", Protocol::Tcp, 43)];
    let lab = two_exporters(service(), other);
    for cluster in ["east", "west"] {
        assert_eq!(
            ports(&lab, cluster),
            [("tcp".to_owned(), Protocol::Tcp, 42), ("udp".to_owned(), Protocol::Udp, 42)]
        );
        assert_eq!(conflict(&lab, cluster), "PortConflict");
    }
}

#[test]
fn a_headless_export_makes_headless_imports_until_it_is_deleted() {
    let mut lab = one_exporter(headless());
    for cluster in ["east", "west"] {
        assert_eq!(lab.view(cluster).spec().import_type, ImportType::Headless);
        assert!(lab.view(cluster).slices().iter().all(|slice| slice.service_name.is_none()));
    }
    lab.unexport("east");
    for cluster in ["east", "west"] {
        let local = &lab.view(cluster).set.local;
        assert!(local.imports.is_empty() && local.slices.is_empty(), "{cluster}");
    }
}

#[test]
fn a_headless_import_never_has_addresses() {
    let mut lab = one_exporter(service());
    assert_eq!(lab.view("west").spec().ips.len(), 2);
    lab.exports("east").services.insert(web(), headless());
    lab.settle();
    for cluster in ["east", "west"] {
        assert!(lab.view(cluster).spec().ips.is_empty() && lab.view(cluster).derived().is_none());
        assert_eq!(lab.view(cluster).import().unwrap().derived, None);
    }
}

#[test]
fn an_external_name_is_not_valid_and_not_imported() {
    let mut external = service();
    external.spec.service_type = ServiceType::ExternalName;
    let lab = one_exporter(external);
    let status = lab.view("east").status();
    assert_eq!((status.valid.is_true, &*status.valid.reason), (false, "InvalidServiceType"));
    assert!(lab.view("east").import().is_none() && lab.view("west").import().is_none());
    assert_eq!(lab.view("west").decide().outcome, Outcome::NotImported(NotImported::NotExported));
}

#[test]
fn headless_against_cluster_ip_takes_the_type_of_the_oldest_with_a_conflict_on_both() {
    for (east, west, expected) in
        [(service(), headless(), ImportType::ClusterSetIp), (headless(), service(), ImportType::Headless)]
    {
        let lab = two_exporters(east, west);
        for cluster in ["east", "west"] {
            assert_eq!(lab.view(cluster).spec().import_type, expected);
            assert_eq!(conflict(&lab, cluster), "TypeConflict");
        }
    }
}

#[test]
fn for_a_service_that_is_not_exported_nothing_is_written() {
    let mut unexported = exports(1, service(), 1);
    unexported.exports.clear();
    let lab = Lab::new([("east", unexported), ("west", Exports::default())]);
    for cluster in ["east", "west"] {
        let View { set, .. } = lab.view(cluster);
        let LocalMember { statuses, imports, derived, slices, .. } = &set.local;
        assert!(statuses.is_empty() && imports.is_empty() && derived.is_empty() && slices.is_empty());
        assert!(lab.view(cluster).plan().is_empty());
    }
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().copied().collect()
}

#[test]
fn only_exported_labels_and_annotations_reach_the_import() {
    let mut lab = one_exporter(service());
    let export = lab.exports("east").exports.get_mut(&web()).unwrap();
    (export.labels, export.annotations) = (labels(&[("team", "a")]), labels(&[("note", "b")]));
    lab.settle();
    let exported = |lab: &Lab| lab.view("west").import().unwrap().exported.clone();
    assert_eq!(
        (exported(&lab).labels, exported(&lab).annotations),
        (labels(&[("team", "a")]), labels(&[("note", "b")]))
    );
    lab.exports("east").exports.get_mut(&web()).unwrap().labels = Labels::default();
    lab.settle();
    assert!(exported(&lab).labels.is_empty(), "what is no longer exported is removed");
}

#[test]
fn of_different_labels_and_annotations_the_oldest_win_with_a_conflict_on_both() {
    let mut lab = two_exporters(service(), service());
    for (cluster, key) in [("east", "one"), ("west", "other")] {
        let export = lab.exports(cluster).exports.get_mut(&web()).unwrap();
        (export.labels, export.annotations) = (labels(&[(key, "true")]), labels(&[(key, "true")]));
    }
    lab.settle();
    for cluster in ["east", "west"] {
        let exported = &lab.view(cluster).import().unwrap().exported;
        assert_eq!(
            (&exported.labels, &exported.annotations),
            (&labels(&[("one", "true")]), &labels(&[("one", "true")]))
        );
        assert_eq!(conflict(&lab, cluster), "LabelsConflict,AnnotationsConflict");
    }
}

#[test]
fn every_cluster_has_slices_of_every_exporter_and_loses_them_with_the_export() {
    let mut lab = two_exporters(service(), service());
    for cluster in ["east", "west"] {
        let view = lab.view(cluster);
        assert_eq!(view.addresses("east"), BTreeSet::from(["10.1.0.1".into(), "fd00:1::1".into()]), "{cluster}");
        assert_eq!(view.addresses("west"), BTreeSet::from(["10.2.0.1".into(), "fd00:2::1".into()]), "{cluster}");
        assert!(view.slices().iter().all(|slice| slice.service_name == Some(derived_name(&web()))));
    }
    lab.unexport("east");
    for cluster in ["east", "west"] {
        assert!(lab.view(cluster).addresses("east").is_empty());
        assert_eq!(lab.view(cluster).addresses("west").len(), 2);
    }
    lab.exports("west").slices = SourceSlices::Read(std::collections::BTreeMap::new());
    lab.settle();
    assert!(lab.view("east").addresses("west").is_empty());
}
