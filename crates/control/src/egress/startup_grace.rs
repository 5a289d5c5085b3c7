//! The first moment of a term. On a fresh cluster nodes get ready one after another, and an address stays where it was
//! placed first: it pays to wait a little for nodes that are about to be ready.

use portolan_api::egress::Phase;
use portolan_core::net::AddressSet;

use super::model::{checked, each_policy, phase};
use super::observe::{Cache, says_ready};
use super::validate::{Families, labels};

/// True while something has no place yet and a node that could be its place is about to be ready.
pub(super) fn worth_waiting_for(cache: &Cache, families: Families) -> bool {
    unplaced(cache) && nodes_are_coming(cache, families)
}

fn unplaced(cache: &Cache) -> bool {
    let mut unplaced = false;
    each_policy(cache, |view| unplaced |= view.granted().is_none());
    cache
        .claims
        .for_each(|_, claim| unplaced |= claim.spec.egress.as_ref().is_some_and(|record| record.node.is_none()));
    unplaced
}

/// Nodes that a gateway selects and that say they are ready, but whose tunnel does not stand yet.
fn nodes_are_coming(cache: &Cache, families: Families) -> bool {
    let gateways = checked(cache, families, &AddressSet::default());
    let mut coming = false;
    cache.nodes.for_each(|key, node| {
        coming |= says_ready(node) && matches!(phase(cache, &key.name), Phase::Pending | Phase::Init) && {
            let labels = labels(&node.metadata);
            gateways.by_name.values().any(|checked| checked.gateway.selector.matches(&labels))
        };
    });
    coming
}
