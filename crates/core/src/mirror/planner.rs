//! Keeps a world and follows it change by change: one event costs the names it touches, not the world.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::addresses::AddressRefused;
use super::decide::{Decision, decide};
use super::index::{Index, node_ports};
use super::qualify::{Disqualified, qualifies};
use super::types::{
    Local, LocalService, Namespace, Node, NodeName, RecordedSlice, Remote, RemoteName, Role, ServiceName, Source,
    SourceSlice, SourceSlices, Sync, World,
};

/// Something that changed.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A local Service.
    Service(ServiceName, Option<LocalService>),
    /// A local EndpointSlice of the mirror: its Service, its name, and what it is.
    Slice(ServiceName, Arc<str>, Option<RecordedSlice>),
    /// A local namespace.
    Namespace(Arc<str>, Option<Namespace>),
    /// Whether the API server refused the nodePorts of a mirror.
    RefusedNodePorts(ServiceName, bool),
    /// A Service of a remote.
    Source(RemoteName, ServiceName, Option<Source>),
    /// How much of a remote is known.
    Sync(RemoteName, Sync),
    /// Nodes of a remote.
    Nodes(RemoteName, BTreeMap<NodeName, Option<Node>>),
    /// An EndpointSlice of a remote: its Service, its name, and what it is.
    SourceSlice(RemoteName, ServiceName, Arc<str>, Option<SourceSlice>),
}

/// A world with its decisions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Planner {
    world: World,
    index: Index,
}

impl Planner {
    /// A planner for this world.
    pub fn new(world: World) -> Self {
        let index = Index::of(&world);
        Self { world, index }
    }

    /// What decisions are based on.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Decides about a local name.
    pub fn decide(&self, name: &ServiceName) -> Decision {
        decide(&self.world, &self.index, name)
    }

    /// Whether a Service of a remote is to be mirrored: if not, why; none if there is no such Service.
    pub fn qualifies(&self, remote: &RemoteName, source: &ServiceName) -> Result<(), Option<Disqualified>> {
        let of = self.world.remotes.get(remote).ok_or(None)?;
        let found = qualifies(&self.world.local, of, source)?;
        if self.index.is_within_limit(remote, source, found.created) { Ok(()) } else { Err(Some(Disqualified::Limit)) }
    }

    /// Every local name about which there is something to decide.
    pub fn names(&self) -> BTreeSet<ServiceName> {
        let mut names = BTreeSet::new();
        for remote in self.world.remotes.keys() {
            names.extend(self.names_of(remote));
        }
        let handled = self.world.local.services.iter().filter(|(_, service)| service.role != Role::Foreign);
        names.extend(handled.map(|(name, _)| name.clone()));
        names.extend(self.world.local.slices.keys().cloned());
        names
    }

    /// Nodes of a remote that take traffic.
    pub fn usable_nodes(&self, remote: &RemoteName) -> usize {
        self.index.nodes(remote).usable
    }

    /// Addresses of nodes that are not allowed.
    pub(super) fn refused_nodes(&self, remote: &RemoteName) -> &BTreeMap<IpAddr, AddressRefused> {
        &self.index.nodes(remote).refused
    }

    /// Services of a remote that qualify.
    pub fn candidates(&self, remote: &RemoteName) -> usize {
        self.index.candidates(remote).count()
    }

