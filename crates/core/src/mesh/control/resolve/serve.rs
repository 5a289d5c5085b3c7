//! VirtualServices and Rules: what each of their proxies gets, for the rules that can be resolved.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::assignment::{ConfigUnit, PortClaim};
use super::compile::RuleOwner;
use super::compiled::{CompiledRoute, CompiledTarget};
use super::dependencies::{Dependency, GraphNode, PodSetId};
use super::pod_sets::SetPurpose;
use super::state::{Caller, GeneratedUse, Resolver, ServedObject};
use crate::mesh::control::names::InlineNames;
use crate::mesh::control::normalize::Normalized;
use crate::mesh::control::types::{MeshKind, ObjectName, RouteRef, Rule, Rules, VirtualService};
use crate::mesh::control::world::{ProxyImplementation, Transport};
use crate::mesh::control::{Diagnostic, Reason, ReasonClass, l7mp_quirks, wire};

/// A compiled rule.
struct CompiledRule {
    rule: wire::Rule,
    route: Option<CompiledRoute>,
    named: Option<ObjectName>,
    unmet: Vec<Diagnostic>,
}

/// The rules of an object, and the pods they are placed on.
struct RulePlacement<'a> {
    set: PodSetId,
    /// The part that does not depend on the rules.
    base: ConfigUnit,
    rules: Vec<CompiledRule>,
    user: (MeshKind, &'a ObjectName),
    selector: &'a str,
}

impl Resolver {
    pub(super) fn evaluate_virtual_service(&mut self, name: &ObjectName) {
        let node = GraphNode::VirtualService(name.clone());
        let mut reads = BTreeSet::new();
        let normal = self.objects.virtual_services.get(name).cloned();
        let after = normal.map(|Normalized { outcome: read, warnings: diagnostics }| {
            let mut served = ServedObject { diagnostics, ..ServedObject::default() };
            match read {
                Ok(one) => self.serve_virtual_service(name, &one, &mut served, &mut reads),
                Err(diagnostic) => served.refused = Some(diagnostic),
            }
            served
        });
        self.replace_served(&node, after, reads);
        let callees = self.served.get(&node).map(|served| served.callees.clone()).unwrap_or_default();
        for concerned in self.cycles.set(name, callees) {
            self.invalidate(&Dependency::Cycle(concerned));
        }
    }

    pub(super) fn evaluate_rule(&mut self, name: &ObjectName) {
        let node = GraphNode::Rule(name.clone());
        let mut reads = BTreeSet::new();
        let normal = self.objects.rules.get(name).cloned();
        let after = normal.map(|Normalized { outcome: read, warnings: diagnostics }| {
            let mut served = ServedObject { diagnostics, ..ServedObject::default() };
            let one = match read {
                Ok(one) => one,
                Err(diagnostic) => {
                    served.refused = Some(diagnostic);
                    return served;
                }
            };
            let full = self.world.settings.domain.full(MeshKind::Rule, name);
            let mut owner = RuleOwner {
                full_name: &full,
                namespace: &name.namespace,
                inline: InlineNames::default(),
                reads: &mut reads,
            };
            let mut rule = self.compile_rule(&one.rule, "rule", &mut owner);
            rule.rule.name = Arc::clone(&full);
            let set = self.set(SetPurpose::Placement, &name.namespace, &one.selector);
            let created = self.world.objects.get(&(MeshKind::Rule, name.clone())).map_or(0, |object| object.created);
            let insertion = wire::Insertion {
                rulelist: Arc::from(one.rulelist.as_str()),
                position: one.position,
                created,
                rule: full,
            };
            let base = ConfigUnit { insertion: Some(insertion), ..ConfigUnit::default() };
            let selector = one.selector.key();
            let given =
                RulePlacement { set, base, rules: vec![rule], user: (MeshKind::Rule, name), selector: &selector };
            self.place_rules(&given, &mut served, &mut reads);
            served
        });
        self.replace_served(&node, after, reads);
    }

