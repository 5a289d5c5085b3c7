//! What the planner looks up: nodes joined with their instances, and where each address is.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::net::Ipv4Addr;

use super::cloud::{CloudSubnet, InstanceId, InstanceState, InterfaceId, SubnetId, Zone};
use super::error::CloudError;
use super::journal::{Claim, Journal, OwnerKind, State, Target};
use super::request::AddressList;
use super::types::{Calls, Cloud, NamespaceName, NodeName, PrivateIp, Seen, World};

/// Maps and sets that are only looked up, never iterated.
type HashMap<K, V> = hashbrown::HashMap<K, V, BuildHasherDefault<DefaultHasher>>;
type HashSet<K> = hashbrown::HashSet<K, BuildHasherDefault<DefaultHasher>>;

/// Position of a node in the index.
pub(super) type NodeId = usize;

/// A world with its journal, indexed.
pub(super) struct Index<'a> {
    pub(super) world: &'a World,
    pub(super) journal: &'a Journal,
    pub(super) calls: &'a Calls,
    pub(super) cloud: &'a Cloud,
    /// Nodes by name.
    pub(super) nodes: Vec<NodeView<'a>>,
    ids: HashMap<&'a str, NodeId>,
    by_instance: HashMap<&'a str, NodeId>,
    /// Nodes that may be chosen.
    pub(super) by_zone: BTreeMap<&'a Zone, Vec<NodeId>>,
    pub(super) by_subnet: BTreeMap<&'a SubnetId, Vec<NodeId>>,
    /// Addresses of each namespace that has claims, whatever the uid.
    pub(super) owners: BTreeMap<&'a str, Vec<Ipv4Addr>>,
    /// Instances that show an address as a secondary one.
    shown: HashMap<Ipv4Addr, Vec<&'a InstanceId>>,
    /// HostSubnets that list an address.
    listed: HashMap<Ipv4Addr, Vec<&'a NodeName>>,
    pub(super) shared_netids: BTreeSet<u32>,
    /// The list of each namespace that opted in.
    pub(super) lists: BTreeMap<&'a str, AddressList>,
    /// Addresses in these lists.
    pub(super) requested: HashSet<Ipv4Addr>,
    /// Addresses in HostSubnets and NetNamespaces.
    pub(super) named: HashSet<Ipv4Addr>,
}

/// A node, joined with its instance.
pub(super) struct NodeView<'a> {
    pub(super) name: &'a NodeName,
    pub(super) host: Option<Host<'a>>,
    /// It keeps the addresses it has.
    pub(super) keeps: bool,
    /// It may get addresses.
    pub(super) takes: bool,
}

/// Where addresses are attached.
#[derive(Debug, Clone, Copy)]
pub(super) struct Host<'a> {
    pub(super) instance: &'a InstanceId,
    pub(super) interface: &'a InterfaceId,
    pub(super) subnet: &'a SubnetId,
    pub(super) zone: &'a Zone,
}

/// Where the cloud shows an address of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Location<'a> {
    /// On the primary interface of this instance of ours.
    At(&'a InstanceId),
    /// On an interface, and not by us.
    InUse,
    /// On none.
    Nowhere,
    /// The describes are older than the last call.
    Unknown,
}

impl<'a> Index<'a> {
    pub(super) fn of(world: &'a World, journal: &'a Journal, calls: &'a Calls, cloud: &'a Cloud) -> Self {
        let mut index = Self {
            world,
            journal,
            calls,
            cloud,
            nodes: world.nodes.keys().map(|name| node_view(world, cloud, name)).collect(),
            ids: HashMap::default(),
            by_instance: HashMap::default(),
            by_zone: BTreeMap::new(),
            by_subnet: BTreeMap::new(),
            owners: BTreeMap::new(),
            shown: HashMap::default(),
            listed: HashMap::default(),
            shared_netids: BTreeSet::new(),
            lists: BTreeMap::new(),
            requested: HashSet::default(),
            named: HashSet::default(),
        };
        index.join_nodes();
        index.read_objects();
        index
    }

