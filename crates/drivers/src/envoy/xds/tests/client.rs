//! A client as Envoy is one: it asks for assignments of the clusters it has, and rejects a response as a whole.

use std::collections::{BTreeMap, BTreeSet};

use crate::envoy::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Node, Status};
use crate::envoy::resources::Kind;
use crate::envoy::xds::machine::Machine;

/// What is not accepted.
pub(super) type IsBad = Box<dyn Fn(Kind, &str, &str) -> bool>;

pub(super) struct Client {
    /// Names and versions that it has.
    pub(super) held: BTreeMap<Kind, BTreeMap<String, String>>,
    is_bad: IsBad,
}

impl Client {
    pub(super) fn new(is_bad: impl Fn(Kind, &str, &str) -> bool + 'static) -> Self {
        let held = Kind::ALL.into_iter().map(|kind| (kind, BTreeMap::new())).collect();
        Self { held, is_bad: Box::new(is_bad) }
    }

    pub(super) fn accepting() -> Self {
        Self::new(|_, _, _| false)
    }

    /// Its first requests on a stream.
    pub(super) fn connect(&self) -> Vec<DeltaDiscoveryRequest> {
        let request = |kind: Kind| DeltaDiscoveryRequest {
            node: Some(Node { id: super::id().to_string() }),
            type_url: kind.type_url(),
            resource_names_subscribe: match kind {
                Kind::Assignment => self.names(Kind::Cluster).into_iter().collect(),
                Kind::Cluster | Kind::Listener => Vec::new(),
            },
            initial_resource_versions: self.held[&kind].clone(),
            ..DeltaDiscoveryRequest::default()
        };
        Kind::ALL.into_iter().map(request).collect()
    }

    /// Takes in a response, and answers.
    pub(super) fn receive(&mut self, response: &DeltaDiscoveryResponse) -> Vec<DeltaDiscoveryRequest> {
        let kind = Kind::parse(&response.type_url).expect("only what was asked for is sent");
        let bad = response.resources.iter().find(|found| (self.is_bad)(kind, &found.name, &found.version));
        let answer = DeltaDiscoveryRequest {
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            error_detail: bad.map(|bad| Status { code: 13, message: format!("{} is bad", bad.name) }),
            ..DeltaDiscoveryRequest::default()
        };
        if bad.is_some() {
            return vec![answer];
        }
        let before = self.names(Kind::Cluster);
        let held = self.held.get_mut(&kind).expect("there is one for each kind");
        held.extend(response.resources.iter().map(|found| (found.name.clone(), found.version.clone())));
        held.retain(|name, _| !response.removed_resources.contains(name));
        let after = self.names(Kind::Cluster);
        let mut requests = vec![answer];
        if before != after {
            requests.push(self.follow(&before, &after));
        }
        requests
    }

    /// Subscribes to the assignments of clusters that it has, and to no others.
    fn follow(&mut self, before: &BTreeSet<String>, after: &BTreeSet<String>) -> DeltaDiscoveryRequest {
        let assignments = self.held.get_mut(&Kind::Assignment).expect("there is one for each kind");
        assignments.retain(|name, _| after.contains(name));
        DeltaDiscoveryRequest {
            type_url: Kind::Assignment.type_url(),
            resource_names_subscribe: after.difference(before).cloned().collect(),
            resource_names_unsubscribe: before.difference(after).cloned().collect(),
            ..DeltaDiscoveryRequest::default()
        }
    }

    fn names(&self, kind: Kind) -> BTreeSet<String> {
        self.held[&kind].keys().cloned().collect()
    }

    /// Connects, and exchanges messages with a machine until both are silent; what was sent.
    pub(super) fn connect_to(&mut self, machine: &mut Machine) -> Vec<DeltaDiscoveryResponse> {
        for request in self.connect() {
            machine.handle(&request).unwrap();
        }
        self.exchange(machine)
    }

    /// Exchanges messages with a machine until both are silent; what was sent.
    pub(super) fn exchange(&mut self, machine: &mut Machine) -> Vec<DeltaDiscoveryResponse> {
        let mut all = Vec::new();
        while let Some(response) = machine.poll() {
            for request in self.receive(&response) {
                machine.handle(&request).unwrap();
            }
            all.push(response);
            assert!(all.len() < 1_000, "it never ends: {:?}", all.last());
        }
        all
    }
}

/// The kinds of responses, in their order.
pub(super) fn kinds(responses: &[DeltaDiscoveryResponse]) -> Vec<Kind> {
    responses.iter().filter_map(|response| Kind::parse(&response.type_url)).collect()
}
