//! Who sits on which proxy: units, the ports they claim, and what they need there.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::Resolver;
use super::compile::{Compiled, Way};

use super::keys::Node;
use super::sets::put;
use crate::mesh::control::shim;
use crate::mesh::control::types::{MeshKind, ObjectName, Protocol, Socket};
use crate::mesh::control::wire::{self, ConfigKind, ProxyConfig};
use crate::mesh::control::world::{ProxyImplementation, ProxyRole, Transport};
use crate::mesh::control::{Diagnostic, Reason};

/// What one object gives to a proxy.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Unit {
    pub(super) clusters: Vec<Arc<wire::Cluster>>,
    pub(super) routes: Vec<Arc<wire::Route>>,
    pub(super) rules: Vec<Arc<wire::Rule>>,
    pub(super) rulelist: Option<(Arc<str>, Vec<Arc<str>>)>,
    pub(super) listener: Option<Arc<wire::Listener>>,
    pub(super) insertion: Option<wire::Insertion>,
    /// The port it opens.
    pub(super) claim: Option<Claim>,
    /// Routes and Targets that must be there as well.
    pub(super) needs: BTreeSet<Node>,
}

/// A port that an object opens.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Claim {
    pub(super) port: (Transport, u16),
    address: Option<IpAddr>,
    peer: Option<(String, u64)>,
    created: i64,
}

/// Who wants a port, by age and name.
type Claimants = BTreeMap<(i64, ObjectName), Arc<Unit>>;

/// A proxy and what is on it.
#[derive(Debug, Clone, Default)]
pub(super) struct Seat {
    units: BTreeMap<Node, Arc<Unit>>,
    /// Who wants a port, the oldest first.
    claims: BTreeMap<(Transport, u16), Claimants>,
    /// Who does not get it, and why.
    pub(super) lost: BTreeMap<ObjectName, Diagnostic>,
    /// What is needed, by how many with a JSONSocket listener and by how many others.
    needs: BTreeMap<Node, [usize; 2]>,
}

impl Unit {
    pub(super) fn of_target(compiled: &Compiled) -> Arc<Self> {
        Arc::new(Self { clusters: vec![Arc::clone(&compiled.cluster)], ..Self::default() })
    }

    pub(super) fn of_way(way: &Way) -> Arc<Self> {
        Arc::new(Self { clusters: way.clusters.clone(), routes: vec![Arc::clone(&way.route)], ..Self::default() })
    }

    fn names(&self) -> Vec<(ConfigKind, Arc<str>)> {
        let clusters = self.clusters.iter().map(|one| (ConfigKind::Cluster, Arc::clone(&one.name)));
        let routes = self.routes.iter().map(|one| (ConfigKind::Route, Arc::clone(&one.name)));
        let rules = self.rules.iter().map(|one| (ConfigKind::Rule, Arc::clone(&one.name)));
        let lists = self.rulelist.iter().map(|one| (ConfigKind::RuleList, Arc::clone(&one.0)));
        let listeners = self.listener.iter().map(|one| (ConfigKind::Listener, Arc::clone(&one.name)));
        clusters.chain(routes).chain(rules).chain(lists).chain(listeners).collect()
    }
}

impl Claim {
    pub(super) fn of(listener: &Socket, created: i64) -> Option<Self> {
        let opened = listener.opened();
        let transport = if opened.protocol == Protocol::Udp { Transport::Udp } else { Transport::Tcp };
        let port = (transport, listener.port()?);
        Some(Self { port, address: listener.address(), peer: peer(&opened.fields), created })
    }

    fn meets(&self, other: &Self, flavour: ProxyImplementation) -> bool {
        let overlap = match (self.address, other.address) {
            (Some(one), Some(other)) => one == other || one.is_unspecified() || other.is_unspecified(),
            _ => true,
        };
        let apart = matches!((&self.peer, &other.peer), (Some(one), Some(other)) if one != other);
        overlap && !(apart && flavour == ProxyImplementation::Portolan)
    }
}

