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

    /// Applies changes; true if the planner is given something else than before. An object that cannot be decoded stays
    /// as it was.
    pub(super) fn follow(&mut self, cache: &Cache, changes: &Changes) -> bool {
        let provider = self.follow_provider(cache, changes);
        let images = &self.images;
        let groups = &mut self.world.groups;
        let in_groups = follow(&cache.groups, &changes.groups, &mut self.groups, |key, object| {
            set(groups, name_of(key), object.map(|object| validate::service_group(object, images)))
        });
        let load_balancers = &mut self.world.load_balancers;
        let in_load_balancers =
            follow(&cache.load_balancers, &changes.load_balancers, &mut self.load_balancers, |key, object| {
                set(load_balancers, name_of(key), object.map(validate::load_balancer))
            });
        let in_endpoints = self.follow_endpoints(cache, changes);
        let (claims, other_use) = (&mut self.world.claims, &mut self.world.other_use);
        let in_claims = follow(&cache.claims, &changes.claims, &mut self.claims, |key, object| {
            let Some(address) = parse_claim_name(&key.name) else { return false };
            let claim = object.and_then(validate::claim);
            let is_other = object.is_some() && claim.is_none();
            let in_other = if is_other { other_use.insert(address) } else { other_use.remove(&address) };
            set(claims, address, claim) | in_other
        });
        provider | in_groups | in_load_balancers | in_endpoints | in_claims
    }

    fn follow_endpoints(&mut self, cache: &Cache, changes: &Changes) -> bool {
        let (endpoints, owners) = (&mut self.world.endpoints, &mut self.owners);
        follow(&cache.endpoints, &changes.endpoints, &mut self.endpoints, |key, object| {
            let name: Arc<str> = key.name.as_str().into();
            let owner = object.map(|object| ObjectName::new(&key.namespace, &object.spec.load_balancer));
            let read = object.map(validate::endpoint);
            let before = owners.get(key);
            if before == owner.as_ref() && before.and_then(|owner| endpoints.get(owner)?.get(&name)) == read.as_ref() {
                return false;
            }
            if let Some(owner) = owners.remove(key)
                && let Some(of_owner) = endpoints.get_mut(&owner)
            {
                Arc::make_mut(of_owner).remove(&name);
                if of_owner.is_empty() {
                    endpoints.remove(&owner);
                }
            }
            if let Some((owner, endpoint)) = owner.zip(read) {
                owners.insert(Arc::clone(key), owner.clone());
                Arc::make_mut(endpoints.entry(owner).or_default()).insert(name, endpoint);
            }
            true
        })
    }

    fn follow_provider(&mut self, cache: &Cache, changes: &Changes) -> bool {
        let World { settings, namespaces, accounts, prefixes, egw, node_config, .. } = &mut self.world;
        let mut differs = false;
        for key in &changes.namespaces {
            let read = cache.namespaces.get(key).and_then(|object| validate::namespace(&object));
            differs |= set(namespaces, key.name.as_str().into(), read);
        }
        differs |= follow(&cache.accounts, &changes.accounts, &mut self.accounts, |key, object| {
            let read = || object.map(|object| validate::account(object, settings));
            key.namespace == PROVIDER_NAMESPACE && set(accounts, key.name.as_str().into(), read())
        });
        differs |= follow(&cache.prefixes, &changes.prefixes, &mut self.prefixes, |key, object| {
            let read = || object.map(validate::service_prefix);
            key.namespace == PROVIDER_NAMESPACE && set(prefixes, key.name.as_str().into(), read())
        });
        differs |= follow(&cache.egws, &changes.egws, &mut self.egws, |key, object| {
            **key == singleton(EGW) && replace(egw, object.map(validate::egw))
        });
        differs |= follow(&cache.node_configs, &changes.node_configs, &mut self.node_configs, |key, object| {
            **key == singleton(NODE_CONFIG) && replace(node_config, object.map(validate::node_config))
        });
        differs
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

/// Reads what has changed; true if any of it made a difference.
fn follow<K: Kind>(
    store: &Store<K>,
    changes: &BTreeSet<Arc<Key>>,
    seen: &mut Seen<K>,
    mut read: impl FnMut(&Arc<Key>, Option<&K>) -> bool,
) -> bool {
    if changes.is_empty() {
        return false;
    }
    let undecodable: BTreeSet<Key> = store.undecodable().into_iter().map(|bad| bad.key).collect();
    let mut differs = false;
    for key in changes {
        match store.get(key) {
            Some(object) => {
                differs |= read(key, Some(&object));
                seen.insert(Arc::clone(key), object);
            }
            None if undecodable.contains(&**key) => {}
            None => {
                differs |= read(key, None);
                seen.remove(key);
            }
        }
    }
    differs
}

/// True if it was another value.
fn set<K: Ord, V: PartialEq>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> bool {
    let Some(value) = value else { return map.remove(&key).is_some() };
    match map.get_mut(&key) {
        Some(there) if *there == value => false,
        Some(there) => {
            *there = value;
            true
        }
        None => map.insert(key, value).is_none(),
    }
}

fn replace<V: PartialEq>(there: &mut Option<V>, value: Option<V>) -> bool {
    let differs = *there != value;
    *there = value;
    differs
}