    /// Replaces what an object puts on proxies.
    fn replace_served(&mut self, node: &GraphNode, after: Option<ServedObject>, reads: BTreeSet<Dependency>) {
        self.graph.set(node, reads);
        if let GraphNode::VirtualService(name) | GraphNode::Rule(name) = node {
            let kind = if matches!(node, GraphNode::Rule(_)) { MeshKind::Rule } else { MeshKind::VirtualService };
            self.affected.objects.insert((kind, name.clone()));
        }
        let before = self.served.remove(node);
        let none = BTreeMap::new();
        let old = before.as_ref().map_or(&none, |served| &served.units);
        let new = after.as_ref().map_or(&none, |served| &served.units);
        let pods: BTreeSet<&ObjectName> = old.keys().chain(new.keys()).collect();
        for pod in pods {
            self.assign(pod, node, new.get(pod));
        }
        let uses =
            |served: &Option<ServedObject>| served.as_ref().map(|served| served.uses.clone()).unwrap_or_default();
        self.update_generated_users(&uses(&before), &uses(&after));
        if let Some(after) = after {
            self.served.insert(node.clone(), after);
        }
    }

    fn serve_virtual_service(
        &mut self,
        name: &ObjectName,
        one: &VirtualService,
        served: &mut ServedObject,
        reads: &mut BTreeSet<Dependency>,
    ) {
        let set = self.set(SetPurpose::Placement, &name.namespace, &one.selector);
        let full = self.world.settings.domain.full(MeshKind::VirtualService, name);
        let (rules, list) = match &one.rules {
            Rules::Stub => {
                served.is_stub = true;
                reads.insert(Dependency::Members(Arc::clone(&set)));
                served.matched = self.sets.get(&set).map_or(0, |set| set.members.len());
                if let Err(diagnostic) = self.check_placement(&set, &mut served.diagnostics) {
                    served.unmet.push(diagnostic);
                }
                return;
            }
            Rules::Named(list) => (Vec::new(), Arc::from(list.as_str())),
            Rules::List(rules) => {
                let inline = InlineNames::default();
                let mut owner = RuleOwner { full_name: &full, namespace: &name.namespace, inline, reads };
                let compile =
                    |(index, rule): (usize, &Rule)| self.compile_rule(rule, &format!("rules[{index}]"), &mut owner);
                (rules.iter().enumerate().map(compile).collect(), Arc::clone(&full))
            }
        };
        let listener = wire::Listener {
            name: Arc::clone(&full),
            protocol: one.listener.protocol,
            spec: one.listener.to_value(),
            rules: list,
            options: one.options.clone(),
            extension_options: one.extensions.options.clone(),
            tls: one.extensions.tls.clone(),
        };
        let created =
            self.world.objects.get(&(MeshKind::VirtualService, name.clone())).map_or(0, |object| object.created);
        let base = ConfigUnit {
            rulelist: matches!(one.rules, Rules::List(_)).then(|| (Arc::clone(&full), Vec::new())),
            listener: Some(Arc::new(listener)),
            claim: PortClaim::of(&one.listener, created),
            ..ConfigUnit::default()
        };
        reads.insert(Dependency::Cycle(name.clone()));
        for rule in &rules {
            let summary = rule.route.as_ref().map(|route| &route.summary);
            let named = rule.named.as_ref().and_then(|route| self.routes.get(route)).map(|route| &route.summary);
            served.callees.extend(summary.or(named).into_iter().flat_map(|summary| summary.callees.clone()));
        }
        if let Some(diagnostic) = self.find_cycle(name, reads) {
            if diagnostic.reason == Reason::RouteLoop {
                served.refused = Some(diagnostic);
                return;
            }
            served.diagnostics.push(diagnostic);
        }
        let selector = one.selector.key();
        let given = RulePlacement { set, base, rules, user: (MeshKind::VirtualService, name), selector: &selector };
        self.place_rules(&given, served, reads);
    }

