//! Stores and descriptions of the cloud -> the planner's world and journal, whole at first and then change by change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use portolan_core::ipam::ovn::{self, Ovn};
use portolan_core::ipam::{
    Calls, Cloud, CloudError, InstanceId, Journal, Moment, Plan, PrivateIp, Reason, Seen, World, plan, refused,
};
use portolan_core::select::Selector;
use tracing::{info, warn};
use xxhash_rust::xxh3::xxh3_64;

use super::backend::{self, Backend, Network};
use super::describe::Description;
use super::names::VERIFY;
use super::observe::{Cache, Changes};
use super::settings::Options;
use super::validate;
use crate::runtime::store::{Key, Store};
use crate::runtime::watch::Kind;

/// What the planner is given.
pub(super) struct Model {
    pub(super) world: World,
    pub(super) journal: Journal,
    /// Claims whose status was not written since they were created.
    pub(super) without_status: BTreeSet<Ipv4Addr>,
    /// When somebody asked last to compare an address with the cloud, as the claim has it.
    verify: BTreeMap<Ipv4Addr, String>,
    /// Until when another controller makes the calls to the cloud; none if none does.
    pub(super) controller_until: Option<Moment>,
    /// What that controller knows of addresses.
    private_ips: BTreeMap<Arc<str>, PrivateIp>,
    pub(super) network: Network,
    pub(super) ovn: Ovn,
    backend: Backend,
    selector: Selector,
}

/// What following changes came to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Followed {
    /// Something differs for the planner.
    pub(super) changed: bool,
    /// A node came, went or changed, so the cloud may have, too; or somebody asks to look.
    pub(super) nodes: bool,
}

impl Model {
    /// Reads all objects.
    pub(super) fn whole(cache: &Cache, options: &Options, now: Moment) -> Self {
        let system = cache.namespaces.get(&Key::of_cluster("kube-system"));
        let mut model = Self {
            world: World { seed: seed(system.as_deref()), now, options: options.planner(), ..World::default() },
            journal: Journal::default(),
            without_status: BTreeSet::new(),
            verify: BTreeMap::new(),
            controller_until: None,
            private_ips: BTreeMap::new(),
            network: Network::Absent,
            ovn: Ovn::default(),
            backend: options.backend,
            selector: options.node_selector.clone(),
        };
        let all = Changes {
            namespaces: cache.namespaces.keys(),
            nodes: cache.nodes.keys(),
            claims: cache.claims.keys(),
            net_namespaces: cache.net_namespaces.keys(),
            host_subnets: cache.host_subnets.keys(),
            private_ips: cache.private_ips.keys(),
            egress_ips: cache.egress_ips.keys(),
        };
        model.follow(cache, &all, now);
        model
    }

    /// Applies changes.
    pub(super) fn follow(&mut self, cache: &Cache, changes: &Changes, now: Moment) -> Followed {
        let World { namespaces, nodes, net_namespaces, host_subnets, .. } = &mut self.world;
        let mut followed = Followed::default();
        follow(&cache.namespaces, &changes.namespaces, namespaces, &mut followed.changed, |object, _| {
            validate::namespace(object)
        });
        follow(&cache.net_namespaces, &changes.net_namespaces, net_namespaces, &mut followed.changed, |object, _| {
            validate::net_namespace(object)
        });
        follow(&cache.host_subnets, &changes.host_subnets, host_subnets, &mut followed.changed, |object, _| {
            validate::host_subnet(object)
        });
        let selector = &self.selector;
        follow(&cache.nodes, &changes.nodes, nodes, &mut followed.nodes, |object, before| {
            validate::node(object, selector, before, now)
        });
        let claims = self.follow_claims(cache, &changes.claims);
        followed.nodes |= claims.nodes;
        followed.changed |= followed.nodes | claims.changed;
        followed.changed |= self.follow_controller(cache, &changes.private_ips, now);
        followed.changed |= self.follow_network(cache);
        if !changes.egress_ips.is_empty() || !changes.private_ips.is_empty() {
            followed.changed |= self.follow_ovn(cache);
        }
        followed
    }

    /// Leaves the calls to the cloud to another controller while that runs.
    fn follow_controller(&mut self, cache: &Cache, changes: &BTreeSet<Arc<Key>>, now: Moment) -> bool {
        let mut changed = false;
        follow(&cache.private_ips, changes, &mut self.private_ips, &mut changed, |object, _| {
            validate::private_ip(object)
        });
        let until = cache.controller_lock().and_then(|lease| validate::held_until(&lease));
        self.controller_until = until.filter(|until| *until > now);
        let (runs, ran) = (self.controller_until.is_some(), self.world.cloud_controller.is_some());
        if runs != ran {
            let who = if runs { "cloud-network-config-controller" } else { "ipam" };
            info!(who, "who attaches addresses to nodes has changed");
        }
        if runs == ran && (!changed || !runs) {
            return false;
        }
        self.world.cloud_controller = runs.then(|| self.known_private_ips());
        true
    }

    fn known_private_ips(&self) -> BTreeMap<Ipv4Addr, PrivateIp> {
        self.private_ips.iter().filter_map(|(name, ip)| Some((name.parse().ok()?, ip.clone()))).collect()
    }

    fn follow_network(&mut self, cache: &Cache) -> bool {
        let network = backend::network(self.backend, cache);
        let changed = network != self.network;
        if changed {
            match network {
                Network::Sdn | Network::Ovn | Network::Absent => info!(?network, "the network plugin is known"),
                Network::Ambiguous => warn!("nothing is decided: {}", backend::AMBIGUOUS),
            }
        }
        self.network = network;
        let serves = network == Network::Ovn && self.controller_until.is_none();
        changed | (std::mem::replace(&mut self.ovn.serves, serves) != serves)
    }

