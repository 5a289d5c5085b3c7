//! AddressClaims: created before an address is carried, released after its last holder is gone.

use std::collections::BTreeMap;
use std::net::IpAddr;

use kube::api::ObjectMeta;
use portolan_api::address_claim::{AddressClaim, AddressClaimSpec};
use portolan_api::gateway::{ClaimHolder, LoadBalancer};
use portolan_api::well_known::USE;
use portolan_core::gateway::addresses::Claim;
use portolan_core::net::claim_name;

use super::super::names::GATEWAY;
use super::super::validate;
use super::acting::Acting;
use crate::runtime::due::Prepared;
use crate::runtime::endpoint::Part;
use crate::runtime::error::Error;
use crate::runtime::store::Key;
use crate::runtime::write::Writer;

pub(super) fn prepare(acting: Acting<'_>, address: IpAddr) -> Prepared<()> {
    let seen = acting.model.claims.get(&Key::of_cluster(&claim_name(address))).cloned();
    let (writer, store) = (acting.writer.clone(), acting.cache.claims.clone());
    match (seen, acting.plan.claims.get(&address)) {
        (None, Some(want)) if !want.holders.is_empty() => {
            let claim = created(address, want);
            Prepared::write(async move { writer.create(&store, &claim).await.map(drop) })
        }
        (Some(seen), Some(want)) => {
            let Some(current) = validate::claim(&seen) else { return Prepared::Nothing };
            if current == *want {
                return Prepared::Nothing;
            }
            let unproven = unproven(acting, &seen, want);
            let mut after = AddressClaim::clone(&seen);
            after.spec.gateway = Some(validate::claim_section(address, want));
            Prepared::write(async move {
                prove(&writer, address, &unproven).await?;
                writer.replace(&store, Part::Object, &after).await.map(drop)
            })
        }
        (Some(seen), None) if seen.spec.gateway.is_some() => {
            let mut after = AddressClaim::clone(&seen);
            after.spec.gateway = None;
            Prepared::write(async move {
                if after.spec.egress.is_some() || after.spec.cloud.is_some() {
                    return writer.replace(&store, Part::Object, &after).await.map(drop);
                }
                writer.delete_version(&store, &*seen).await.map(drop)
            })
        }
        _ => Prepared::Nothing,
    }
}

fn created(address: IpAddr, want: &Claim) -> AddressClaim {
    AddressClaim {
        metadata: ObjectMeta {
            name: Some(claim_name(address)),
            labels: Some(BTreeMap::from([(USE.to_owned(), GATEWAY.to_owned())])),
            ..ObjectMeta::default()
        },
        spec: AddressClaimSpec { gateway: Some(validate::claim_section(address, want)), ..AddressClaimSpec::default() },
        status: None,
    }
}

/// Holders that lose the address although the cache does not prove that they are being deleted.
fn unproven(acting: Acting<'_>, seen: &AddressClaim, want: &Claim) -> Vec<ClaimHolder> {
    let holders = seen.spec.gateway.iter().flat_map(|section| &section.holders);
    let removed = holders.filter(|holder| !want.holders.contains_key(holder.uid.as_str()));
    let is_going = |holder: &ClaimHolder| {
        let key = Key { namespace: holder.namespace.clone(), name: holder.name.clone() };
        acting.model.load_balancers.get(&key).is_some_and(|object| {
            object.metadata.uid.as_deref() == Some(&holder.uid) && object.metadata.deletion_timestamp.is_some()
        })
    };
    removed.filter(|holder| !is_going(holder)).cloned().collect()
}

/// Asks the API server itself whether holders are gone: the cache may not have seen them yet.
async fn prove(writer: &Writer, address: IpAddr, holders: &[ClaimHolder]) -> Result<(), Error> {
    for holder in holders {
        let key = Key { namespace: holder.namespace.clone(), name: holder.name.clone() };
        let found = writer.read::<LoadBalancer>(&key).await?;
        let keeps = found.is_some_and(|object| {
            object.metadata.uid.as_deref() == Some(&holder.uid)
                && object.metadata.deletion_timestamp.is_none()
                && object.spec.public_address.parse() == Ok(address)
        });
        if keeps {
            return Err(Error::Conflict { what: format!("release {address} of LoadBalancer {key}") });
        }
    }
    Ok(())
}
