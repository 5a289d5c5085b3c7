//! Assigns configuration units to proxies: port conflicts, and the shared units that a proxy needs.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::assignment::{ConfigUnit, PortClaim, ProxyAssignment};
use super::dependencies::GraphNode;
use super::pod_sets::set_member;
use super::state::Resolver;
use crate::mesh::control::l7mp_quirks;
use crate::mesh::control::types::{MeshKind, ObjectName, Protocol};
use crate::mesh::control::wire::{self, ConfigKind, ProxyConfig};
use crate::mesh::control::world::{ProxyImplementation, ProxyRole, Transport};
use crate::mesh::control::{Diagnostic, Reason};

/// Whether a listener speaks JSONSocket: l7mp keeps the labels of its sessions elsewhere.
fn is_json_socket(listener: Option<&Arc<wire::Listener>>) -> bool {
    listener.is_some_and(|listener| listener.protocol == Protocol::JsonSocket)
}

impl Resolver {
    /// Assigns the unit of an object to a proxy, or removes it.
    pub(super) fn assign(&mut self, pod: &ObjectName, node: &GraphNode, unit: Option<&Arc<ConfigUnit>>) {
        let assignment = self.assignments.entry(pod.clone()).or_default();
        let before = assignment.units.get(node).cloned();
        let name = match node {
            GraphNode::VirtualService(name) => Some(name),
            GraphNode::Set(_)
            | GraphNode::Target(_)
            | GraphNode::Generated(_)
            | GraphNode::Route(_)
            | GraphNode::Rule(_) => None,
        };
        let mut ports = BTreeSet::new();
        for (unit, present) in [(before.as_ref(), false), (unit, true)] {
            let claim = unit.and_then(|unit| Some((unit, unit.claim.as_ref()?)));
            let Some((name, (unit, claim))) = name.zip(claim) else { continue };
            ports.insert(claim.port);
            let claims = assignment.claims.entry(claim.port).or_default();
            if present {
                claims.insert((claim.created, name.clone()), Arc::clone(unit));
            } else {
                claims.remove(&(claim.created, name.clone()));
            }
        }
        let had_conflict = name.is_some_and(|name| assignment.port_conflicts.contains_key(name));
        match unit {
            Some(unit) => drop(assignment.units.insert(node.clone(), Arc::clone(unit))),
            None => drop(assignment.units.remove(node)),
        }
        if before.as_ref() != unit && !had_conflict {
            // the new unit first, so that what both need is not marked as affected
            if let Some(unit) = unit {
                self.set_active(pod, unit, true);
            }
            if let Some(before) = &before {
                self.set_active(pod, before, false);
            }
        }
        let claims = unit.is_some_and(|unit| unit.claim.is_some());
        if let Some(name) = name.filter(|_| had_conflict && !claims) {
            self.assignments.entry(pod.clone()).or_default().port_conflicts.remove(name);
            if let Some(unit) = unit {
                self.set_active(pod, unit, true);
            }
        }
        for port in ports {
            self.resolve_port_conflict(pod, port);
        }
        if self.assignments.get(pod).is_some_and(|assignment| assignment.units.is_empty()) {
            self.assignments.remove(pod);
        }
    }