    fn follow_ovn(&mut self, cache: &Cache) -> bool {
        let mut ovn = Ovn { private_ips: self.known_private_ips(), serves: self.ovn.serves, ..Ovn::default() };
        cache.egress_ips.for_each(|_, object| validate::note_egress_ip(&mut ovn, object));
        let changed = ovn != self.ovn;
        self.ovn = ovn;
        changed
    }

    /// Decides what is due.
    pub(super) fn plan(&self, calls: &Calls) -> Plan {
        let Self { world, journal, ovn, .. } = self;
        match self.network {
            Network::Sdn | Network::Absent => plan(world, journal, calls),
            Network::Ovn => ovn::plan(world, ovn, journal, calls),
            Network::Ambiguous => refused(world, journal, Reason::NetworkUnknown, backend::AMBIGUOUS),
        }
    }

    fn follow_claims(&mut self, cache: &Cache, changes: &BTreeSet<Arc<Key>>) -> Followed {
        let mut followed = Followed::default();
        if changes.is_empty() {
            return followed;
        }
        let unreadable = unreadable(&cache.claims);
        for key in changes {
            let Some(address) = validate::address_of(&key.name) else { continue };
            let object = cache.claims.get(key);
            let claim = object.as_ref().and_then(|object| validate::claim(object));
            let is_other = claim.is_none() && (object.is_some() || unreadable.contains(&**key));
            followed.changed |= self.journal.claims.get(&address) != claim.as_ref();
            followed.changed |= self.journal.other_use.contains(&address) != is_other;
            let asked = object.as_ref().and_then(|object| object.annotations().get(VERIFY)).cloned();
            let asked_before = match asked.clone() {
                Some(asked) => self.verify.insert(address, asked),
                None => self.verify.remove(&address),
            };
            followed.nodes |= asked.is_some() && asked != asked_before;
            let lacks_status = object.is_some_and(|object| validate::has_no_status(&object));
            set(&mut self.without_status, address, lacks_status);
            set(&mut self.journal.other_use, address, is_other);
            match claim {
                Some(claim) => drop(self.journal.claims.insert(address, claim)),
                None => drop(self.journal.claims.remove(&address)),
            }
        }
        followed
    }

    /// Takes why the cloud was not described; true if that matters because it never was.
    pub(super) fn undescribed(&mut self, problem: CloudError) -> bool {
        let matters = self.world.cloud.is_none() && self.world.cloud_problem.as_ref() != Some(&problem);
        self.world.cloud_problem = Some(problem);
        matters
    }

    /// Takes what the cloud described. Instances that were asked for and are not there are gone.
    pub(super) fn described(&mut self, description: Description) {
        let Description { began, asked, report, subnets } = description;
        let Some(subnets) = subnets else {
            let Some(cloud) = &mut self.world.cloud else { return };
            cloud.nodes.retain(|id, _| !asked.contains(id) || report.unanswered.contains(id));
            cloud.nodes.extend(report.nodes.into_iter().map(|what| (what.instance.clone(), Seen { what, began })));
            return;
        };
        let before = self.world.cloud.take().unwrap_or_default();
        let mut nodes: BTreeMap<InstanceId, Seen<_>> = before.nodes;
        nodes.retain(|id, _| report.unanswered.contains(id));
        nodes.extend(report.nodes.into_iter().map(|what| (what.instance.clone(), Seen { what, began })));
        // Subnets of instances that did not answer stay as they were.
        let mut known = before.subnets;
        known.retain(|id, _| nodes.values().any(|node| node.what.subnet == *id));
        known.extend(subnets.into_iter().map(|what| (what.id.clone(), Seen { what, began })));
        self.world.cloud = Some(Cloud { nodes, subnets: known });
    }

    /// Instances of nodes, and those that calls of the journal named.
    pub(super) fn instances(&self) -> BTreeSet<InstanceId> {
        let of_nodes = self.world.nodes.values().filter_map(|node| node.instance.clone());
        let claims = self.journal.claims.values();
        let called = claims.flat_map(|claim| claim.status.calls().map(|target| target.instance.clone()));
        of_nodes.chain(called).collect()
    }

    /// False if the cluster has no network plugin that could use addresses.
    pub(super) fn is_served(&self) -> bool {
        self.network.is_served(&self.world)
    }
}

/// Updates a map from a store. An object that cannot be read stays as it was last read.
fn follow<K: Kind, V: PartialEq>(
    store: &Store<K>,
    changes: &BTreeSet<Arc<Key>>,
    known: &mut BTreeMap<Arc<str>, V>,
    changed: &mut bool,
    read: impl Fn(&K, Option<&V>) -> V,
) {
    if changes.is_empty() {
        return;
    }
    let unreadable = unreadable(store);
    for key in changes {
        let before = known.get(key.name.as_str());
        match store.get(key) {
            Some(object) => {
                let now = read(&object, before);
                if before != Some(&now) {
                    *changed = true;
                    known.insert(key.name.as_str().into(), now);
                }
            }
            None if unreadable.contains(&**key) => {}
            None => *changed |= known.remove(key.name.as_str()).is_some(),
        }
    }
}

fn set(members: &mut BTreeSet<Ipv4Addr>, address: Ipv4Addr, is_member: bool) {
    if is_member {
        members.insert(address);
    } else {
        members.remove(&address);
    }
}

fn unreadable<K: Kind>(store: &Store<K>) -> BTreeSet<Key> {
    store.undecodable().into_iter().map(|bad| bad.key).collect()
}

/// Equal on every replica and after every restart: derived from the uid of `kube-system`.
pub(super) fn seed(system: Option<&Namespace>) -> u64 {
    xxh3_64(system.and_then(|namespace| namespace.metadata.uid.as_deref()).unwrap_or_default().as_bytes())
}
