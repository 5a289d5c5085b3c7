//! What Services show: the address, and conditions. All else in their status belongs to others.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use portolan_api::well_known::gateway_client::{ANNOUNCED, HONOURED};
use portolan_core::gateway_client::{AddressShown, Announced, LbName, ServiceName, Shown, Unhonoured};
use serde_json::json;

use super::act::acting::Acting;
use super::events;
use crate::runtime::conditions::{condition, find};
use crate::runtime::due::Prepared;
use crate::runtime::problem::cleaned;

/// Our part of a status.
#[derive(Debug, Default, PartialEq)]
struct Part {
    addresses: Vec<String>,
    conditions: Vec<Condition>,
}

/// Why a Service is not announced yet.
struct Problem {
    reason: String,
    message: String,
}

/// What the status of a Service needs.
pub(super) fn prepare(acting: &Acting<'_>, name: &ServiceName) -> Prepared<()> {
    let Acting { writer, recorder, cache, model, .. } = *acting;
    let (Some(seen), Some(decision)) = (model.objects.get(name), model.decisions.get(name)) else {
        return Prepared::Nothing;
    };
    let lb = model.world.cluster.name(name);
    let before = conditions_of(seen);
    let shown = shown(seen, &before);
    let Some(want) = wanted(&decision.shown, &lb, problem(acting, &lb), seen, &shown) else { return Prepared::Nothing };
    if is_same(&shown, &want) {
        return Prepared::Nothing;
    }
    let Part { addresses, conditions } = want;
    let moved = shown.addresses != addresses;
    let ingress: Vec<_> = addresses.iter().map(|address| json!({ "ip": address })).collect();
    let part = if ingress.is_empty() { json!({}) } else { json!({ "loadBalancer": { "ingress": ingress } }) };
    let (writer, recorder, services, seen) = (writer.clone(), recorder.clone(), cache.services.clone(), seen.clone());
    Prepared::write(async move {
        writer.status_part(&services, seen.as_ref(), &before, &conditions, part).await?;
        if moved {
            events::addresses(&recorder, &seen, &addresses);
        }
        Ok(())
    })
}

fn problem(acting: &Acting<'_>, lb: &LbName) -> Option<Problem> {
    if let Some(login) = acting.login {
        return Some(Problem { reason: login.reason.to_owned(), message: login.message.clone() });
    }
    let error = acting.pauses.problem(lb)?;
    Some(Problem { reason: error.reason().to_owned(), message: cleaned(&error.to_string()) })
}

fn conditions_of(service: &Service) -> Vec<Condition> {
    service.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default()
}

/// Our part as it is. Addresses are ours only beside a condition of ours.
fn shown(service: &Service, before: &[Condition]) -> Part {
    let conditions: Vec<Condition> =
        [ANNOUNCED, HONOURED].iter().filter_map(|kind| find(before, kind).cloned()).collect();
    if conditions.is_empty() {
        return Part::default();
    }
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.iter().flat_map(|balancer| balancer.ingress.iter().flatten());
    Part { addresses: ingress.filter_map(|one| one.ip.clone()).collect(), conditions }
}

/// Our part as it should be; none if there is nothing to say yet.
fn wanted(shown: &Shown, lb: &LbName, problem: Option<Problem>, seen: &Service, now: &Part) -> Option<Part> {
    let (address, announced, unhonoured) = match shown {
        Shown::Untouched => return None,
        Shown::Nothing => return Some(Part::default()),
        Shown::Ours { address, announced, unhonoured } => (address, announced, unhonoured),
    };
    let addresses = match address {
        AddressShown::Kept => now.addresses.clone(),
        AddressShown::Gone => Vec::new(),
        AddressShown::Is(address) => vec![address.to_string()],
    };
    let generation = seen.metadata.generation;
    let new = |kind, state, reason: &str, message: String| Condition {
        // Services have no generation on most servers
        observed_generation: generation,
        ..condition(kind, Some(state), reason, message, 0)
    };
    let is_withdrawn = *address == AddressShown::Gone && !now.addresses.is_empty();
    let announced = match (announced, problem) {
        (Announced::Refused(refusal), _) => new(ANNOUNCED, false, refusal.reason(), refusal.to_string()),
        (Announced::Whole, _) => new(ANNOUNCED, true, "Announced", format!("load balancer {lb} at the gateway")),
        (Announced::Partly, Some(Problem { reason, message })) => new(ANNOUNCED, false, &reason, message),
        (Announced::Partly, None) if is_withdrawn => {
            let message = "the gateway has no load balancer for it any more: it is announced again";
            new(ANNOUNCED, false, "AddressWithdrawn", message.to_owned())
        }
        (Announced::Partly, None) => find(&now.conditions, ANNOUNCED)?.clone(),
    };
    let honoured = match unhonoured.first() {
        Some(first) => Some(new(HONOURED, false, first.reason(), joined(unhonoured))),
        None => find(&now.conditions, HONOURED).map(|_| new(HONOURED, true, "Honoured", String::new())),
    };
    Some(Part { addresses, conditions: [announced].into_iter().chain(honoured).collect() })
}

fn joined(unhonoured: &[Unhonoured]) -> String {
    unhonoured.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Whether nothing differs but times.
fn is_same(one: &Part, other: &Part) -> bool {
    let said = |part: &Part| -> Vec<_> {
        let of = |one: &Condition| {
            let Condition { type_, status, reason, message, observed_generation, last_transition_time: _ } =
                one.clone();
            (type_, status, reason, message, observed_generation)
        };
        part.conditions.iter().map(of).collect()
    };
    one.addresses == other.addresses && said(one) == said(other)
}
