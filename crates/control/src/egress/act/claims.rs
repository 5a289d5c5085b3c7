//! The claims of addresses: created, moved and released as planned.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use kube::ResourceExt;
use kube::api::ObjectMeta;
use portolan_api::address_claim::{AddressClaim, AddressClaimSpec, EgressClaim, HoldingState};
use portolan_api::well_known;
use portolan_core::egress::{GatewayName, NodeName, PlannedAddress};
use portolan_core::net::claim_name;

use super::super::claim_gc::ClaimGc;
use super::super::model::Model;
use super::super::observe::Cache;
use super::acting::Acting;
use crate::runtime::Error;
use crate::runtime::due::Prepared;
use crate::runtime::endpoint::Part;
use crate::runtime::store::Store;
use crate::runtime::write::{Writer, Wrote};

/// The gateway whose address was released, if one was.
pub(super) type Released = Option<GatewayName>;

/// What the claim of an address needs.
pub(super) fn prepare(
    acting: &Acting<'_>,
    gc: &ClaimGc,
    standbys: &mut Standbys<'_>,
    address: IpAddr,
) -> Prepared<Released> {
    let Acting { writer, cache, model, .. } = acting;
    let change = change(cache, model, gc, standbys, address);
    if matches!(change, ClaimChange::Nothing) {
        return Prepared::Nothing;
    }
    let (writer, claims, released) = ((*writer).clone(), cache.claims.clone(), change.releases());
    Prepared::write(async move {
        let wrote = send(&writer, &claims, change).await?;
        Ok(released.filter(|_| wrote == Wrote::Changed))
    })
}

/// What is to be done to the claim of an address.
enum ClaimChange {
    /// As it should be; or not what was planned on, or on its way out: then it is looked at again when it changes.
    Nothing,
    Create(Box<AddressClaim>),
    Replace(Box<AddressClaim>),
    Delete(Arc<AddressClaim>),
    /// Nobody uses it, and nobody has it any more: the finalizer goes, and the claim with it.
    Release(Box<AddressClaim>),
}

impl ClaimChange {
    /// The gateway whose address it releases.
    fn releases(&self) -> Option<GatewayName> {
        let Self::Release(claim) = self else { return None };
        claim.spec.egress.as_ref().map(|record| record.gateway.as_str().into())
    }
}

fn change(cache: &Cache, model: &Model, gc: &ClaimGc, standbys: &mut Standbys<'_>, address: IpAddr) -> ClaimChange {
    let (wanted, seen) = (model.planner.planned(address), cache.claim(address));
    match (wanted, seen) {
        (Some(placed), None) => {
            let record = record(address, &placed, None, standbys);
            ClaimChange::Create(Box::new(claim(claim_name(address), record)))
        }
        // Somebody deleted it under its users: it must go before it can be made again.
        (Some(_), Some(seen)) if seen.metadata.deletion_timestamp.is_some() => {
            unheld(&seen).map_or(ClaimChange::Nothing, ClaimChange::Replace)
        }
        (Some(placed), Some(seen)) => {
            let Some(before) = &seen.spec.egress else { return ClaimChange::Nothing };
            if is_newer(before, &placed) {
                return ClaimChange::Nothing;
            }
            let record = record(address, &placed, Some((before, &seen)), standbys);
            if seen.spec.egress.as_ref() == Some(&record)
                && seen.finalizers().iter().any(|own| own == well_known::ADDRESS_CLAIM_FINALIZER)
            {
                return ClaimChange::Nothing;
            }
            let mut claim = seen.as_ref().clone();
            claim.spec.egress = Some(record);
            if claim.metadata.deletion_timestamp.is_none() {
                claim.finalizers_mut().push(well_known::ADDRESS_CLAIM_FINALIZER.to_owned());
                claim.finalizers_mut().dedup();
            }
            ClaimChange::Replace(Box::new(claim))
        }
        (None, Some(seen)) if seen.spec.egress.is_some() => match seen.metadata.deletion_timestamp {
            None if model.planner.is_recycled(address) && gc.may_go(address) => ClaimChange::Delete(seen),
            Some(_) if withdrawn(model, &seen) => unheld(&seen).map_or(ClaimChange::Nothing, ClaimChange::Release),
            None | Some(_) => ClaimChange::Nothing,
        },
        (None, _) => ClaimChange::Nothing,
    }
}

/// The claim says what the plan cannot have known: another leader made it anew, or moved it.
fn is_newer(seen: &EgressClaim, placed: &PlannedAddress) -> bool {
    seen.gateway != *placed.record.gateway || seen.epoch > placed.record.epoch
}

/// The old owner has nothing of it any more, or cannot: then the address may be given again.
fn withdrawn(model: &Model, claim: &AddressClaim) -> bool {
    let Some(record) = &claim.spec.egress else { return true };
    let holding = claim.status.as_ref().and_then(|status| status.egress.as_ref());
    let state = holding.and_then(|holding| holding.state);
    let never_held = state.is_none();
    let node = record.node.as_deref().and_then(|node| model.planner.node(node));
    let alive = node.is_some_and(|node| node.ready);
    never_held || state == Some(HoldingState::Released) || !alive
}

