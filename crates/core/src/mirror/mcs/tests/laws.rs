//! What holds for every clusterset.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::drawn::{REFUSED, exports, known_exports, views};
use super::lab::{Lab, View, remote};
use crate::mirror::mcs::*;
use crate::mirror::{NamespacePattern, RemoteName, ServiceName, SliceContent, SourceSlices, Sync};

type Law = fn(&View, &ServiceName, &Decision) -> bool;

const LAWS: [(&str, Law); 7] = [
    ("an import loses nothing while a cluster of its status is not known", |view, name, decision| {
        let Some(import) = view.set.local.imports.get(name) else { return true };
        let is_unknown = |remote: &RemoteMember| remote.sync == Sync::Listing || remote.paused;
        let mut remotes = view.set.remotes.values();
        if !remotes.any(|remote| is_unknown(remote) && import.clusters.contains(&remote.rules.cluster_id)) {
            return true;
        }
        let keeps_ports = match &decision.import {
            Action::None => true,
            Action::Update(want) => want.spec.ports.starts_with(&import.spec.ports),
            Action::Create(_) | Action::Recreate | Action::Delete => false,
        };
        keeps_ports && !matches!(decision.derived, Action::Delete | Action::Recreate)
    }),
    ("slices of a cluster that is not known are neither deleted nor changed", |view, name, decision| {
        let Some(slices) = view.set.local.slices.get(name) else { return true };
        let is_unknown = |remote: &RemoteName| match view.set.remotes.get(remote) {
            Some(remote) => remote.sync == Sync::Listing || remote.paused,
            None => !remote.is_empty() && !view.here.gone_remotes.contains(&*format!("uid-{remote}")),
        };
        slices.iter().filter(|(_, recorded)| is_unknown(&recorded.slice.remote)).all(|(name, recorded)| match decision
            .slices
            .get(name)
        {
            None => true,
            Some(ImportSliceAction::Write(want)) => want.slice.content == recorded.slice.content,
            Some(ImportSliceAction::Delete) => false,
        })
    }),
    ("an import is deleted only if it is exported nowhere", |_, _, decision| {
        decision.import != Action::Delete || decision.exporters.is_empty()
    }),
    ("nothing is made in a protected or missing namespace", |view, name, decision| {
        let is_made = matches!(decision.import, Action::Create(_)) || matches!(decision.derived, Action::Create(_));
        !is_made || view.here.namespaces.contains_key(&name.namespace) && !name.namespace.starts_with("kube-")
    }),
    ("no remote endpoint is special or local", |_, _, decision| {
        written(decision).iter().filter(|want| !want.slice.remote.is_empty()).all(|want| {
            let addresses = want.slice.content.endpoints.iter().map(|endpoint| endpoint.address.to_string());
            want.nodes.is_empty() && addresses.into_iter().all(|address| !REFUSED.contains(&&*address))
        })
    }),
    ("there are as many addresses as families, or none, and none for a headless import", |_, _, decision| {
        let (Action::Create(want) | Action::Update(want)) = &decision.import else { return true };
        let ImportSpec { ips, families, import_type, .. } = &want.spec;
        ips.is_empty() || ips.len() == families.len() && *import_type == ImportType::ClusterSetIp
    }),
    ("an endpoint is in one slice of its cluster and port set", |_, _, decision| {
        let mut seen = BTreeSet::new();
        written(decision).iter().all(|want| {
            let SliceContent { ports, endpoints, .. } = &*want.slice.content;
            let key = |address| (want.slice.remote.clone(), ports.clone(), address);
            endpoints.iter().all(|endpoint| seen.insert(key(endpoint.address)))
        })
    }),
];

fn written(decision: &Decision) -> Vec<&DesiredImportSlice> {
    let actions = decision.slices.values().filter_map(|action| match action {
        ImportSliceAction::Write(want) => Some(&**want),
        ImportSliceAction::Delete => None,
    });
    actions.collect()
}

/// What clusters must agree on.
fn shared(view: &View) -> BTreeMap<&ServiceName, (ImportSpec, &RecordedImport)> {
    let imports = view.set.local.imports.iter();
    imports.map(|(name, import)| (name, (ImportSpec { ips: Vec::new(), ..import.spec.clone() }, import))).collect()
}

/// Contents of all slices with the cluster they are from, whatever the slices are called.
fn contents(view: &View) -> Vec<(&ServiceName, &ClusterId, String)> {
    let slices = view.set.local.slices.iter();
    let slices = slices.flat_map(|(name, slices)| slices.values().map(move |slice| (name, slice)));
    let mut contents: Vec<_> = slices
        .map(|(name, slice)| (name, &slice.slice.cluster_id, format!("{:?} {:?}", slice.slice.content, slice.nodes)))
        .collect();
    contents.sort();
    contents
}

/// The same exports with slices, endpoints and ports of slices in another order.
fn reordered(mut exports: Exports) -> Exports {
    if let SourceSlices::Read(slices) = &mut exports.slices {
        for of_service in slices.values_mut() {
            let mut all: Vec<_> = std::mem::take(of_service).into_values().collect();
            for slice in &mut all {
                slice.endpoints.reverse();
                slice.ports.reverse();
            }
            let named = all.into_iter().rev().enumerate();
            *of_service = named.map(|(number, slice)| (Arc::from(format!("r{number}")), slice)).collect();
        }
    }
    exports
}

