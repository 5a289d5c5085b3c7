//! VirtualServices and Rules: what each of their proxies gets, as far as their rules lead somewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::compile::{Compiled, Way};
use super::keys::{Key, Node, SetId};
use super::place::{Claim, Unit};
use super::sets::Purpose;
use super::{Resolver, Served};
use crate::mesh::control::names::Inline;
use crate::mesh::control::normalize::Normalized;
use crate::mesh::control::types::{MeshKind, ObjectName, RouteRef, Rule, Rules, VirtualService};
use crate::mesh::control::world::{ProxyImplementation, Transport};
use crate::mesh::control::{Diagnostic, Reason, ReasonClass, shim, wire};

/// A rule with what it needs.
struct Compiling {
    rule: wire::Rule,
    way: Option<Way>,
    named: Option<ObjectName>,
    unmet: Vec<Diagnostic>,
}

/// What an object gives to the proxies of its pods.
struct Given<'a> {
    set: SetId,
    /// What is there whatever becomes of the rules.
    base: Unit,
    rules: Vec<Compiling>,
    user: (MeshKind, &'a ObjectName),
    selector: &'a str,
}

impl Resolver {
    pub(super) fn evaluate_virtual_service(&mut self, name: &ObjectName) {
        let node = Node::VirtualService(name.clone());
        let mut reads = BTreeSet::new();
        let normal = self.normals.virtual_services.get(name).cloned();
        let after = normal.map(|Normalized { outcome: read, warnings: notes }| {
            let mut served = Served { notes, ..Served::default() };
            match read {
                Ok(one) => self.serve(name, &one, &mut served, &mut reads),
                Err(note) => served.refused = Some(note),
            }
            served
        });
        self.install(&node, after, reads);
        let callees = self.served.get(&node).map(|served| served.callees.clone()).unwrap_or_default();
        for concerned in self.loops.set(name, callees) {
            self.emit(&Key::Loop(concerned));
        }
    }

    pub(super) fn evaluate_rule(&mut self, name: &ObjectName) {
        let node = Node::Rule(name.clone());
        let mut reads = BTreeSet::new();
        let normal = self.normals.rules.get(name).cloned();
        let after = normal.map(|Normalized { outcome: read, warnings: notes }| {
            let mut served = Served { notes, ..Served::default() };
            let one = match read {
                Ok(one) => one,
                Err(note) => {
                    served.refused = Some(note);
                    return served;
                }
            };
            let full = self.world.settings.domain.full(MeshKind::Rule, name);
            let mut inline = Inline::default();
            let mut rule = self.compile_rule((&full, name), &one.rule, "rule", &mut inline, &mut reads);
            rule.rule.name = Arc::clone(&full);
            let set = self.set(Purpose::Placement, &name.namespace, &one.selector);
            let created = self.world.objects.get(&(MeshKind::Rule, name.clone())).map_or(0, |object| object.created);
            let insertion = wire::Insertion {
                rulelist: Arc::from(one.rulelist.as_str()),
                position: one.position,
                created,
                rule: full,
            };
            let base = Unit { insertion: Some(insertion), ..Unit::default() };
            let selector = one.selector.key();
            let given = Given { set, base, rules: vec![rule], user: (MeshKind::Rule, name), selector: &selector };
            self.spread(&given, &mut served, &mut reads);
            served
        });
        self.install(&node, after, reads);
    }

    /// Puts what an object gives in place of what it gave.
    fn install(&mut self, node: &Node, after: Option<Served>, reads: BTreeSet<Key>) {
        self.reads.set(node, reads);
        if let Node::VirtualService(name) | Node::Rule(name) = node {
            let kind = if matches!(node, Node::Rule(_)) { MeshKind::Rule } else { MeshKind::VirtualService };
            self.touched.objects.insert((kind, name.clone()));
        }
        let before = self.served.remove(node);
        let none = BTreeMap::new();
        let old = before.as_ref().map_or(&none, |served| &served.units);
        let new = after.as_ref().map_or(&none, |served| &served.units);
        let pods: BTreeSet<&ObjectName> = old.keys().chain(new.keys()).collect();
        for pod in pods {
            self.seat(pod, node, new.get(pod));
        }
        let uses = |served: &Option<Served>| served.as_ref().map(|served| served.uses.clone()).unwrap_or_default();
        self.use_generated(&uses(&before), &uses(&after));
        if let Some(after) = after {
            self.served.insert(node.clone(), after);
        }
    }

