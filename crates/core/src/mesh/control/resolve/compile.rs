//! Compiles Targets and Routes into clusters and routes as a proxy holds them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::compiled::{
    CalleeAddress, CompiledRoute, CompiledTarget, Family, PlacementConstraints, ReachableCallee, ResolvedHop,
    RouteSummary,
};
use super::dependencies::{Callee, Dependency, GeneratedTarget, GraphNode, PodSetId};
use super::pod_sets::SetPurpose;
use super::state::Resolver;
use crate::mesh::control::endpoint_ban::EndpointBan;
use crate::mesh::control::names::{self, InlineNames};
use crate::mesh::control::types::{EndpointSource, Hop, MeshKind, ObjectName, Protocol, Route, Socket, Target};
use crate::mesh::control::wire;
use crate::mesh::control::world::{Pod, ProxyImplementation, ProxyRole, Transport};
use crate::mesh::control::{Diagnostic, Reason};

/// The object that a Target is compiled for, and what the compilation reads and reports.
pub(super) struct CompileContext<'a> {
    pub(super) namespace: &'a Arc<str>,
    /// The address family of endpoints that have several addresses; none is the primary one.
    pub(super) family: Option<Family>,
    pub(super) reads: &'a mut BTreeSet<Dependency>,
    pub(super) diagnostics: &'a mut Vec<Diagnostic>,
}

/// The object that rules and inline Routes belong to, and what their compilation reads.
pub(super) struct RuleOwner<'a> {
    /// Its full name, from which inline objects get theirs.
    pub(super) full_name: &'a str,
    pub(super) namespace: &'a Arc<str>,
    pub(super) inline: InlineNames,
    pub(super) reads: &'a mut BTreeSet<Dependency>,
}

impl PlacementConstraints {
    /// The constraint that a pod does not meet.
    pub(super) fn unmet_by(&self, resolver: &Resolver, name: &ObjectName, pod: &Pod) -> Option<Diagnostic> {
        if let Some(why) = self.not_on_host.as_ref().filter(|_| pod.host_network) {
            let message = format!("{why}, and pod `{}` uses the host network: use another address", name.name);
            return Some(Diagnostic::new(Reason::EndpointNotAllowed, message));
        }
        if self.stdio && pod.annotations.get("l7mp.io/allow-stdio").is_none_or(|allow| allow == "false") {
            let message = format!("Stdio requires the annotation l7mp.io/allow-stdio on pod `{}`: add it", name.name);
            return Some(Diagnostic::new(Reason::EndpointNotAllowed, message));
        }
        if let Some(why) =
            self.only_portolan.as_ref().filter(|_| resolver.implementation(name) == ProxyImplementation::L7mp)
        {
            let message = format!("{why}, which the l7mp on pod `{}` does not support", name.name);
            return Some(Diagnostic::new(Reason::UnsupportedByProxy, message));
        }
        let set = self.only_at.as_ref()?;
        if resolver.sets.get(set).is_some_and(|set| set.members.contains(name)) {
            return None;
        }
        let message = format!("a UNIX domain socket is reachable from its own pod only, not from pod `{}`", name.name);
        Some(Diagnostic::new(Reason::NotRemote, message))
    }
}