    /// Decides which VirtualServices get a port: none if the proxy itself uses it; otherwise the oldest, and all that
    /// do not conflict with an older one.
    fn resolve_port_conflict(&mut self, pod: &ObjectName, port: (Transport, u16)) {
        let implementation = self.implementation(pod);
        let api = match self.proxy_roles.get(pod) {
            Some(ProxyRole::Proxy(api)) => Some(*api),
            Some(ProxyRole::Naked | ProxyRole::TwoProxies) | None => None,
        };
        let fixed: Vec<Option<IpAddr>> = self.world.proxies.get(pod).map_or_else(Vec::new, |info| {
            let same = info.foreign_ports.iter().filter(|own| (own.transport, own.port) == port);
            same.map(|own| own.address).collect()
        });
        let Some(assignment) = self.assignments.get_mut(pod) else { return };
        let claims = assignment.claims.remove(&port).unwrap_or_default();
        let word = if port.0 == Transport::Udp { "UDP" } else { "TCP" };
        let mut winners: Vec<(&ObjectName, &PortClaim)> = Vec::new();
        let mut flips = Vec::new();
        for ((_, name), unit) in &claims {
            let Some(claim) = &unit.claim else { continue };
            let is_fixed = fixed.iter().any(|own| {
                claim.conflicts_with(
                    &PortClaim { port, address: *own, peer: None, created: 0 },
                    ProxyImplementation::L7mp,
                )
            });
            let rival = winners.iter().find(|(_, winner)| claim.conflicts_with(winner, implementation));
            let why = if port.0 == Transport::Tcp && api == Some(port.1) {
                Some("the API of the proxy".to_owned())
            } else if is_fixed {
                Some("a listener in the configuration file of the proxy".to_owned())
            } else {
                rival.map(|(winner, _)| format!("VirtualService `{winner}`, which is older"))
            };
            let diagnostic = why.map(|why| {
                let message =
                    format!("{word} port {} on pod `{}` is in use by {why}: use another port", port.1, pod.name);
                Diagnostic::new(Reason::PortConflict, message)
            });
            if diagnostic.is_none() {
                winners.push((name, claim));
            }
            if assignment.port_conflicts.get(name) != diagnostic.as_ref() {
                flips.push((name.clone(), Arc::clone(unit), assignment.port_conflicts.contains_key(name), diagnostic));
            }
        }
        if !claims.is_empty() {
            assignment.claims.insert(port, claims);
        }
        for (name, unit, had_conflict, diagnostic) in flips {
            self.affected.objects.insert((MeshKind::VirtualService, name.clone()));
            let has_conflict = diagnostic.is_some();
            if let Some(assignment) = self.assignments.get_mut(pod) {
                match diagnostic {
                    Some(diagnostic) => drop(assignment.port_conflicts.insert(name, diagnostic)),
                    None => drop(assignment.port_conflicts.remove(&name)),
                }
            }
            if had_conflict != has_conflict {
                self.set_active(pod, &unit, !has_conflict);
            }
        }
    }

    /// Adds or removes what a unit needs on a proxy.
    fn set_active(&mut self, pod: &ObjectName, unit: &ConfigUnit, present: bool) {
        self.mark_affected(pod, unit);
        let column = usize::from(!is_json_socket(unit.listener.as_ref()));
        for node in &unit.needs {
            let Some(assignment) = self.assignments.get_mut(pod) else { return };
            let counts = assignment.needs.entry(node.clone()).or_default();
            counts[column] = if present { counts[column] + 1 } else { counts[column] - 1 };
            let (now, first) = (counts.iter().sum::<usize>(), counts[column] == usize::from(present));
            if now == 0 {
                assignment.needs.remove(node);
            }
            if !first {
                continue;
            }
            set_member(&mut self.pods_needing, node.clone(), pod.clone(), now > 0);
            // the first user adds a shared unit and the last one removes it; either may also change where l7mp
            // looks for its labels
            for unit in [self.shared.get(node).cloned(), self.unit_at(pod, node)].into_iter().flatten() {
                self.mark_affected(pod, &unit);
            }
        }
    }

    fn unit_at(&self, pod: &ObjectName, node: &GraphNode) -> Option<Arc<ConfigUnit>> {
        self.assignments.get(pod)?.units.get(node).cloned()
    }

    /// Sets the unit of a Route or generated Target, which every proxy that needs it holds.
    pub(super) fn set_shared(&mut self, node: &GraphNode, unit: Option<&Arc<ConfigUnit>>) {
        let before = self.shared.get(node).cloned();
        if before.as_ref() == unit {
            return;
        }
        match unit {
            Some(unit) => drop(self.shared.insert(node.clone(), Arc::clone(unit))),
            None => drop(self.shared.remove(node)),
        }
        for pod in self.pods_needing.get(node).cloned().into_iter().flatten() {
            for unit in [before.as_ref(), unit].into_iter().flatten() {
                self.mark_affected(&pod, unit);
            }
        }
    }

    fn mark_affected(&mut self, pod: &ObjectName, unit: &ConfigUnit) {
        if self.is_resolved {
            self.affected.pods.entry(pod.clone()).or_default().extend(unit.keys());
        }
    }

    /// Whether both JSONSocket listeners and others use something on an l7mp, which keeps their labels apart.
    pub(super) fn is_reached_both_ways(&self, pod: &ObjectName, node: &GraphNode) -> bool {
        let counts = self.assignments.get(pod).and_then(|assignment| assignment.needs.get(node));
        self.implementation(pod) == ProxyImplementation::L7mp
            && counts.is_some_and(|[json, others]| *json > 0 && *others > 0)
    }

    /// The complete configuration of a proxy.
    pub fn desired(&self, pod: &ObjectName) -> ProxyConfig {
        let Some(mut builder) = self.config_builder(pod) else { return ProxyConfig::default() };
        let assignment = builder.assignment;
        for (node, unit) in &assignment.units {
            let has_conflict =
                matches!(node, GraphNode::VirtualService(name) if assignment.port_conflicts.contains_key(name));
            if !has_conflict {
                builder.add(node, unit);
            }
        }
        for node in assignment.needs.keys() {
            if let Some(unit) = self.shared.get(node) {
                builder.add(node, unit);
            }
        }
        builder.config
    }

