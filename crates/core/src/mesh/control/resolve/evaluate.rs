//! One node at a time: from an object to what the proxies of its pods get.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::callee::Family;
use super::compile::Asker;
use super::keys::{Callee, Generated, Key, Node, SetId};
use super::place::Unit;
use super::sets::Purpose;
use super::{Made, Placed, Resolver};
use crate::mesh::control::names::Inline;
use crate::mesh::control::normalize::Normalized;
use crate::mesh::control::types::{Extensions, MeshKind, ObjectName, Target};
use crate::mesh::control::world::ProxyRole;
use crate::mesh::control::{Diagnostic, Reason};

impl Resolver {
    pub(super) fn evaluate(&mut self, node: &Node) {
        match node {
            Node::Set(id) => self.evaluate_set(id),
            Node::Target(name) => self.evaluate_target(name),
            Node::Generated(generated) => self.evaluate_generated(generated),
            Node::Route(name) => self.evaluate_route(name),
            Node::VirtualService(name) => self.evaluate_virtual_service(name),
            Node::Rule(name) => self.evaluate_rule(name),
        }
    }

    fn evaluate_target(&mut self, name: &ObjectName) {
        let node = Node::Target(name.clone());
        self.touched.objects.insert((MeshKind::Target, name.clone()));
        let mut reads = BTreeSet::new();
        let before = self.targets.remove(name);
        let after = self.read_target(name, &mut reads);
        self.reads.set(&node, reads);
        let users = |placed: &Option<Placed>| placed.as_ref().and_then(|placed| placed.service.clone());
        self.use_service(users(&before), users(&after), (MeshKind::Target, name));
        let unit = after.as_ref().and_then(|placed| placed.outcome.as_ref().ok()).map(Unit::of_target);
        let units = |placed: &Placed| placed.pods.clone();
        let old = before.as_ref().map(units).unwrap_or_default();
        let new = after.as_ref().map(units).unwrap_or_default();
        for pod in old.union(&new) {
            self.seat(pod, &node, unit.as_ref().filter(|_| new.contains(pod)));
        }
        let facet = |placed: &Option<Placed>| {
            placed.as_ref().map(|placed| {
                let outcome = placed.outcome.as_ref().map(|one| (one.terms.clone(), one.callee.clone()));
                (outcome.map_err(Diagnostic::clone), placed.pods.clone(), placed.broken.clone())
            })
        };
        let differs = facet(&before) != facet(&after);
        if let Some(after) = after {
            self.targets.insert(name.clone(), after);
        }
        if differs {
            self.emit(&Key::Outcome(node));
        }
    }

    fn read_target(&mut self, name: &ObjectName, reads: &mut BTreeSet<Key>) -> Option<Placed> {
        let Normalized { outcome: read, warnings: notes } = self.normals.targets.get(name).cloned()?;
        let mut placed = Placed {
            outcome: Err(Diagnostic::new(Reason::RefInvalid, "")),
            notes,
            matched: 0,
            pods: BTreeSet::new(),
            broken: BTreeMap::new(),
            service: None,
        };
        let target = match read {
            Ok(target) => target,
            Err(note) => {
                placed.outcome = Err(note);
                return Some(placed);
            }
        };
        let selector = target.selector.clone().unwrap_or_default();
        let set = self.set(Purpose::Placement, &name.namespace, &selector);
        reads.insert(Key::Members(Arc::clone(&set)));
        let family = self.world.objects.get(&(MeshKind::Target, name.clone())).and_then(|object| {
            match object.annotations.get("l7mp.io/ip-family") {
                Some("IPv4") => Some(Family::V4),
                Some("IPv6") => Some(Family::V6),
                _ => None,
            }
        });
        let full = self.world.settings.domain.full(MeshKind::Target, name);
        let asker = Asker { namespace: &name.namespace, family };
        if let Some(text) = &target.linked
            && let Ok(Callee::Service(service)) = self.find_linked(text, &name.namespace, reads)
        {
            placed.service = Some(service);
        }
        let compiled = self.compile_target(&target, &asker, |_| full, reads, &mut placed.notes);
        placed.outcome = self.placeable(&set, &mut placed.notes).and(compiled);
        placed.matched = self.sets.get(&set).map_or(0, |set| set.members.len());
        let Ok(compiled) = &placed.outcome else { return Some(placed) };
        for pod in self.proxies(&set) {
            match compiled.terms.broken_at(self, &pod, &self.world.pods[&pod]) {
                None => drop(placed.pods.insert(pod)),
                Some(note) => drop(placed.broken.insert(pod, note)),
            }
        }
        Some(placed)
    }

