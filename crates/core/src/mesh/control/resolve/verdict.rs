//! What is to be said of an object.

use super::keys::{Callee, Key, Node};
use super::{Placed, Resolver, Served};
use crate::mesh::control::types::{Kind, ObjectName, Protocol};
use crate::mesh::control::{Class, Note, Reason};

/// Names of users that a verdict lists, at most.
const MOST_USERS: usize = 20;

/// What is to be said of an object, but for what its proxies answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Verdict {
    /// Why it is refused: the user must edit something.
    pub refused: Option<Note>,
    /// What it needs and cannot have.
    pub unmet: Vec<Note>,
    /// What its user should know.
    pub notes: Vec<Note>,
    /// Pods that its selector matches.
    pub matched: usize,
    /// Those of them that run no proxy.
    pub naked: usize,
    /// Proxies that should hold it.
    pub proxies: usize,
    /// Endpoints of a Target.
    pub endpoints: usize,
    /// Generated objects that it makes necessary.
    pub generated: Vec<(Kind, ObjectName)>,
    /// Who names it: 20 at most.
    pub used_by: Vec<(Kind, ObjectName)>,
    /// How many name it.
    pub users: usize,
}

impl Verdict {
    /// What its user must edit: the object is refused, or a part of it is and the rest is in force.
    pub fn to_edit(&self) -> Option<&Note> {
        self.refused.as_ref().or_else(|| self.unmet.iter().find(|note| note.reason.class() == Class::Invalid))
    }

    /// What it lacks, and others may bring.
    pub fn lacks(&self) -> impl Iterator<Item = &Note> {
        self.unmet.iter().filter(|note| note.reason.class() != Class::Invalid)
    }
}

impl Resolver {
    /// What is to be said of a user's object; nothing of others.
    pub fn verdict(&self, kind: Kind, name: &ObjectName) -> Option<Verdict> {
        if !self.is_users(kind, name) || kind == Kind::Service {
            return None;
        }
        let mut verdict = match kind {
            Kind::VirtualService => self.of_served(&Node::VirtualService(name.clone()), name),
            Kind::Rule => self.of_served(&Node::Rule(name.clone()), name),
            Kind::Target => {
                let mut verdict = self.targets.get(name).map(of_target).unwrap_or_default();
                self.list_users(Node::Target(name.clone()), &mut verdict);
                self.remark_query(name, &mut verdict);
                verdict
            }
            Kind::Route => self.of_route(name),
            Kind::Service => Verdict::default(),
        };
        verdict.notes.sort();
        verdict.notes.dedup();
        verdict.unmet.sort();
        verdict.unmet.dedup();
        Some(verdict)
    }

    fn of_served(&self, node: &Node, name: &ObjectName) -> Verdict {
        let Some(served) = self.served.get(node) else { return Verdict::default() };
        let Served { refused, unmet, notes, is_stub, matched, naked, units, uses, .. } = served;
        let lost = units.keys().filter_map(|pod| self.seats.get(pod)?.lost.get(name)).collect::<Vec<_>>();
        let conflict = lost.first().filter(|_| matches!(node, Node::VirtualService(_)));
        let mut verdict = Verdict {
            refused: refused.clone().or_else(|| conflict.map(|note| Note::clone(note))),
            unmet: unmet.clone(),
            notes: notes.clone(),
            matched: *matched,
            naked: *naked,
            proxies: units.len() - conflict.map_or(0, |_| lost.len()),
            ..Verdict::default()
        };
        if *matched == 0 && !is_stub && unmet.is_empty() && refused.is_none() {
            verdict.notes.push(Note::new(Reason::NoPods, "no pod matches the selector yet"));
        }
        for (generated, namer, _) in uses {
            if namer.1 != *name {
                continue;
            }
            verdict.generated.push((Kind::Target, generated.name.clone()));
            if let Callee::Service(service) = &generated.callee {
                verdict.generated.push((Kind::VirtualService, service.clone()));
            }
            if let Some(made) = self.generated.get(generated) {
                verdict.notes.extend(made.notes.iter().cloned());
            }
        }
        verdict.generated.sort();
        verdict.generated.dedup();
        if !verdict.generated.is_empty() && !self.world.settings.writes_generated {
            let message = "generated objects may not be written and live in memory: allow it, or write them yourself";
            verdict.notes.push(Note::new(Reason::GeneratedInMemory, message));
        }
        verdict
    }

    fn of_route(&self, name: &ObjectName) -> Verdict {
        let mut verdict = Verdict::default();
        if let Some((read, notes)) = self.normals.routes.get(name) {
            verdict.refused = read.as_ref().err().cloned();
            verdict.notes.clone_from(notes);
        }
        if let Some(way) = self.routes.get(name) {
            verdict.unmet.clone_from(&way.legs.unmet);
            verdict.notes.extend(way.notes.iter().cloned());
        }
        let node = Node::Route(name.clone());
        verdict.proxies = self.needers.get(&node).map_or(0, std::collections::BTreeSet::len);
        self.list_users(node, &mut verdict);
        verdict
    }

    /// A Sync query finds received labels and own ones in different places on a real l7mp.
    fn remark_query(&self, name: &ObjectName, verdict: &mut Verdict) {
        let Some(placed) = self.targets.get(name) else { return };
        let is_sync = placed.outcome.as_ref().is_ok_and(|one| one.cluster.protocol == Protocol::Sync);
        let node = Node::Target(name.clone());
        if let Some(pod) = placed.pods.iter().find(|pod| is_sync && self.is_reached_both_ways(pod, &node)) {
            let message = format!(
                "on the l7mp of pod `{}` JSONSocket listeners and others lead here, and only the others find their labels",
                pod.name
            );
            verdict.notes.push(Note::new(Reason::QueryMayMiss, message));
        }
    }

    fn list_users(&self, node: Node, verdict: &mut Verdict) {
        let key = Key::Outcome(node);
        verdict.users = self.reads.count(&key);
        verdict.used_by = self.reads.readers(&key).filter_map(named).take(MOST_USERS).collect();
    }
}

fn of_target(placed: &Placed) -> Verdict {
    let mut verdict = Verdict {
        notes: placed.notes.clone(),
        matched: placed.matched,
        proxies: placed.pods.len(),
        ..Verdict::default()
    };
    verdict.naked = placed.matched - placed.pods.len() - placed.broken.len();
    match &placed.outcome {
        Ok(compiled) => verdict.endpoints = compiled.cluster.endpoints.len(),
        Err(note) if note.reason.class() == Class::Unmet => verdict.unmet.push(note.clone()),
        Err(note) => verdict.refused = Some(note.clone()),
    }
    if let Some(note) = placed.broken.values().next() {
        verdict.refused.get_or_insert(note.clone());
    }
    if verdict.proxies == 0 && placed.broken.is_empty() && placed.outcome.is_ok() {
        verdict.notes.push(Note::new(Reason::NoPods, "no proxy matches the selector yet"));
    }
    verdict
}

fn named(node: &Node) -> Option<(Kind, ObjectName)> {
    match node {
        Node::VirtualService(name) => Some((Kind::VirtualService, name.clone())),
        Node::Rule(name) => Some((Kind::Rule, name.clone())),
        Node::Route(name) => Some((Kind::Route, name.clone())),
        Node::Target(name) => Some((Kind::Target, name.clone())),
        Node::Set(_) | Node::Generated(_) => None,
    }
}
