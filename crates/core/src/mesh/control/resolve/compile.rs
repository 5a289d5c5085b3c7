//! Clusters and ways as a proxy holds them, with what must be true of a pod before it gets them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::Resolver;
use super::callee::{Family, Place, Reached};
use super::keys::{Callee, Generated, Key, Node, SetId};
use super::refs::Found;
use super::sets::Purpose;
use crate::mesh::control::allowed::Ban;
use crate::mesh::control::names::{self, Inline};
use crate::mesh::control::types::{EndpointSource, Hop, MeshKind, ObjectName, Protocol, Route, Socket, Target};
use crate::mesh::control::wire;
use crate::mesh::control::world::{Pod, ProxyImplementation, ProxyRole, Transport};
use crate::mesh::control::{Diagnostic, Reason};

/// A compiled Target.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Compiled {
    pub(super) cluster: Arc<wire::Cluster>,
    pub(super) terms: Terms,
    /// The VirtualService it leads to.
    pub(super) callee: Option<ObjectName>,
}

/// What must be true of a pod before it gets a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Terms {
    /// Not on the host's network, because of this.
    not_on_host: Option<String>,
    /// Standard input is allowed.
    stdio: bool,
    /// Our proxy, because of this.
    only_ours: Option<String>,
    /// One of these pods.
    only_at: Option<SetId>,
    /// It leads to a WebSocket.
    pub(super) meets_websocket: bool,
}

/// A compiled way.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Way {
    pub(super) route: Arc<wire::Route>,
    pub(super) clusters: Vec<Arc<wire::Cluster>>,
    pub(super) legs: Legs,
    /// Remarks on inline Targets.
    pub(super) notes: Vec<Diagnostic>,
}

/// What others must know of a way.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Legs {
    /// Why it leads nowhere.
    pub(super) unmet: Vec<Diagnostic>,
    /// Targets it needs, each with the hop's place.
    pub(super) needs: BTreeSet<Node>,
    /// Terms of inline Targets.
    pub(super) terms: Vec<Terms>,
    /// VirtualServices it leads to.
    pub(super) callees: BTreeSet<ObjectName>,
    pub(super) meets_websocket: bool,
}

/// Who asks for a cluster.
pub(super) struct Asker<'a> {
    /// Its namespace.
    pub(super) namespace: &'a Arc<str>,
    /// Of endpoints with several addresses, which.
    pub(super) family: Option<Family>,
}

impl Terms {
    /// Why a pod cannot have it.
    pub(super) fn broken_at(&self, resolver: &Resolver, name: &ObjectName, pod: &Pod) -> Option<Diagnostic> {
        if let Some(why) = self.not_on_host.as_ref().filter(|_| pod.host_network) {
            let message = format!("{why}, and pod `{}` is on its node's network: use another address", name.name);
            return Some(Diagnostic::new(Reason::EndpointNotAllowed, message));
        }
        if self.stdio && pod.annotations.get("l7mp.io/allow-stdio").is_none_or(|allow| allow == "false") {
            let message = format!("Stdio needs the annotation l7mp.io/allow-stdio on pod `{}`: add it", name.name);
            return Some(Diagnostic::new(Reason::EndpointNotAllowed, message));
        }
        if let Some(why) = self.only_ours.as_ref().filter(|_| resolver.flavour(name) == ProxyImplementation::L7mp) {
            let message = format!("{why}, which the l7mp on pod `{}` cannot do", name.name);
            return Some(Diagnostic::new(Reason::UnsupportedByProxy, message));
        }
        let set = self.only_at.as_ref()?;
        if resolver.sets.get(set).is_some_and(|set| set.members.contains(name)) {
            return None;
        }
        let message = format!("a UNIX domain socket is reached from its own pod only, not from pod `{}`", name.name);
        Some(Diagnostic::new(Reason::NotRemote, message))
    }
}

