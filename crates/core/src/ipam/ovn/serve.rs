//! CloudPrivateIPConfigs, served in the place of their controller: journal and finalizer first, then the call, then the
//! status.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use super::super::action::{Action, Plan, PrivateIpChange};
use super::super::journal::{Claim, Journal, Owner, OwnerKind, State};
use super::super::types::{Assigned, CallKind, Namespace, NamespaceName, NetNamespace, PrivateIp, PrivateIpStatus};
use super::shown::Ovn;
use crate::ipam::AddressList;

/// No namespace has such a name.
const PREFIX: &str = "CloudPrivateIPConfig/";

/// The namespace that a CloudPrivateIPConfig is to the planner.
fn name_of(address: Ipv4Addr) -> NamespaceName {
    format!("{PREFIX}{address}").into()
}

fn address_of(name: &str) -> Option<Ipv4Addr> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

/// The owner of a claim as the planner has it.
pub(super) fn as_namespace(address: Ipv4Addr, owner: &mut Owner) {
    if owner.kind == OwnerKind::PrivateIp {
        (owner.kind, owner.name) = (OwnerKind::Namespace, name_of(address));
    }
}

/// The owner of a claim as it is recorded.
fn as_recorded(owner: &mut Owner) {
    if let Some(address) = address_of(&owner.name) {
        (owner.kind, owner.name) = (OwnerKind::PrivateIp, Arc::from(address.to_string()));
    }
}

/// CloudPrivateIPConfigs whose addresses are no namespace's, as namespaces with their NetNamespaces.
pub(super) fn namespaces(ovn: &Ovn, journal: &Journal) -> Vec<(NamespaceName, Namespace, NetNamespace)> {
    let mut found = Vec::new();
    for (netid, (address, ip)) in (FIRST_NETID..).zip(&ovn.private_ips) {
        let name = name_of(*address);
        let claim = journal.claims.get(address);
        if claim.is_some_and(|claim| claim.spec.owner.name != name && !claim.is_cooling()) {
            continue;
        }
        let list = AddressList::format(&BTreeSet::from([*address]));
        let namespace = Namespace {
            uid: ip.uid.clone(),
            // what is attached and not recorded is taken over first, and released then
            opted_in: !ip.deleting || claim.is_none() && ip.status.node.is_some(),
            egressips: Some(list.clone()),
            modified: true,
            ..Namespace::default()
        };
        let is_listed = match claim.map(|claim| claim.status.state) {
            Some(State::Assigning | State::Attached | State::Published | State::Moving) => true,
            Some(State::Reserved | State::Releasing | State::Blocked) => false,
            // somebody else attached it, and it is taken over as it is
            None => ip.status.node.is_some(),
        };
        let egress_ips = is_listed.then_some(*address).into_iter().collect();
        let net_namespace = NetNamespace { netid, egress_ips, annotation: is_listed.then_some(list) };
        found.push((name, namespace, net_namespace));
    }
    found
}

/// Above the numbers of real namespaces.
const FIRST_NETID: u32 = 1 << 24;

/// Makes a plan one for CloudPrivateIPConfigs: calls that they ask for, and their status.
pub(super) fn serve(plan: &mut Plan, ovn: &Ovn, journal: &Journal, followed: &Journal, moved: &BTreeSet<Ipv4Addr>) {
    for action in &mut plan.actions {
        match action {
            Action::CreateClaim(write) | Action::UpdateClaim(write) | Action::ConfirmClaim(write) => {
                as_recorded(&mut write.claim.spec.owner);
            }
            Action::Call(call) => {
                let kind = call.kind;
                call.addresses.retain(|address| {
                    let claim = followed.claims.get(address).filter(|_| !moved.contains(address));
                    claim.is_some_and(|claim| is_asked(kind, ovn.private_ips.get(address), claim))
                });
            }
            Action::DeleteClaim(_)
            | Action::SetHostSubnet { .. }
            | Action::SetNetNamespace { .. }
            | Action::AnnotateNamespace { .. } => {}
        }
    }
    plan.actions.retain(|action| match action {
        Action::Call(call) => !call.addresses.is_empty(),
        Action::SetNetNamespace { name, .. } | Action::AnnotateNamespace { name, .. } => address_of(name).is_none(),
        Action::CreateClaim(_)
        | Action::UpdateClaim(_)
        | Action::ConfirmClaim(_)
        | Action::DeleteClaim(_)
        | Action::SetHostSubnet { .. } => true,
    });
    let refused: BTreeMap<Ipv4Addr, Arc<str>> = plan
        .unmet
        .extract_if(.., |unmet| address_of(&unmet.namespace).is_some())
        .filter_map(|unmet| Some((address_of(&unmet.namespace)?, unmet.message.into())))
        .collect();
    let changes = ovn
        .private_ips
        .iter()
        .filter_map(|(address, ip)| Some((*address, change(ip, journal.claims.get(address), refused.get(address))?)));
    plan.private_ips = changes.collect();
}

/// True if a CloudPrivateIPConfig asks for a call.
fn is_asked(kind: CallKind, ip: Option<&PrivateIp>, claim: &Claim) -> bool {
    match kind {
        CallKind::Assign | CallKind::Take => {
            ip.is_some_and(|ip| !ip.deleting && ip.has_finalizer && ip.wanted == claim.spec.node)
        }
        CallKind::Release => ip.is_none_or(|ip| ip.deleting),
    }
}

/// What a CloudPrivateIPConfig needs.
fn change(ip: &PrivateIp, claim: Option<&Claim>, refused: Option<&Arc<str>>) -> Option<PrivateIpChange> {
    if ip.deleting {
        let is_attached = match claim {
            Some(claim) if claim.spec.owner.kind == OwnerKind::PrivateIp => !claim.is_cooling(),
            Some(claim) => claim.status.state == State::Releasing && !claim.is_cooling(),
            None => ip.status.node.is_some() && refused.is_none(),
        };
        return (ip.has_finalizer && !is_attached).then_some(PrivateIpChange::Finalizer(false));
    }
    if claim.is_some() && !ip.has_finalizer {
        return Some(PrivateIpChange::Finalizer(true));
    }
    let status = status(ip, claim, refused)?;
    (status != ip.status).then_some(PrivateIpChange::Status(status))
}

/// What became of an address; none if nothing new is known.
fn status(ip: &PrivateIp, claim: Option<&Claim>, refused: Option<&Arc<str>>) -> Option<PrivateIpStatus> {
    let Some(claim) = claim.filter(|claim| !claim.is_cooling()) else {
        let assigned = refused.map_or(Assigned::Pending, |message| Assigned::Failed(message.clone()));
        // until it is recorded, what somebody else attached stays as it is
        return (refused.is_some() || ip.assigned().is_none()).then_some(PrivateIpStatus { node: None, assigned });
    };
    let is_there = match claim.status.state {
        State::Attached | State::Published => claim.status.node.as_ref() == Some(&ip.wanted),
        State::Reserved | State::Assigning | State::Moving | State::Blocked => false,
        State::Releasing => return None,
    };
    let last_error = claim.status.last_error.as_ref().map(|last| Arc::from(last.error.to_string()));
    let assigned = match last_error.or_else(|| refused.cloned()) {
        _ if is_there => Assigned::Yes,
        Some(message) => Assigned::Failed(message),
        None => Assigned::Pending,
    };
    let node = claim.status.node.clone().or_else(|| (assigned == Assigned::Pending).then(|| ip.wanted.clone()));
    Some(PrivateIpStatus { node, assigned })
}