    fn join_nodes(&mut self) {
        for (id, view) in self.nodes.iter().enumerate() {
            self.ids.insert(view.name, id);
            let Some(host) = view.host else { continue };
            self.by_instance.insert(host.instance, id);
            if view.takes {
                self.by_zone.entry(host.zone).or_default().push(id);
                self.by_subnet.entry(host.subnet).or_default().push(id);
            }
        }
        for (instance, seen) in &self.cloud.nodes {
            for address in seen.what.interface.iter().flat_map(|interface| &interface.secondary) {
                self.shown.entry(*address).or_default().push(instance);
            }
        }
    }

    fn read_objects(&mut self) {
        for (address, claim) in &self.journal.claims {
            if claim.spec.owner.kind == OwnerKind::Namespace {
                self.owners.entry(&claim.spec.owner.name).or_default().push(*address);
            }
        }
        for (name, subnet) in &self.world.host_subnets {
            for address in &subnet.egress_ips {
                self.listed.entry(*address).or_default().push(name);
                self.named.insert(*address);
            }
        }
        let mut netids = BTreeSet::new();
        for net_namespace in self.world.net_namespaces.values() {
            self.named.extend(&net_namespace.egress_ips);
            if !netids.insert(net_namespace.netid) {
                self.shared_netids.insert(net_namespace.netid);
            }
        }
        for (name, namespace) in self.world.namespaces.iter().filter(|(_, namespace)| namespace.opted_in) {
            let list = AddressList::parse(namespace.egressips.as_deref());
            if let AddressList::Addresses(addresses) = &list {
                self.requested.extend(addresses);
            }
            self.lists.insert(name, list);
        }
    }

    pub(super) fn id(&self, node: &str) -> Option<NodeId> {
        self.ids.get(node).copied()
    }

