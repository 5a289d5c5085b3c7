//! The journal itself: claims that nobody owns, and claims that get nowhere.

use std::net::Ipv4Addr;
use std::time::Duration;

use portolan_core::ipam::{Claim, State};

use super::finding::{Finding, Fix, OPERATOR, or_ok};
use super::snapshot::Snapshot;
use crate::runtime::clock::millis;
use crate::runtime::doctor::Check;

const CLAIMS: &str = "journal";

/// A state that should pass has not passed for so long that somebody must look. As long as the operator tries an
/// assignment before it gives up.
const STUCK: Duration = Duration::from_mins(10);

/// Every claim has an owner that asks for it, and is in service or on its way.
pub(super) fn claims(snapshot: &Snapshot) -> Vec<Finding> {
    let found = snapshot.claims().filter(|(_, claim)| !claim.is_cooling()).filter_map(|(address, claim)| {
        let object = format!("AddressClaim/{address}");
        if let Some(seen) = unowned(snapshot, claim) {
            let check = Check::fail(CLAIMS, object, seen, "the operator releases it: check that it runs, or ask it");
            return Some(Finding::fixed_by(check, Fix::AskOperator { address }));
        }
        unsettled(snapshot, object, address, claim)
    });
    or_ok(CLAIMS, found.collect(), format!("{} claims have an owner", snapshot.claims().count()))
}

fn unowned(snapshot: &Snapshot, claim: &Claim) -> Option<String> {
    if claim.status.state == State::Releasing {
        return None;
    }
    let owner = &claim.spec.owner;
    match snapshot.world.namespaces.get(&owner.name) {
        None => Some(format!("namespace {} is gone", owner.name)),
        Some(namespace) if namespace.uid != owner.uid => {
            Some(format!("namespace {} is another one of that name", owner.name))
        }
        Some(namespace) if !namespace.opted_in => Some(format!("namespace {} does not ask for it", owner.name)),
        Some(_) => None,
    }
}

fn unsettled(snapshot: &Snapshot, object: String, address: Ipv4Addr, claim: &Claim) -> Option<Finding> {
    let status = &claim.status;
    let seconds = snapshot.world.now.saturating_sub(status.since) / 1000;
    let why = status.last_error.as_ref().map(|last| format!(": {}", last.error)).unwrap_or_default();
    let seen = format!("{} for {seconds} s{why}", status.state.as_str());
    match status.state {
        State::Published => None,
        State::Blocked => {
            let advice = "free the address, or ask for another one: portolan why namespace";
            let check = Check::fail(CLAIMS, object, seen, format!("{advice} {}", claim.spec.owner.name));
            Some(Finding::fixed_by(check, Fix::AskOperator { address }))
        }
        State::Reserved | State::Assigning | State::Attached | State::Moving | State::Releasing => {
            if snapshot.world.now.saturating_sub(status.since) <= millis(STUCK) {
                return Some(Check::warn(CLAIMS, object, seen, "wait: the operator is at work").into());
            }
            Some(Finding::fixed_by(Check::fail(CLAIMS, object, seen, OPERATOR), Fix::AskOperator { address }))
        }
    }
}
