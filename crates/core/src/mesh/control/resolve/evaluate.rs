//! Evaluates one node of the dependency graph: from an object to what the proxies of its pods get.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::assignment::ConfigUnit;
use super::compile::{CompileContext, RuleOwner};
use super::compiled::Family;
use super::dependencies::{Callee, Dependency, GeneratedTarget, GraphNode, PodSetId};
use super::pod_sets::SetPurpose;
use super::state::{GeneratedTargetState, PlacedTarget, Resolver};
use crate::mesh::control::names::InlineNames;
use crate::mesh::control::normalize::Normalized;
use crate::mesh::control::types::{Extensions, MeshKind, ObjectName, Target};
use crate::mesh::control::world::ProxyRole;
use crate::mesh::control::{Diagnostic, Reason};

impl Resolver {
    pub(super) fn evaluate(&mut self, node: &GraphNode) {
        match node {
            GraphNode::Set(id) => self.evaluate_set(id),
            GraphNode::Target(name) => self.evaluate_target(name),
            GraphNode::Generated(generated) => self.evaluate_generated(generated),
            GraphNode::Route(name) => self.evaluate_route(name),
            GraphNode::VirtualService(name) => self.evaluate_virtual_service(name),
            GraphNode::Rule(name) => self.evaluate_rule(name),
        }
    }

    fn evaluate_target(&mut self, name: &ObjectName) {
        let node = GraphNode::Target(name.clone());
        self.affected.objects.insert((MeshKind::Target, name.clone()));
        let mut reads = BTreeSet::new();
        let before = self.targets.remove(name);
        let after = self.read_target(name, &mut reads);
        self.graph.set(&node, reads);
        let users = |placed: &Option<PlacedTarget>| placed.as_ref().and_then(|placed| placed.service.clone());
        self.update_linked_service(users(&before), users(&after), (MeshKind::Target, name));
        let unit = after.as_ref().and_then(|placed| placed.outcome.as_ref().ok()).map(ConfigUnit::of_target);
        let units = |placed: &PlacedTarget| placed.pods.clone();
        let old = before.as_ref().map(units).unwrap_or_default();
        let new = after.as_ref().map(units).unwrap_or_default();
        for pod in old.union(&new) {
            self.assign(pod, &node, unit.as_ref().filter(|_| new.contains(pod)));
        }
        let visible = |placed: &Option<PlacedTarget>| {
            placed.as_ref().map(|placed| {
                let outcome = placed.outcome.as_ref().map(|one| (one.constraints.clone(), one.callee.clone()));
                (outcome.map_err(Diagnostic::clone), placed.pods.clone(), placed.broken.clone())
            })
        };
        let differs = visible(&before) != visible(&after);
        if let Some(after) = after {
            self.targets.insert(name.clone(), after);
        }
        if differs {
            self.invalidate(&Dependency::Outcome(node));
        }
    }

    fn read_target(&mut self, name: &ObjectName, reads: &mut BTreeSet<Dependency>) -> Option<PlacedTarget> {
        let Normalized { outcome: read, warnings: diagnostics } = self.objects.targets.get(name).cloned()?;
        let mut placed = PlacedTarget {
            outcome: Err(Diagnostic::new(Reason::RefInvalid, "")),
            diagnostics,
            matched: 0,
            pods: BTreeSet::new(),
            broken: BTreeMap::new(),
            service: None,
        };
        let target = match read {
            Ok(target) => target,
            Err(diagnostic) => {
                placed.outcome = Err(diagnostic);
                return Some(placed);
            }
        };
        let selector = target.selector.clone().unwrap_or_default();
        let set = self.set(SetPurpose::Placement, &name.namespace, &selector);
        reads.insert(Dependency::Members(Arc::clone(&set)));
        let family = self.world.objects.get(&(MeshKind::Target, name.clone())).and_then(|object| {
            match object.annotations.get("l7mp.io/ip-family") {
                Some("IPv4") => Some(Family::V4),
                Some("IPv6") => Some(Family::V6),
                _ => None,
            }
        });
        let full = self.world.settings.domain.full(MeshKind::Target, name);
        if let Some(text) = &target.linked
            && let Ok(Callee::Service(service)) = self.find_linked(text, &name.namespace, reads)
        {
            placed.service = Some(service);
        }
        let diagnostics = &mut placed.diagnostics;
        let mut context = CompileContext { namespace: &name.namespace, family, reads, diagnostics };
        let compiled = self.compile_target(&target, |_| full, &mut context);
        placed.outcome = self.check_placement(&set, &mut placed.diagnostics).and(compiled);
        placed.matched = self.sets.get(&set).map_or(0, |set| set.members.len());
        let Ok(compiled) = &placed.outcome else { return Some(placed) };
        for pod in self.proxies(&set) {
            match compiled.constraints.unmet_by(self, &pod, &self.world.pods[&pod]) {
                None => drop(placed.pods.insert(pod)),
                Some(diagnostic) => drop(placed.broken.insert(pod, diagnostic)),
            }
        }
        Some(placed)
    }

