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

/// What is decided about endpoints, by the load balancer that they name.
pub(super) struct Judged<'a> {
    /// In the order of their names.
    pub(super) all: Vec<JudgedEndpoints<'a>>,
    /// Positions in `all`, by position of the service.
    by_service: Vec<Option<usize>>,
}

/// The endpoints that name one load balancer.
pub(super) struct JudgedEndpoints<'a> {
    pub(super) load_balancer: &'a ObjectName,
    /// Its position in the services, if it exists.
    pub(super) service: Option<usize>,
    /// In the order of their names.
    pub(super) endpoints: Vec<(&'a Arc<str>, Judgement<'a>)>,
}

impl<'a> Judged<'a> {
    /// The endpoints of a service that are used.
    pub(super) fn used(&self, service: usize) -> impl Iterator<Item = Used<'a>> {
        let of_service = self.by_service[service].map(|at| &self.all[at].endpoints);
        of_service.into_iter().flatten().filter_map(|(_, judgement)| judgement.used.as_ref().ok().copied())
    }
}

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

/// Pods' ports that are used. Never iterated; equal in every process.
type Occupied<'a> = hashbrown::HashMap<(IpAddr, PortNumber), Occupant<'a>, BuildHasherDefault<DefaultHasher>>;

/// Who uses a pod's port.
struct Occupant<'a> {
    /// The account of the oldest endpoint there, and the age of that.
    account: &'a str,
    age: (i64, bool, &'a str),
    /// The load balancer that was looked at last, by position, and its endpoint there with its node.
    last: (usize, &'a Arc<str>, IpAddr),
}

pub(super) fn judge<'a>(world: &'a World, services: &Services<'a>, deny: &DenyList<'_>) -> Judged<'a> {
    let mut judged =
        Judged { all: Vec::with_capacity(world.endpoints.len()), by_service: vec![None; services.all.len()] };
    let count = world.endpoints.values().map(BTreeMap::len).sum();
    let mut occupied = Occupied::with_capacity_and_hasher(count, BuildHasherDefault::default());
    let mut is_contested = false;
    for (at, (load_balancer, endpoints)) in world.endpoints.iter().enumerate() {
        let service = services.position(load_balancer);
        let of_service = service.map(|position| &services.all[position]);
        let mut sorted: Vec<(usize, &Arc<str>, &Endpoint)> =
            endpoints.iter().enumerate().map(|(place, (name, object))| (place, name, object)).collect();
        sorted.sort_by(|(_, _, one), (_, _, other)| one.identity.age().cmp(&other.identity.age()));
        let limit = of_service.and_then(|service| service.account);
        let limit = limit.map_or(0, |(_, account)| account.limits.endpoints_per_load_balancer);
        let mut count = 0;
        let mut decided: Vec<_> = (0..endpoints.len()).map(|_| None).collect();
        for (place, name, object) in sorted {
            let used = one(of_service, load_balancer, object, deny).and_then(|used| {
                let pod = (used.spec.address, used.spec.port.number);
                let last = (at, name, used.spec.node);
                let occupant = occupied.get_mut(&pod);
                if let Some(Occupant { last: (other_at, other, node), .. }) = &occupant
                    && *other_at == at
                {
                    return Err(Refused::NotAccepted(duplicate(other, *node == used.spec.node)));
                }
                if count >= limit {
                    return Err(Refused::NotAccepted(Problem::Quota { what: "endpoints of one LoadBalancer", limit }));
                }
                count += 1;
                let account = of_service.and_then(|service| service.account).map_or("", |(account, _)| account);
                let age = object.identity.age();
                match occupant {
                    None => drop(occupied.insert(pod, Occupant { account, age, last })),
                    Some(occupant) => {
                        is_contested |= occupant.account != account;
                        occupant.last = last;
                        if age < occupant.age {
                            (occupant.account, occupant.age) = (account, age);
                        }
                    }
                }
                Ok(used)
            });
            decided[place] = Some((name, Judgement { object, used }));
        }
        if let Some(position) = service {
            judged.by_service[position] = Some(at);
        }
        judged.all.push(JudgedEndpoints { load_balancer, service, endpoints: decided.into_iter().flatten().collect() });
    }
    if is_contested {
        refuse_foreign(services, &occupied, &mut judged);
    }
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

/// Without tunnels, packets to equal addresses of two accounts would mix: the older keeps it.
fn refuse_foreign(services: &Services<'_>, occupied: &Occupied<'_>, judged: &mut Judged<'_>) {
    for JudgedEndpoints { service, endpoints, .. } in &mut judged.all {
        let account = service.and_then(|position| services.all[position].account);
        let Some((account, _)) = account else { continue };
        for (_, judgement) in endpoints {
            let Ok(used) = &judgement.used else { continue };
            let first = occupied.get(&(used.spec.address, used.spec.port.number));
            if first.is_some_and(|occupant| *occupant.account != **account) {
                let problem = Problem::EndpointInUse { address: used.spec.address };
                judgement.used = Err(Refused::NotAccepted(problem));
            }
        }
    }
}
