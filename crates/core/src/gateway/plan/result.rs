//! What a plan says.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::super::addresses::{Claim, Moment};
use super::super::endpoints::Endpoints;
use super::super::quarantine::Space;
use super::super::reserve::Parent;
use super::super::types::{Endpoint, ObjectName, Tunnel};
use super::super::unit::{Unit, UnitId};
use super::super::verdict::Verdicts;

/// What should be.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// The singleton.
    pub egw: EgwPlan,
    /// Accounts by name.
    pub accounts: BTreeMap<Arc<str>, AccountPlan>,
    /// Namespaces that must be created or deleted.
    pub namespaces: BTreeMap<Arc<str>, NamespaceChange>,
    /// Prefixes by name.
    pub prefixes: BTreeMap<Arc<str>, PrefixPlan>,
    /// Groups.
    pub groups: BTreeMap<ObjectName, GroupPlan>,
    /// Load balancers.
    pub load_balancers: BTreeMap<ObjectName, LoadBalancerPlan>,
    /// Endpoints by the load balancer that they name.
    pub endpoints: BTreeMap<ObjectName, EndpointPlans>,
    /// Claims as they should be; those of the world that are not here are deleted.
    pub claims: BTreeMap<IpAddr, Claim>,
    /// Envoys.
    pub units: BTreeMap<UnitId, Arc<Unit>>,
    /// Numbers in use, for the quarantine.
    pub live: BTreeMap<Space, BTreeSet<u32>>,
    /// When to plan again although nothing changed.
    pub next: Option<Moment>,
}

impl Plan {
    /// What an endpoint of a load balancer should be.
    pub fn endpoint(&self, load_balancer: &ObjectName, name: &str) -> Option<&EndpointPlan> {
        self.endpoints.get(load_balancer)?.get(name)
    }

    pub(super) fn wake_at(&mut self, moment: Option<Moment>) {
        self.next = self.next.into_iter().chain(moment).min();
    }
}

/// The singleton that accounts and tunnels get their numbers from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgwPlan {
    /// Account keys.
    pub accounts: Parent,
    /// Tunnel ids.
    pub tunnels: Parent,
    /// Someone waits for it to be written.
    pub is_urgent: bool,
}

/// A tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountPlan {
    /// Its conditions.
    pub verdicts: Verdicts,
    /// The key that it is to carry.
    pub key: Option<u16>,
    /// What becomes of its finalizer.
    pub finalizer: FinalizerChange,
    /// Where the keys of its load balancers come from.
    pub services: Parent,
    /// Someone waits for its status to be written.
    pub is_urgent: bool,
}

/// What becomes of a finalizer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants say it")]
pub enum FinalizerChange {
    #[default]
    Keep,
    Add,
    Remove,
}

/// What becomes of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants say it")]
pub enum NamespaceChange {
    Create,
    Delete,
}

/// A prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrefixPlan {
    /// Its conditions.
    pub verdicts: Verdicts,
    /// Addresses that can be given.
    pub capacity: u128,
    /// Addresses that load balancers have.
    pub in_use: usize,
    /// Addresses that were released a short time ago.
    pub quarantined: usize,
}

/// A group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupPlan {
    /// Its conditions.
    pub verdicts: Verdicts,
    /// It goes with its account.
    pub is_deleted: bool,
}

/// A load balancer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadBalancerPlan {
    /// Its conditions.
    pub verdicts: Verdicts,
    /// What is to be written into it, together with the finalizer.
    pub completion: Option<Completion>,
    /// Its deletion is complete: the finalizer can go.
    pub is_finished: bool,
    /// It goes with its account.
    pub is_deleted: bool,
    /// Its tunnels, for its status.
    pub tunnels: BTreeMap<IpAddr, Tunnel>,
    /// The Envoy that serves it.
    pub unit: Option<UnitId>,
}

/// What a load balancer is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Its key.
    pub key: u32,
    /// Its address. None if there is none for it.
    pub address: Option<IpAddr>,
}

/// The endpoints that name one load balancer.
#[derive(Debug, Clone)]
pub struct EndpointPlans {
    pub(super) objects: Arc<Endpoints<Endpoint>>,
    /// In the order of the objects.
    pub(super) plans: Vec<EndpointPlan>,
}

impl EndpointPlans {
    /// All of them with their names, in the order of these.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &EndpointPlan)> {
        self.objects.iter().map(|(name, _)| name).zip(&self.plans)
    }

    fn get(&self, name: &str) -> Option<&EndpointPlan> {
        self.plans.get(self.objects.position(name)?)
    }
}

impl PartialEq for EndpointPlans {
    fn eq(&self, other: &Self) -> bool {
        let has_same_names = Arc::ptr_eq(&self.objects, &other.objects)
            || self.objects.iter().map(|(name, _)| name).eq(other.objects.iter().map(|(name, _)| name));
        has_same_names && self.plans == other.plans
    }
}

/// An endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointPlan {
    /// Its conditions.
    pub verdicts: Verdicts,
    /// Key of its load balancer. None if that is gone: then the last value stays.
    pub key: Option<u32>,
    /// Id of the tunnel to its node, likewise.
    pub tunnel: Option<u32>,
    /// It goes with its load balancer.
    pub is_deleted: bool,
    /// It has the finalizer of the original system, which nobody needs.
    pub drops_finalizer: bool,
}
