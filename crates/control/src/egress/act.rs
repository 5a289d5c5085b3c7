//! Plan -> writes: claims first, then what follows from them. Each object by itself; a failure of one stops no other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use futures::StreamExt as _;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use portolan_api::address_claim::{AddressClaim, AddressClaimSpec, EgressClaim, HoldingState};
use portolan_api::egress::{EgressClusterInfo, EgressGateway};
use portolan_api::well_known::{self, egress as egress_words};
use portolan_core::egress::{GatewayName, NodeName, PlannedAddress};
use portolan_core::net::claim_name;

use super::model::{Dirty, Model};
use super::observe::Cache;
use super::ranges;
use super::recycle::Recycling;
use crate::runtime::Error;
use crate::runtime::endpoint::Part;
use crate::runtime::store::Key;
use crate::runtime::write::{Writer, Wrote};

/// How many writes are under way at a time.
pub(super) const AT_ONCE: usize = 16;

/// Addresses that can be given again, and whose they were.
pub(super) type Released = Vec<(IpAddr, GatewayName)>;

/// Writes claims; what failed stays dirty. Gives what was released, and the first failure.
pub(super) async fn claims(
    writer: &Writer,
    cache: &Cache,
    model: &Model,
    recycling: &Recycling,
    dirty: &mut Dirty,
) -> (Released, Option<Error>) {
    if std::mem::take(&mut dirty.standby) {
        dirty.addresses.extend(model.planner.addresses());
    }
    let standbys = standbys(model, &dirty.addresses);
    let steps: Vec<(IpAddr, Step)> = std::mem::take(&mut dirty.addresses)
        .into_iter()
        .map(|address| (address, step(cache, model, recycling, &standbys, address)))
        .collect();
    let work = futures::stream::iter(steps).map(|(address, step)| async move {
        let releases = step.releases();
        let outcome = take(writer, cache, step).await;
        (address, releases, outcome)
    });
    let ended: Vec<_> = work.buffer_unordered(AT_ONCE).collect().await;
    let (mut released, mut first) = (Released::new(), None);
    for (address, releases, outcome) in ended {
        match outcome {
            Ok(Wrote::Unchanged) => {}
            Ok(Wrote::Changed) => released.extend(releases.map(|gateway| (address, gateway))),
            Err(problem) => {
                dirty.addresses.insert(address);
                first.get_or_insert(problem);
            }
        }
    }
    (released, first)
}

/// What one address needs.
enum Step {
    /// As it should be; or not what was planned on, or on its way out: then it is looked at again when it changes.
    Nothing,
    Create(Box<AddressClaim>),
    Replace(Box<AddressClaim>),
    Delete(Arc<AddressClaim>),
    /// Nobody uses it, and nobody has it any more: the finalizer goes, and the claim with it.
    Release(Box<AddressClaim>),
}

impl Step {
    /// The gateway whose address it releases.
    fn releases(&self) -> Option<GatewayName> {
        let Self::Release(claim) = self else { return None };
        claim.spec.egress.as_ref().map(|record| record.gateway.as_str().into())
    }
}

fn step(cache: &Cache, model: &Model, recycling: &Recycling, standbys: &Standbys, address: IpAddr) -> Step {
    let (wanted, seen) = (model.planner.planned(address), cache.claim(address));
    match (wanted, seen) {
        (Some(placed), None) => {
            let record = record(address, &placed, None, standbys);
            Step::Create(Box::new(claim(claim_name(address), record)))
        }
        // Somebody deleted it under its users: it must go before it can be made again.
        (Some(_), Some(seen)) if seen.metadata.deletion_timestamp.is_some() => {
            unheld(&seen).map_or(Step::Nothing, Step::Replace)
        }
        (Some(placed), Some(seen)) => {
            let Some(before) = &seen.spec.egress else { return Step::Nothing };
            if is_news(before, &placed) {
                return Step::Nothing;
            }
            let record = record(address, &placed, Some((before, &seen)), standbys);
            if seen.spec.egress.as_ref() == Some(&record)
                && seen.finalizers().iter().any(|own| own == well_known::ADDRESS_CLAIM_FINALIZER)
            {
                return Step::Nothing;
            }
            let mut claim = seen.as_ref().clone();
            claim.spec.egress = Some(record);
            if claim.metadata.deletion_timestamp.is_none() {
                claim.finalizers_mut().push(well_known::ADDRESS_CLAIM_FINALIZER.to_owned());
                claim.finalizers_mut().dedup();
            }
            Step::Replace(Box::new(claim))
        }
        (None, Some(seen)) if seen.spec.egress.is_some() => match seen.metadata.deletion_timestamp {
            None if model.planner.is_recycled(address) && recycling.may_go(address) => Step::Delete(seen),
            Some(_) if withdrawn(model, &seen) => unheld(&seen).map_or(Step::Nothing, Step::Release),
            None | Some(_) => Step::Nothing,
        },
        (None, _) => Step::Nothing,
    }
}