    /// The node and its interface, if it is one at all.
    pub(super) fn host(&self, node: &str) -> Option<Host<'a>> {
        self.nodes[self.id(node)?].host
    }

    /// The interface of the node that a claim wants, if the node can keep it there.
    pub(super) fn usable_host(&self, claim: &Claim) -> Option<Host<'a>> {
        let view = &self.nodes[self.id(&claim.spec.node)?];
        view.host.filter(|host| view.keeps && *host.subnet == claim.spec.subnet)
    }

    /// True if the cloud shows an address where its claim wants it, and the node can keep it.
    pub(super) fn is_settled(&self, address: Ipv4Addr, claim: &Claim) -> bool {
        matches!(claim.status.state, State::Attached | State::Published)
            && self.usable_host(claim).is_some_and(|host| self.locate(address, claim) == Location::At(host.instance))
    }

    /// The node of an instance.
    pub(super) fn node_of(&self, instance: &InstanceId) -> Option<&'a NodeName> {
        self.by_instance.get(&**instance).map(|id| self.nodes[*id].name)
    }

    pub(super) fn target(&self, id: NodeId) -> Option<Target> {
        let view = &self.nodes[id];
        let host = view.host?;
        Some(Target { node: view.name.clone(), instance: host.instance.clone(), interface: host.interface.clone() })
    }

    /// Instances that show an address as a secondary one.
    pub(super) fn shown(&self, address: Ipv4Addr) -> &[&'a InstanceId] {
        self.shown.get(&address).map_or(&[], Vec::as_slice)
    }

    /// HostSubnets that list an address.
    pub(super) fn listed(&self, address: Ipv4Addr) -> &[&'a NodeName] {
        self.listed.get(&address).map_or(&[], Vec::as_slice)
    }

    pub(super) fn is_listed_at(&self, address: Ipv4Addr, node: &NodeName) -> bool {
        self.listed(address).contains(&node)
    }

    /// The subnet that holds an address.
    pub(super) fn subnet_of(&self, address: Ipv4Addr) -> Option<&'a Seen<CloudSubnet>> {
        self.cloud.subnets.values().find(|subnet| subnet.what.cidr.contains(&address))
    }

    /// True if addresses are published before they are attached.
    pub(super) fn publishes_first(&self) -> bool {
        self.world.cloud_controller.is_some() || self.world.publish_first
    }

    /// When the describe began that shows an instance.
    pub(super) fn began(&self, instance: &InstanceId) -> u64 {
        self.cloud.nodes.get(instance).map_or(0, |seen| seen.began)
    }

    /// True if the describe of an instance is newer than the last call for its interface.
    fn is_fresh(&self, instance: &InstanceId) -> bool {
        if self.calls.is_empty() {
            return true;
        }
        let Some(seen) = self.cloud.nodes.get(instance) else { return true };
        let interface = seen.what.interface.as_ref();
        interface.is_none_or(|interface| self.calls.is_newer(&interface.id, seen.began))
    }

    /// Where the cloud shows an address of the journal.
    pub(super) fn locate(&self, address: Ipv4Addr, claim: &Claim) -> Location<'a> {
        if let Some(private_ips) = &self.world.cloud_controller {
            // one on its way out may be attached as long as there is a record of it
            let counts = |ip: &&PrivateIp| ip.assigned().is_some() || claim.status.state == State::Releasing;
            let host = private_ips.get(&address).filter(counts).and_then(|ip| self.host(ip.node()));
            return host.map_or(Location::Nowhere, |host| Location::At(host.instance));
        }
        let target = claim.status.target.as_ref();
        if target.is_some_and(|target| !self.is_fresh(&target.instance)) {
            return Location::Unknown;
        }
        let ours = |instance: &InstanceId| {
            let has_it = |node: &NodeName| self.host(node).is_some_and(|host| host.instance == instance);
            let leaves = claim.status.state == State::Releasing && !claim.status.gone && claim.status.node.is_some();
            claim.status.served
                || leaves
                || claim.status.calls().any(|target| target.instance == *instance)
                || claim.status.node.as_ref().is_some_and(has_it)
        };
        let shown = self.shown(address);
        let wanted = self.host(&claim.spec.node).map(|host| host.instance);
        let mut of_ours = shown.iter().copied().filter(|instance| ours(instance));
        let first = of_ours.next();
        let first = of_ours.chain(first).find(|instance| Some(*instance) == wanted).or(first);
        if let Some(first) = first {
            return if self.is_fresh(first) { Location::At(first) } else { Location::Unknown };
        }
        // The describe of the subnet may be ahead of that of the interface, so that a call of ours looks like
        // somebody else's: only the cloud's refusal proves the opposite.
        let refused =
            claim.status.last_error.as_ref().is_some_and(|last| matches!(last.error, CloudError::InUse { .. }));
        let used = self.is_used(address, claim);
        match target {
            _ if !shown.is_empty() => Location::InUse,
            None if used => Location::InUse,
            Some(_) if used && refused => Location::InUse,
            None | Some(_) => Location::Nowhere,
        }
    }

    fn is_used(&self, address: Ipv4Addr, claim: &Claim) -> bool {
        let subnet = self.cloud.subnets.get(&claim.spec.subnet);
        subnet.is_some_and(|subnet| subnet.what.used.contains(&address))
    }

    /// Whether describe, HostSubnet and NetNamespace agree that a namespace has an address: the node.
    pub(super) fn in_service(&self, address: Ipv4Addr, namespace: &NamespaceName) -> Option<NodeId> {
        let [instance] = self.shown(address) else { return None };
        let id = *self.by_instance.get(&***instance)?;
        let net_namespace = self.world.net_namespaces.get(namespace)?;
        let agree = self.listed(address) == [self.nodes[id].name] && net_namespace.egress_ips.contains(&address);
        agree.then_some(id)
    }
}

fn node_view<'a>(world: &'a World, cloud: &'a Cloud, name: &'a NodeName) -> NodeView<'a> {
    let node = &world.nodes[name];
    let seen = node.instance.as_ref().and_then(|instance| cloud.nodes.get(instance));
    let host = seen.and_then(|seen| {
        let what = &seen.what;
        let interface = &what.interface.as_ref()?.id;
        Some(Host { instance: &what.instance, interface, subnet: &what.subnet, zone: &what.zone })
    });
    let running = seen.is_some_and(|seen| seen.what.state == InstanceState::Running);
    let in_zone = host.is_some_and(|host| node.zone.as_ref().is_none_or(|zone| zone == host.zone));
    let open = world.host_subnets.get(name).is_some_and(|subnet| !subnet.egress_cidrs);
    let fit = node.compute && !node.deleting && running && in_zone && open;
    let expired = node.not_ready_since.is_some_and(|since| since + world.options.node_grace <= world.now);
    NodeView { name, host, keeps: fit && !expired, takes: fit && node.not_ready_since.is_none() }
}
