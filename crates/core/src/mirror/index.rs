//! What decisions need beyond their own key: kept up to date change by change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::nodes::NodeEndpoints;
use super::qualify::qualifies;
use super::rules::{MirrorType, Rules};
use super::types::{Local, Remote, RemoteName, ServiceName, ServiceSpec, Source, World};

/// Indexes over a world.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Index {
    remotes: BTreeMap<RemoteName, RemoteIndex>,
    /// Local Services by nodePort.
    node_ports: BTreeMap<u16, BTreeSet<ServiceName>>,
}

/// Indexes over one remote.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RemoteIndex {
    /// Services that qualify, oldest first.
    candidates: BTreeSet<(i64, ServiceName)>,
    /// How many of them each namespace has.
    namespaces: BTreeMap<Arc<str>, usize>,
    /// Those with a nodePort, if mirrors get it too.
    node_ports: BTreeMap<u16, BTreeSet<ServiceName>>,
    /// The last one within the limit, if there are more.
    last_within_limit: Option<(i64, ServiceName)>,
    nodes: NodeEndpoints,
}

impl Index {
    /// All indexes of a world.
    pub(super) fn of(world: &World) -> Self {
        let mut index = Self::default();
        for name in world.remotes.keys() {
            index.rebuild_remote(world, name);
        }
        for (name, service) in &world.local.services {
            index.add_node_ports(name, node_ports(&service.spec));
        }
        index
    }

    /// Builds the indexes of a remote anew, or forgets them if it is gone.
    pub(super) fn rebuild_remote(&mut self, world: &World, name: &RemoteName) {
        let Some(remote) = world.remotes.get(name) else {
            self.remotes.remove(name);
            return;
        };
        let mut index = RemoteIndex { nodes: NodeEndpoints::of(&world.local, remote), ..RemoteIndex::default() };
        for source_name in remote.services.keys() {
            if let Ok(source) = qualifies(&world.local, remote, source_name) {
                index.insert(&remote.rules, source_name, source);
            }
        }
        index.find_limit(remote);
        self.remotes.insert(name.clone(), index);
    }

    /// Builds the endpoints of a remote's nodes anew; true if they differ.
    pub(super) fn rebuild_nodes(&mut self, world: &World, name: &RemoteName) -> bool {
        let (Some(remote), Some(index)) = (world.remotes.get(name), self.remotes.get_mut(name)) else { return false };
        let nodes = NodeEndpoints::of(&world.local, remote);
        let differs = index.nodes != nodes;
        index.nodes = nodes;
        differs
    }

    /// Follows a source that changed; gives sources that are now within the limit, or no longer.
    pub(super) fn follow_source(
        &mut self,
        world: &World,
        name: &RemoteName,
        source_name: &ServiceName,
        before: Option<&Source>,
    ) -> Vec<ServiceName> {
        let (Some(remote), Some(index)) = (world.remotes.get(name), self.remotes.get_mut(name)) else {
            return Vec::new();
        };
        if let Some(source) = before {
            index.remove(source_name, source);
        }
        if let Ok(source) = qualifies(&world.local, remote, source_name) {
            index.insert(&remote.rules, source_name, source);
        }
        let before = index.last_within_limit.take();
        index.find_limit(remote);
        index.between(before)
    }

    /// Sets the nodePorts that a local Service has; true if some differ.
    pub(super) fn follow_node_ports(&mut self, name: &ServiceName, before: &[u16], after: &[u16]) -> bool {
        for port in before {
            remove_user(&mut self.node_ports, *port, name);
        }
        self.add_node_ports(name, after.iter().copied());
        before != after
    }

    fn add_node_ports(&mut self, name: &ServiceName, ports: impl Iterator<Item = u16>) {
        for port in ports {
            self.node_ports.entry(port).or_default().insert(name.clone());
        }
    }

    /// True if a source that qualifies is one of the oldest that are taken into account.
    pub(super) fn is_within_limit(&self, remote: &RemoteName, source: &ServiceName, created: i64) -> bool {
        let last = self.remotes.get(remote).and_then(|index| index.last_within_limit.as_ref());
        last.is_none_or(|(last_created, last)| (created, source) <= (*last_created, last))
    }

    /// True if a missing namespace may be made for a remote: the first ones by name, as long as there are not too many.
    pub(super) fn may_create(&self, local: &Local, name: &RemoteName, remote: &Remote, namespace: &str) -> bool {
        let Some(index) = self.remotes.get(name) else { return false };
        let made = local.namespaces.values().filter(|there| there.created_for.as_ref() == Some(name)).count();
        let left = remote.rules.namespaces.max_created.saturating_sub(made);
        let missing = index.namespaces.keys().filter(|wanted| !local.namespaces.contains_key(*wanted));
        missing.take(left).any(|wanted| **wanted == *namespace)
    }