/// Whether a listener speaks JSONSocket, so that a real l7mp has its labels elsewhere.
fn is_json_socket(listener: Option<&Arc<wire::Listener>>) -> bool {
    listener.is_some_and(|listener| listener.protocol == Protocol::JsonSocket)
}

/// A claim's peer, if the listener is a singleton.
fn peer(fields: &Map<String, Value>) -> Option<(String, u64)> {
    let connect = fields.get("connect")?;
    let is_server = fields.get("options").and_then(|options| options.get("mode")).is_some_and(|mode| mode == "server");
    let address = connect.get("address")?.as_str()?.to_owned();
    (!is_server).then_some((address, connect.get("port")?.as_u64()?))
}

impl Resolver {
    /// Puts an object's unit on a proxy, or takes it off.
    pub(super) fn seat(&mut self, pod: &ObjectName, node: &Node, unit: Option<&Arc<Unit>>) {
        let seat = self.seats.entry(pod.clone()).or_default();
        let before = seat.units.get(node).cloned();
        let name = match node {
            Node::VirtualService(name) => Some(name),
            Node::Set(_) | Node::Target(_) | Node::Generated(_) | Node::Route(_) | Node::Rule(_) => None,
        };
        let mut ports = BTreeSet::new();
        for (unit, there) in [(before.as_ref(), false), (unit, true)] {
            let claim = unit.and_then(|unit| Some((unit, unit.claim.as_ref()?)));
            let Some((name, (unit, claim))) = name.zip(claim) else { continue };
            ports.insert(claim.port);
            let claims = seat.claims.entry(claim.port).or_default();
            if there {
                claims.insert((claim.created, name.clone()), Arc::clone(unit));
            } else {
                claims.remove(&(claim.created, name.clone()));
            }
        }
        let was_lost = name.is_some_and(|name| seat.lost.contains_key(name));
        match unit {
            Some(unit) => drop(seat.units.insert(node.clone(), Arc::clone(unit))),
            None => drop(seat.units.remove(node)),
        }
        if before.as_ref() != unit && !was_lost {
            // the new before the old, so that what both need stays untouched
            if let Some(unit) = unit {
                self.activate(pod, unit, true);
            }
            if let Some(before) = &before {
                self.activate(pod, before, false);
            }
        }
        let claims = unit.is_some_and(|unit| unit.claim.is_some());
        if let Some(name) = name.filter(|_| was_lost && !claims) {
            self.seats.entry(pod.clone()).or_default().lost.remove(name);
            if let Some(unit) = unit {
                self.activate(pod, unit, true);
            }
        }
        for port in ports {
            self.contest(pod, port);
        }
        if self.seats.get(pod).is_some_and(|seat| seat.units.is_empty()) {
            self.seats.remove(pod);
        }
    }

    /// Decides who has a port: nobody, where the proxy itself has it; else the oldest, and all that do not meet those
    /// before them.
    fn contest(&mut self, pod: &ObjectName, port: (Transport, u16)) {
        let flavour = self.flavour(pod);
        let api = match self.marks.get(pod) {
            Some(ProxyRole::Proxy(api)) => Some(*api),
            Some(ProxyRole::Naked | ProxyRole::TwoProxies) | None => None,
        };
        let fixed: Vec<Option<IpAddr>> = self.world.proxies.get(pod).map_or_else(Vec::new, |facts| {
            let same = facts.foreign_ports.iter().filter(|own| (own.transport, own.port) == port);
            same.map(|own| own.address).collect()
        });
        let Some(seat) = self.seats.get_mut(pod) else { return };
        let claims = seat.claims.remove(&port).unwrap_or_default();
        let word = if port.0 == Transport::Udp { "UDP" } else { "TCP" };
        let mut winners: Vec<(&ObjectName, &Claim)> = Vec::new();
        let mut flips = Vec::new();
        for ((_, name), unit) in &claims {
            let Some(claim) = &unit.claim else { continue };
            let is_fixed = fixed.iter().any(|own| {
                claim.meets(&Claim { port, address: *own, peer: None, created: 0 }, ProxyImplementation::L7mp)
            });
            let rival = winners.iter().find(|(_, winner)| claim.meets(winner, flavour));
            let why = if port.0 == Transport::Tcp && api == Some(port.1) {
                Some("the proxy's own API".to_owned())
            } else if is_fixed {
                Some("a listener of the proxy's own file".to_owned())
            } else {
                rival.map(|(winner, _)| format!("VirtualService `{winner}`, which is older"))
            };
            let note = why.map(|why| {
                let message =
                    format!("{word} port {} on pod `{}` is taken by {why}: use another port", port.1, pod.name);
                Diagnostic::new(Reason::PortConflict, message)
            });
            if note.is_none() {
                winners.push((name, claim));
            }
            if seat.lost.get(name) != note.as_ref() {
                flips.push((name.clone(), Arc::clone(unit), seat.lost.contains_key(name), note));
            }
        }
        if !claims.is_empty() {
            seat.claims.insert(port, claims);
        }
        for (name, unit, was_lost, note) in flips {
            self.touched.objects.insert((MeshKind::VirtualService, name.clone()));
            let is_lost = note.is_some();
            if let Some(seat) = self.seats.get_mut(pod) {
                match note {
                    Some(note) => drop(seat.lost.insert(name, note)),
                    None => drop(seat.lost.remove(&name)),
                }
            }
            if was_lost != is_lost {
                self.activate(pod, &unit, !is_lost);
            }
        }
    }