impl Resolver {
    /// A Target as a proxy holds it; `name` gets its content.
    pub(super) fn compile_target(
        &mut self,
        target: &Target,
        asker: &Asker<'_>,
        name: impl FnOnce(&Value) -> Arc<str>,
        reads: &mut BTreeSet<Key>,
        notes: &mut Vec<Diagnostic>,
    ) -> Result<Compiled, Diagnostic> {
        let linked = match &target.linked {
            Some(text) => Some(self.find_linked(text, asker.namespace, reads)?),
            None => None,
        };
        if let Some(callee) = &linked {
            return self.compile_callee(callee, target, asker, name, reads, notes);
        }
        let mut spec = target.spec.as_ref().map(Socket::to_value).unwrap_or_default();
        let protocol = target.spec.as_ref().map_or(Protocol::Discard, |spec| spec.protocol);
        let opened = target.spec.as_ref().map_or(Protocol::Discard, |spec| spec.opened().protocol);
        let name = name(&target.to_value());
        let mut terms = terms(target, protocol, opened);
        let (mut endpoints, mut sets) = (Vec::new(), Vec::new());
        for source in &target.endpoints {
            match source {
                EndpointSource::Static { spec, weight } => {
                    let address = spec.get("address").and_then(Value::as_str).unwrap_or_default();
                    self.check(opened, address, &mut terms)?;
                    endpoints.push(endpoint(&name, address, Value::Object(spec.clone()), weight.unwrap_or(1), false));
                }
                EndpointSource::Dynamic(selector) => {
                    let set = self.set(Purpose::Callee, asker.namespace, selector);
                    reads.insert(Key::Members(Arc::clone(&set)));
                    self.say(&set, notes)?;
                    endpoints.extend(self.dynamic(&set, asker, &name, reads));
                    sets.push(set);
                }
            }
        }
        if let Some(socket) = target.spec.as_ref().filter(|_| sets.len() == target.endpoints.len()) {
            self.acquaint(socket, &sets, &mut spec);
        }
        Ok(Compiled {
            cluster: Arc::new(cluster(name, protocol, spec, endpoints, target, None, notes)),
            terms,
            callee: None,
        })
    }

    /// A Target whose spec and endpoints are somebody else's.
    pub(super) fn compile_callee(
        &mut self,
        callee: &Callee,
        target: &Target,
        asker: &Asker<'_>,
        name: impl FnOnce(&Value) -> Arc<str>,
        reads: &mut BTreeSet<Key>,
        notes: &mut Vec<Diagnostic>,
    ) -> Result<Compiled, Diagnostic> {
        let Reached { socket, tls, at } = self.reach(callee, reads, notes)?;
        let mut spec = socket.to_value();
        let name = name(&json!({"target": target.to_value(), "spec": spec}));
        let opened = socket.opened().protocol;
        let mut terms = terms(target, socket.protocol, opened);
        let endpoints = match at {
            Place::Pods(set) => {
                reads.insert(Key::Members(Arc::clone(&set)));
                self.say(&set, notes)?;
                // behind a stub listens an app
                if self.is_proxied(callee) {
                    self.acquaint(&socket, std::slice::from_ref(&set), &mut spec);
                }
                self.dynamic(&set, asker, &name, reads)
            }
            Place::Name(elsewhere) => {
                self.check(opened, &elsewhere, &mut terms)?;
                vec![endpoint(&name, &elsewhere, json!({"address": &*elsewhere}), 1, false)]
            }
            Place::File(filename, set) => {
                self.check(opened, &filename, &mut terms)?;
                reads.insert(Key::Members(Arc::clone(&set)));
                terms.only_at = Some(set);
                vec![endpoint(&name, &filename, json!({"address": filename}), 1, false)]
            }
        };
        let cluster = cluster(name, socket.protocol, spec, endpoints, target, tls, notes);
        let callee = match callee {
            Callee::VirtualService(name) => Some(name.clone()),
            Callee::Service(_) => None,
        };
        Ok(Compiled { cluster: Arc::new(cluster), terms, callee })
    }

    /// What a set has to say: a problem keeps the Target back.
    fn say(&self, set: &SetId, notes: &mut Vec<Diagnostic>) -> Result<(), Diagnostic> {
        let Some(set) = self.sets.get(set) else { return Ok(()) };
        notes.extend(set.remark.clone());
        set.problem.clone().map_or(Ok(()), Err)
    }