/// A claim that is being deleted, without what holds it; none if nothing of ours does.
fn unheld(seen: &AddressClaim) -> Option<Box<AddressClaim>> {
    let mut claim = seen.clone();
    claim.finalizers_mut().retain(|finalizer| finalizer != well_known::ADDRESS_CLAIM_FINALIZER);
    (claim.finalizers() != seen.finalizers()).then(|| Box::new(claim))
}

async fn send(writer: &Writer, claims: &Store<AddressClaim>, change: ClaimChange) -> Result<Wrote, Error> {
    match change {
        ClaimChange::Nothing => Ok(Wrote::Unchanged),
        ClaimChange::Create(claim) => writer.create(claims, claim.as_ref()).await,
        ClaimChange::Replace(claim) | ClaimChange::Release(claim) => {
            writer.replace(claims, Part::Object, claim.as_ref()).await
        }
        ClaimChange::Delete(claim) => writer.delete(claims, claim.as_ref()).await,
    }
}

fn claim(name: String, record: EgressClaim) -> AddressClaim {
    AddressClaim {
        metadata: ObjectMeta {
            name: Some(name),
            labels: Some(BTreeMap::from([(well_known::USE.to_owned(), "egress".to_owned())])),
            finalizers: Some(vec![well_known::ADDRESS_CLAIM_FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: AddressClaimSpec { egress: Some(record), ..AddressClaimSpec::default() },
        status: None,
    }
}

/// What is to be recorded for an address. Who stands by stays as recorded while all of them can.
fn record(
    address: IpAddr,
    placed: &PlannedAddress,
    seen: Option<(&EgressClaim, &AddressClaim)>,
    standbys: &mut Standbys<'_>,
) -> EgressClaim {
    let node = placed.record.node.as_deref().map(str::to_owned);
    let before = seen.map(|(before, _)| before);
    let settled = seen.and_then(|(_, claim)| claim.status.as_ref()?.egress.as_ref()).is_some_and(|holding| {
        holding.node == node && holding.epoch == Some(placed.record.epoch) && holding.state == Some(HoldingState::Held)
    });
    let previous_node = match before {
        Some(before) if before.node != node => before.node.clone(),
        Some(before) if !settled => before.previous_node.clone(),
        Some(_) | None => None,
    };
    standbys.work_out(&placed.record.gateway, placed.record.node.as_ref());
    let standby = match before {
        Some(before)
            if before.node == node && standbys.all_can(&placed.record.gateway, node.as_deref(), &before.standby) =>
        {
            before.standby.clone()
        }
        Some(_) | None => standbys.fresh.get(&address).into_iter().flatten().map(ToString::to_string).collect(),
    };
    EgressClaim {
        gateway: placed.record.gateway.to_string(),
        pair: placed.record.pair.map(|pair| pair.to_string()),
        slot: placed.record.slot,
        node,
        previous_node,
        standby,
        epoch: placed.record.epoch,
    }
}

/// Who would take over what, and who can stand by at all. Worked out once per gateway and node in a pass.
pub(super) struct Standbys<'a> {
    model: &'a Model,
    owners: BTreeSet<(GatewayName, NodeName)>,
    fresh: BTreeMap<IpAddr, Vec<NodeName>>,
    eligible: BTreeMap<GatewayName, BTreeSet<NodeName>>,
}

impl<'a> Standbys<'a> {
    pub(super) fn new(model: &'a Model) -> Self {
        Self { model, owners: BTreeSet::new(), fresh: BTreeMap::new(), eligible: BTreeMap::new() }
    }

    fn work_out(&mut self, gateway: &GatewayName, node: Option<&NodeName>) {
        let planner = &self.model.planner;
        self.eligible.entry(gateway.clone()).or_insert_with(|| planner.ready_nodes(gateway));
        if let Some(node) = node
            && self.owners.insert((gateway.clone(), node.clone()))
        {
            self.fresh.extend(planner.standby(gateway, node));
        }
    }

    /// True when these still can, and no further one could be added.
    fn all_can(&self, gateway: &GatewayName, owner: Option<&str>, standby: &[String]) -> bool {
        let Some(eligible) = self.eligible.get(gateway) else { return standby.is_empty() };
        let others = eligible.iter().filter(|node| Some(&***node) != owner).count();
        standby.len() == others.min(3)
            && standby.iter().all(|node| Some(node.as_str()) != owner && eligible.contains(node.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan_core::egress::AddressRecord;

    #[test]
    fn a_claim_that_another_leader_made_or_moved_after_the_plan_is_not_written_over() {
        let held = AddressRecord { gateway: "eg1".into(), pair: None, slot: 5, node: Some("n1".into()), epoch: 2 };
        let placed = PlannedAddress { record: held, standby: Vec::new(), outside_pool: false };
        for (gateway, epoch, news) in [("eg1", 2, false), ("eg1", 1, false), ("eg1", 3, true), ("eg2", 1, true)] {
            let seen = EgressClaim { gateway: gateway.to_owned(), epoch, ..EgressClaim::default() };
            assert_eq!(is_newer(&seen, &placed), news, "{gateway} {epoch}");
        }
    }
}
