//! Stores -> the planner's world, whole at first and then change by change.
//!
//! The objects are kept as the plan saw them: what is written carries their versions, so a plan that is out of date is
//! refused by the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan_api::address_claim::AddressClaim;
use portolan_api::gateway::{Account, Egw, Endpoint, LoadBalancer, NodeConfig, ServiceGroup, ServicePrefix};
use portolan_core::gateway::{ObjectName, PROVIDER_NAMESPACE, Plan, World, plan};
use portolan_core::net::parse_claim_name;

use super::names::{EGW, NODE_CONFIG};
use super::observe::{Cache, Changes};
use super::settings::Options;
use super::validate::{self, key_of, name_of};
use crate::runtime::clock::Moment;
use crate::runtime::store::{Key, Store};
use crate::runtime::watch::Kind;

/// Objects of one kind, as the plan saw them.
pub(super) type Seen<K> = BTreeMap<Arc<Key>, Arc<K>>;

/// What the planner is given.
pub(super) struct Model {
    pub(super) world: World,
    pub(super) egws: Seen<Egw>,
    pub(super) accounts: Seen<Account>,
    pub(super) node_configs: Seen<NodeConfig>,
    pub(super) prefixes: Seen<ServicePrefix>,
    pub(super) groups: Seen<ServiceGroup>,
    pub(super) load_balancers: Seen<LoadBalancer>,
    pub(super) endpoints: Seen<Endpoint>,
    pub(super) claims: Seen<AddressClaim>,
    /// The load balancer that each endpoint names.
    owners: BTreeMap<Arc<Key>, ObjectName>,
    images: Vec<String>,
}

impl Model {
    /// Reads all objects.
    pub(super) fn whole(cache: &Cache, options: &Options) -> Self {
        let mut model = Self {
            world: World { settings: options.planner(), ..World::default() },
            egws: Seen::new(),
            accounts: Seen::new(),
            node_configs: Seen::new(),
            prefixes: Seen::new(),
            groups: Seen::new(),
            load_balancers: Seen::new(),
            endpoints: Seen::new(),
            claims: Seen::new(),
            owners: BTreeMap::new(),
            images: options.images.clone(),
        };
        model.follow(cache, &cache.all());
        model
    }

    /// Applies changes. An object that cannot be decoded stays as it was.
    pub(super) fn follow(&mut self, cache: &Cache, changes: &Changes) {
        self.follow_provider(cache, changes);
        let images = &self.images;
        let groups = &mut self.world.groups;
        follow(&cache.groups, &changes.groups, &mut self.groups, |key, object| {
            set(groups, name_of(key), object.map(|object| validate::service_group(object, images)));
        });
        let load_balancers = &mut self.world.load_balancers;
        follow(&cache.load_balancers, &changes.load_balancers, &mut self.load_balancers, |key, object| {
            set(load_balancers, name_of(key), object.map(validate::load_balancer));
        });
        let (endpoints, owners) = (&mut self.world.endpoints, &mut self.owners);
        follow(&cache.endpoints, &changes.endpoints, &mut self.endpoints, |key, object| {
            let name: Arc<str> = key.name.as_str().into();
            if let Some(owner) = owners.remove(key)
                && let Some(of_owner) = endpoints.get_mut(&owner)
            {
                Arc::make_mut(of_owner).remove(&name);
                if of_owner.is_empty() {
                    endpoints.remove(&owner);
                }
            }
            let Some(object) = object else { return };
            let owner = ObjectName::new(&key.namespace, &object.spec.load_balancer);
            owners.insert(Arc::clone(key), owner.clone());
            Arc::make_mut(endpoints.entry(owner).or_default()).insert(name, validate::endpoint(object));
        });
        let (claims, other_use) = (&mut self.world.claims, &mut self.world.other_use);
        follow(&cache.claims, &changes.claims, &mut self.claims, |key, object| {
            let Some(address) = parse_claim_name(&key.name) else { return };
            let claim = object.and_then(validate::claim);
            if object.is_some() && claim.is_none() {
                other_use.insert(address);
            } else {
                other_use.remove(&address);
            }
            set(claims, address, claim);
        });
    }

    fn follow_provider(&mut self, cache: &Cache, changes: &Changes) {
        let World { settings, namespaces, accounts, prefixes, egw, node_config, .. } = &mut self.world;
        for key in &changes.namespaces {
            let read = cache.namespaces.get(key).and_then(|object| validate::namespace(&object));
            set(namespaces, key.name.as_str().into(), read);
        }
        follow(&cache.accounts, &changes.accounts, &mut self.accounts, |key, object| {
            if key.namespace == PROVIDER_NAMESPACE {
                let read = object.map(|object| validate::account(object, settings));
                set(accounts, key.name.as_str().into(), read);
            }
        });
        follow(&cache.prefixes, &changes.prefixes, &mut self.prefixes, |key, object| {
            if key.namespace == PROVIDER_NAMESPACE {
                set(prefixes, key.name.as_str().into(), object.map(validate::service_prefix));
            }
        });
        follow(&cache.egws, &changes.egws, &mut self.egws, |key, object| {
            if **key == singleton(EGW) {
                *egw = object.map(validate::egw);
            }
        });
        follow(&cache.node_configs, &changes.node_configs, &mut self.node_configs, |key, object| {
            if **key == singleton(NODE_CONFIG) {
                *node_config = object.map(validate::node_config);
            }
        });
    }

    /// Decides, and takes note of the numbers that came free.
    pub(super) fn plan(&mut self, now: Moment) -> Plan {
        self.world.now = now;
        let planned = plan(&self.world);
        let length = self.world.settings.key_quarantine;
        self.world.quarantine.follow(now, length, planned.live.clone());
        planned
    }

    /// A load balancer, as the plan saw it.
    pub(super) fn load_balancer(&self, name: &ObjectName) -> Option<&Arc<LoadBalancer>> {
        self.load_balancers.get(&key_of(name))
    }
}

/// The key of an object of the provider.
pub(super) fn singleton(name: &str) -> Key {
    Key { namespace: PROVIDER_NAMESPACE.to_owned(), name: name.to_owned() }
}

fn follow<K: Kind>(
    store: &Store<K>,
    changes: &BTreeSet<Arc<Key>>,
    seen: &mut Seen<K>,
    mut read: impl FnMut(&Arc<Key>, Option<&K>),
) {
    if changes.is_empty() {
        return;
    }
    let undecodable: BTreeSet<Key> = store.undecodable().into_iter().map(|bad| bad.key).collect();
    for key in changes {
        match store.get(key) {
            Some(object) => {
                read(key, Some(&object));
                seen.insert(Arc::clone(key), object);
            }
            None if undecodable.contains(&**key) => {}
            None => {
                read(key, None);
                seen.remove(key);
            }
        }
    }
}

fn set<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => drop(map.insert(key, value)),
        None => drop(map.remove(&key)),
    }
}