    fn dynamic(&self, set: &SetId, asker: &Asker<'_>, cluster: &str, reads: &mut BTreeSet<Key>) -> Vec<wire::Endpoint> {
        let addresses = self.addresses(set, asker.family, reads).into_iter();
        let one = |(ip, draining): (std::net::IpAddr, bool)| {
            let address = ip.to_string();
            let spec = json!({"address": address});
            endpoint(cluster, &address, spec, 1, draining)
        };
        addresses.map(one).collect()
    }

    fn is_proxied(&self, callee: &Callee) -> bool {
        match callee {
            Callee::VirtualService(name) => self.virtual_service(name).is_some_and(|one| one.is_proxy_type()),
            Callee::Service(_) => false,
        }
    }

    /// A JSONSocket client over UDP that only reaches proxies of ours repeats its header until it is answered, and says
    /// when it is done. Anybody else would take both for data.
    fn acquaint(&self, socket: &Socket, sets: &[SetId], spec: &mut Value) {
        let Value::Object(spec) = spec else { return };
        let (Some(port), Protocol::Udp) = (socket.port(), socket.opened().protocol) else { return };
        if socket.protocol != Protocol::JsonSocket || spec.contains_key("handshake") {
            return;
        }
        let is_ours = |name: &ObjectName| {
            let app = self.world.pods.get(name).is_some_and(|pod| pod.declares(Transport::Udp, port));
            matches!(self.marks.get(name), Some(ProxyRole::Proxy(_)))
                && self.flavour(name) == ProxyImplementation::Portolan
                && !app
        };
        if sets.iter().filter_map(|set| self.sets.get(set)).flat_map(|set| &set.members).all(is_ours) {
            spec.insert("handshake".to_owned(), json!({"retransmit_ms": 100}));
        }
    }

    fn check(&self, protocol: Protocol, address: &str, terms: &mut Terms) -> Result<(), Diagnostic> {
        match self.world.settings.ban(protocol, address) {
            Ban::None => Ok(()),
            Ban::HostNetwork(why) => {
                terms.not_on_host.get_or_insert_with(|| format!("endpoint `{address}`: {why}"));
                Ok(())
            }
            Ban::Everywhere(why) => {
                let message = format!("endpoint `{address}` is not allowed: {why}: use another address");
                Err(Diagnostic::new(Reason::EndpointNotAllowed, message))
            }
        }
    }

    /// A way as a proxy holds it. Without a name of its own it gets one by its content.
    pub(super) fn compile_way(
        &mut self,
        owner: (&str, &Arc<str>),
        route: &Route,
        own_name: Option<Arc<str>>,
        inline: &mut Inline,
        reads: &mut BTreeSet<Key>,
    ) -> Way {
        let (owner, namespace) = owner;
        let (mut clusters, mut legs, mut notes) = (Vec::new(), Legs::default(), Vec::new());
        let mut names = Vec::new();
        for (place, hop) in route.hops() {
            let outcome = match hop {
                Hop::Name(text) => self.compile_name(text, namespace, &mut legs, reads),
                Hop::Inline(target) => {
                    let asker = Asker { namespace, family: None };
                    let namer = |content: &Value| inline.name(owner, content);
                    let compiled = self.compile_target(target, &asker, namer, reads, &mut notes);
                    compiled.map(|compiled| {
                        let name = Arc::clone(&compiled.cluster.name);
                        clusters.push(compiled.cluster);
                        legs.meets_websocket |= compiled.terms.meets_websocket;
                        if compiled.terms != Terms::default() {
                            legs.terms.push(compiled.terms);
                        }
                        legs.callees.extend(compiled.callee);
                        name
                    })
                }
            };
            names.push(outcome.unwrap_or_else(|note| {
                legs.unmet.push(Diagnostic::new(note.reason, format!("{place}: {}", note.message)));
                Arc::from(place)
            }));
        }
        let mut names = names.into_iter();
        let destination = names.next().unwrap_or_default();
        let ingress = names.by_ref().take(route.ingress.len()).collect();
        let mut compiled = wire::Route {
            name: Arc::from(""),
            destination,
            ingress,
            egress: names.collect(),
            retry: route.retry.to_value(),
        };
        compiled.name = own_name.unwrap_or_else(|| inline.name(owner, &compiled.to_value()));
        Way { route: Arc::new(compiled), clusters, legs, notes }
    }