impl Resolver {
    /// Compiles a Target; `name` makes the cluster's name from its content.
    pub(super) fn compile_target(
        &mut self,
        target: &Target,
        name: impl FnOnce(&Value) -> Arc<str>,
        context: &mut CompileContext<'_>,
    ) -> Result<CompiledTarget, Diagnostic> {
        let linked = match &target.linked {
            Some(text) => Some(self.find_linked(text, context.namespace, context.reads)?),
            None => None,
        };
        if let Some(callee) = &linked {
            return self.compile_callee(callee, target, name, context);
        }
        let mut spec = target.spec.as_ref().map(Socket::to_value).unwrap_or_default();
        let protocol = target.spec.as_ref().map_or(Protocol::Discard, |spec| spec.protocol);
        let opened = target.spec.as_ref().map_or(Protocol::Discard, |spec| spec.opened().protocol);
        let name = name(&target.to_value());
        let mut constraints = constraints(target, protocol, opened);
        let (mut endpoints, mut sets) = (Vec::new(), Vec::new());
        for source in &target.endpoints {
            match source {
                EndpointSource::Static { spec, weight } => {
                    let address = spec.get("address").and_then(Value::as_str).unwrap_or_default();
                    self.check_endpoint(opened, address, &mut constraints)?;
                    endpoints.push(endpoint(&name, address, Value::Object(spec.clone()), weight.unwrap_or(1), false));
                }
                EndpointSource::Dynamic(selector) => {
                    let set = self.set(SetPurpose::Callee, context.namespace, selector);
                    context.reads.insert(Dependency::Members(Arc::clone(&set)));
                    self.report_set(&set, context.diagnostics)?;
                    endpoints.extend(self.pod_endpoints(&set, &name, context));
                    sets.push(set);
                }
            }
        }
        if let Some(socket) = target.spec.as_ref().filter(|_| sets.len() == target.endpoints.len()) {
            self.add_handshake(socket, &sets, &mut spec);
        }
        Ok(CompiledTarget {
            cluster: Arc::new(cluster(name, protocol, spec, endpoints).completed(target, None, context.diagnostics)),
            constraints,
            callee: None,
        })
    }

    /// Compiles a Target that takes spec and endpoints from its callee.
    pub(super) fn compile_callee(
        &mut self,
        callee: &Callee,
        target: &Target,
        name: impl FnOnce(&Value) -> Arc<str>,
        context: &mut CompileContext<'_>,
    ) -> Result<CompiledTarget, Diagnostic> {
        let ReachableCallee { socket, tls, at } = self.reach(callee, context.reads, context.diagnostics)?;
        let mut spec = socket.to_value();
        let name = name(&json!({"target": target.to_value(), "spec": spec}));
        let opened = socket.opened().protocol;
        let mut constraints = constraints(target, socket.protocol, opened);
        let endpoints = match at {
            CalleeAddress::Pods(set) => {
                context.reads.insert(Dependency::Members(Arc::clone(&set)));
                self.report_set(&set, context.diagnostics)?;
                // a VirtualService without rules represents an application
                if self.is_proxied(callee) {
                    self.add_handshake(&socket, std::slice::from_ref(&set), &mut spec);
                }
                self.pod_endpoints(&set, &name, context)
            }
            CalleeAddress::Name(elsewhere) => {
                self.check_endpoint(opened, &elsewhere, &mut constraints)?;
                vec![endpoint(&name, &elsewhere, json!({"address": &*elsewhere}), 1, false)]
            }
            CalleeAddress::File(filename, set) => {
                self.check_endpoint(opened, &filename, &mut constraints)?;
                context.reads.insert(Dependency::Members(Arc::clone(&set)));
                constraints.only_at = Some(set);
                vec![endpoint(&name, &filename, json!({"address": filename}), 1, false)]
            }
        };
        let cluster = cluster(name, socket.protocol, spec, endpoints).completed(target, tls, context.diagnostics);
        let callee = match callee {
            Callee::VirtualService(name) => Some(name.clone()),
            Callee::Service(_) => None,
        };
        Ok(CompiledTarget { cluster: Arc::new(cluster), constraints, callee })
    }

    /// Reports the diagnostics of a set; a problem rejects the Target.
    fn report_set(&self, set: &PodSetId, diagnostics: &mut Vec<Diagnostic>) -> Result<(), Diagnostic> {
        let Some(set) = self.sets.get(set) else { return Ok(()) };
        diagnostics.extend(set.remark.clone());
        set.problem.clone().map_or(Ok(()), Err)
    }

