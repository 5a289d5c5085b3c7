//! World -> what is next for one Service. Total: what cannot be had is in the decision.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::endpoints::gather;
use super::problem::{Refusal, Unhonoured};
use super::types::{
    Endpoint, NodeEndpoints, Port, Protocol, Remote, Requested, Seen, Service, ServiceName, Standing, World,
};

/// What is next for a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The call to make; decided again with its answer.
    pub call: Option<Call>,
    /// What becomes of our finalizer.
    pub finalizer: Option<FinalizerChange>,
    /// What its status should show.
    pub shown: Shown,
}

/// A call to the gateway about one load balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Reads it.
    Read,
    /// Reads it in a while: it waits for its address, or is being deleted.
    ReadLater,
    /// Creates it.
    Create {
        /// Its ports.
        ports: Vec<Port>,
        /// The address to ask for.
        address: Option<IpAddr>,
    },
    /// Replaces its ports.
    Update {
        /// Its ports.
        ports: Vec<Port>,
    },
    /// Reads its endpoints.
    ReadEndpoints,
    /// Replaces its endpoints on a node.
    PutEndpoints {
        /// Address of the node.
        node: IpAddr,
        /// Exactly these.
        endpoints: BTreeSet<Endpoint>,
    },
    /// Deletes it.
    Delete,
}

/// What becomes of our finalizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinalizerChange {
    /// Added before anything is made at the gateway.
    Add,
    /// Removed when nothing is there any more.
    Remove,
}

/// What the status of a Service should show of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// It stays as it is.
    Untouched,
    /// Nothing: what we wrote goes.
    Nothing,
    /// An address, and how far it is announced.
    Ours {
        /// The address.
        address: AddressShown,
        /// How far it is announced.
        announced: Announced,
        /// What is not as the Service asks for.
        unhonoured: Vec<Unhonoured>,
    },
}

/// The address in the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressShown {
    /// The one that is shown, as the gateway has not said otherwise.
    Kept,
    /// None.
    Gone,
    /// This one.
    Is(IpAddr),
}

/// How far a Service is announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Announced {
    /// The gateway has everything.
    Whole,
    /// Calls are yet to be made.
    Partly,
    /// Not at all.
    Refused(Refusal),
}

/// Decides about one Service.
pub fn decide(world: &World, name: &ServiceName) -> Decision {
    let Some(service) = world.services.get(name) else {
        return Decision { call: None, finalizer: None, shown: Shown::Untouched };
    };
    let seen = world.seen.get(&world.cluster.name(name));
    match service.standing {
        Standing::Elsewhere if service.is_reported => return withdraw(service, seen, Shown::Nothing),
        Standing::Elsewhere | Standing::Deleting => return withdraw(service, seen, Shown::Untouched),
        Standing::Ours => {}
    }
    if let Some(refusal) = refusal(service) {
        let is_gone = !service.is_held || seen == Some(&Seen::Absent);
        let address = if is_gone { AddressShown::Gone } else { AddressShown::Kept };
        let announced = Announced::Refused(refusal);
        return withdraw(service, seen, Shown::Ours { address, announced, unhonoured: Vec::new() });
    }
    announce(world, name, service, seen)
}

/// Takes everything away from the gateway, then lets the Service go.
fn withdraw(service: &Service, seen: Option<&Seen>, shown: Shown) -> Decision {
    let is_gone = matches!(seen, Some(Seen::Absent));
    Decision {
        call: (service.is_held && !is_gone).then_some(Call::Delete),
        finalizer: (service.is_held && is_gone).then_some(FinalizerChange::Remove),
        shown,
    }
}

/// Makes the gateway serve what the Service asks for, one call at a time.
fn announce(world: &World, name: &ServiceName, service: &Service, seen: Option<&Seen>) -> Decision {
    let mut unhonoured = limits(service);
    let (call, address) = match seen {
        _ if !service.is_held => (None, AddressShown::Kept),
        None => (Some(Call::Read), AddressShown::Kept),
        Some(Seen::Leaving) => (Some(Call::ReadLater), AddressShown::Gone),
        Some(Seen::Absent) => {
            let address = match &service.requested {
                Requested::Address(address) => Some(*address),
                Requested::Any | Requested::Invalid(_) => None,
            };
            (Some(Call::Create { ports: service.ports.clone(), address }), AddressShown::Gone)
        }
        Some(Seen::Present(remote)) => {
            let gathered = gather(world, name, &service.ports);
            unhonoured.extend(differences(world, service, remote));
            unhonoured.extend(gathered.problems);
            (next_call(service, remote, &gathered.nodes), remote.address.map_or(AddressShown::Kept, AddressShown::Is))
        }
    };
    let is_whole = service.is_held && call.is_none();
    let announced = if is_whole { Announced::Whole } else { Announced::Partly };
    let finalizer = (!service.is_held).then_some(FinalizerChange::Add);
    Decision { call, finalizer, shown: Shown::Ours { address, announced, unhonoured } }
}

