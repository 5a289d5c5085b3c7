//! Finalizers of gateways: there before anything is granted from a gateway, so that one that is deleted stays while
//! somebody uses it; gone when it is deleted and unused.

use kube::ResourceExt as _;
use portolan_api::well_known::egress::GATEWAY_FINALIZER;
use portolan_core::egress::GatewayName;

use super::super::model::Model;
use super::super::observe::Cache;
use super::acting::Acting;
use crate::runtime::due::Prepared;
use crate::runtime::endpoint::Part;
use crate::runtime::store::Key;

/// What the finalizer of a gateway needs.
pub(super) fn prepare(acting: &Acting<'_>, name: &GatewayName) -> Prepared<()> {
    let Acting { writer, cache, model, .. } = acting;
    let Some(gateway) = cache.gateways.get(&Key::of_cluster(name)) else { return Prepared::Nothing };
    let ours = |finalizer: &String| finalizer == GATEWAY_FINALIZER;
    let (has, deleting) = (gateway.finalizers().iter().any(ours), gateway.metadata.deletion_timestamp.is_some());
    let mut wanted = gateway.as_ref().clone();
    match (has, deleting) {
        (false, false) => wanted.finalizers_mut().push(GATEWAY_FINALIZER.to_owned()),
        (true, true) if !is_used(cache, model, name) => wanted.finalizers_mut().retain(|finalizer| !ours(finalizer)),
        (true, _) | (false, true) => return Prepared::Nothing,
    }
    let (writer, gateways) = ((*writer).clone(), cache.gateways.clone());
    Prepared::write(async move { writer.replace(&gateways, Part::Object, &wanted).await.map(drop) })
}

fn is_used(cache: &Cache, model: &Model, name: &GatewayName) -> bool {
    model.planner.is_used(name) || {
        let mut claimed = false;
        cache.claims.for_each(|_, claim| {
            claimed |= claim.spec.egress.as_ref().is_some_and(|record| record.gateway == **name);
        });
        claimed
    }
}
