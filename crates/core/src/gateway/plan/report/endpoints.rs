//! Endpoints: their conditions, and the values of their load balancer.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::super::problem::Problem;
use super::super::super::types::ObjectName;
use super::super::super::verdict::{ConditionKind, Verdicts};
use super::super::endpoints::{Judged, JudgedEndpoints, Judgement, Refused};
use super::super::result::{EndpointPlan, EndpointPlans};
use super::super::services::Services;
use super::super::tunnels::Tunnels;
use super::super::units::{self, Effect};

pub(in super::super) fn endpoints(
    services: &Services<'_>,
    effects: &[Effect<'_>],
    judged: Judged<'_>,
    tunnels: &Tunnels,
) -> BTreeMap<ObjectName, EndpointPlans> {
    let mut all = Vec::with_capacity(judged.all.len());
    for JudgedEndpoints { load_balancer, service: position, objects, endpoints } in judged.all {
        let service = position.map(|position| &services.all[position]);
        let effect = position.map(|position| &effects[position]);
        let tunnels = position.map(|position| &tunnels.by_service[position].wanted);
        let is_deleted = service.is_some_and(|service| {
            service.object.identity.is_terminating() && service.object.identity.has_finalizer && service.is_released
        });
        let key = service.and_then(|service| service.object.key);
        let plan = |(_, Judgement { object, used }): (_, Judgement<'_>)| {
            let tunnel = object.spec.as_ref().ok().and_then(|spec| tunnels?.get(&spec.node));
            let (refused, unresolved) = match &used {
                Ok(_) => (None, None),
                Err(Refused::NotAccepted(problem)) => (Some(problem), None),
                Err(Refused::Unresolved(problem)) => (None, Some(problem)),
            };
            let programmed = match (&used, service.zip(effect)) {
                (Ok(used), Some((service, effect))) => units::endpoint_programmed(effect, service, used),
                _ => Some(Problem::NotAllocated),
            };
            let programmed = programmed.filter(|_| refused.is_none() && unresolved.is_none());
            let programmed = programmed.or_else(|| refused.or(unresolved).cloned());
            let verdicts = match &programmed {
                None => Verdicts::working_endpoint(),
                Some(programmed) => Verdicts::of([
                    (ConditionKind::Accepted, refused),
                    (ConditionKind::ResolvedRefs, unresolved),
                    (ConditionKind::Programmed, Some(programmed)),
                ]),
            };
            EndpointPlan {
                verdicts,
                key,
                tunnel: tunnel.map(|tunnel| tunnel.id),
                is_deleted: is_deleted && !object.identity.is_terminating(),
                drops_finalizer: object.identity.has_finalizer,
            }
        };
        let plans = endpoints.into_iter().map(plan).collect();
        all.push((load_balancer.clone(), EndpointPlans { objects: Arc::clone(objects), plans }));
    }
    all.into_iter().collect()
}
