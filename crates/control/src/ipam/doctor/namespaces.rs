//! Namespaces: whether they are served, and say so.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use portolan_core::ipam::{AddressList, Namespace, NamespaceName, State};

use super::finding::{Finding, Fix, REPAIR, listed, or_ok};
use super::snapshot::Snapshot;
use crate::runtime::doctor::Check;

const SERVICE: &str = "service";
const ANNOTATIONS: &str = "namespace-annotations";

/// Whoever asks for addresses has some, and whoever does not ask does not seem to.
pub(super) fn service(snapshot: &Snapshot) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for (name, namespace) in snapshot.asking() {
        found.extend(unserved(snapshot, name, namespace).map(Finding::from));
    }
    let not_asking = snapshot.world.namespaces.iter().filter(|(name, one)| snapshot.examines(name) && !one.opted_in);
    for (name, namespace) in not_asking {
        let has_list = namespace.egressips.is_some() || namespace.modified;
        if has_list && snapshot.claims_of(name).next().is_none() {
            let seen = "it has annotations egressips or modified and does not ask for addresses: they are ignored";
            let advice = "add annotation egressip-ipam-operator.redhat-cop.io/egressipam, or remove these";
            found.push(Check::warn(SERVICE, object(name), seen, advice).into());
        }
    }
    or_ok(SERVICE, found, format!("{} Namespaces ask for addresses, and have some", snapshot.asking().count()))
}

fn unserved(snapshot: &Snapshot, name: &NamespaceName, namespace: &Namespace) -> Option<Check> {
    if let Some(status) = &namespace.status {
        let advice = format!("see its addresses: portolan why namespace {name}");
        return Some(Check::fail(SERVICE, object(name), &**status, advice));
    }
    let mut claims = snapshot.claims_of(name).peekable();
    let is_new = claims.peek().is_none();
    if claims.any(|(_, claim)| claim.status.state != State::Releasing) {
        return None;
    }
    let advice = "the operator assigns them: check that it runs with ipam, and see its log";
    Some(if is_new {
        Check::fail(SERVICE, object(name), "it asks for addresses and has none", advice)
    } else {
        Check::warn(SERVICE, object(name), "its addresses are being released, and it asks for some", advice)
    })
}

/// A namespace lists the addresses that the journal has for it.
pub(super) fn annotations(snapshot: &Snapshot) -> Vec<Finding> {
    let found = snapshot.asking().filter_map(|(name, namespace)| wrong_annotation(snapshot, name, namespace));
    let seen = format!("the annotations of {} Namespaces agree with the journal", snapshot.asking().count());
    or_ok(ANNOTATIONS, found.collect(), seen)
}

fn wrong_annotation(snapshot: &Snapshot, name: &NamespaceName, namespace: &Namespace) -> Option<Finding> {
    let claims = || snapshot.claims_of(name).filter(|(_, claim)| claim.status.state != State::Releasing);
    let own: BTreeSet<Ipv4Addr> = claims().map(|(address, _)| address).collect();
    // until then the operator is at work, and the list may be a request
    let is_settled = !own.is_empty() && claims().all(|(_, claim)| claim.status.state == State::Published);
    if !is_settled {
        return None;
    }
    let (seen, advice) = match AddressList::parse(namespace.egressips.as_deref()) {
        // other zones are still missing, and the operator has said why
        AddressList::Absent if namespace.status.is_some() => return None,
        AddressList::Absent => (format!("annotation egressips is missing, the journal has {}", listed(&own)), REPAIR),
        AddressList::Addresses(list) if list == own && namespace.modified => return None,
        AddressList::Addresses(list) if list == own => ("annotation modified is missing".to_owned(), REPAIR),
        // the operator has said why it does not serve this list
        AddressList::Addresses(_) | AddressList::Invalid(_) if namespace.status.is_some() => return None,
        AddressList::Addresses(list) => (
            format!("annotation egressips is {}, the journal has {}", listed(&list), listed(&own)),
            "a new list is a request, which the operator serves once it runs; to discard it: portolan doctor ipam --repair",
        ),
        AddressList::Invalid(why) => (format!("annotation egressips: {why}"), REPAIR),
    };
    let fix = Fix::AnnotateNamespace { name: name.clone(), list: own, seen: namespace.egressips.clone() };
    Some(Finding::fixed_by(Check::fail(ANNOTATIONS, object(name), seen, advice), fix))
}

fn object(name: &str) -> String {
    format!("Namespace/{name}")
}
