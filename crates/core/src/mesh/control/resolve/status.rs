//! The status of an object, except what its proxies report.

use super::dependencies::{Callee, Dependency, GraphNode};
use super::state::{GeneratedUse, PlacedTarget, Resolver, ServedObject};
use crate::mesh::control::normalize::Normalized;
use crate::mesh::control::types::{MeshKind, ObjectName, Protocol};
use crate::mesh::control::{Diagnostic, Reason, ReasonClass};

/// Names of users that a status lists, at most.
const MOST_USERS: usize = 20;

/// The status of an object, except what its proxies report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ObjectStatus {
    /// Why the object is invalid.
    pub refused: Option<Diagnostic>,
    /// References that cannot be resolved, and invalid parts.
    pub unmet: Vec<Diagnostic>,
    /// Warnings and pending states.
    pub diagnostics: Vec<Diagnostic>,
    /// Pods that its selector matches.
    pub matched: usize,
    /// Matched pods that run no proxy.
    pub naked: usize,
    /// Proxies that should hold it.
    pub proxies: usize,
    /// Endpoints of a Target.
    pub endpoints: usize,
    /// Objects that are generated for it.
    pub generated: Vec<(MeshKind, ObjectName)>,
    /// Objects that use it: 20 at most.
    pub used_by: Vec<(MeshKind, ObjectName)>,
    /// The number of objects that use it.
    pub users: usize,
}

impl ObjectStatus {
    /// What the user must edit: the object is invalid, or a part of it is and the rest is programmed.
    pub fn first_invalid(&self) -> Option<&Diagnostic> {
        self.refused
            .as_ref()
            .or_else(|| self.unmet.iter().find(|diagnostic| diagnostic.reason.class() == ReasonClass::Invalid))
    }

    /// References that other objects may resolve later.
    pub fn unresolved(&self) -> impl Iterator<Item = &Diagnostic> {
        self.unmet.iter().filter(|diagnostic| diagnostic.reason.class() != ReasonClass::Invalid)
    }
}

impl Resolver {
    /// The status of a user's object; none for other objects.
    pub fn status(&self, kind: MeshKind, name: &ObjectName) -> Option<ObjectStatus> {
        if !self.is_user_object(kind, name) || kind == MeshKind::Service {
            return None;
        }
        let mut status = match kind {
            MeshKind::VirtualService => self.of_served(&GraphNode::VirtualService(name.clone()), name),
            MeshKind::Rule => self.of_served(&GraphNode::Rule(name.clone()), name),
            MeshKind::Target => {
                let mut status = self.targets.get(name).map(of_target).unwrap_or_default();
                self.list_users(GraphNode::Target(name.clone()), &mut status);
                self.remark_query(name, &mut status);
                status
            }
            MeshKind::Route => self.of_route(name),
            MeshKind::Service => ObjectStatus::default(),
        };
        status.diagnostics.sort();
        status.diagnostics.dedup();
        status.unmet.sort();
        status.unmet.dedup();
        Some(status)
    }

    fn of_served(&self, node: &GraphNode, name: &ObjectName) -> ObjectStatus {
        let Some(served) = self.served.get(node) else { return ObjectStatus::default() };
        let ServedObject { refused, unmet, diagnostics, is_stub, matched, naked, units, uses, .. } = served;
        let lost =
            units.keys().filter_map(|pod| self.assignments.get(pod)?.port_conflicts.get(name)).collect::<Vec<_>>();
        let conflict = lost.first().filter(|_| matches!(node, GraphNode::VirtualService(_)));
        let mut status = ObjectStatus {
            refused: refused.clone().or_else(|| conflict.map(|diagnostic| Diagnostic::clone(diagnostic))),
            unmet: unmet.clone(),
            diagnostics: diagnostics.clone(),
            matched: *matched,
            naked: *naked,
            proxies: units.len() - conflict.map_or(0, |_| lost.len()),
            ..ObjectStatus::default()
        };
        if *matched == 0 && !is_stub && unmet.is_empty() && refused.is_none() {
            status.diagnostics.push(Diagnostic::new(Reason::NoPods, "no pod matches the selector yet"));
        }
        for GeneratedUse { target: generated, user, .. } in uses {
            if user.1 != *name {
                continue;
            }
            status.generated.push((MeshKind::Target, generated.name.clone()));
            if let Callee::Service(service) = &generated.callee {
                status.generated.push((MeshKind::VirtualService, service.clone()));
            }
            if let Some(made) = self.generated.get(generated) {
                status.diagnostics.extend(made.diagnostics.iter().cloned());
            }
        }
        status.generated.sort();
        status.generated.dedup();
        if !status.generated.is_empty() && !self.world.settings.writes_generated {
            let message = "the operator may not write generated objects and keeps them in memory: grant it the permission, or create them yourself";
            status.diagnostics.push(Diagnostic::new(Reason::GeneratedInMemory, message));
        }
        status
    }