proptest! {
    #[test]
    fn every_plan_keeps_every_law(view in views()) {
        for (name, decision) in view.plan() {
            for (law, holds) in LAWS {
                prop_assert!(holds(&view, &name, &decision), "broken for {name}: {law}\n{decision:#?}");
            }
        }
    }

    #[test]
    fn carried_out_decisions_end_and_leave_nothing_behind(mut view in views()) {
        view.settle();
        prop_assert!(view.plan().values().all(Decision::is_settled));
        let local = &view.set.local;
        for (name, slices) in &local.slices {
            let has_import = local.imports.contains_key(name);
            let is_kept = |slice: &RecordedImportSlice| {
                let remote = view.set.remotes.get(&slice.slice.remote);
                remote.is_none_or(|remote| remote.paused || remote.sync != Sync::Complete)
            };
            prop_assert!(has_import || slices.values().all(is_kept), "slices without an import: {name}");
            let sorted = |slice: &RecordedImportSlice| slice.slice.content.endpoints.is_sorted();
            prop_assert!(slices.values().all(|slice| sorted(slice) && slice.slice.content.endpoints.len() <= 2));
        }
    }

    #[test]
    fn clusters_that_know_the_same_exports_agree([one, other, third] in known_exports()) {
        let lab = Lab::new([("a", one), ("b", other), ("c", third)]);
        let mut conflicts: BTreeMap<&ServiceName, &Condition> = BTreeMap::new();
        for view in lab.0.values() {
            let (is, expected) = (shared(view), shared(lab.view("a")));
            prop_assert_eq!(is.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
            for (name, (spec, import)) in is {
                let (expected_spec, expected) = &expected[name];
                prop_assert_eq!(&spec, expected_spec);
                prop_assert_eq!((&import.exported, &import.clusters), (&expected.exported, &expected.clusters));
                if import.clusters.contains(&view.set.local.cluster_id) {
                    let conflict = &view.set.local.statuses[name].conflict;
                    prop_assert_eq!(*conflicts.entry(name).or_insert(conflict), conflict, "told everywhere alike");
                }
            }
        }
    }

    #[test]
    fn the_order_of_what_is_read_does_not_matter([own, east, west] in known_exports()) {
        let mut view = View::new("here", own.clone(), [remote("east", east.clone()), remote("west", west.clone())]);
        let mut other = View::new("here", reordered(own), []);
        // Names of remotes are local; in this order west comes first.
        other.set.remotes.insert("1".into(), remote("west", reordered(west)));
        other.set.remotes.insert("2".into(), remote("east", reordered(east)));
        view.settle();
        other.settle();
        prop_assert_eq!(&view.set.local.imports, &other.set.local.imports);
        prop_assert_eq!(&view.set.local.derived, &other.set.local.derived);
        prop_assert_eq!(&view.set.local.statuses, &other.set.local.statuses);
        prop_assert_eq!(contents(&view), contents(&other));
    }

    #[test]
    fn a_remote_that_is_refused_changes_nothing([own, east, _] in known_exports(), hostile in exports()) {
        let mut without = View::new("here", own, [remote("east", east)]);
        let mut with = without.clone();
        // The only other namespace is protected.
        let mut denied = remote("hostile", hostile);
        denied.rules.namespaces.deny = ["shop", "nowhere"].map(NamespacePattern::new).to_vec();
        with.set.remotes.insert("hostile".into(), denied);
        without.settle();
        with.settle();
        prop_assert_eq!(with.set.local, without.set.local);
    }

    #[test]
    fn a_remote_with_refused_addresses_gets_no_endpoint([own, east, mut hostile] in known_exports()) {
        let mut without = View::new("here", own, [remote("east", east)]);
        let mut with = without.clone();
        if let SourceSlices::Read(slices) = &mut hostile.slices {
            let slices = slices.values_mut().flat_map(BTreeMap::values_mut);
            let endpoints = slices.flat_map(|slice| &mut slice.endpoints);
            for (number, endpoint) in endpoints.enumerate() {
                endpoint.endpoint.address = REFUSED[number % REFUSED.len()].parse().unwrap();
            }
        }
        // Younger than all others, so that it decides nothing where they export.
        hostile.exports.values_mut().for_each(|export| export.created = 9);
        with.set.remotes.insert("hostile".into(), remote("hostile", hostile));
        without.settle();
        with.settle();
        let own = |view: &View| -> Vec<String> {
            let others = contents(view).into_iter().filter(|(_, id, _)| &***id != "hostile");
            others.map(|one| format!("{one:?}")).collect()
        };
        prop_assert_eq!(own(&with), own(&without));
        let hostile = with.set.local.slices.values().flat_map(BTreeMap::values);
        let mut hostile = hostile.filter(|slice| &*slice.slice.cluster_id == "hostile");
        prop_assert!(hostile.all(|slice| slice.slice.content.endpoints.is_empty()));
    }
}