    fn pod_endpoints(&self, set: &PodSetId, cluster: &str, context: &mut CompileContext<'_>) -> Vec<wire::Endpoint> {
        let addresses = self.addresses(set, context.family, context.reads).into_iter();
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

    /// Adds the handshake to a JSONSocket client over UDP if all its endpoints are Portolan proxies: it repeats the
    /// header until it is acknowledged, and announces the end. Other programs would take both for data.
    fn add_handshake(&self, socket: &Socket, sets: &[PodSetId], spec: &mut Value) {
        let Value::Object(spec) = spec else { return };
        let (Some(port), Protocol::Udp) = (socket.port(), socket.opened().protocol) else { return };
        if socket.protocol != Protocol::JsonSocket || spec.contains_key("handshake") {
            return;
        }
        let is_ours = |name: &ObjectName| {
            let app = self.world.pods.get(name).is_some_and(|pod| pod.declares(Transport::Udp, port));
            matches!(self.proxy_roles.get(name), Some(ProxyRole::Proxy(_)))
                && self.implementation(name) == ProxyImplementation::Portolan
                && !app
        };
        if sets.iter().filter_map(|set| self.sets.get(set)).flat_map(|set| &set.members).all(is_ours) {
            spec.insert("handshake".to_owned(), json!({"retransmit_ms": 100}));
        }
    }

    fn check_endpoint(
        &self,
        protocol: Protocol,
        address: &str,
        constraints: &mut PlacementConstraints,
    ) -> Result<(), Diagnostic> {
        match self.world.settings.ban(protocol, address) {
            EndpointBan::None => Ok(()),
            EndpointBan::HostNetwork(why) => {
                constraints.not_on_host.get_or_insert_with(|| format!("endpoint `{address}`: {why}"));
                Ok(())
            }
            EndpointBan::Everywhere(why) => {
                let message = format!("endpoint `{address}` is not allowed: {why}: use another address");
                Err(Diagnostic::new(Reason::EndpointNotAllowed, message))
            }
        }
    }

    /// Compiles a Route. Without a name of its own, its name is made from its content.
    pub(super) fn compile_route(
        &mut self,
        route: &Route,
        own_name: Option<Arc<str>>,
        owner: &mut RuleOwner<'_>,
    ) -> CompiledRoute {
        let RuleOwner { full_name, namespace, inline, reads } = owner;
        let (mut clusters, mut summary, mut diagnostics) = (Vec::new(), RouteSummary::default(), Vec::new());
        let mut names = Vec::new();
        for (place, hop) in route.hops() {
            let outcome = match hop {
                Hop::Name(text) => self.compile_name(text, namespace, &mut summary, reads),
                Hop::Inline(target) => {
                    let name = |content: &Value| inline.name(full_name, content);
                    let mut context = CompileContext { namespace, family: None, reads, diagnostics: &mut diagnostics };
                    let compiled = self.compile_target(target, name, &mut context);
                    compiled.map(|compiled| {
                        let name = Arc::clone(&compiled.cluster.name);
                        clusters.push(compiled.cluster);
                        summary.reaches_websocket |= compiled.constraints.reaches_websocket;
                        if compiled.constraints != PlacementConstraints::default() {
                            summary.constraints.push(compiled.constraints);
                        }
                        summary.callees.extend(compiled.callee);
                        name
                    })
                }
            };
            names.push(outcome.unwrap_or_else(|diagnostic| {
                summary.unmet.push(Diagnostic::new(diagnostic.reason, format!("{place}: {}", diagnostic.message)));
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
        compiled.name = own_name.unwrap_or_else(|| inline.name(full_name, &compiled.to_value()));
        CompiledRoute { route: Arc::new(compiled), clusters, summary, diagnostics }
    }

    /// Resolves the name of a hop to a cluster.
    fn compile_name(
        &mut self,
        text: &str,
        namespace: &Arc<str>,
        summary: &mut RouteSummary,
        reads: &mut BTreeSet<Dependency>,
    ) -> Result<Arc<str>, Diagnostic> {
        let found = self.find_hop(text, namespace, reads)?;
        let (node, name) = match found {
            ResolvedHop::Target(name) => (GraphNode::Target(name.clone()), name),
            ResolvedHop::Generated(generated) => {
                self.ensure_generated(&generated);
                let name = generated.name.clone();
                (GraphNode::Generated(generated), name)
            }
        };
        reads.insert(Dependency::Outcome(node.clone()));
        let outcome = match &node {
            GraphNode::Target(name) => self.targets.get(name).map(|placed| &placed.outcome),
            GraphNode::Generated(generated) => self.generated.get(generated).map(|made| &made.outcome),
            GraphNode::Set(_) | GraphNode::Route(_) | GraphNode::VirtualService(_) | GraphNode::Rule(_) => None,
        };
        match outcome {
            Some(Ok(compiled)) => {
                summary.callees.extend(compiled.callee.clone());
                summary.reaches_websocket |= compiled.constraints.reaches_websocket;
            }
            Some(Err(diagnostic)) if matches!(node, GraphNode::Target(_)) => {
                let message = format!("Target `{}` is invalid: {}", name.name, diagnostic.message);
                return Err(Diagnostic::new(Reason::RefInvalid, message));
            }
            Some(Err(diagnostic)) => return Err(diagnostic.clone()),
            None => {
                let message = format!("Target `{}` is invalid: see its status", name.name);
                return Err(Diagnostic::new(Reason::RefInvalid, message));
            }
        }
        summary.needs.insert(node);
        Ok(self.world.settings.domain.full(MeshKind::Target, &name))
    }

    /// Compiles a generated Target on first use.
    fn ensure_generated(&mut self, generated: &GeneratedTarget) {
        if !self.generated.contains_key(generated) {
            self.evaluate_generated(generated);
        }
    }

    /// The implementation of the proxy on a pod.
    pub(super) fn implementation(&self, pod: &ObjectName) -> ProxyImplementation {
        self.world.proxies.get(pod).map(|info| info.implementation).unwrap_or_default()
    }
}

fn constraints(target: &Target, protocol: Protocol, opened: Protocol) -> PlacementConstraints {
    let balancer = target.balancer.as_ref().filter(|balancer| balancer.is_ours);
    PlacementConstraints {
        stdio: protocol == Protocol::Stdio,
        only_portolan: balancer.map(|balancer| format!("it uses balancer {}", balancer.name)),
        reaches_websocket: opened == Protocol::WebSocket,
        ..PlacementConstraints::default()
    }
}

fn endpoint(cluster: &str, address: &str, spec: Value, weight: u64, draining: bool) -> wire::Endpoint {
    wire::Endpoint { name: names::endpoint(cluster, address), spec, weight, draining }
}

fn cluster(name: Arc<str>, protocol: Protocol, spec: Value, endpoints: Vec<wire::Endpoint>) -> wire::Cluster {
    wire::Cluster { name, protocol, spec, endpoints, loadbalancer: None, options: Map::new(), tls: None }
}

impl wire::Cluster {
    /// Removes duplicate endpoints and adds what the Target itself says.
    fn completed(mut self, target: &Target, tls: Option<Value>, diagnostics: &mut Vec<Diagnostic>) -> Self {
        let mut seen = BTreeSet::new();
        self.endpoints.retain(|endpoint| seen.insert(Arc::clone(&endpoint.name)));
        let is_trivial = target.balancer.as_ref().is_none_or(|balancer| balancer.name == "Trivial");
        if is_trivial && self.endpoints.len() > 1 {
            let message = "the Trivial balancer always takes the first of several endpoints: set loadbalancer.policy";
            diagnostics.push(Diagnostic::new(Reason::TrivialWithManyEndpoints, message));
        }
        self.loadbalancer = target.balancer.as_ref().map(crate::mesh::control::types::Balancer::to_value);
        self.options.clone_from(&target.extensions.options);
        self.tls = target.extensions.tls.clone().or(tls);
        self
    }
}
