//! What is to be said of an object.

use super::keys::{Callee, Key, Node};
use super::{Placed, Resolver, Served};
use crate::mesh::control::normalize::Normalized;
use crate::mesh::control::types::{MeshKind, ObjectName, Protocol};
use crate::mesh::control::{Diagnostic, Reason, ReasonClass};

/// Names of users that a status lists, at most.
const MOST_USERS: usize = 20;

/// What is to be said of an object, but for what its proxies answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ObjectStatus {
    /// Why it is refused: the user must edit something.
    pub refused: Option<Diagnostic>,
    /// What it needs and cannot have.
    pub unmet: Vec<Diagnostic>,
    /// What its user should know.
    pub diagnostics: Vec<Diagnostic>,
    /// Pods that its selector matches.
    pub matched: usize,
    /// Those of them that run no proxy.
    pub naked: usize,
    /// Proxies that should hold it.
    pub proxies: usize,
    /// Endpoints of a Target.
    pub endpoints: usize,
    /// Generated objects that it makes necessary.
    pub generated: Vec<(MeshKind, ObjectName)>,
    /// Who names it: 20 at most.
    pub used_by: Vec<(MeshKind, ObjectName)>,
    /// How many name it.
    pub users: usize,
}

impl ObjectStatus {
    /// What its user must edit: the object is refused, or a part of it is and the rest is in force.
    pub fn first_invalid(&self) -> Option<&Diagnostic> {
        self.refused.as_ref().or_else(|| self.unmet.iter().find(|note| note.reason.class() == ReasonClass::Invalid))
    }

    /// What it lacks, and others may bring.
    pub fn unresolved(&self) -> impl Iterator<Item = &Diagnostic> {
        self.unmet.iter().filter(|note| note.reason.class() != ReasonClass::Invalid)
    }
}

impl Resolver {
    /// What is to be said of a user's object; nothing of others.
    pub fn status(&self, kind: MeshKind, name: &ObjectName) -> Option<ObjectStatus> {
        if !self.is_users(kind, name) || kind == MeshKind::Service {
            return None;
        }
        let mut status = match kind {
            MeshKind::VirtualService => self.of_served(&Node::VirtualService(name.clone()), name),
            MeshKind::Rule => self.of_served(&Node::Rule(name.clone()), name),
            MeshKind::Target => {
                let mut status = self.targets.get(name).map(of_target).unwrap_or_default();
                self.list_users(Node::Target(name.clone()), &mut status);
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

    fn of_served(&self, node: &Node, name: &ObjectName) -> ObjectStatus {
        let Some(served) = self.served.get(node) else { return ObjectStatus::default() };
        let Served { refused, unmet, notes, is_stub, matched, naked, units, uses, .. } = served;
        let lost = units.keys().filter_map(|pod| self.seats.get(pod)?.lost.get(name)).collect::<Vec<_>>();
        let conflict = lost.first().filter(|_| matches!(node, Node::VirtualService(_)));
        let mut status = ObjectStatus {
            refused: refused.clone().or_else(|| conflict.map(|note| Diagnostic::clone(note))),
            unmet: unmet.clone(),
            diagnostics: notes.clone(),
            matched: *matched,
            naked: *naked,
            proxies: units.len() - conflict.map_or(0, |_| lost.len()),
            ..ObjectStatus::default()
        };
        if *matched == 0 && !is_stub && unmet.is_empty() && refused.is_none() {
            status.diagnostics.push(Diagnostic::new(Reason::NoPods, "no pod matches the selector yet"));
        }
        for (generated, namer, _) in uses {
            if namer.1 != *name {
                continue;
            }
            status.generated.push((MeshKind::Target, generated.name.clone()));
            if let Callee::Service(service) = &generated.callee {
                status.generated.push((MeshKind::VirtualService, service.clone()));
            }
            if let Some(made) = self.generated.get(generated) {
                status.diagnostics.extend(made.notes.iter().cloned());
            }
        }
        status.generated.sort();
        status.generated.dedup();
        if !status.generated.is_empty() && !self.world.settings.writes_generated {
            let message = "generated objects may not be written and live in memory: allow it, or write them yourself";
            status.diagnostics.push(Diagnostic::new(Reason::GeneratedInMemory, message));
        }
        status
    }

    fn of_route(&self, name: &ObjectName) -> ObjectStatus {
        let mut status = ObjectStatus::default();
        if let Some(Normalized { outcome: read, warnings: notes }) = self.normals.routes.get(name) {
            status.refused = read.as_ref().err().cloned();
            status.diagnostics.clone_from(notes);
        }
        if let Some(way) = self.routes.get(name) {
            status.unmet.clone_from(&way.legs.unmet);
            status.diagnostics.extend(way.notes.iter().cloned());
        }
        let node = Node::Route(name.clone());
        status.proxies = self.needers.get(&node).map_or(0, std::collections::BTreeSet::len);
        self.list_users(node, &mut status);
        status
    }

    /// A Sync query finds received labels and own ones in different places on a real l7mp.
    fn remark_query(&self, name: &ObjectName, status: &mut ObjectStatus) {
        let Some(placed) = self.targets.get(name) else { return };
        let is_sync = placed.outcome.as_ref().is_ok_and(|one| one.cluster.protocol == Protocol::Sync);
        let node = Node::Target(name.clone());
        if let Some(pod) = placed.pods.iter().find(|pod| is_sync && self.is_reached_both_ways(pod, &node)) {
            let message = format!(
                "on the l7mp of pod `{}` JSONSocket listeners and others lead here, and only the others find their labels",
                pod.name
            );
            status.diagnostics.push(Diagnostic::new(Reason::QueryMayMiss, message));
        }
    }

    fn list_users(&self, node: Node, status: &mut ObjectStatus) {
        let key = Key::Outcome(node);
        status.users = self.reads.count(&key);
        status.used_by = self.reads.readers(&key).filter_map(named).take(MOST_USERS).collect();
    }
}

fn of_target(placed: &Placed) -> ObjectStatus {
    let mut status = ObjectStatus {
        diagnostics: placed.notes.clone(),
        matched: placed.matched,
        proxies: placed.pods.len(),
        ..ObjectStatus::default()
    };
    status.naked = placed.matched - placed.pods.len() - placed.broken.len();
    match &placed.outcome {
        Ok(compiled) => status.endpoints = compiled.cluster.endpoints.len(),
        Err(note) if note.reason.class() == ReasonClass::Unmet => status.unmet.push(note.clone()),
        Err(note) => status.refused = Some(note.clone()),
    }
    if let Some(note) = placed.broken.values().next() {
        status.refused.get_or_insert(note.clone());
    }
    if status.proxies == 0 && placed.broken.is_empty() && placed.outcome.is_ok() {
        status.diagnostics.push(Diagnostic::new(Reason::NoPods, "no proxy matches the selector yet"));
    }
    status
}

fn named(node: &Node) -> Option<(MeshKind, ObjectName)> {
    match node {
        Node::VirtualService(name) => Some((MeshKind::VirtualService, name.clone())),
        Node::Rule(name) => Some((MeshKind::Rule, name.clone())),
        Node::Route(name) => Some((MeshKind::Route, name.clone())),
        Node::Target(name) => Some((MeshKind::Target, name.clone())),
        Node::Set(_) | Node::Generated(_) => None,
    }
}