    /// Follows a change; gives the names whose decisions may differ.
    pub fn change(&mut self, change: Change) -> BTreeSet<ServiceName> {
        match change {
            Change::Service(name, service) => self.change_service(name, service),
            Change::Slice(service, name, slice) => {
                set_nested(&mut self.world.local.slices, &service, &name, slice);
                BTreeSet::from([service])
            }
            Change::Namespace(name, namespace) => self.change_namespace(&name, namespace),
            Change::RefusedNodePorts(name, refused) => {
                let names = &mut self.world.local.refused_node_ports;
                if refused {
                    names.insert(name.clone())
                } else {
                    names.remove(&name)
                };
                BTreeSet::from([name])
            }
            Change::Source(remote, name, source) => self.change_source(&remote, &name, source),
            Change::Sync(remote, sync) => self.change_sync(&remote, sync),
            Change::Nodes(remote, nodes) => self.change_nodes(&remote, nodes),
            Change::SourceSlice(remote, service, name, slice) => {
                let Some(of) = self.world.remotes.get_mut(&remote) else { return BTreeSet::new() };
                if let SourceSlices::Read(slices) = &mut of.slices {
                    set_nested(slices, &service, &name, slice);
                }
                BTreeSet::from([of.rules.local_name(&service)])
            }
        }
    }

    /// Replaces a remote, or what is known of its state; gives the names whose decisions may differ.
    pub fn change_remote(
        &mut self,
        name: &RemoteName,
        change: impl FnOnce(&mut Option<Remote>),
    ) -> BTreeSet<ServiceName> {
        let mut names = self.names_of(name);
        let mut remote = self.world.remotes.remove(name);
        change(&mut remote);
        if let Some(remote) = remote {
            self.world.remotes.insert(name.clone(), remote);
        }
        self.index.rebuild_remote(&self.world, name);
        names.extend(self.names_of(name));
        // Which remote serves those that name none depends on all remotes.
        let hand_labelled = self.world.local.services.iter().filter(|(_, service)| service.role == Role::HandLabelled);
        names.extend(hand_labelled.map(|(name, _)| name.clone()));
        names
    }

    /// Changes what holds for the whole local cluster; everything may differ.
    pub fn change_local(&mut self, change: impl FnOnce(&mut Local)) -> BTreeSet<ServiceName> {
        let mut names = self.names();
        change(&mut self.world.local);
        self.index = Index::of(&self.world);
        names.extend(self.names());
        names
    }

    fn change_service(&mut self, name: ServiceName, service: Option<LocalService>) -> BTreeSet<ServiceName> {
        let ports = |service: Option<&LocalService>| -> Vec<u16> {
            service.into_iter().flat_map(|service| node_ports(&service.spec)).collect()
        };
        let before = ports(self.world.local.services.get(&name));
        let after = ports(service.as_ref());
        set(&mut self.world.local.services, &name, service);
        let mut names = BTreeSet::new();
        if self.index.follow_node_ports(&name, &before, &after) {
            for (remote, of) in &self.world.remotes {
                for port in before.iter().chain(&after) {
                    let wanting = self.index.wanting_node_port(remote, *port);
                    names.extend(wanting.map(|source| of.rules.local_name(source)));
                }
            }
        }
        names.insert(name);
        names
    }

    fn change_namespace(&mut self, name: &Arc<str>, namespace: Option<Namespace>) -> BTreeSet<ServiceName> {
        let mut names = self.in_missing_namespaces();
        set(&mut self.world.local.namespaces, name, namespace);
        names.extend(self.in_missing_namespaces());
        let first = ServiceName::new(name.clone(), "");
        for remote in self.world.remotes.values() {
            let sources = remote.services.range(first.clone()..).take_while(|(source, _)| source.namespace == *name);
            names.extend(sources.map(|(source, _)| remote.rules.local_name(source)));
        }
        names
    }

    /// Names whose namespace may or may not be made, depending on others.
    fn in_missing_namespaces(&self) -> BTreeSet<ServiceName> {
        let of_remote = self.world.remotes.iter().flat_map(|(name, remote)| {
            let sources = self.index.in_missing_namespaces(&self.world, name);
            sources.map(|source| remote.rules.local_name(source))
        });
        of_remote.collect()
    }

