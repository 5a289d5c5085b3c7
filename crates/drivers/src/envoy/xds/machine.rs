//! What to send on one stream, without I/O: requests and snapshots go in, responses come out.
//!
//! Memory is bounded by the snapshot and by what a client may subscribe to: nothing is queued, each response is the
//! difference between what is wanted and what the client has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan_core::gateway::ports::PortNumber;
use prost::Message as _;

use super::subscription::{Changes, Subscription, TooManyNames};
use crate::envoy::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource};
use crate::envoy::resources::{Kind, Snapshot};

/// Resources are spread over several responses at this size. One larger resource still goes out, alone.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// More than what a response has besides resources: its type and nonce.
const HEAD_BYTES: usize = 256;

/// The state of one stream.
#[derive(Debug)]
pub(super) struct Machine {
    wanted: Arc<Snapshot>,
    clusters: Subscription,
    assignments: Subscription,
    listeners: Subscription,
    last_nonce: u64,
}

impl Machine {
    /// A stream on which nothing was said.
    pub(super) fn new(wanted: Arc<Snapshot>) -> Self {
        let (clusters, assignments, listeners) = Default::default();
        Self { wanted, clusters, assignments, listeners, last_nonce: 0 }
    }

    /// Wants exactly these resources.
    pub(super) fn want(&mut self, wanted: Arc<Snapshot>) {
        for kind in Kind::ALL {
            self.of_kind_mut(kind).want(wanted.of_kind(kind));
        }
        self.wanted = wanted;
    }

    /// Takes in a request. Kinds that units do not have are passed over.
    pub(super) fn handle(&mut self, request: &DeltaDiscoveryRequest) -> Result<(), TooManyNames> {
        let Some(kind) = Kind::parse(&request.type_url) else { return Ok(()) };
        let wanted = Arc::clone(&self.wanted);
        let has_wildcard = match kind {
            Kind::Cluster | Kind::Listener => true,
            Kind::Assignment => false,
        };
        self.of_kind_mut(kind).handle(request, wanted.of_kind(kind), has_wildcard)
    }

    /// The next response that may be sent.
    pub(super) fn poll(&mut self) -> Option<DeltaDiscoveryResponse> {
        Kind::ALL.into_iter().find_map(|kind| self.poll_kind(kind))
    }

    fn poll_kind(&mut self, kind: Kind) -> Option<DeltaDiscoveryResponse> {
        let mut changes = self.changes(kind);
        let all = changes.changed.len();
        match kind {
            Kind::Cluster if !self.has_removed_listeners() => changes.removed.clear(),
            Kind::Cluster | Kind::Assignment => {}
            Kind::Listener => {
                let backed = self.backed_ports();
                let listeners = self.wanted.of_kind(Kind::Listener);
                changes.changed.retain(|name| listeners.get(name).is_some_and(|found| backed.contains(&found.port)));
            }
        }
        let is_more_to_come = changes.changed.len() < all;
        let changes = self.of_kind(kind).next_response(changes, is_more_to_come)?;
        Some(self.respond(kind, changes))
    }

    /// Clusters are removed when nothing can refer to them.
    fn has_removed_listeners(&self) -> bool {
        self.listeners.is_open && self.listeners.is_quiet() && self.changes(Kind::Listener) == Changes::default()
    }

    /// Ports whose cluster and endpoints the client has, as far as it accepts them: their listeners can follow.
    fn backed_ports(&self) -> BTreeSet<PortNumber> {
        let clusters = self.wanted.of_kind(Kind::Cluster).iter();
        let is_backed = |name: &str, version: &Arc<str>| {
            self.clusters.rejected().contains_key(name)
                || (self.clusters.is_current(name, version) && self.assignments.is_answered(name))
        };
        clusters.filter(|(name, found)| is_backed(name, &found.version)).map(|(_, found)| found.port).collect()
    }

    fn respond(&mut self, kind: Kind, changes: Changes) -> DeltaDiscoveryResponse {
        self.last_nonce += 1;
        let nonce = self.last_nonce.to_string();
        let wanted = Arc::clone(&self.wanted);
        let (mut resources, mut sent, mut size) = (Vec::new(), Vec::new(), HEAD_BYTES);
        for name in changes.changed {
            let Some(found) = wanted.of_kind(kind).get(&name) else { continue };
            let resource = Resource {
                version: found.version.to_string(),
                resource: Some(found.content.clone()),
                name: name.to_string(),
            };
            let length = resource.encoded_len();
            size += 1 + prost::length_delimiter_len(length) + length;
            if size > MAX_RESPONSE_BYTES && !sent.is_empty() {
                break;
            }
            resources.push(resource);
            sent.push((name, Arc::clone(&found.version)));
        }
        if kind == Kind::Cluster {
            // a changed cluster waits for an assignment, even an unchanged one, and Envoy does not ask for it
            for (name, _) in &sent {
                self.assignments.owe(name);
            }
        }
        let removed_resources = changes.removed.iter().map(ToString::to_string).collect();
        self.of_kind_mut(kind).sent(nonce.clone(), sent, changes.removed);
        DeltaDiscoveryResponse { resources, type_url: kind.type_url(), nonce, removed_resources }
    }

    /// The client has answered for all that is wanted.
    pub(super) fn is_settled(&self) -> bool {
        Kind::ALL.into_iter().all(|kind| {
            let (subscription, wanted) = (self.of_kind(kind), self.wanted.of_kind(kind));
            let is_needless = |name: &str| kind == Kind::Assignment && self.clusters.rejected().contains_key(name);
            let is_open = subscription.is_open || (kind == Kind::Assignment && wanted.is_empty());
            is_open
                && subscription.is_quiet()
                && self.changes(kind) == Changes::default()
                && wanted.iter().all(|(name, found)| subscription.is_current(name, &found.version) || is_needless(name))
        })
    }

    /// What is wanted.
    pub(super) const fn wanted(&self) -> &Arc<Snapshot> {
        &self.wanted
    }

    /// What the client does not accept, by the port that it serves.
    pub(super) fn rejected(&self) -> BTreeMap<PortNumber, Arc<str>> {
        let of_kind = |kind| {
            let wanted = self.wanted.of_kind(kind);
            let rejected = self.of_kind(kind).rejected().iter();
            rejected.filter_map(move |(name, rejection)| Some((wanted.get(name)?.port, Arc::clone(&rejection.reason))))
        };
        Kind::ALL.into_iter().flat_map(of_kind).collect()
    }

    fn changes(&self, kind: Kind) -> Changes {
        // the assignment of a removed cluster goes with it
        self.of_kind(kind).changes(self.wanted.of_kind(kind), kind != Kind::Assignment)
    }

    const fn of_kind(&self, kind: Kind) -> &Subscription {
        match kind {
            Kind::Cluster => &self.clusters,
            Kind::Assignment => &self.assignments,
            Kind::Listener => &self.listeners,
        }
    }

    const fn of_kind_mut(&mut self, kind: Kind) -> &mut Subscription {
        match kind {
            Kind::Cluster => &mut self.clusters,
            Kind::Assignment => &mut self.assignments,
            Kind::Listener => &mut self.listeners,
        }
    }
}
