//! The journal: claims created, changed and deleted as planned, and failures recorded in them.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use kube::ResourceExt;
use kube::api::ObjectMeta;
use portolan_api::address_claim::{AddressClaim, AddressClaimSpec};
use portolan_api::well_known::{ADDRESS_CLAIM_FINALIZER, USE};
use portolan_core::ipam::{Claim, ClaimStatus, ClaimWrite, CloudError, NamespaceName, NodeName, State, Step};

use super::super::names::{FIRST_STATUS, USE_CLOUD};
use super::super::validate;
use super::acting::Acting;
use super::due::ClaimChange;
use super::ledger::Failed;
use crate::runtime::due::Prepared;
use crate::runtime::endpoint::Part;
use crate::runtime::store::Key;

/// A step that was recorded.
#[derive(Debug, Clone)]
pub(in super::super) struct Done {
    pub(in super::super) step: Step,
    pub(in super::super) address: Ipv4Addr,
    pub(in super::super) namespace: NamespaceName,
    pub(in super::super) node: NodeName,
}

/// What the claim of an address needs.
pub(super) fn prepare(acting: &Acting<'_>, address: Ipv4Addr) -> Prepared<Option<Done>> {
    let seen = acting.cache.claims.get(&Key::of_cluster(&address.to_string()));
    let current = seen.as_ref().and_then(|seen| validate::claim(seen));
    if current.as_ref() != acting.model.journal.claims.get(&address) {
        return Prepared::Nothing;
    }
    if let Some(failed) = acting.ledger.failure(address) {
        return record(acting, address, seen.as_deref().zip(current.as_ref()), failed);
    }
    match (acting.due.claims.get(&address), seen.as_deref(), current) {
        (Some(ClaimChange::Create(write)), None, _) => create(acting, write),
        (Some(ClaimChange::Update(write)), Some(seen), Some(current)) => update(acting, write, seen, &current),
        (Some(ClaimChange::Delete), Some(seen), Some(_)) => delete(acting, seen),
        (None, Some(seen), Some(current)) if validate::has_no_status(seen) => {
            replace(acting, Part::Status, with_status(seen, &current.status), None)
        }
        (_, _, _) => Prepared::Nothing,
    }
}

/// Records that a call failed.
fn record(
    acting: &Acting<'_>,
    address: Ipv4Addr,
    seen: Option<(&AddressClaim, &Claim)>,
    failed: Failed,
) -> Prepared<Option<Done>> {
    // A claim that says so already need not say it again with every try.
    let says_so = |claim: &Claim| {
        let last = claim.status.last_error.as_ref().map(|last| &last.error);
        failed.error == CloudError::Throttled && last == Some(&CloudError::Throttled)
    };
    let Some((seen, claim)) = seen.filter(|(_, claim)| !says_so(claim)) else {
        acting.ledger.recorded(address, &failed);
        return Prepared::Nothing;
    };
    let after = with_status(seen, &claim.failed(failed.error.clone(), failed.at).status);
    let (writer, store, ledger) = (acting.writer.clone(), acting.cache.claims.clone(), acting.ledger.clone());
    Prepared::write(async move {
        writer.replace(&store, Part::Status, &after).await?;
        ledger.recorded(address, &failed);
        Ok(None)
    })
}

fn create(acting: &Acting<'_>, write: &ClaimWrite) -> Prepared<Option<Done>> {
    let status = &write.claim.status;
    let is_plain = *status == ClaimStatus { since: status.since, ..ClaimStatus::reserved(0) };
    // An object is created without its status. What it would lack until that is written stands in an annotation.
    let first = validate::attachment(status, None, 1);
    let first = (!is_plain).then(|| serde_json::to_string(&first).unwrap_or_default());
    let claim = AddressClaim {
        metadata: ObjectMeta {
            name: Some(write.address.to_string()),
            labels: Some(BTreeMap::from([(USE.to_owned(), USE_CLOUD.to_owned())])),
            annotations: first.map(|first| BTreeMap::from([(FIRST_STATUS.to_owned(), first)])),
            finalizers: Some(vec![ADDRESS_CLAIM_FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: AddressClaimSpec { cloud: Some(validate::spec(&write.claim.spec, None)), ..AddressClaimSpec::default() },
        status: None,
    };
    let (writer, store, done) = (acting.writer.clone(), acting.cache.claims.clone(), done(write));
    Prepared::write(async move {
        writer.create(&store, &claim).await?;
        Ok(Some(done))
    })
}

/// The spec first. The next plan sees it and asks for the status, which needs the new version of the object.
fn update(acting: &Acting<'_>, write: &ClaimWrite, seen: &AddressClaim, current: &Claim) -> Prepared<Option<Done>> {
    let Claim { spec, status, deleting: _ } = &write.claim;
    let is_last = *status == current.status;
    if *spec != current.spec {
        let mut after = seen.clone();
        after.spec.cloud = Some(validate::spec(spec, seen.spec.cloud.as_ref()));
        return replace(acting, Part::Object, after, is_last.then(|| done(write)));
    }
    if is_last {
        return Prepared::Nothing;
    }
    replace(acting, Part::Status, with_status(seen, status), Some(done(write)))
}

fn delete(acting: &Acting<'_>, seen: &AddressClaim) -> Prepared<Option<Done>> {
    let mut after = seen.clone();
    if seen.metadata.deletion_timestamp.is_some() {
        after.finalizers_mut().retain(|finalizer| finalizer != ADDRESS_CLAIM_FINALIZER);
        return replace(acting, Part::Object, after, None);
    }
    if seen.spec.egress.is_some() {
        after.spec.cloud = None;
        return replace(acting, Part::Object, after, None);
    }
    let (writer, store) = (acting.writer.clone(), acting.cache.claims.clone());
    Prepared::write(async move {
        writer.delete_version(&store, &after).await?;
        Ok(None)
    })
}

fn replace(acting: &Acting<'_>, part: Part, after: AddressClaim, done: Option<Done>) -> Prepared<Option<Done>> {
    let (writer, store) = (acting.writer.clone(), acting.cache.claims.clone());
    Prepared::write(async move {
        writer.replace(&store, part, &after).await?;
        Ok(done)
    })
}

/// The object with another cloud section in its status; the other sections are not ours.
fn with_status(seen: &AddressClaim, status: &ClaimStatus) -> AddressClaim {
    let mut after = seen.clone();
    let sections = after.status.get_or_insert_default();
    let generation = seen.metadata.generation.unwrap_or_default();
    sections.cloud = Some(validate::attachment(status, sections.cloud.as_ref(), generation));
    after
}

fn done(write: &ClaimWrite) -> Done {
    let Claim { spec, status, .. } = &write.claim;
    let node = match status.state {
        State::Releasing => status.target.as_ref().map(|target| target.node.clone()),
        State::Reserved | State::Assigning | State::Attached | State::Published | State::Moving | State::Blocked => {
            None
        }
    };
    Done {
        step: write.step,
        address: write.address,
        namespace: spec.owner.name.clone(),
        node: node.unwrap_or_else(|| spec.node.clone()),
    }
}