/// The claim says what the plan cannot have known: another leader made it anew, or moved it.
fn is_news(seen: &EgressClaim, placed: &PlannedAddress) -> bool {
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

async fn take(writer: &Writer, cache: &Cache, step: Step) -> Result<Wrote, Error> {
    match step {
        Step::Nothing => Ok(Wrote::Unchanged),
        Step::Create(claim) => writer.create(&cache.claims, claim.as_ref()).await,
        Step::Replace(claim) | Step::Release(claim) => {
            writer.replace(&cache.claims, Part::Object, claim.as_ref()).await
        }
        Step::Delete(claim) => writer.delete(&cache.claims, claim.as_ref()).await,
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
        spec: AddressClaimSpec { egress: Some(record) },
        status: None,
    }
}

/// What is to be recorded for an address. Who stands by stays as recorded while all of them can.
fn record(
    address: IpAddr,
    placed: &PlannedAddress,
    seen: Option<(&EgressClaim, &AddressClaim)>,
    standbys: &Standbys,
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
    let fresh = standbys.fresh.get(&address);
    let standby = match before {
        Some(before)
            if before.node == node && standbys.all_can(&placed.record.gateway, node.as_deref(), &before.standby) =>
        {
            before.standby.clone()
        }
        Some(_) | None => fresh.into_iter().flatten().map(ToString::to_string).collect(),
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

/// Who would take over what, and who can stand by at all.
struct Standbys {
    fresh: BTreeMap<IpAddr, Vec<NodeName>>,
    eligible: BTreeMap<GatewayName, BTreeSet<NodeName>>,
}

impl Standbys {
    /// True when these still can, and no further one could be added.
    fn all_can(&self, gateway: &GatewayName, owner: Option<&str>, standby: &[String]) -> bool {
        let Some(eligible) = self.eligible.get(gateway) else { return standby.is_empty() };
        let others = eligible.iter().filter(|node| Some(&***node) != owner).count();
        standby.len() == others.min(3)
            && standby.iter().all(|node| Some(node.as_str()) != owner && eligible.contains(node.as_str()))
    }
}

fn standbys(model: &Model, addresses: &BTreeSet<IpAddr>) -> Standbys {
    let (mut owners, mut eligible) = (BTreeSet::new(), BTreeMap::new());
    for placed in addresses.iter().filter_map(|address| model.planner.planned(*address)) {
        let gateway = placed.record.gateway;
        eligible.entry(gateway.clone()).or_insert_with(|| model.planner.ready_nodes(&gateway));
        owners.extend(placed.record.node.map(|node| (gateway, node)));
    }
    let fresh = owners.iter().flat_map(|(gateway, node)| model.planner.standby(gateway, node)).collect();
    Standbys { fresh, eligible }
}

/// Puts a finalizer on gateways before anything is granted from them, so that one that is deleted stays while somebody
/// uses it. Gives the first failure.
pub(super) async fn finalizers(
    writer: &Writer,
    cache: &Cache,
    model: &Model,
    gateways: &BTreeSet<GatewayName>,
) -> Option<Error> {
    let mut first = None;
    for name in gateways {
        let seen = cache.gateways.get(&Key::of_cluster(name));
        if let Some(seen) = seen
            && let Err(problem) = finalizer(writer, cache, model, &seen).await
        {
            first.get_or_insert(problem);
        }
    }
    first
}

/// Finalizers of gateways: there as long as somebody uses the gateway, gone when it is deleted and unused.
async fn finalizer(writer: &Writer, cache: &Cache, model: &Model, gateway: &EgressGateway) -> Result<(), Error> {
    let name: GatewayName = gateway.name_any().into();
    let ours = |finalizer: &String| finalizer == egress_words::GATEWAY_FINALIZER;
    let (has, deleting) = (gateway.finalizers().iter().any(ours), gateway.metadata.deletion_timestamp.is_some());
    let used = || {
        model.planner.is_used(&name) || {
            let mut claimed = false;
            cache.claims.for_each(|_, claim| {
                claimed |= claim.spec.egress.as_ref().is_some_and(|record| record.gateway == *name);
            });
            claimed
        }
    };
    let mut wanted = gateway.clone();
    match (has, deleting) {
        (false, false) => wanted.finalizers_mut().push(egress_words::GATEWAY_FINALIZER.to_owned()),
        (true, true) if !used() => wanted.finalizers_mut().retain(|finalizer| !ours(finalizer)),
        (true, _) | (false, true) => return Ok(()),
    }
    writer.replace(&cache.gateways, Part::Object, &wanted).await?;
    Ok(())
}

/// The one EgressClusterInfo: made when it is missing, its status as found.
pub(super) async fn cluster_info(writer: &Writer, cache: &Cache, model: &Model) -> Result<(), Error> {
    let key = Key::of_cluster(ranges::NAME);
    let Some(seen) = cache.infos.get(&key) else {
        let metadata = ObjectMeta { name: Some(key.name), ..ObjectMeta::default() };
        writer.create(&cache.infos, &EgressClusterInfo { metadata, ..EgressClusterInfo::default() }).await?;
        return Ok(());
    };
    writer.status(&cache.infos, seen.as_ref(), &model.found).await?;
    Ok(())
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
            assert_eq!(is_news(&seen, &placed), news, "{gateway} {epoch}");
        }
    }
}
