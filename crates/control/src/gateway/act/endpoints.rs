//! Endpoints: their status; and those that go with their load balancer.

use std::sync::Arc;

use kube::ResourceExt as _;
use portolan_api::gateway::{Endpoint, EndpointStatus};
use portolan_api::well_known::gateway::ENDPOINT_FINALIZER;
use portolan_core::gateway::ObjectName;
use tokio::time::Instant;

use super::super::{status, validate};
use super::acting::{Acting, UNDER_WAY, after, is_under_way};
use crate::runtime::due::Prepared;
use crate::runtime::endpoint::Part;

pub(super) fn prepare(acting: Acting<'_>, name: &ObjectName, since: Instant) -> Prepared<()> {
    let seen = acting.model.endpoints.get(&validate::key_of(name)).cloned();
    let Some(seen) = seen else { return Prepared::Nothing };
    let load_balancer = ObjectName::new(&name.namespace, &seen.spec.load_balancer);
    let Some(planned) = acting.plan.endpoint(&load_balancer, &name.name) else { return Prepared::Nothing };
    let (writer, store) = (acting.writer.clone(), acting.cache.endpoints.clone());
    if planned.drops_finalizer {
        let mut wanted = Endpoint::clone(&seen);
        wanted.finalizers_mut().retain(|finalizer| finalizer != ENDPOINT_FINALIZER);
        return Prepared::write(async move { writer.replace(&store, Part::Object, &wanted).await.map(drop) });
    }
    if planned.is_deleted {
        return Prepared::write(async move { writer.delete(&store, &*seen).await.map(drop) });
    }
    if seen.metadata.deletion_timestamp.is_some() {
        return Prepared::Nothing;
    }
    let before = seen.status.clone().unwrap_or_default();
    let wanted = EndpointStatus {
        proxy_ifindex: before.proxy_ifindex,
        gue_key: planned.key.unwrap_or(before.gue_key),
        tunnel_id: planned.tunnel.unwrap_or(before.tunnel_id),
        conditions: status::conditions(&planned.verdicts, seen.metadata.generation),
    };
    let same_numbers = (before.gue_key, before.tunnel_id) == (wanted.gue_key, wanted.tunnel_id);
    if same_numbers && status::says(&before.conditions, &wanted.conditions) {
        return Prepared::Nothing;
    }
    let waits = is_under_way(&planned.verdicts);
    let seen = Arc::clone(&seen);
    let write = Prepared::write(async move { writer.replace_status(&store, &*seen, &wanted).await.map(drop) });
    if waits { after(since, UNDER_WAY, write) } else { write }
}