    fn change_source(
        &mut self,
        remote: &RemoteName,
        name: &ServiceName,
        source: Option<Source>,
    ) -> BTreeSet<ServiceName> {
        let Some(of) = self.world.remotes.get_mut(remote) else { return BTreeSet::new() };
        let before = match source {
            Some(source) => of.services.insert(name.clone(), source),
            None => of.services.remove(name),
        };
        let had_namespace = self.index.wants_namespace(remote, &name.namespace);
        let moved = self.index.follow_source(&self.world, remote, name, before.as_ref());
        let has_namespace = self.index.wants_namespace(remote, &name.namespace);
        let Some(of) = self.world.remotes.get(remote) else { return BTreeSet::new() };
        let mut names: BTreeSet<ServiceName> = moved.iter().map(|source| of.rules.local_name(source)).collect();
        if had_namespace != has_namespace {
            names.extend(self.in_missing_namespaces());
        }
        names.insert(of.rules.local_name(name));
        names
    }

    /// Once a remote was listed, only the deletion of mirrors without a source depends on how much is known.
    fn change_sync(&mut self, name: &RemoteName, sync: Sync) -> BTreeSet<ServiceName> {
        let Some(remote) = self.world.remotes.get_mut(name) else { return BTreeSet::new() };
        let before = std::mem::replace(&mut remote.sync, sync);
        if before == sync {
            return BTreeSet::new();
        }
        if [before, sync].contains(&Sync::Listing) {
            return self.change_remote(name, |_| {});
        }
        let Some(remote) = self.world.remotes.get(name) else { return BTreeSet::new() };
        let has_source = |local: &ServiceName| {
            remote.rules.source_name(local).is_some_and(|source| self.qualifies(name, &source).is_ok())
        };
        let mirrors = self.world.local.services.iter().filter(|(_, service)| {
            service.role == Role::Mirror && service.owner.as_ref().is_none_or(|owner| owner == name)
        });
        mirrors.filter(|(local, _)| !has_source(local)).map(|(local, _)| local.clone()).collect()
    }

    fn change_nodes(&mut self, remote: &RemoteName, nodes: BTreeMap<NodeName, Option<Node>>) -> BTreeSet<ServiceName> {
        let Some(of) = self.world.remotes.get_mut(remote) else { return BTreeSet::new() };
        for (name, node) in nodes {
            set(&mut of.nodes, &name, node);
        }
        if !self.index.rebuild_nodes(&self.world, remote) {
            return BTreeSet::new();
        }
        let services = self.world.local.services.iter().filter(|(_, service)| match service.role {
            Role::Foreign => false,
            Role::HandLabelled => true,
            Role::Mirror => service.owner.as_ref().is_none_or(|owner| owner == remote),
        });
        services.map(|(name, _)| name.clone()).collect()
    }

    /// Names that a remote has something to do with.
    fn names_of(&self, remote: &RemoteName) -> BTreeSet<ServiceName> {
        let mut names = BTreeSet::new();
        if let Some(of) = self.world.remotes.get(remote) {
            names.extend(of.services.keys().map(|source| of.rules.local_name(source)));
        }
        let services = self.world.local.services.iter().filter(|(_, service)| {
            service.role == Role::Mirror && service.owner.as_ref().is_none_or(|owner| owner == remote)
        });
        names.extend(services.map(|(name, _)| name.clone()));
        let slices = self.world.local.slices.iter();
        let slices = slices.filter(|(_, slices)| slices.values().any(|slice| slice.remote == *remote));
        names.extend(slices.map(|(name, _)| name.clone()));
        names
    }
}

fn set<K: Ord + Clone, V>(map: &mut BTreeMap<K, V>, key: &K, value: Option<V>) {
    match value {
        Some(value) => drop(map.insert(key.clone(), value)),
        None => drop(map.remove(key)),
    }
}

fn set_nested<V>(
    map: &mut BTreeMap<ServiceName, BTreeMap<Arc<str>, V>>,
    service: &ServiceName,
    name: &Arc<str>,
    value: Option<V>,
) {
    let of_service = map.entry(service.clone()).or_default();
    set(of_service, name, value);
    if of_service.is_empty() {
        map.remove(service);
    }
}
