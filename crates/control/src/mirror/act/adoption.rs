//! Endpoints that Barrelman has written: they go once our EndpointSlices are there, else Kubernetes would keep a second
//! set of slices for them.

use portolan_api::well_known::mirror::REMOTE;
use portolan_core::mirror::{Role, ServiceName};

use super::acting::Acting;
use crate::mirror::observe::{Cache, service_key};
use crate::runtime::due::Prepared;

/// Whether there are such Endpoints.
pub(super) fn is_due(cache: &Cache, name: &ServiceName) -> bool {
    let endpoints = cache.endpoints.get(&service_key(name));
    let is_ours = |labels: &std::collections::BTreeMap<String, String>| labels.contains_key(REMOTE);
    endpoints.is_some_and(|endpoints| !endpoints.metadata.labels.as_ref().is_some_and(is_ours))
}

/// Deletes the Endpoints of a Service whose slices are as they should be.
pub(super) fn prepare(acting: &Acting<'_>, name: &ServiceName) -> Prepared<()> {
    let Acting { writer, cache, model, rate, .. } = acting;
    let world = model.planner.world();
    let serving = |service: &portolan_core::mirror::LocalService| match service.role {
        Role::Mirror => service.owner.is_some(),
        Role::HandLabelled => true,
        Role::Foreign => false,
    };
    let is_served = world.local.services.get(name).is_some_and(serving) && world.local.slices.contains_key(name);
    let is_settled = model.decisions.get(name).is_some_and(portolan_core::mirror::Decision::is_settled);
    let adopts = world.remotes.values().any(|remote| remote.rules.adopts);
    if !is_served || !is_settled || !adopts || !is_due(cache, name) {
        return Prepared::Nothing;
    }
    let Some(endpoints) = cache.endpoints.get(&service_key(name)) else { return Prepared::Nothing };
    let (writer, rate, store) = ((*writer).clone(), (*rate).clone(), cache.endpoints.clone());
    Prepared::write(async move {
        rate.take().await;
        writer.delete(&store, endpoints.as_ref()).await.map(drop)
    })
}