    /// Reports a cycle: on a common pod it is an error, over several proxies it may be one.
    fn find_cycle(&mut self, name: &ObjectName, reads: &mut BTreeSet<Dependency>) -> Option<Diagnostic> {
        let cycle = self.cycles.cycle(name)?.clone();
        let mut common: Option<BTreeSet<ObjectName>> = None;
        for other in &cycle {
            let Some(selector) = self.virtual_service(other).map(|one| one.selector.clone()) else { continue };
            let set = self.set(SetPurpose::Placement, &other.namespace, &selector);
            reads.insert(Dependency::Members(Arc::clone(&set)));
            let members = self.sets.get(&set).map(|set| set.members.clone()).unwrap_or_default();
            common = Some(common.map_or(members.clone(), |common| common.intersection(&members).cloned().collect()));
        }
        let path = cycle.iter().map(|one| format!("`{}`", one.name)).collect::<Vec<_>>().join(", ");
        if common.is_some_and(|common| !common.is_empty()) {
            let message = format!("the route leads back to its own listener, through {path}: change a destination");
            return Some(Diagnostic::new(Reason::RouteLoop, message));
        }
        let message = format!("the route may lead back to its own listener over other proxies, through {path}");
        Some(Diagnostic::new(Reason::PossibleLoop, message))
    }

    fn compile_rule(&mut self, rule: &Rule, path: &str, owner: &mut RuleOwner<'_>) -> CompiledRule {
        let mut compiled = wire::Rule {
            name: Arc::from(""),
            matching: rule.matching.clone(),
            rewrite: rule.rewrite.clone(),
            route: None,
            apply: rule.apply.as_deref().map(Arc::from),
            reaches_websocket: false,
        };
        let (mut route, mut named, mut unmet) = (None, None, Vec::new());
        match &rule.route {
            Some(RouteRef::Inline(inline)) => {
                let made = self.compile_route(inline, None, owner);
                compiled.route = Some(Arc::clone(&made.route.name));
                compiled.reaches_websocket = made.summary.reaches_websocket;
                unmet.clone_from(&made.summary.unmet);
                route = Some(made);
            }
            Some(RouteRef::Name(text)) => match self.find_route(text, owner.namespace, owner.reads) {
                Ok(name) => {
                    owner.reads.insert(Dependency::Outcome(GraphNode::Route(name.clone())));
                    compiled.route = Some(self.world.settings.domain.full(MeshKind::Route, &name));
                    match self.routes.get(&name) {
                        Some(route) => {
                            compiled.reaches_websocket = route.summary.reaches_websocket;
                            let within = route.summary.unmet.iter();
                            unmet.extend(within.map(|diagnostic| {
                                let is_its_own = diagnostic.reason.class() == ReasonClass::Invalid;
                                let reason = if is_its_own { Reason::RefInvalid } else { diagnostic.reason };
                                Diagnostic::new(reason, format!("Route `{}`: {}", name.name, diagnostic.message))
                            }));
                        }
                        None => unmet.push(Diagnostic::new(
                            Reason::RefInvalid,
                            format!("Route `{}` is invalid: see its status", name.name),
                        )),
                    }
                    named = Some(name);
                }
                Err(diagnostic) => unmet.push(diagnostic),
            },
            None => {}
        }
        for diagnostic in &mut unmet {
            diagnostic.message = format!("{path}: {}", diagnostic.message);
        }
        compiled.name = owner.inline.name(owner.full_name, &compiled.content());
        CompiledRule { rule: compiled, route, named, unmet }
    }

