//! Endpoints: their conditions, and the values of their load balancer.

use std::sync::Arc;

use super::super::super::problem::Problem;
use super::super::super::types::{ObjectName, World};
use super::super::super::verdict::{ConditionKind, Verdicts};
use super::super::endpoints::{Judged, Judgement, Refused};
use super::super::result::{EndpointPlan, Plan};
use super::super::services::Services;
use super::super::tunnels::Tunnels;
use super::super::units;

pub(in super::super) fn endpoints(
    world: &World,
    services: &Services<'_>,
    judged: Judged<'_>,
    tunnels: &Tunnels,
    plan: &mut Plan,
) {
    for (load_balancer, endpoints) in judged {
        let service = services.get(load_balancer);
        let is_deleted = service.is_some_and(|service| {
            service.object.identity.is_terminating() && service.object.identity.has_finalizer && service.is_released
        });
        let key = service.and_then(|service| service.object.key);
        for (name, Judgement { object, used }) in endpoints {
            let tunnel = object.spec.as_ref().ok().and_then(|spec| tunnels.of(load_balancer).wanted.get(&spec.node));
            let (refused, unresolved) = match &used {
                Ok(_) => (None, None),
                Err(Refused::NotAccepted(problem)) => (Some(problem), None),
                Err(Refused::Unresolved(problem)) => (None, Some(problem)),
            };
            let programmed = match (&used, service) {
                (Ok(used), Some(service)) => units::endpoint_programmed(world, services, service, used),
                _ => Some(Problem::NotAllocated),
            };
            let programmed = programmed.filter(|_| refused.is_none() && unresolved.is_none());
            let programmed = programmed.or_else(|| refused.or(unresolved).cloned());
            let verdicts = Verdicts::of([
                (ConditionKind::Accepted, refused),
                (ConditionKind::ResolvedRefs, unresolved),
                (ConditionKind::Programmed, programmed.as_ref()),
            ]);
            let planned = EndpointPlan {
                verdicts,
                key,
                tunnel: tunnel.map(|tunnel| tunnel.id),
                is_deleted: is_deleted && !object.identity.is_terminating(),
                drops_finalizer: object.identity.has_finalizer,
            };
            let namespace = Arc::clone(&load_balancer.namespace);
            plan.endpoints.insert(ObjectName { namespace, name: Arc::clone(name) }, planned);
        }
    }
}
