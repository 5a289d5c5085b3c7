//! Remotes that are not known well enough, out of contact, or gone: one case for each rule.

use std::collections::BTreeSet;

use super::lab::{View, both, exports, importer, port, remote, service, slices_of, web};
use crate::mirror::mcs::*;
use crate::mirror::{Protocol, Reason, SourceSlices, StalePolicy, Sync};

#[test]
fn a_remote_that_is_not_listed_yet_takes_nothing_away() {
    let mut other = service();
    other.spec.ports.push(port("stcp", Protocol::Sctp, 142));
    let mut view = View::new("west", exports(2, service(), 2), [remote("east", exports(1, other, 1))]);
    view.settle();
    for change in [
        (|east: &mut RemoteMember| east.sync = Sync::Listing) as fn(&mut RemoteMember),
        |east| east.paused = true,
        |east| east.sync = Sync::Broken,
    ] {
        let mut restarted = view.clone();
        let east = restarted.remote("east");
        east.exports = Exports::default();
        change(east);
        let decision = restarted.decide();
        assert_eq!(decision.outcome, Outcome::Held(BTreeSet::from(["east".into()])));
        assert!(decision.is_settled(), "a restart changes nothing: {decision:#?}");
        restarted.set.local.exports.exports.clear();
        restarted.settle();
        assert_eq!(restarted.import().unwrap().clusters, BTreeSet::from(["east".into()]));
        assert_eq!((restarted.spec().ports.len(), restarted.addresses("east").len()), (3, 2));
        assert!(restarted.addresses("west").is_empty(), "what is known is followed");
        restarted.remote("east").sync = Sync::Complete;
        restarted.remote("east").paused = false;
        restarted.settle();
        assert!(restarted.import().is_none() && restarted.slices().is_empty());
    }
}

#[test]
fn while_a_remote_is_not_known_ports_of_the_others_are_added() {
    let mut view = both();
    view.remote("east").sync = Sync::Listing;
    view.own().spec.ports.push(port("new", Protocol::Tcp, 1000));
    assert_eq!(view.settle().spec().ports.len(), 3);
}

#[test]
fn an_import_without_a_status_waits_until_all_remotes_are_known() {
    let mut view = importer();
    view.set.local.imports.get_mut(&web()).unwrap().clusters.clear();
    view.set.local.slices.clear();
    view.remote("east").sync = Sync::Listing;
    let decision = view.decide();
    assert_eq!(decision.outcome, Outcome::NotImported(NotImported::NotKnown));
    assert!(decision.is_settled());
    view.set.local.imports.get_mut(&web()).unwrap().clusters.insert("west".into());
    assert_eq!(view.decide().import, Action::Delete, "a remote that took no part holds nothing up");
}

#[test]
fn a_remote_that_is_gone_drops_out_and_one_that_is_merely_missing_does_not() {
    let mut view = importer();
    view.set.remotes.clear();
    let decision = view.decide();
    assert_eq!(decision.outcome, Outcome::Held(BTreeSet::from(["east".into()])));
    assert!(decision.is_settled());
    view.here.gone_remotes.insert("uid-east".into());
    view.settle();
    assert!(view.import().is_none() && view.derived().is_none() && view.slices().is_empty());
}

#[test]
fn the_stale_policy_decides_on_the_endpoints_of_its_cluster_alone() {
    for (policy, expected) in [
        (StalePolicy::Keep, vec![true, true]),
        (StalePolicy::NotReady, vec![false, false]),
        (StalePolicy::Remove, vec![]),
    ] {
        let mut view = both();
        let east = view.remote("east");
        (east.stale, east.sync, east.rules.stale) = (true, Sync::Broken, policy);
        slices_of(&mut east.exports).clear();
        view.settle();
        let ready = |cluster: &str| -> Vec<bool> {
            let slices = view.slices().into_iter().filter(|slice| &*slice.slice.cluster_id == cluster);
            slices.flat_map(|slice| &slice.slice.content.endpoints).map(|one| one.conditions.ready).collect()
        };
        assert_eq!(ready("east"), expected, "{policy:?}");
        assert_eq!(ready("west"), [true, true]);
        assert!(view.import().unwrap().clusters.contains("east"));
        assert_eq!(view.reasons(), [Reason::RemoteStale]);
    }
}

#[test]
fn slices_that_cannot_be_read_stay_as_they_are() {
    for (unread, reason) in
        [(SourceSlices::Unread, vec![]), (SourceSlices::Forbidden, vec![Reason::EndpointSlicesForbidden])]
    {
        let mut view = importer();
        view.remote("east").exports.slices = unread;
        assert!(view.decide().is_settled());
        assert_eq!(view.reasons(), reason);
    }
}