    /// The cluster that a hop's name stands for.
    fn compile_name(
        &mut self,
        text: &str,
        namespace: &Arc<str>,
        legs: &mut Legs,
        reads: &mut BTreeSet<Key>,
    ) -> Result<Arc<str>, Diagnostic> {
        let found = self.find_hop(text, namespace, reads)?;
        let (node, name) = match found {
            Found::Target(name) => (Node::Target(name.clone()), name),
            Found::Generated(generated) => {
                self.ensure_generated(&generated);
                let name = generated.name.clone();
                (Node::Generated(generated), name)
            }
        };
        reads.insert(Key::Outcome(node.clone()));
        let outcome = match &node {
            Node::Target(name) => self.targets.get(name).map(|placed| &placed.outcome),
            Node::Generated(generated) => self.generated.get(generated).map(|made| &made.outcome),
            Node::Set(_) | Node::Route(_) | Node::VirtualService(_) | Node::Rule(_) => None,
        };
        match outcome {
            Some(Ok(compiled)) => {
                legs.callees.extend(compiled.callee.clone());
                legs.meets_websocket |= compiled.terms.meets_websocket;
            }
            Some(Err(note)) if matches!(node, Node::Target(_)) => {
                let message = format!("Target `{}` is not in force: {}", name.name, note.message);
                return Err(Diagnostic::new(Reason::RefInvalid, message));
            }
            Some(Err(note)) => return Err(note.clone()),
            None => {
                let message = format!("Target `{}` is not in force: see its status", name.name);
                return Err(Diagnostic::new(Reason::RefInvalid, message));
            }
        }
        legs.needs.insert(node);
        Ok(self.world.settings.domain.full(MeshKind::Target, &name))
    }

    /// Makes a generated Target that nobody has asked for yet.
    fn ensure_generated(&mut self, generated: &Generated) {
        if !self.generated.contains_key(generated) {
            self.evaluate_generated(generated);
        }
    }

    /// Whose program runs on a pod.
    pub(super) fn flavour(&self, pod: &ObjectName) -> ProxyImplementation {
        self.world.proxies.get(pod).map(|facts| facts.implementation).unwrap_or_default()
    }
}

fn terms(target: &Target, protocol: Protocol, opened: Protocol) -> Terms {
    let balancer = target.balancer.as_ref().filter(|balancer| balancer.is_ours());
    Terms {
        stdio: protocol == Protocol::Stdio,
        only_ours: balancer.map(|balancer| format!("balancer {} is wanted", balancer.policy)),
        meets_websocket: opened == Protocol::WebSocket,
        ..Terms::default()
    }
}

fn endpoint(cluster: &str, address: &str, spec: Value, weight: u64, draining: bool) -> wire::Endpoint {
    wire::Endpoint { name: names::endpoint(cluster, address), spec, weight, draining }
}

fn cluster(
    name: Arc<str>,
    protocol: Protocol,
    spec: Value,
    endpoints: Vec<wire::Endpoint>,
    target: &Target,
    tls: Option<Value>,
    notes: &mut Vec<Diagnostic>,
) -> wire::Cluster {
    let mut unique = Vec::with_capacity(endpoints.len());
    let mut seen = BTreeSet::new();
    for endpoint in endpoints {
        if seen.insert(Arc::clone(&endpoint.name)) {
            unique.push(endpoint);
        }
    }
    let is_trivial = target.balancer.as_ref().is_none_or(|balancer| balancer.policy == "Trivial");
    if is_trivial && unique.len() > 1 {
        let message = "the Trivial balancer always takes the first of several endpoints: set loadbalancer.policy";
        notes.push(Diagnostic::new(Reason::TrivialWithManyEndpoints, message));
    }
    let loadbalancer = target.balancer.as_ref().map(crate::mesh::control::types::Balancer::to_value);
    let options: Map<String, Value> = target.extensions.options.clone();
    let tls = target.extensions.tls.clone().or(tls);
    wire::Cluster { name, protocol, spec, endpoints: unique, loadbalancer, options, tls }
}