    /// Reports the diagnostics of a placement; a problem rejects the object.
    pub(super) fn check_placement(&self, set: &PodSetId, diagnostics: &mut Vec<Diagnostic>) -> Result<(), Diagnostic> {
        let Some(set) = self.sets.get(set) else { return Ok(()) };
        diagnostics.extend(set.remark.clone());
        let two = set.members.iter().find(|pod| self.proxy_roles.get(*pod) == Some(&ProxyRole::TwoProxies));
        if let Some(pod) = two {
            let message = format!("pod `{}` has two proxies and is skipped: remove one of them", pod.name);
            diagnostics.push(Diagnostic::new(Reason::TwoProxies, message));
        }
        set.problem.clone().map_or(Ok(()), Err)
    }

    pub(super) fn evaluate_generated(&mut self, generated: &GeneratedTarget) {
        let node = GraphNode::Generated(generated.clone());
        let mut reads = BTreeSet::new();
        let mut diagnostics = Vec::new();
        let target = Target {
            selector: None,
            spec: None,
            endpoints: Vec::new(),
            balancer: None,
            linked: None,
            extensions: Extensions::default(),
        };
        let full = self.world.settings.domain.full(MeshKind::Target, &generated.name);
        let mut context = CompileContext {
            namespace: &generated.name.namespace,
            family: None,
            reads: &mut reads,
            diagnostics: &mut diagnostics,
        };
        let outcome = self.compile_callee(&generated.callee, &target, |_| full, &mut context);
        self.graph.set(&node, reads);
        let visible = |made: &GeneratedTargetState| {
            let outcome = made.outcome.as_ref().map(|one| (one.constraints.clone(), one.callee.clone()));
            outcome.map_err(Diagnostic::clone)
        };
        let after = GeneratedTargetState { outcome, diagnostics };
        let before = self.generated.get(generated);
        let differs = before.is_some_and(|before| visible(before) != visible(&after));
        let diagnostics_differ = before.is_none_or(|before| before.diagnostics != after.diagnostics);
        if let Some(users) = self.generated_users.get(generated).filter(|_| diagnostics_differ) {
            self.affected.objects.extend(users.users.keys().cloned());
        }
        self.set_shared(&node, after.outcome.as_ref().ok().map(ConfigUnit::of_target).as_ref());
        self.generated.insert(generated.clone(), after);
        self.mark_generated(generated);
        if differs {
            self.invalidate(&Dependency::Outcome(node));
        }
    }

    fn evaluate_route(&mut self, name: &ObjectName) {
        let node = GraphNode::Route(name.clone());
        self.affected.objects.insert((MeshKind::Route, name.clone()));
        let mut reads = BTreeSet::new();
        let normal = self.objects.routes.get(name).cloned();
        let after = normal.and_then(|normal| normal.outcome.ok()).map(|route| {
            let full = self.world.settings.domain.full(MeshKind::Route, name);
            let mut owner = RuleOwner {
                full_name: &full,
                namespace: &name.namespace,
                inline: InlineNames::default(),
                reads: &mut reads,
            };
            self.compile_route(&route, Some(Arc::clone(&full)), &mut owner)
        });
        self.graph.set(&node, reads);
        let before = self.routes.remove(name);
        let differs = before.as_ref().map(|route| &route.summary) != after.as_ref().map(|route| &route.summary);
        self.set_shared(
            &node,
            after.as_ref().filter(|route| route.summary.unmet.is_empty()).map(ConfigUnit::of_route).as_ref(),
        );
        if let Some(after) = after {
            self.routes.insert(name.clone(), after);
        }
        if differs {
            self.invalidate(&Dependency::Outcome(node));
        }
    }
}