    fn config_builder(&self, pod: &ObjectName) -> Option<ConfigBuilder<'_>> {
        let is_l7mp = self.implementation(pod) == ProxyImplementation::L7mp;
        Some(ConfigBuilder { assignment: self.assignments.get(pod)?, is_l7mp, config: ProxyConfig::default() })
    }

    /// The configuration of a proxy, restricted to some keys.
    pub fn desired_of(&self, pod: &ObjectName, names: &BTreeSet<(ConfigKind, Arc<str>)>) -> ProxyConfig {
        let Some(mut builder) = self.config_builder(pod) else { return ProxyConfig::default() };
        let assignment = builder.assignment;
        let mut owners = BTreeSet::new();
        for (_, name) in names {
            let owner = name.split_once('~').map_or(&**name, |(owner, _)| owner);
            let Some((kind, owner)) = self.world.settings.domain.parse(owner) else { continue };
            match kind {
                MeshKind::VirtualService => drop(owners.insert(GraphNode::VirtualService(owner))),
                MeshKind::Rule => drop(owners.insert(GraphNode::Rule(owner))),
                MeshKind::Route => drop(owners.insert(GraphNode::Route(owner))),
                MeshKind::Target => {
                    let first = GraphNode::Generated(super::dependencies::GeneratedTarget::first(&owner));
                    let same = assignment.needs.range(first..).map(|(node, _)| node);
                    owners.extend(same.take_while(|node| node.is_generated_as(&owner)).cloned());
                    owners.insert(GraphNode::Target(owner));
                }
                MeshKind::Service => {}
            }
        }
        for node in &owners {
            let has_conflict =
                matches!(node, GraphNode::VirtualService(name) if assignment.port_conflicts.contains_key(name));
            if let Some(unit) = assignment.units.get(node).filter(|_| !has_conflict) {
                builder.add(node, unit);
            }
            if let Some(unit) = self.shared.get(node).filter(|_| assignment.needs.contains_key(node)) {
                builder.add(node, unit);
            }
        }
        let mut config = builder.config;
        config.clusters.retain(|name, _| names.contains(&(ConfigKind::Cluster, Arc::clone(name))));
        config.routes.retain(|name, _| names.contains(&(ConfigKind::Route, Arc::clone(name))));
        config.rules.retain(|name, _| names.contains(&(ConfigKind::Rule, Arc::clone(name))));
        config.insertions.retain(|name, _| names.contains(&(ConfigKind::Rule, Arc::clone(name))));
        config.rulelists.retain(|name, _| names.contains(&(ConfigKind::RuleList, Arc::clone(name))));
        config.listeners.retain(|name, _| names.contains(&(ConfigKind::Listener, Arc::clone(name))));
        config
    }
}

/// Builds the configuration of one proxy from units.
struct ConfigBuilder<'a> {
    assignment: &'a ProxyAssignment,
    is_l7mp: bool,
    config: ProxyConfig,
}

impl ConfigBuilder<'_> {
    fn add(&mut self, node: &GraphNode, unit: &ConfigUnit) {
        let Self { assignment, is_l7mp, config } = self;
        // the users of a shared cluster decide where its labels are
        let from_json = match assignment.needs.get(node) {
            Some([json, others]) => *json > 0 && *others == 0,
            None => is_json_socket(unit.listener.as_ref()),
        };
        for cluster in &unit.clusters {
            let cluster =
                if *is_l7mp { Arc::new(l7mp_quirks::cluster(cluster, from_json)) } else { Arc::clone(cluster) };
            config.clusters.insert(Arc::clone(&cluster.name), cluster);
        }
        config.routes.extend(unit.routes.iter().map(|route| (Arc::clone(&route.name), Arc::clone(route))));
        for rule in &unit.rules {
            let listener = unit.listener.as_ref().map(|listener| listener.protocol);
            let rule = if *is_l7mp { Arc::new(l7mp_quirks::rule(rule, listener)) } else { Arc::clone(rule) };
            config.rules.insert(Arc::clone(&rule.name), rule);
        }
        config.rulelists.extend(unit.rulelist.clone());
        if let Some(listener) = &unit.listener {
            let listener = if *is_l7mp { Arc::new(l7mp_quirks::listener(listener)) } else { Arc::clone(listener) };
            config.listeners.insert(Arc::clone(&listener.name), listener);
        }
        config.insertions.extend(unit.insertion.clone().map(|one| (Arc::clone(&one.rule), one)));
    }
}
