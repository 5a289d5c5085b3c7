//! Endpoints: which of them are used, and which port each of them feeds.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::super::deny::DenyList;
use super::super::endpoints::Endpoints;
use super::super::ports::{PortNumber, fed_by};
use super::super::problem::Problem;
use super::super::types::{Endpoint, ObjectName, World};
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
    pub(super) objects: &'a Arc<Endpoints<Endpoint>>,
    /// In the order of their names.
    pub(super) endpoints: Vec<(&'a Arc<str>, Judgement<'a>)>,
}

impl Judged<'_> {
    /// The endpoints of a service that are used.
    pub(super) fn used(&self, service: usize) -> impl Iterator<Item = Used> {
        let of_service = self.by_service[service].map(|at| &self.all[at].endpoints);
        of_service.into_iter().flatten().filter_map(|(_, judgement)| judgement.used.as_ref().ok().copied())
    }
}

pub(super) struct Judgement<'a> {
    pub(super) object: &'a Endpoint,
    /// How it is used, or why it is not.
    pub(super) used: Result<Used, Refused>,
}

#[derive(Clone, Copy)]
pub(super) struct Used {
    /// The pod's port.
    pub(super) pod: PodPort,
    /// The client's node.
    pub(super) node: IpAddr,
    /// The public port that it feeds.
    pub(super) feeds: PortNumber,
}

pub(super) enum Refused {
    NotAccepted(Problem),
    Unresolved(Problem),
}

/// Where a pod listens.
pub(super) type PodPort = (IpAddr, PortNumber);

/// A pod's port that is used, and by which endpoint: its load balancer and its own place there.
struct Use {
    pod: PodPort,
    at: usize,
    place: usize,
}

pub(super) fn judge<'a>(world: &'a World, services: &Services<'a>, deny: &DenyList<'_>) -> Judged<'a> {
    let mut judged =
        Judged { all: Vec::with_capacity(world.endpoints.len()), by_service: vec![None; services.all.len()] };
    let mut uses: Vec<Use> = Vec::with_capacity(world.endpoints.values().map(|endpoints| endpoints.len()).sum());
    // both are in the order of names
    let mut by_name = services.by_name.iter().peekable();
    for (at, (load_balancer, objects)) in world.endpoints.iter().enumerate() {
        while by_name.next_if(|(name, _)| *name < load_balancer).is_some() {}
        let service = by_name.next_if(|(name, _)| *name == load_balancer).map(|(_, position)| *position);
        let of_service = service.map(|position| &services.all[position]);
        let judge = |(name, object)| (name, Judgement { object, used: one(of_service, load_balancer, object, deny) });
        let mut decided: Vec<_> = objects.iter().map(judge).collect();
        let account = of_service.and_then(|service| service.account);
        let limit = account.map_or(0, |(_, account)| account.limits.endpoints_per_load_balancer);
        let first = uses.len();
        uses.extend(used(&decided, at));
        let here = &mut uses[first..];
        here.sort_unstable_by_key(|one| one.pod);
        if here.len() > limit as usize || here.windows(2).any(|two| two[0].pod == two[1].pod) {
            refuse_younger(&mut decided, limit);
            uses.truncate(first);
            uses.extend(used(&decided, at));
        }
        if let Some(position) = service {
            judged.by_service[position] = Some(at);
        }
        judged.all.push(JudgedEndpoints { load_balancer, service, objects, endpoints: decided });
    }
    refuse_foreign(services, uses, &mut judged);
    judged
}

fn used(endpoints: &[(&Arc<str>, Judgement<'_>)], at: usize) -> impl Iterator<Item = Use> {
    let used = move |(place, (_, judgement)): (usize, &(_, Judgement<'_>))| {
        let Used { pod, .. } = *judgement.used.as_ref().ok()?;
        Some(Use { pod, at, place })
    };
    endpoints.iter().enumerate().filter_map(used)
}

/// Of the endpoints of a load balancer, the oldest one of a pod's port is used, and no more than the limit.
fn refuse_younger(endpoints: &mut [(&Arc<str>, Judgement<'_>)], limit: u32) {
    let mut oldest_first: Vec<usize> = (0..endpoints.len()).collect();
    oldest_first.sort_by(|one, other| {
        let age = |place: usize| endpoints[place].1.object.identity.age();
        age(*one).cmp(&age(*other))
    });
    let mut used: BTreeMap<PodPort, (&Arc<str>, IpAddr)> = BTreeMap::new();
    for place in oldest_first {
        let (name, judgement) = &mut endpoints[place];
        let Ok(Used { pod, node, .. }) = judgement.used else { continue };
        if let Some((other, its_node)) = used.get(&pod) {
            judgement.used = Err(Refused::NotAccepted(duplicate(other, *its_node == node)));
        } else if used.len() >= limit as usize {
            judgement.used = Err(Refused::NotAccepted(Problem::Quota { what: "endpoints of one LoadBalancer", limit }));
        } else {
            used.insert(pod, (name, node));
        }
    }
}

fn one(
    service: Option<&Service<'_>>,
    load_balancer: &ObjectName,
    object: &Endpoint,
    deny: &DenyList<'_>,
) -> Result<Used, Refused> {
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
    Ok(Used { pod: (spec.address, spec.port.number), node: spec.node, feeds: feeds.number })
}

fn duplicate(other: &Arc<str>, is_same_node: bool) -> Problem {
    let other = Arc::clone(other);
    if is_same_node { Problem::DuplicateEndpoint { other } } else { Problem::AmbiguousEndpoint { other } }
}

/// Without tunnels, packets to equal addresses of two accounts would mix: the account of the oldest endpoint keeps it.
fn refuse_foreign(services: &Services<'_>, mut uses: Vec<Use>, judged: &mut Judged<'_>) {
    uses.sort_unstable_by_key(|one| one.pod);
    for same in uses.chunk_by(|one, other| one.pod == other.pod).filter(|same| same.len() > 1) {
        let account = |one: &Use| {
            let position = judged.all[one.at].service?;
            services.all[position].account.map(|(name, _)| name)
        };
        let age = |one: &&Use| judged.all[one.at].endpoints[one.place].1.object.identity.age();
        let first = same.iter().min_by_key(age).and_then(account);
        let foreign: Vec<&Use> = same.iter().filter(|one| account(one) != first).collect();
        for Use { pod: (address, _), at, place } in foreign {
            let problem = Problem::EndpointInUse { address: *address };
            judged.all[*at].endpoints[*place].1.used = Err(Refused::NotAccepted(problem));
        }
    }
}