    fn of_route(&self, name: &ObjectName) -> ObjectStatus {
        let mut status = ObjectStatus::default();
        if let Some(Normalized { outcome: read, warnings: diagnostics }) = self.objects.routes.get(name) {
            status.refused = read.as_ref().err().cloned();
            status.diagnostics.clone_from(diagnostics);
        }
        if let Some(route) = self.routes.get(name) {
            status.unmet.clone_from(&route.summary.unmet);
            status.diagnostics.extend(route.diagnostics.iter().cloned());
        }
        let node = GraphNode::Route(name.clone());
        status.proxies = self.pods_needing.get(&node).map_or(0, std::collections::BTreeSet::len);
        self.list_users(node, &mut status);
        status
    }

    /// Warns where a Sync query misses labels: l7mp keeps received labels and own ones in different places.
    fn remark_query(&self, name: &ObjectName, status: &mut ObjectStatus) {
        let Some(placed) = self.targets.get(name) else { return };
        let is_sync = placed.outcome.as_ref().is_ok_and(|one| one.cluster.protocol == Protocol::Sync);
        let node = GraphNode::Target(name.clone());
        if let Some(pod) = placed.pods.iter().find(|pod| is_sync && self.is_reached_both_ways(pod, &node)) {
            let message = format!(
                "on the l7mp of pod `{}` both JSONSocket listeners and others use this Target, and the query finds the labels of the others only",
                pod.name
            );
            status.diagnostics.push(Diagnostic::new(Reason::QueryMayMiss, message));
        }
    }

    fn list_users(&self, node: GraphNode, status: &mut ObjectStatus) {
        let key = Dependency::Outcome(node);
        status.users = self.graph.count(&key);
        status.used_by = self.graph.readers(&key).filter_map(named).take(MOST_USERS).collect();
    }
}

fn of_target(placed: &PlacedTarget) -> ObjectStatus {
    let mut status = ObjectStatus {
        diagnostics: placed.diagnostics.clone(),
        matched: placed.matched,
        proxies: placed.pods.len(),
        ..ObjectStatus::default()
    };
    status.naked = placed.matched - placed.pods.len() - placed.broken.len();
    match &placed.outcome {
        Ok(compiled) => status.endpoints = compiled.cluster.endpoints.len(),
        Err(diagnostic) if diagnostic.reason.class() == ReasonClass::Unmet => status.unmet.push(diagnostic.clone()),
        Err(diagnostic) => status.refused = Some(diagnostic.clone()),
    }
    if let Some(diagnostic) = placed.broken.values().next() {
        status.refused.get_or_insert(diagnostic.clone());
    }
    if status.proxies == 0 && placed.broken.is_empty() && placed.outcome.is_ok() {
        status.diagnostics.push(Diagnostic::new(Reason::NoPods, "no proxy matches the selector yet"));
    }
    status
}

fn named(node: &GraphNode) -> Option<(MeshKind, ObjectName)> {
    match node {
        GraphNode::VirtualService(name) => Some((MeshKind::VirtualService, name.clone())),
        GraphNode::Rule(name) => Some((MeshKind::Rule, name.clone())),
        GraphNode::Route(name) => Some((MeshKind::Route, name.clone())),
        GraphNode::Target(name) => Some((MeshKind::Target, name.clone())),
        GraphNode::Set(_) | GraphNode::Generated(_) => None,
    }
}