    /// Places the rules on every proxy of a set. A rule that cannot be resolved is left out, and without any rule the
    /// listener is, too.
    fn place_rules(&mut self, given: &RulePlacement<'_>, served: &mut ServedObject, reads: &mut BTreeSet<Dependency>) {
        let RulePlacement { set, base, rules, user, selector } = given;
        reads.insert(Dependency::Members(Arc::clone(set)));
        let proxies = self.proxies(set);
        served.matched = self.sets.get(set).map_or(0, |set| set.members.len());
        served.naked = served.matched - proxies.len();
        if let Err(diagnostic) = self.check_placement(set, &mut served.diagnostics) {
            served.unmet.push(diagnostic);
        }
        for rule in rules {
            if let Some(name) = &rule.named {
                self.affected.objects.insert((MeshKind::Route, name.clone()));
            }
            served.unmet.extend(rule.unmet.iter().cloned());
            served.diagnostics.extend(rule.route.iter().flat_map(|route| route.diagnostics.iter().cloned()));
            self.record_uses(rule, *user, selector, served);
        }
        if served.matched > 0 && proxies.is_empty() {
            if user.0 == MeshKind::VirtualService {
                let message = format!("the pods of `{}` run no proxy: add a sidecar, or remove `rules`", user.1.name);
                served.refused = Some(Diagnostic::new(Reason::NakedService, message));
            }
            return;
        }
        if served.naked > 0 {
            let message = format!("{} of {} pods run no proxy and are skipped", served.naked, served.matched);
            served.diagnostics.push(Diagnostic::new(Reason::NakedPods, message));
        }
        let mut units: BTreeMap<BTreeSet<usize>, Option<Arc<ConfigUnit>>> = BTreeMap::new();
        let mut here: BTreeMap<Diagnostic, (usize, ObjectName)> = BTreeMap::new();
        for pod in proxies {
            let mut dead = BTreeSet::new();
            for (place, rule) in rules.iter().enumerate() {
                let blocked = self.blocked(rule, &pod);
                if !rule.unmet.is_empty() || blocked.is_some() {
                    dead.insert(place);
                }
                if let Some(diagnostic) = blocked {
                    here.entry(diagnostic).or_insert((0, pod.clone())).0 += 1;
                }
            }
            if self.implementation(&pod) == ProxyImplementation::L7mp {
                remark_l7mp(base, rules, &pod, served);
            }
            let unit = units.entry(dead).or_insert_with_key(|dead| self.unit(base, rules, dead));
            if let Some(unit) = unit {
                self.remark_ports(&pod, unit, served, reads);
                served.units.insert(pod, Arc::clone(unit));
            }
        }
        served.unmet.extend(here.into_keys());
    }

    /// Why a rule that can be resolved cannot be placed on a pod.
    fn blocked(&self, rule: &CompiledRule, pod: &ObjectName) -> Option<Diagnostic> {
        let inline = rule.route.as_ref().map(|route| &route.summary);
        let named = rule.named.as_ref().and_then(|name| self.routes.get(name)).map(|route| &route.summary);
        let summary = inline.or(named)?;
        let about = self.world.pods.get(pod)?;
        if let Some(diagnostic) =
            summary.constraints.iter().find_map(|constraints| constraints.unmet_by(self, pod, about))
        {
            return Some(diagnostic);
        }
        summary.needs.iter().find_map(|node| match node {
            GraphNode::Target(name) => {
                let placed = self.targets.get(name)?;
                if placed.pods.contains(pod) {
                    return None;
                }
                let why = placed.broken.get(pod).map(|diagnostic| diagnostic.message.clone());
                let why = why.unwrap_or_else(|| "its selector does not match the pod: extend the selector".to_owned());
                let message = format!("Target `{}` is not on pod `{}`: {why}", name.name, pod.name);
                Some(Diagnostic::new(Reason::TargetNotPlacedHere, message))
            }
            GraphNode::Generated(generated) => {
                let compiled: &CompiledTarget = self.generated.get(generated)?.outcome.as_ref().ok()?;
                compiled.constraints.unmet_by(self, pod, about)
            }
            GraphNode::Set(_) | GraphNode::Route(_) | GraphNode::VirtualService(_) | GraphNode::Rule(_) => None,
        })
    }