    /// What a placement has to say: a problem keeps everything back.
    pub(super) fn placeable(&self, set: &SetId, notes: &mut Vec<Diagnostic>) -> Result<(), Diagnostic> {
        let Some(set) = self.sets.get(set) else { return Ok(()) };
        notes.extend(set.remark.clone());
        let two = set.members.iter().find(|pod| self.marks.get(*pod) == Some(&ProxyRole::TwoProxies));
        if let Some(pod) = two {
            let message = format!("pod `{}` has two proxies and is left out: keep one of them", pod.name);
            notes.push(Diagnostic::new(Reason::TwoProxies, message));
        }
        set.problem.clone().map_or(Ok(()), Err)
    }

    pub(super) fn evaluate_generated(&mut self, generated: &Generated) {
        let node = Node::Generated(generated.clone());
        let mut reads = BTreeSet::new();
        let mut notes = Vec::new();
        let target = Target {
            selector: None,
            spec: None,
            endpoints: Vec::new(),
            balancer: None,
            linked: None,
            extensions: Extensions::default(),
        };
        let full = self.world.settings.domain.full(MeshKind::Target, &generated.name);
        let asker = Asker { namespace: &generated.name.namespace, family: None };
        let outcome = self.compile_callee(&generated.callee, &target, &asker, |_| full, &mut reads, &mut notes);
        self.reads.set(&node, reads);
        let facet = |made: &Made| {
            let outcome = made.outcome.as_ref().map(|one| (one.terms.clone(), one.callee.clone()));
            outcome.map_err(Diagnostic::clone)
        };
        let after = Made { outcome, notes };
        let before = self.generated.get(generated);
        let differs = before.is_some_and(|before| facet(before) != facet(&after));
        let notes_differ = before.is_none_or(|before| before.notes != after.notes);
        if let Some(users) = self.users.get(generated).filter(|_| notes_differ) {
            self.touched.objects.extend(users.namers.keys().cloned());
        }
        self.share(&node, after.outcome.as_ref().ok().map(Unit::of_target).as_ref());
        self.generated.insert(generated.clone(), after);
        self.touch_generated(generated);
        if differs {
            self.emit(&Key::Outcome(node));
        }
    }

    fn evaluate_route(&mut self, name: &ObjectName) {
        let node = Node::Route(name.clone());
        self.touched.objects.insert((MeshKind::Route, name.clone()));
        let mut reads = BTreeSet::new();
        let normal = self.normals.routes.get(name).cloned();
        let after = normal.and_then(|normal| normal.outcome.ok()).map(|route| {
            let full = self.world.settings.domain.full(MeshKind::Route, name);
            let mut inline = Inline::default();
            let owner = (&*Arc::clone(&full), &name.namespace);
            self.compile_way(owner, &route, Some(full), &mut inline, &mut reads)
        });
        self.reads.set(&node, reads);
        let before = self.routes.remove(name);
        let differs = before.as_ref().map(|way| &way.legs) != after.as_ref().map(|way| &way.legs);
        self.share(&node, after.as_ref().filter(|way| way.legs.unmet.is_empty()).map(Unit::of_way).as_ref());
        if let Some(after) = after {
            self.routes.insert(name.clone(), after);
        }
        if differs {
            self.emit(&Key::Outcome(node));
        }
    }
}
