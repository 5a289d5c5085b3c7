//! Stores and the gateway's answers -> the planner's world, change by change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use portolan_core::gateway_client::{
    Call, ClusterKey, Decision, LbName, NodeEndpoints, Remote, Seen, ServiceName, World, decide,
};
use portolan_drivers::gateway::{GatewayError, Listed};

use super::observe::{Cache, Changes};
use super::validate::{self, name_of};
use crate::runtime::store::Key;

/// What the planner is given, and what it decided.
pub(super) struct Model {
    pub(super) world: World,
    /// Services as the planner saw them: what is written carries their versions.
    pub(super) objects: BTreeMap<ServiceName, Arc<Service>>,
    pub(super) decisions: BTreeMap<ServiceName, Decision>,
    /// The Service of each load balancer.
    owners: BTreeMap<LbName, ServiceName>,
    slice_owners: BTreeMap<Arc<Key>, ServiceName>,
}

/// What the gateway said to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    LoadBalancer(Seen),
    /// None if there is no such load balancer.
    Endpoints(Option<NodeEndpoints>),
    /// The call was carried out.
    Done,
}

impl Model {
    /// Nothing is known yet.
    pub(super) fn new(cluster: ClusterKey, group: &str) -> Self {
        let world = World {
            cluster,
            group: group.into(),
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            nodes: BTreeMap::new(),
            seen: BTreeMap::new(),
        };
        let (objects, decisions, owners) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { world, objects, decisions, owners, slice_owners: BTreeMap::new() }
    }

    /// Applies changes of the cluster; gives the Services that they touch. What cannot be decoded stays as it was.
    pub(super) fn follow(&mut self, cache: &Cache, changes: &Changes) -> BTreeSet<ServiceName> {
        let mut touched = BTreeSet::new();
        for key in undecodable_left_out(&changes.services, &cache.services.undecodable()) {
            let (name, object) = (name_of(key), cache.services.get(key));
            self.set_service(&name, object);
            touched.insert(name);
        }
        for key in undecodable_left_out(&changes.slices, &cache.slices.undecodable()) {
            let object = cache.slices.get(key);
            touched.extend(self.remove_slice(key));
            if let Some(object) = object
                && let Some(owner) = validate::owner(&object)
            {
                let of_owner = self.world.slices.entry(owner.clone()).or_default();
                of_owner.insert(key.name.as_str().into(), validate::slice(&object));
                self.slice_owners.insert(Arc::clone(key), owner.clone());
                touched.insert(owner);
            }
        }
        let mut nodes_differ = false;
        for key in undecodable_left_out(&changes.nodes, &cache.nodes.undecodable()) {
            let addresses = cache.nodes.get(key).map(|node| validate::node(&node));
            let name: Arc<str> = key.name.as_str().into();
            if self.world.nodes.get(&name) != addresses.as_ref() {
                nodes_differ = true;
                set(&mut self.world.nodes, name, addresses);
            }
        }
        if nodes_differ {
            touched.extend(self.world.services.keys().cloned());
        }
        touched.retain(|name| self.world.services.contains_key(name) || self.decisions.contains_key(name));
        touched
    }

    fn set_service(&mut self, name: &ServiceName, object: Option<Arc<Service>>) {
        let read = object.as_ref().and_then(|object| validate::service(object));
        let lb = self.world.cluster.name(name);
        if read.is_some() {
            self.owners.insert(lb, name.clone());
        } else {
            self.owners.remove(&lb);
            if self.world.seen.get(&lb) == Some(&Seen::Absent) {
                self.world.seen.remove(&lb);
            }
        }
        set(&mut self.objects, name.clone(), object.filter(|_| read.is_some()));
        set(&mut self.world.services, name.clone(), read);
    }

    fn remove_slice(&mut self, key: &Arc<Key>) -> Option<ServiceName> {
        let owner = self.slice_owners.remove(key)?;
        if let Some(of_owner) = self.world.slices.get_mut(&owner) {
            of_owner.remove(key.name.as_str());
            if of_owner.is_empty() {
                self.world.slices.remove(&owner);
            }
        }
        Some(owner)
    }

    /// Decides anew about Services.
    pub(super) fn decide(&mut self, touched: &BTreeSet<ServiceName>) {
        for name in touched {
            let decision = self.world.services.contains_key(name).then(|| decide(&self.world, name));
            set(&mut self.decisions, name.clone(), decision);
        }
    }

    /// The call that is next about a load balancer. One without a Service is deleted.
    pub(super) fn call(&self, lb: &LbName) -> Option<Call> {
        match self.owners.get(lb) {
            Some(name) => self.decisions.get(name)?.call.clone(),
            None => matches!(self.world.seen.get(lb), Some(Seen::Present(_))).then_some(Call::Delete),
        }
    }

    /// The Service of a load balancer.
    pub(super) fn owner(&self, lb: &LbName) -> Option<&ServiceName> {
        self.owners.get(lb)
    }