    /// True if a remote has sources in a namespace.
    pub(super) fn wants_namespace(&self, name: &RemoteName, namespace: &str) -> bool {
        self.remotes.get(name).is_some_and(|index| index.namespaces.contains_key(namespace))
    }

    /// Another Service than this that has the nodePort.
    pub(super) fn node_port_user(&self, port: u16, than: &ServiceName) -> Option<&ServiceName> {
        self.node_ports.get(&port)?.iter().find(|user| *user != than)
    }

    /// The endpoints of a remote's nodes.
    pub(super) fn nodes(&self, remote: &RemoteName) -> &NodeEndpoints {
        const NONE: &NodeEndpoints = &NodeEndpoints::none();
        self.remotes.get(remote).map_or(NONE, |index| &index.nodes)
    }

    /// Sources of a remote whose mirrors want this nodePort.
    pub(super) fn wanting_node_port(&self, remote: &RemoteName, port: u16) -> impl Iterator<Item = &ServiceName> {
        self.remotes.get(remote).and_then(|index| index.node_ports.get(&port)).into_iter().flatten()
    }

    /// Candidates of a remote in missing namespaces, if not all of these can be made.
    pub(super) fn in_missing_namespaces<'a>(
        &'a self,
        world: &'a World,
        name: &RemoteName,
    ) -> impl Iterator<Item = &'a ServiceName> {
        let limited = self.remotes.get(name).zip(world.remotes.get(name)).filter(|(index, remote)| {
            // Namespaces that were made may no longer be wanted, so this is more than enough.
            index.namespaces.len() + world.local.namespaces.len() > remote.rules.namespaces.max_created
        });
        let candidates = limited.into_iter().flat_map(|(index, _)| &index.candidates).map(|(_, name)| name);
        candidates.filter(|name| !world.local.namespaces.contains_key(&name.namespace))
    }

    /// Services of a remote that qualify.
    pub(super) fn candidates(&self, remote: &RemoteName) -> impl Iterator<Item = &ServiceName> {
        self.remotes.get(remote).into_iter().flat_map(|index| &index.candidates).map(|(_, name)| name)
    }
}

impl RemoteIndex {
    fn insert(&mut self, rules: &Rules, name: &ServiceName, source: &Source) {
        if !self.candidates.insert((source.created, name.clone())) {
            return;
        }
        *self.namespaces.entry(name.namespace.clone()).or_default() += 1;
        if rules.mirror_type == MirrorType::NodePort {
            for port in node_ports(&source.spec) {
                self.node_ports.entry(port).or_default().insert(name.clone());
            }
        }
    }

    fn remove(&mut self, name: &ServiceName, source: &Source) {
        if !self.candidates.remove(&(source.created, name.clone())) {
            return;
        }
        if let Some(count) = self.namespaces.get_mut(&name.namespace) {
            *count -= 1;
            if *count == 0 {
                self.namespaces.remove(&name.namespace);
            }
        }
        for port in node_ports(&source.spec) {
            remove_user(&mut self.node_ports, port, name);
        }
    }

    fn find_limit(&mut self, remote: &Remote) {
        let limit = remote.rules.limits.services;
        self.last_within_limit = match limit.checked_sub(1) {
            Some(last) if self.candidates.len() > limit => self.candidates.iter().nth(last).cloned(),
            Some(_) => None,
            // Nothing is older than this.
            None => Some((i64::MIN, ServiceName::new("", ""))),
        };
    }

    /// Candidates between an earlier limit and this one.
    fn between(&self, before: Option<(i64, ServiceName)>) -> Vec<ServiceName> {
        let after = self.last_within_limit.clone();
        if before == after {
            return Vec::new();
        }
        let (first, last) = match (before, after) {
            (Some(one), Some(other)) => (one.clone().min(other.clone()), Some(one.max(other))),
            (Some(one), None) | (None, Some(one)) => (one, None),
            (None, None) => return Vec::new(),
        };
        let within = self.candidates.range(first..);
        within.take_while(|one| last.as_ref().is_none_or(|last| *one <= last)).map(|(_, name)| name.clone()).collect()
    }
}

/// The nodePorts of a Service.
pub(super) fn node_ports(spec: &ServiceSpec) -> impl Iterator<Item = u16> {
    spec.ports.iter().filter_map(|port| port.node_port)
}

fn remove_user(users: &mut BTreeMap<u16, BTreeSet<ServiceName>>, port: u16, name: &ServiceName) {
    if let Some(of_port) = users.get_mut(&port) {
        of_port.remove(name);
        if of_port.is_empty() {
            users.remove(&port);
        }
    }
}