    /// Puts in force what a unit needs on a proxy, or takes it out of force.
    fn activate(&mut self, pod: &ObjectName, unit: &Unit, there: bool) {
        self.touch(pod, unit);
        let column = usize::from(!is_json_socket(unit.listener.as_ref()));
        for node in &unit.needs {
            let Some(seat) = self.seats.get_mut(pod) else { return };
            let counts = seat.needs.entry(node.clone()).or_default();
            counts[column] = if there { counts[column] + 1 } else { counts[column] - 1 };
            let (now, first) = (counts.iter().sum::<usize>(), counts[column] == usize::from(there));
            if now == 0 {
                seat.needs.remove(node);
            }
            if !first {
                continue;
            }
            put(&mut self.needers, node.clone(), pod.clone(), now > 0);
            // who comes first, or goes last, brings or takes what is shared, or changes where its labels lie
            for unit in [self.shared.get(node).cloned(), self.unit_at(pod, node)].into_iter().flatten() {
                self.touch(pod, &unit);
            }
        }
    }

    fn unit_at(&self, pod: &ObjectName, node: &Node) -> Option<Arc<Unit>> {
        self.seats.get(pod)?.units.get(node).cloned()
    }

    /// What a Route or a generated Target gives wherever it is needed.
    pub(super) fn share(&mut self, node: &Node, unit: Option<&Arc<Unit>>) {
        let before = self.shared.get(node).cloned();
        if before.as_ref() == unit {
            return;
        }
        match unit {
            Some(unit) => drop(self.shared.insert(node.clone(), Arc::clone(unit))),
            None => drop(self.shared.remove(node)),
        }
        for pod in self.needers.get(node).cloned().into_iter().flatten() {
            for unit in [before.as_ref(), unit].into_iter().flatten() {
                self.touch(&pod, unit);
            }
        }
    }

    fn touch(&mut self, pod: &ObjectName, unit: &Unit) {
        if self.is_resolved {
            self.touched.pods.entry(pod.clone()).or_default().extend(unit.names());
        }
    }

    /// Whether listeners that keep received labels elsewhere on a real l7mp reach something, and others too.
    pub(super) fn is_reached_both_ways(&self, pod: &ObjectName, node: &Node) -> bool {
        let counts = self.seats.get(pod).and_then(|seat| seat.needs.get(node));
        self.flavour(pod) == ProxyImplementation::L7mp && counts.is_some_and(|[json, others]| *json > 0 && *others > 0)
    }

    /// Everything that a proxy should hold.
    pub fn desired(&self, pod: &ObjectName) -> ProxyConfig {
        let mut config = ProxyConfig::default();
        let Some(seat) = self.seats.get(pod) else { return config };
        for (node, unit) in &seat.units {
            let is_lost = matches!(node, Node::VirtualService(name) if seat.lost.contains_key(name));
            if !is_lost {
                self.add(pod, seat, node, unit, &mut config);
            }
        }
        for node in seat.needs.keys() {
            if let Some(unit) = self.shared.get(node) {
                self.add(pod, seat, node, unit, &mut config);
            }
        }
        config
    }