    /// Takes up what the gateway said to a call; gives the Service that it is about.
    pub(super) fn learn(&mut self, lb: &LbName, call: &Call, said: Said) -> Option<ServiceName> {
        let seen = &mut self.world.seen;
        match (call, said) {
            (_, Said::LoadBalancer(Seen::Present(mut new))) => {
                if let Some(Seen::Present(known)) = seen.remove(lb)
                    && known.id == new.id
                {
                    new.endpoints = known.endpoints;
                }
                seen.insert(lb.clone(), Seen::Present(new));
            }
            (_, Said::LoadBalancer(said)) => drop(seen.insert(lb.clone(), said)),
            (_, Said::Endpoints(Some(read))) => {
                if let Some(remote) = present(seen, lb) {
                    remote.endpoints = Some(read);
                }
            }
            (Call::PutEndpoints { node, endpoints }, Said::Done) => {
                if let Some(known) = present(seen, lb).and_then(|remote| remote.endpoints.as_mut()) {
                    known.remove(node);
                    if !endpoints.is_empty() {
                        known.insert(*node, endpoints.clone());
                    }
                }
            }
            (Call::Delete, Said::Done) => drop(seen.insert(lb.clone(), Seen::Absent)),
            (_, Said::Done | Said::Endpoints(None)) => drop(seen.remove(lb)),
        }
        self.of(lb)
    }

    /// A call failed: what it may have changed is read again.
    pub(super) fn failed(&mut self, lb: &LbName, call: &Call, error: &GatewayError) -> Option<ServiceName> {
        if error.outcome_unknown() {
            let is_put = matches!(call, Call::PutEndpoints { .. }) && !error.is_not_found();
            match present(&mut self.world.seen, lb) {
                Some(remote) if is_put => remote.endpoints = None,
                _ => drop(self.world.seen.remove(lb)),
            }
        }
        self.of(lb)
    }

    /// Nothing is known of a load balancer any more.
    pub(super) fn forget(&mut self, lb: &LbName) -> Option<ServiceName> {
        self.world.seen.remove(lb);
        self.of(lb)
    }

    /// The Service of a load balancer; what is known of one without a Service that is gone goes.
    fn of(&mut self, lb: &LbName) -> Option<ServiceName> {
        let owner = self.owners.get(lb).cloned();
        if owner.is_none() && self.world.seen.get(lb) == Some(&Seen::Absent) {
            self.world.seen.remove(lb);
        }
        owner
    }

    /// Takes up a list of all load balancers; gives those that have to be looked at: those that are not as they were
    /// last seen, which are read again before anything is believed, and those of this cluster without a Service.
    pub(super) fn listed(&mut self, cache: &Cache, list: Vec<Listed>) -> BTreeSet<LbName> {
        let ours = |listed: Listed| Some((self.world.cluster.listed(&listed.name)?, listed.seen));
        let list: BTreeMap<LbName, Seen> = list.into_iter().filter_map(ours).collect();
        let unread = cache.services.undecodable();
        let unread: BTreeSet<LbName> = unread.iter().map(|bad| self.world.cluster.name(&name_of(&bad.key))).collect();
        let mut touched = BTreeSet::new();
        for lb in self.owners.keys() {
            let Some(Seen::Present(known)) = self.world.seen.get(lb) else { continue };
            if !matches!(list.get(lb), Some(Seen::Present(listed)) if is_same(known, listed)) {
                self.world.seen.remove(lb);
                touched.insert(lb.clone());
            }
        }
        for (lb, seen) in list {
            if !self.owners.contains_key(&lb) && !unread.contains(&lb) && matches!(seen, Seen::Present(_)) {
                self.world.seen.insert(lb.clone(), seen);
                touched.insert(lb);
            }
        }
        touched
    }
}

fn is_same(known: &Remote, listed: &Remote) -> bool {
    let Remote { id, group, address, ports, endpoints: _ } = known;
    (id, group, address, ports) == (&listed.id, &listed.group, &listed.address, &listed.ports)
}

fn present<'a>(seen: &'a mut BTreeMap<LbName, Seen>, lb: &LbName) -> Option<&'a mut Remote> {
    match seen.get_mut(lb) {
        Some(Seen::Present(remote)) => Some(remote),
        Some(Seen::Absent | Seen::Leaving) | None => None,
    }
}

fn undecodable_left_out<'a>(
    keys: &'a BTreeSet<Arc<Key>>,
    undecodable: &[crate::runtime::store::Undecodable],
) -> impl Iterator<Item = &'a Arc<Key>> {
    let bad: BTreeSet<Key> = undecodable.iter().map(|bad| bad.key.clone()).collect();
    keys.iter().filter(move |key| !bad.contains(&***key))
}

fn set<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => drop(map.insert(key, value)),
        None => drop(map.remove(&key)),
    }
}
