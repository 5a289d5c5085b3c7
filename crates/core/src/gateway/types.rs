//! What the planner is given.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::addresses::{Claim, Moment};
use super::endpoints::Endpoints;
use super::ports::{EndpointPort, PublicPort};
use super::prefix::{Fence, Prefix, PrefixError};
use super::problem::Problem;
use super::quarantine::Quarantine;
use super::reserve::{Holder, Parent};
use super::unit::{Report, UnitId};
use crate::net::{AddressSet, claim_name};

/// Namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl ObjectName {
    /// From its parts.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The namespace of the objects of the provider.
pub const PROVIDER_NAMESPACE: &str = "egw";

/// The namespace of an account.
pub fn namespace_of(account: &str) -> String {
    format!("egw-{account}")
}

/// The account whose namespace this is. None if it is no account's.
pub fn account_of(namespace: &str) -> Option<&str> {
    namespace.strip_prefix("egw-").filter(|account| !account.is_empty())
}

/// Everything that is known.
#[derive(Debug, Clone, Default)]
pub struct World {
    /// When this was observed.
    pub now: Moment,
    /// What the operator's flags say.
    pub settings: Settings,
    /// The singleton. None if it does not exist.
    pub egw: Option<Egw>,
    /// Accounts by name.
    pub accounts: BTreeMap<Arc<str>, Account>,
    /// The namespaces `egw` and `egw-...`, by name.
    pub namespaces: BTreeMap<Arc<str>, Namespace>,
    /// The singleton. None if it does not exist.
    pub node_config: Option<NodeConfig>,
    /// Prefixes of the provider, by name.
    pub prefixes: BTreeMap<Arc<str>, ServicePrefix>,
    /// Groups in all namespaces.
    pub groups: BTreeMap<ObjectName, ServiceGroup>,
    /// Load balancers in all namespaces.
    pub load_balancers: BTreeMap<ObjectName, LoadBalancer>,
    /// Endpoints by the load balancer that they name.
    pub endpoints: BTreeMap<ObjectName, Arc<Endpoints<Endpoint>>>,
    /// Claims of this capability.
    pub claims: BTreeMap<IpAddr, Claim>,
    /// Addresses that are claimed for another use.
    pub other_use: BTreeSet<IpAddr>,
    /// Numbers that were released a short time ago.
    pub quarantine: Quarantine,
    /// What became of the Envoys. None until that is known.
    pub reports: Option<BTreeMap<UnitId, Report>>,
}

/// What the operator's flags say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Limits of accounts that have none of their own.
    pub limits: Limits,
    /// A released address is given again after this many milliseconds.
    pub address_quarantine: u64,
    /// A released number is given again after this many milliseconds.
    pub key_quarantine: u64,
    /// A load balancer that is deleted waits for its Envoy at most this many milliseconds.
    pub drain_limit: u64,
    /// Endpoints must not be here.
    pub deny: AddressSet,
    /// Endpoints may be here although it is denied.
    pub allow: AddressSet,
    /// Namespace of the operator: no account's namespace may be it.
    pub own_namespace: Arc<str>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            address_quarantine: 60_000,
            key_quarantine: 3_600_000,
            drain_limit: 70_000,
            deny: AddressSet::default(),
            allow: AddressSet::default(),
            own_namespace: "".into(),
        }
    }
}

/// How much an account may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// LoadBalancers.
    pub load_balancers: u32,
    /// Distinct public addresses.
    pub addresses: u32,
    /// Endpoints of one LoadBalancer.
    pub endpoints_per_load_balancer: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { load_balancers: 256, addresses: 256, endpoints_per_load_balancer: 1000 }
    }
}

/// Which object it is, and since when.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// Its uid.
    pub uid: Arc<str>,
    /// When it was created, in seconds since the Unix epoch.
    pub created: i64,
    /// When it was deleted. None while it is not.
    pub deleted: Option<Moment>,
    /// It has our finalizer.
    pub has_finalizer: bool,
}

impl Identity {
    /// The older of two objects has what both want; of two that were made in the same second, the one that was served.
    pub fn age(&self) -> (i64, bool, &str) {
        (self.created, !self.has_finalizer, &self.uid)
    }

