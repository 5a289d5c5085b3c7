//! LoadBalancers: key, address and finalizer in one write; and their status.

use std::sync::Arc;

use kube::ResourceExt as _;
use portolan_api::gateway::{LoadBalancer, LoadBalancerStatus};
use portolan_api::well_known::gateway::LOAD_BALANCER_FINALIZER;
use portolan_core::gateway::{Completion, LoadBalancerPlan, ObjectName};
use tokio::time::Instant;

use super::super::{events, status, validate};
use super::acting::{Acting, UNDER_WAY, after, is_under_way};
use crate::runtime::due::Prepared;
use crate::runtime::endpoint::Part;

fn seen<'a>(acting: Acting<'a>, name: &ObjectName) -> Option<(&'a Arc<LoadBalancer>, &'a LoadBalancerPlan)> {
    acting.model.load_balancer(name).zip(acting.plan.load_balancers.get(name))
}

/// What the object itself needs.
pub(super) fn object(acting: Acting<'_>, name: &ObjectName) -> Prepared<()> {
    let Some((seen, planned)) = seen(acting, name) else { return Prepared::Nothing };
    let (writer, store) = (acting.writer.clone(), acting.cache.load_balancers.clone());
    let seen = Arc::clone(seen);
    if planned.is_deleted {
        return Prepared::write(async move { writer.delete(&store, &*seen).await.map(drop) });
    }
    let mut wanted = LoadBalancer::clone(&seen);
    if planned.is_finished {
        wanted.finalizers_mut().retain(|finalizer| finalizer != LOAD_BALANCER_FINALIZER);
    } else if let Some(Completion { key, address }) = planned.completion {
        wanted.spec.gue_key = key;
        if let Some(address) = address.filter(|_| wanted.spec.public_address.is_empty()) {
            wanted.spec.public_address = address.to_string();
        }
        if !wanted.finalizers().iter().any(|finalizer| finalizer == LOAD_BALANCER_FINALIZER) {
            wanted.finalizers_mut().push(LOAD_BALANCER_FINALIZER.to_owned());
        }
    }
    if wanted == *seen {
        return Prepared::Nothing;
    }
    let recorder = acting.recorder.clone();
    let is_finished = planned.is_finished;
    Prepared::write(async move {
        writer.replace(&store, Part::Object, &wanted).await?;
        if is_finished {
            events::released(&recorder, &seen);
        } else {
            events::allocated(&recorder, &wanted);
        }
        Ok(())
    })
}

/// What its status needs.
pub(super) fn status(acting: Acting<'_>, name: &ObjectName, since: Instant) -> Prepared<()> {
    let Some((seen, planned)) = seen(acting, name) else { return Prepared::Nothing };
    if planned.is_finished {
        return Prepared::Nothing;
    }
    let before = seen.status.clone().unwrap_or_default();
    let tunnels = planned
        .tunnels
        .iter()
        .map(|(node, tunnel)| (node.to_string(), validate::gue_endpoint(&tunnel.endpoint, tunnel.id)))
        .collect();
    let wanted = LoadBalancerStatus {
        gue_tunnel_endpoints: tunnels,
        proxy_ifindex: before.proxy_ifindex,
        proxy_ifname: before.proxy_ifname.clone(),
        conditions: status::conditions(&planned.verdicts, seen.metadata.generation),
    };
    let same_tunnels = before.gue_tunnel_endpoints == wanted.gue_tunnel_endpoints;
    if same_tunnels && status::says(&before.conditions, &wanted.conditions) {
        return Prepared::Nothing;
    }
    let waits = same_tunnels && is_under_way(&planned.verdicts);
    let (writer, store, seen) = (acting.writer.clone(), acting.cache.load_balancers.clone(), Arc::clone(seen));
    let write = Prepared::write(async move { writer.replace_status(&store, &*seen, &wanted).await.map(drop) });
    if waits { after(since, UNDER_WAY, write) } else { write }
}