    /// What a proxy should hold, of the things named.
    pub fn desired_of(&self, pod: &ObjectName, names: &BTreeSet<(ConfigKind, Arc<str>)>) -> ProxyConfig {
        let mut config = ProxyConfig::default();
        let Some(seat) = self.seats.get(pod) else { return config };
        let mut owners = BTreeSet::new();
        for (_, name) in names {
            let owner = name.split_once('~').map_or(&**name, |(owner, _)| owner);
            let Some((kind, owner)) = self.world.settings.domain.parse(owner) else { continue };
            match kind {
                MeshKind::VirtualService => drop(owners.insert(Node::VirtualService(owner))),
                MeshKind::Rule => drop(owners.insert(Node::Rule(owner))),
                MeshKind::Route => drop(owners.insert(Node::Route(owner))),
                MeshKind::Target => {
                    let first = Node::Generated(super::keys::Generated::first(&owner));
                    let same = seat.needs.range(first..).map(|(node, _)| node);
                    owners.extend(same.take_while(|node| node.is_generated_as(&owner)).cloned());
                    owners.insert(Node::Target(owner));
                }
                MeshKind::Service => {}
            }
        }
        for node in &owners {
            let is_lost = matches!(node, Node::VirtualService(name) if seat.lost.contains_key(name));
            if let Some(unit) = seat.units.get(node).filter(|_| !is_lost) {
                self.add(pod, seat, node, unit, &mut config);
            }
            if let Some(unit) = self.shared.get(node).filter(|_| seat.needs.contains_key(node)) {
                self.add(pod, seat, node, unit, &mut config);
            }
        }
        config.clusters.retain(|name, _| names.contains(&(ConfigKind::Cluster, Arc::clone(name))));
        config.routes.retain(|name, _| names.contains(&(ConfigKind::Route, Arc::clone(name))));
        config.rules.retain(|name, _| names.contains(&(ConfigKind::Rule, Arc::clone(name))));
        config.insertions.retain(|name, _| names.contains(&(ConfigKind::Rule, Arc::clone(name))));
        config.rulelists.retain(|name, _| names.contains(&(ConfigKind::RuleList, Arc::clone(name))));
        config.listeners.retain(|name, _| names.contains(&(ConfigKind::Listener, Arc::clone(name))));
        config
    }

    fn add(&self, pod: &ObjectName, seat: &Seat, node: &Node, unit: &Unit, config: &mut ProxyConfig) {
        let is_l7mp = self.flavour(pod) == ProxyImplementation::L7mp;
        // who reaches a shared cluster decides where its labels lie
        let from_json = match seat.needs.get(node) {
            Some([json, others]) => *json > 0 && *others == 0,
            None => is_json_socket(unit.listener.as_ref()),
        };
        for cluster in &unit.clusters {
            let cluster = if is_l7mp { Arc::new(shim::cluster(cluster, from_json)) } else { Arc::clone(cluster) };
            config.clusters.insert(Arc::clone(&cluster.name), cluster);
        }
        config.routes.extend(unit.routes.iter().map(|route| (Arc::clone(&route.name), Arc::clone(route))));
        for rule in &unit.rules {
            let listener = unit.listener.as_ref().map(|listener| listener.protocol);
            let rule = if is_l7mp { Arc::new(shim::rule(rule, listener)) } else { Arc::clone(rule) };
            config.rules.insert(Arc::clone(&rule.name), rule);
        }
        config.rulelists.extend(unit.rulelist.clone());
        if let Some(listener) = &unit.listener {
            let listener = if is_l7mp { Arc::new(shim::listener(listener)) } else { Arc::clone(listener) };
            config.listeners.insert(Arc::clone(&listener.name), listener);
        }
        config.insertions.extend(unit.insertion.clone().map(|one| (Arc::clone(&one.rule), one)));
    }
}