    /// True if it is being deleted.
    pub fn is_terminating(&self) -> bool {
        self.deleted.is_some()
    }
}

/// The object that account keys and tunnel ids come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Egw {
    /// Account keys.
    pub accounts: Parent,
    /// Tunnel ids.
    pub tunnels: Parent,
}

/// A tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// Which object it is.
    pub identity: Identity,
    /// Its key. None until it has one.
    pub key: Option<u16>,
    /// Its own limits where it has some, else those of the settings.
    pub limits: Limits,
    /// Where the keys of its load balancers come from.
    pub services: Parent,
    /// It may be deleted with everything in it.
    pub is_deleted_with_contents: bool,
    /// What must be edited.
    pub problem: Option<Problem>,
}

/// A namespace of the provider or of an account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Namespace {
    /// It was created for the account.
    pub is_ours: bool,
    /// It is being deleted.
    pub is_terminating: bool,
}

/// Where clients' nodes send their tunnels to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfig {
    /// None if there is no address, so that no tunnel can be offered.
    pub endpoint: Option<Arc<TunnelEndpoint>>,
    /// What must be edited.
    pub problem: Option<Problem>,
}

/// Where a tunnel ends on the gateway's side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelEndpoint {
    /// Address.
    pub address: IpAddr,
    /// Port.
    pub port: u16,
    /// Name of the port, as written; empty if it has none.
    pub name: Arc<str>,
    /// Protocol, as written.
    pub protocol: Arc<str>,
    /// Application protocol, as written; empty if it has none.
    pub app_protocol: Arc<str>,
}

/// A tunnel of a load balancer to a client's node, as its status has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnel {
    /// Where it ends on the gateway's side.
    pub endpoint: Arc<TunnelEndpoint>,
    /// Its id; 0 if it has none.
    pub id: u32,
}

/// Public addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePrefix {
    /// Which object it is.
    pub identity: Identity,
    /// Its addresses.
    pub prefix: Result<Prefix, PrefixError>,
    /// Accounts that may use it.
    pub fence: Fence,
    /// What else must be edited.
    pub problem: Option<Problem>,
}

/// Load balancers of a kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceGroup {
    /// Which object it is.
    pub identity: Identity,
    /// Name of its prefix.
    pub prefix: Arc<str>,
    /// Image of Envoy; empty is the operator's.
    pub image: Arc<str>,
    /// What must be edited.
    pub problem: Option<Problem>,
}

/// A load balancer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadBalancer {
    /// Which object it is.
    pub identity: Identity,
    /// Its group.
    pub group: Arc<str>,
    /// The address that it carries or asks for.
    pub address: Option<IpAddr>,
    /// Its ports.
    pub ports: Vec<PublicPort>,
    /// Its key, with that of the account. None until it has one.
    pub key: Option<u32>,
    /// Load balancers of an account with the same key may share an address.
    pub sharing_key: Option<Arc<str>>,
    /// Tunnels by client's node, as its status has them.
    pub tunnels: BTreeMap<IpAddr, Tunnel>,
    /// What must be edited.
    pub problem: Option<Problem>,
}

impl LoadBalancer {
    /// The unit that would serve it, if it carries an address.
    pub fn unit(&self, name: &ObjectName) -> Option<UnitId> {
        let address = self.address?;
        let unit = match self.sharing_key {
            None => Arc::clone(&name.name),
            Some(_) => format!("share.{}", claim_name(address)).into(),
        };
        Some(UnitId { namespace: Arc::clone(&name.namespace), name: unit })
    }

    /// For whom a number is.
    pub fn holder(&self, name: &ObjectName, node: Option<IpAddr>) -> Holder {
        Holder { uid: Arc::clone(&self.identity.uid), object: name.to_string().into(), node }
    }
}

/// A pod behind a load balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Which object it is. The finalizer is the one of the original system.
    pub identity: Identity,
    /// What it says of itself, or what must be edited.
    pub spec: Result<EndpointSpec, Problem>,
}

/// Where a pod is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointSpec {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: EndpointPort,
    /// Its node.
    pub node: IpAddr,
}
