//! Endpoints: which of them are used, and which port each of them feeds.

use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::net::IpAddr;
use std::sync::Arc;

use super::super::deny::DenyList;
use super::super::ports::{PortNumber, fed_by};
use super::super::problem::Problem;
use super::super::types::{Endpoint, EndpointSpec, ObjectName, World};
use super::services::{Service, Services};

/// What is decided about the endpoints of one load balancer, by name of the endpoint.
pub(super) type Judged<'a> = BTreeMap<&'a ObjectName, BTreeMap<&'a Arc<str>, Judgement<'a>>>;

pub(super) struct Judgement<'a> {
    pub(super) object: &'a Endpoint,
    /// The public port that it feeds, or why it is not used.
    pub(super) used: Result<Used<'a>, Refused>,
}

#[derive(Clone, Copy)]
pub(super) struct Used<'a> {
    pub(super) spec: &'a EndpointSpec,
    pub(super) feeds: PortNumber,
}

pub(super) enum Refused {
    NotAccepted(Problem),
    Unresolved(Problem),
}

/// Never iterated; equal in every process.
type HashMap<K, V> = hashbrown::HashMap<K, V, BuildHasherDefault<DefaultHasher>>;
/// A pod's port, and the account that uses it.
type Occupied<'a> = HashMap<(IpAddr, PortNumber), (&'a str, (i64, bool, &'a str))>;

pub(super) fn judge<'a>(world: &'a World, services: &Services<'a>, deny: &DenyList<'_>) -> Judged<'a> {
    let mut judged: Judged<'a> = BTreeMap::new();
    let mut occupied: Occupied<'a> = HashMap::default();
    for (name, endpoints) in &world.endpoints {
        let service = services.get(name);
        let of_service = judged.entry(name).or_default();
        let mut sorted: Vec<(&Arc<str>, &Endpoint)> = endpoints.iter().collect();
        sorted.sort_by(|(_, one), (_, other)| one.identity.age().cmp(&other.identity.age()));
        let mut seen: HashMap<(IpAddr, PortNumber), (&Arc<str>, IpAddr)> = HashMap::default();
        let mut count = 0;
        for (endpoint_name, object) in sorted {
            let used = one(service, name, object, deny).and_then(|used| {
                let place = (used.spec.address, used.spec.port.number);
                if let Some((other, node)) = seen.get(&place) {
                    return Err(Refused::NotAccepted(duplicate(other, *node == used.spec.node)));
                }
                let limit = service
                    .and_then(|service| service.account)
                    .map_or(0, |(_, account)| account.limits.endpoints_per_load_balancer);
                if count >= limit {
                    return Err(Refused::NotAccepted(Problem::Quota { what: "endpoints of one LoadBalancer", limit }));
                }
                count += 1;
                seen.insert(place, (endpoint_name, used.spec.node));
                Ok(used)
            });
            if let (Ok(used), Some((account, _))) = (&used, service.and_then(|service| service.account)) {
                let place = (used.spec.address, used.spec.port.number);
                let mine = (&**account, object.identity.age());
                let first = occupied.entry(place).or_insert(mine);
                if mine.1 < first.1 {
                    *first = mine;
                }
            }
            of_service.insert(endpoint_name, Judgement { object, used });
        }
    }
    refuse_foreign(services, &occupied, &mut judged);
    judged
}

fn one<'a>(
    service: Option<&Service<'_>>,
    load_balancer: &ObjectName,
    object: &'a Endpoint,
    deny: &DenyList<'_>,
) -> Result<Used<'a>, Refused> {
    let spec = object.spec.as_ref().map_err(|problem| Refused::NotAccepted(problem.clone()))?;
    if let Some(why) = deny.denies(spec.address) {
        return Err(Refused::NotAccepted(Problem::AddressDenied { address: spec.address, why }));
    }
    let missing = || Problem::LoadBalancerNotFound { name: Arc::clone(&load_balancer.name) };
    let service = service.ok_or_else(|| Refused::Unresolved(missing()))?;
    if service.object.identity.is_terminating() {
        return Err(Refused::Unresolved(missing()));
    }
    if service.refused.is_some() {
        let name = Arc::clone(&load_balancer.name);
        return Err(Refused::Unresolved(Problem::LoadBalancerNotReady { name }));
    }
    let feeds = fed_by(&service.object.ports, &spec.port).ok_or(Refused::NotAccepted(Problem::NoMatchingPort))?;
    Ok(Used { spec, feeds: feeds.number })
}

fn duplicate(other: &Arc<str>, is_same_node: bool) -> Problem {
    let other = Arc::clone(other);
    if is_same_node { Problem::DuplicateEndpoint { other } } else { Problem::AmbiguousEndpoint { other } }
}

/// Without tunnels, equal addresses of two accounts cannot be told apart: the older keeps it.
fn refuse_foreign(services: &Services<'_>, occupied: &Occupied<'_>, judged: &mut Judged<'_>) {
    for (name, endpoints) in judged.iter_mut() {
        let account = services.get(name).and_then(|service| service.account);
        let Some((account, _)) = account else { continue };
        for judgement in endpoints.values_mut() {
            let Ok(used) = &judgement.used else { continue };
            let first = occupied.get(&(used.spec.address, used.spec.port.number));
            if first.is_some_and(|(other, _)| *other != &**account) {
                let problem = Problem::EndpointInUse { address: used.spec.address };
                judgement.used = Err(Refused::NotAccepted(problem));
            }
        }
    }
}