    /// The unit of a pod without some of the rules.
    fn unit(&self, base: &ConfigUnit, rules: &[CompiledRule], dead: &BTreeSet<usize>) -> Option<Arc<ConfigUnit>> {
        if !rules.is_empty() && dead.len() == rules.len() {
            return None;
        }
        let mut unit = base.clone();
        for (_, rule) in rules.iter().enumerate().filter(|(place, _)| !dead.contains(place)) {
            if let Some(route) = &rule.route {
                unit.clusters.extend(route.clusters.iter().cloned());
                unit.routes.push(Arc::clone(&route.route));
                unit.needs.extend(route.summary.needs.iter().cloned());
            }
            if let Some(name) = &rule.named {
                unit.needs.insert(GraphNode::Route(name.clone()));
                let summary = self.routes.get(name).map(|route| &route.summary);
                unit.needs.extend(summary.into_iter().flat_map(|summary| summary.needs.iter().cloned()));
            }
            if let Some((_, list)) = &mut unit.rulelist {
                list.push(Arc::clone(&rule.rule.name));
            }
            unit.rules.push(Arc::new(rule.rule.clone()));
        }
        Some(Arc::new(unit))
    }

    /// Who makes generated Targets necessary: the object that names them, for the pods of the one that calls.
    fn record_uses(
        &self,
        rule: &CompiledRule,
        user: (MeshKind, &ObjectName),
        selector: &str,
        served: &mut ServedObject,
    ) {
        let namespace = &user.1.namespace;
        let mut add = |needs: &BTreeSet<GraphNode>, user: (MeshKind, ObjectName)| {
            for node in needs {
                if let GraphNode::Generated(target) = node {
                    let caller = Caller { namespace: Arc::clone(namespace), selector: Arc::from(selector) };
                    let target = target.clone();
                    served.uses.insert(GeneratedUse { target, user: user.clone(), caller });
                }
            }
        };
        if let Some(route) = &rule.route {
            add(&route.summary.needs, (user.0, user.1.clone()));
        }
        if let Some((name, route)) = rule.named.as_ref().and_then(|name| Some((name, self.routes.get(name)?))) {
            add(&route.summary.needs, (MeshKind::Route, name.clone()));
        }
    }

    /// Warns about ports that other containers of the pod, or of its node, may use.
    fn remark_ports(
        &self,
        name: &ObjectName,
        unit: &ConfigUnit,
        served: &mut ServedObject,
        reads: &mut BTreeSet<Dependency>,
    ) {
        let Some((transport, port)) = unit.claim.as_ref().map(|claim| claim.port) else { return };
        let Some(pod) = self.world.pods.get(name) else { return };
        let mut clashes = pod.declares(transport, port);
        if pod.host_network {
            reads.insert(Dependency::HostPorts(Arc::clone(&pod.node)));
            let others = self.host_ports.get(&(Arc::clone(&pod.node), transport, port));
            clashes |= others.is_some_and(|others| others.iter().any(|other| other != name));
        }
        let said = served.diagnostics.iter().any(|diagnostic| diagnostic.reason == Reason::PortMayClash);
        if clashes && !said {
            let word = if transport == Transport::Udp { "UDP" } else { "TCP" };
            let message = format!("{word} port {port} is declared by another container at pod `{}`", name.name);
            served.diagnostics.push(Diagnostic::new(Reason::PortMayClash, message));
        }
    }
}

/// What a real l7mp may do otherwise than asked.
fn remark_l7mp(base: &ConfigUnit, rules: &[CompiledRule], pod: &ObjectName, served: &mut ServedObject) {
    let Some(listener) = &base.listener else { return };
    let mut say = |reason: Reason, message: String| {
        if !served.diagnostics.iter().any(|diagnostic| diagnostic.reason == reason) {
            served.diagnostics.push(Diagnostic::new(reason, message));
        }
    };
    if rules.iter().any(|rule| l7mp_quirks::may_miss(&rule.rule, listener.protocol)) {
        let message =
            format!("the l7mp on pod `{}` reports IPv4 addresses as ::ffff:...: use `test` or `in`", pod.name);
        say(Reason::AddressMayMiss, message);
    }
    if !listener.extension_options.is_empty() || listener.tls.is_some() {
        let message = format!("limits, qos, monitoring and tls have no effect on the l7mp on pod `{}`", pod.name);
        say(Reason::UnsupportedByProxy, message);
    }
}