    fn serve(&mut self, name: &ObjectName, one: &VirtualService, served: &mut Served, reads: &mut BTreeSet<Key>) {
        let set = self.set(Purpose::Placement, &name.namespace, &one.selector);
        let full = self.world.settings.domain.full(MeshKind::VirtualService, name);
        let (rules, list) = match &one.rules {
            Rules::Stub => {
                served.is_stub = true;
                reads.insert(Key::Members(Arc::clone(&set)));
                served.matched = self.sets.get(&set).map_or(0, |set| set.members.len());
                if let Err(note) = self.placeable(&set, &mut served.notes) {
                    served.unmet.push(note);
                }
                return;
            }
            Rules::Named(list) => (Vec::new(), Arc::from(list.as_str())),
            Rules::List(rules) => {
                let mut inline = Inline::default();
                let compile = |(place, rule): (usize, &Rule)| {
                    self.compile_rule((&full, name), rule, &format!("rules[{place}]"), &mut inline, reads)
                };
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
        let base = Unit {
            rulelist: matches!(one.rules, Rules::List(_)).then(|| (Arc::clone(&full), Vec::new())),
            listener: Some(Arc::new(listener)),
            claim: Claim::of(&one.listener, created),
            ..Unit::default()
        };
        reads.insert(Key::Loop(name.clone()));
        for rule in &rules {
            let legs = rule.way.as_ref().map(|way| &way.legs);
            let named = rule.named.as_ref().and_then(|route| self.routes.get(route)).map(|way| &way.legs);
            served.callees.extend(legs.or(named).into_iter().flat_map(|legs| legs.callees.clone()));
        }
        if let Some(note) = self.loop_of(name, reads) {
            if note.reason == Reason::RouteLoop {
                served.refused = Some(note);
                return;
            }
            served.notes.push(note);
        }
        let selector = one.selector.key();
        let given = Given { set, base, rules, user: (MeshKind::VirtualService, name), selector: &selector };
        self.spread(&given, served, reads);
    }

    /// Whether a chain leads back: on a common pod it is a mistake, over several proxies it may be one.
    fn loop_of(&mut self, name: &ObjectName, reads: &mut BTreeSet<Key>) -> Option<Diagnostic> {
        let cycle = self.loops.cycle(name)?.clone();
        let mut common: Option<BTreeSet<ObjectName>> = None;
        for other in &cycle {
            let Some(selector) = self.virtual_service(other).map(|one| one.selector.clone()) else { continue };
            let set = self.set(Purpose::Placement, &other.namespace, &selector);
            reads.insert(Key::Members(Arc::clone(&set)));
            let members = self.sets.get(&set).map(|set| set.members.clone()).unwrap_or_default();
            common = Some(common.map_or(members.clone(), |common| common.intersection(&members).cloned().collect()));
        }
        let way = cycle.iter().map(|one| format!("`{}`", one.name)).collect::<Vec<_>>().join(", ");
        if common.is_some_and(|common| !common.is_empty()) {
            let message = format!("the route leads back to its own listener, by {way}: change a destination");
            return Some(Diagnostic::new(Reason::RouteLoop, message));
        }
        let message = format!("the route may lead back to its own listener over other proxies, by {way}");
        Some(Diagnostic::new(Reason::PossibleLoop, message))
    }

    fn compile_rule(
        &mut self,
        owner: (&Arc<str>, &ObjectName),
        rule: &Rule,
        place: &str,
        inline: &mut Inline,
        reads: &mut BTreeSet<Key>,
    ) -> Compiling {
        let (full, owner) = owner;
        let mut compiled = wire::Rule {
            name: Arc::from(""),
            matching: rule.matching.clone(),
            rewrite: rule.rewrite.clone(),
            route: None,
            apply: rule.apply.as_deref().map(Arc::from),
            meets_websocket: false,
        };
        let (mut way, mut named, mut unmet) = (None, None, Vec::new());
        match &rule.route {
            Some(RouteRef::Inline(route)) => {
                let made = self.compile_way((full, &owner.namespace), route, None, inline, reads);
                compiled.route = Some(Arc::clone(&made.route.name));
                compiled.meets_websocket = made.legs.meets_websocket;
                unmet.clone_from(&made.legs.unmet);
                way = Some(made);
            }
            Some(RouteRef::Name(text)) => match self.find_route(text, &owner.namespace, reads) {
                Ok(name) => {
                    reads.insert(Key::Outcome(Node::Route(name.clone())));
                    compiled.route = Some(self.world.settings.domain.full(MeshKind::Route, &name));
                    match self.routes.get(&name) {
                        Some(way) => {
                            compiled.meets_websocket = way.legs.meets_websocket;
                            let within = way.legs.unmet.iter();
                            unmet.extend(within.map(|note| {
                                let is_its_own = note.reason.class() == ReasonClass::Invalid;
                                let reason = if is_its_own { Reason::RefInvalid } else { note.reason };
                                Diagnostic::new(reason, format!("Route `{}`: {}", name.name, note.message))
                            }));
                        }
                        None => unmet.push(Diagnostic::new(
                            Reason::RefInvalid,
                            format!("Route `{}` is refused: see its status", name.name),
                        )),
                    }
                    named = Some(name);
                }
                Err(note) => unmet.push(note),
            },
            None => {}
        }
        for note in &mut unmet {
            note.message = format!("{place}: {}", note.message);
        }
        compiled.name = inline.name(full, &compiled.content());
        Compiling { rule: compiled, way, named, unmet }
    }

    /// Gives every proxy of a set what it can have of the rules; a rule that leads nowhere is withdrawn, and with the
    /// last rule the listener.
    fn spread(&mut self, given: &Given<'_>, served: &mut Served, reads: &mut BTreeSet<Key>) {
        let Given { set, base, rules, user, selector } = given;
        reads.insert(Key::Members(Arc::clone(set)));
        let proxies = self.proxies(set);
        served.matched = self.sets.get(set).map_or(0, |set| set.members.len());
        served.naked = served.matched - proxies.len();
        if let Err(note) = self.placeable(set, &mut served.notes) {
            served.unmet.push(note);
        }
        for rule in rules {
            if let Some(name) = &rule.named {
                self.touched.objects.insert((MeshKind::Route, name.clone()));
            }
            served.unmet.extend(rule.unmet.iter().cloned());
            served.notes.extend(rule.way.iter().flat_map(|way| way.notes.iter().cloned()));
            self.note_uses(rule, *user, selector, served);
        }
        if served.matched > 0 && proxies.is_empty() {
            if user.0 == MeshKind::VirtualService {
                let message = format!("pods of `{}` run no proxy: add a sidecar or remove `rules`", user.1.name);
                served.refused = Some(Diagnostic::new(Reason::NakedService, message));
            }
            return;
        }
        if served.naked > 0 {
            let message = format!("{} of {} pods run no proxy and are left out", served.naked, served.matched);
            served.notes.push(Diagnostic::new(Reason::NakedPods, message));
        }
        let mut units: BTreeMap<BTreeSet<usize>, Option<Arc<Unit>>> = BTreeMap::new();
        let mut here: BTreeMap<Diagnostic, (usize, ObjectName)> = BTreeMap::new();
        for pod in proxies {
            let mut dead = BTreeSet::new();
            for (place, rule) in rules.iter().enumerate() {
                let blocked = self.blocked(rule, &pod);
                if !rule.unmet.is_empty() || blocked.is_some() {
                    dead.insert(place);
                }
                if let Some(note) = blocked {
                    here.entry(note).or_insert((0, pod.clone())).0 += 1;
                }
            }
            if self.flavour(&pod) == ProxyImplementation::L7mp {
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

    /// Why a pod cannot have a rule, although the rule leads somewhere.
    fn blocked(&self, rule: &Compiling, pod: &ObjectName) -> Option<Diagnostic> {
        let inline = rule.way.as_ref().map(|way| &way.legs);
        let named = rule.named.as_ref().and_then(|name| self.routes.get(name)).map(|way| &way.legs);
        let legs = inline.or(named)?;
        let about = self.world.pods.get(pod)?;
        if let Some(note) = legs.terms.iter().find_map(|terms| terms.broken_at(self, pod, about)) {
            return Some(note);
        }
        legs.needs.iter().find_map(|node| match node {
            Node::Target(name) => {
                let placed = self.targets.get(name)?;
                if placed.pods.contains(pod) {
                    return None;
                }
                let why = placed.broken.get(pod).map(|note| note.message.clone());
                let why = why.unwrap_or_else(|| "its selector leaves it out: extend the selector".to_owned());
                let message = format!("Target `{}` is not on pod `{}`: {why}", name.name, pod.name);
                Some(Diagnostic::new(Reason::TargetNotPlacedHere, message))
            }
            Node::Generated(generated) => {
                let compiled: &Compiled = self.generated.get(generated)?.outcome.as_ref().ok()?;
                compiled.terms.broken_at(self, pod, about)
            }
            Node::Set(_) | Node::Route(_) | Node::VirtualService(_) | Node::Rule(_) => None,
        })
    }

    /// What a pod gets when some rules are withdrawn there.
    fn unit(&self, base: &Unit, rules: &[Compiling], dead: &BTreeSet<usize>) -> Option<Arc<Unit>> {
        if !rules.is_empty() && dead.len() == rules.len() {
            return None;
        }
        let mut unit = base.clone();
        for (_, rule) in rules.iter().enumerate().filter(|(place, _)| !dead.contains(place)) {
            if let Some(way) = &rule.way {
                unit.clusters.extend(way.clusters.iter().cloned());
                unit.routes.push(Arc::clone(&way.route));
                unit.needs.extend(way.legs.needs.iter().cloned());
            }
            if let Some(name) = &rule.named {
                unit.needs.insert(Node::Route(name.clone()));
                let legs = self.routes.get(name).map(|way| &way.legs);
                unit.needs.extend(legs.into_iter().flat_map(|legs| legs.needs.iter().cloned()));
            }
            if let Some((_, list)) = &mut unit.rulelist {
                list.push(Arc::clone(&rule.rule.name));
            }
            unit.rules.push(Arc::new(rule.rule.clone()));
        }
        Some(Arc::new(unit))
    }

    /// Who makes generated Targets necessary: the object that names them, for the pods of the one that calls.
    fn note_uses(&self, rule: &Compiling, user: (MeshKind, &ObjectName), selector: &str, served: &mut Served) {
        let mut note = |needs: &BTreeSet<Node>, namer: (MeshKind, ObjectName)| {
            for node in needs {
                if let Node::Generated(generated) = node {
                    let caller = (Arc::clone(&user.1.namespace), Arc::from(selector));
                    served.uses.insert((generated.clone(), namer.clone(), caller));
                }
            }
        };
        if let Some(way) = &rule.way {
            note(&way.legs.needs, (user.0, user.1.clone()));
        }
        if let Some((name, way)) = rule.named.as_ref().and_then(|name| Some((name, self.routes.get(name)?))) {
            note(&way.legs.needs, (MeshKind::Route, name.clone()));
        }
    }

    /// Ports that other programs of the pod, or of its node, may want.
    fn remark_ports(&self, name: &ObjectName, unit: &Unit, served: &mut Served, reads: &mut BTreeSet<Key>) {
        let Some((transport, port)) = unit.claim.as_ref().map(|claim| claim.port) else { return };
        let Some(pod) = self.world.pods.get(name) else { return };
        let mut clashes = pod.declares(transport, port);
        if pod.host_network {
            reads.insert(Key::HostPorts(Arc::clone(&pod.node)));
            let others = self.host_ports.get(&(Arc::clone(&pod.node), transport, port));
            clashes |= others.is_some_and(|others| others.iter().any(|other| other != name));
        }
        let said = served.notes.iter().any(|note| note.reason == Reason::PortMayClash);
        if clashes && !said {
            let word = if transport == Transport::Udp { "UDP" } else { "TCP" };
            let message = format!("{word} port {port} is declared by another container at pod `{}`", name.name);
            served.notes.push(Diagnostic::new(Reason::PortMayClash, message));
        }
    }
}

/// What a real l7mp may do otherwise than asked.
fn remark_l7mp(base: &Unit, rules: &[Compiling], pod: &ObjectName, served: &mut Served) {
    let Some(listener) = &base.listener else { return };
    let mut say = |reason: Reason, message: String| {
        if !served.notes.iter().any(|note| note.reason == reason) {
            served.notes.push(Diagnostic::new(reason, message));
        }
    };
    if rules.iter().any(|rule| shim::may_miss(&rule.rule, listener.protocol)) {
        let message = format!("the l7mp on pod `{}` sees IPv4 addresses as ::ffff:...: use `test` or `in`", pod.name);
        say(Reason::AddressMayMiss, message);
    }
    if !listener.extension_options.is_empty() || listener.tls.is_some() {
        let message = format!("limits, qos, monitoring and tls have no effect on the l7mp on pod `{}`", pod.name);
        say(Reason::UnsupportedByProxy, message);
    }
}