fn refusal(service: &Service) -> Option<Refusal> {
    if service.ports.iter().any(|port| port.protocol == Protocol::Sctp) {
        return Some(Refusal::UnsupportedProtocol);
    }
    if service.limits.source_ranges {
        return Some(Refusal::SourceRanges);
    }
    match &service.requested {
        Requested::Invalid(text) => Some(Refusal::InvalidAddress(text.clone())),
        Requested::Any | Requested::Address(_) => None,
    }
}

fn limits(service: &Service) -> Vec<Unhonoured> {
    let affinity = service.limits.session_affinity.then_some(Unhonoured::SessionAffinity);
    let local = service.limits.local_traffic.then_some(Unhonoured::LocalTraffic);
    affinity.into_iter().chain(local).collect()
}

/// What of a load balancer only a new one would change.
fn differences(world: &World, service: &Service, remote: &Remote) -> Vec<Unhonoured> {
    let group = (remote.group != world.group && !remote.group.is_empty())
        .then(|| Unhonoured::GroupDiffers { group: remote.group.clone() });
    let address = match (&service.requested, remote.address) {
        (Requested::Address(requested), Some(given)) if *requested != given => {
            Some(Unhonoured::AddressDiffers { requested: *requested, given })
        }
        _ => None,
    };
    group.into_iter().chain(address).collect()
}

fn next_call(service: &Service, remote: &Remote, want: &NodeEndpoints) -> Option<Call> {
    if !same_ports(&service.ports, &remote.ports) {
        return Some(Call::Update { ports: service.ports.clone() });
    }
    let Some(have) = &remote.endpoints else { return Some(Call::ReadEndpoints) };
    next_put(have, want).or_else(|| remote.address.is_none().then_some(Call::ReadLater))
}

fn same_ports(want: &[Port], have: &[Port]) -> bool {
    let sorted = |ports: &[Port]| ports.iter().cloned().collect::<BTreeSet<Port>>();
    sorted(want) == sorted(have)
}

/// The node whose endpoints are replaced next. One that holds what another should have comes first, as the gateway has
/// each endpoint once; then those that get endpoints; those that lose all come last, so that there are always some.
fn next_put(have: &NodeEndpoints, want: &NodeEndpoints) -> Option<Call> {
    let nothing = BTreeSet::new();
    let all: BTreeSet<IpAddr> = have.keys().chain(want.keys()).copied().collect();
    let sets = |node: &IpAddr| (have.get(node).unwrap_or(&nothing), want.get(node).unwrap_or(&nothing));
    let differing: Vec<IpAddr> = all.into_iter().filter(|node| sets(node).0 != sets(node).1).collect();
    if differing.is_empty() {
        return None;
    }
    let (held, wanted) = (places(have), places(want));
    let rank = |node: &IpAddr| {
        let (have, want) = sets(node);
        let is_awaited = |one: &Endpoint| wanted.get(&one.identity()).is_some_and(|place| place != node);
        match () {
            () if have.iter().any(is_awaited) => 0,
            () if !want.is_empty() => 1,
            () => 2,
        }
    };
    let node = differing.into_iter().min_by_key(|node| (rank(node), *node))?;
    let is_free = |one: &&Endpoint| held.get(&one.identity()).is_none_or(|place| *place == node);
    let endpoints = sets(&node).1.iter().filter(is_free).cloned().collect();
    Some(Call::PutEndpoints { node, endpoints })
}

/// The node of each endpoint.
fn places(nodes: &NodeEndpoints) -> BTreeMap<(IpAddr, u16, Protocol), IpAddr> {
    let all = nodes.iter().flat_map(|(node, endpoints)| endpoints.iter().map(move |one| (one.identity(), *node)));
    all.collect()
}
