//! The section of AddressClaims that is ours.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use portolan_api::address_claim::AddressClaim;
use portolan_api::gateway::{ClaimHolder, ClaimPort, GatewayClaim};
use portolan_core::gateway::addresses::{Claim, Holding};
use portolan_core::gateway::ports::{PortNumber, Protocol};
use portolan_core::gateway::{PROVIDER_NAMESPACE, account_of, namespace_of};

use super::super::names::LOAD_BALANCER;

/// Who has an address; none if it has another use.
pub(in super::super) fn claim(object: &AddressClaim) -> Option<Claim> {
    let GatewayClaim { address: _, prefix_ref, sharing_key, holders, released_at } = object.spec.gateway.as_ref()?;
    let pool = prefix_ref.split_once('/').map_or(prefix_ref.as_str(), |(_, name)| name);
    Some(Claim {
        pool: pool.into(),
        sharing_key: sharing_key.as_deref().map(Arc::from),
        holders: holders.iter().map(|holder| (Arc::from(holder.uid.as_str()), holding(holder))).collect(),
        released_at: released_at.as_ref().map(|time| u64::try_from(time.0.as_millisecond()).unwrap_or_default()),
    })
}

fn holding(holder: &ClaimHolder) -> Holding {
    let ports = holder
        .ports
        .iter()
        .filter_map(|port| Some(PortNumber { protocol: Protocol::parse(&port.protocol)?, port: port.port }));
    Holding {
        account: account_of(&holder.namespace).unwrap_or_default().into(),
        name: holder.name.as_str().into(),
        ports: ports.collect::<BTreeSet<_>>(),
    }
}

/// A claim, as it is on the wire.
pub(in super::super) fn claim_section(address: std::net::IpAddr, claim: &Claim) -> GatewayClaim {
    let holder = |(uid, holding): (&Arc<str>, &Holding)| ClaimHolder {
        kind: LOAD_BALANCER.to_owned(),
        namespace: namespace_of(&holding.account),
        name: holding.name.to_string(),
        uid: uid.to_string(),
        ports: holding
            .ports
            .iter()
            .map(|port| ClaimPort { protocol: port.protocol.as_str().to_owned(), port: port.port })
            .collect(),
    };
    let released = claim.released_at.and_then(|moment| i64::try_from(moment).ok());
    GatewayClaim {
        address: address.to_string(),
        prefix_ref: format!("{PROVIDER_NAMESPACE}/{}", claim.pool),
        sharing_key: claim.sharing_key.as_deref().map(str::to_owned),
        holders: claim.holders.iter().map(holder).collect(),
        released_at: released.and_then(|moment| Timestamp::from_millisecond(moment).ok()).map(MicroTime),
    }
}
