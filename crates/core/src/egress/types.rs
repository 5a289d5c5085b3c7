//! Input and output of the egress planner: validated, ordered, without Kubernetes types.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::AllocationMode;
use crate::net::Pool;
use crate::select::{Labels, Selector};

/// Name of an EgressGateway. Names are shared, as thousands of policies repeat them.
pub type GatewayName = Arc<str>;
/// Name of a node.
pub type NodeName = Arc<str>;

/// Name of a policy; a cluster policy has no namespace. Namespaced policies sort by namespace, then name, after
/// cluster policies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyName {
    /// None for an EgressClusterPolicy.
    pub namespace: Option<Arc<str>>,
    /// Name of the object.
    pub name: Arc<str>,
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Everything the planner may use.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct World {
    /// Seed of all draws: a hash of the cluster's identity, so that every replica and every restart draws the same.
    pub seed: u64,
    /// Gateways by name.
    pub gateways: BTreeMap<GatewayName, Gateway>,
    /// Policies by name, including those whose gateway does not exist.
    pub policies: BTreeMap<PolicyName, Policy>,
    /// All nodes of the cluster.
    pub nodes: BTreeMap<NodeName, Node>,
    /// Addresses that are held elsewhere or being released: never allocated, but kept by policies that have them.
    pub taken: BTreeSet<IpAddr>,
    /// Nodes that cannot hold an address.
    pub excluded_nodes: BTreeMap<IpAddr, BTreeSet<NodeName>>,
    /// Suspends recycling, because an object that cannot be decoded might use an address.
    pub keep_unused: bool,
}

/// A set of nodes over which a pool of addresses floats.
#[derive(Debug, Clone, PartialEq)]
pub struct Gateway {
    /// Distinguishes this gateway from an earlier one of the same name.
    pub uid: Arc<str>,
    /// The addresses, in pool order.
    pub pool: Pool,
    /// What [`AllocationMode::Default`] gets; both addresses belong together.
    pub default: Eip,
    /// Selects its nodes.
    pub selector: Selector,
    /// How a node is chosen.
    pub mode: NodeMode,
    /// An explicitly requested address serves one namespace only.
    pub exclusive: bool,
}

/// How a gateway chooses among its ready nodes. Load is the number of its policies on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeMode {
    /// Least load, then fewest addresses.
    Average,
    /// Highest load, so that few nodes are used.
    FewestNodes,
    /// Fill a node up to this load, then the next one; when all are full, any.
    Limit(u16),
}

/// A node as a holder of addresses.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Node {
    /// Its labels.
    pub labels: Labels,
    /// Node and tunnel are ready, and it is not being drained.
    pub ready: bool,
    /// Maximum number of addresses; none is unlimited.
    pub capacity: Option<u32>,
}

/// A policy that requests an egress address.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Distinguishes this policy from an earlier one of the same name.
    pub uid: Arc<str>,
    /// The gateway it names, or its default gateway.
    pub gateway: GatewayName,
    /// Creation time in seconds: policies are served in this order.
    pub created: i64,
    /// What it requests.
    pub request: AddressRequest,
    /// It was rejected: it keeps what is recorded for it and gets nothing new.
    pub refused: bool,
}

/// The address that a policy requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressRequest {
    /// The gateway node's own address.
    NodeAddress,
    /// This address, or this pair.
    Explicit(Eip),
    /// An address of the pool.
    FromPool(AllocationMode),
}

/// An egress address, or a pair of one IPv4 and one IPv6 address. With neither it means none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Eip {
    /// The IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// The IPv6 address.
    pub v6: Option<Ipv6Addr>,
}

impl Eip {
    /// The addresses that are set.
    pub fn addresses(self) -> impl Iterator<Item = IpAddr> {
        self.v4.map(IpAddr::V4).into_iter().chain(self.v6.map(IpAddr::V6))
    }

    /// True if neither address is set.
    pub fn is_none(self) -> bool {
        self.v4.is_none() && self.v6.is_none()
    }
}

impl FromIterator<IpAddr> for Eip {
    /// Takes the last address of each family.
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addresses: I) -> Self {
        let mut eip = Self::default();
        for address in addresses {
            match address {
                IpAddr::V4(v4) => eip.v4 = Some(v4),
                IpAddr::V6(v6) => eip.v6 = Some(v6),
            }
        }
        eip
    }
}

impl fmt::Display for Eip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.v4, self.v6) {
            (Some(v4), Some(v6)) => write!(f, "{v4} + {v6}"),
            (Some(v4), None) => v4.fmt(f),
            (None, Some(v6)) => v6.fmt(f),
            (None, None) => f.write_str("none"),
        }
    }
}

/// What is recorded. It takes precedence, so that a restart moves nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ledger {
    /// Every address with a claim of this capability. The records of a pair agree except after a crash between two
    /// writes; then the higher epoch counts.
    pub addresses: BTreeMap<IpAddr, AddressRecord>,
    /// What each policy was granted.
    pub bindings: BTreeMap<PolicyName, Binding>,
}

/// A recorded address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressRecord {
    /// The gateway whose pool it came from.
    pub gateway: GatewayName,
    /// The other address of the pair.
    pub pair: Option<IpAddr>,
    /// Its number in packet marks.
    pub slot: u16,
    /// The node that holds it; none while no node is ready.
    pub node: Option<NodeName>,
    /// Number of moves, starting at 1.
    pub epoch: u64,
}

/// What a policy was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The address, or none for the node's own.
    pub eip: Eip,
    /// The node that serves it; none while no node is ready.
    pub node: Option<NodeName>,
    /// The gateway that granted it.
    pub gateway: GatewayName,
}

/// The desired state.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Every address in service.
    pub addresses: BTreeMap<IpAddr, PlannedAddress>,
    /// What each policy is granted.
    pub bindings: BTreeMap<PolicyName, Binding>,
    /// Recorded addresses that no policy uses any more.
    pub recycled: BTreeSet<IpAddr>,
    /// Recorded addresses, and policies that use a node's own address, that change their node.
    pub moves: Vec<Move>,
    /// The view of each gateway.
    pub views: BTreeMap<GatewayName, GatewayView>,
    /// Requests that are not met, and why.
    pub unmet: BTreeMap<PolicyName, Unmet>,
}

/// An address in service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedAddress {
    /// The record to write.
    pub record: AddressRecord,
    /// The nodes that take over if its node is lost, first choice first: at most three.
    pub standby: Vec<NodeName>,
    /// It is in use but no longer in the pool.
    pub outside_pool: bool,
}

/// An address or a policy that changes its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The address; none for a policy that uses its node's own address.
    pub eip: Eip,
    /// That policy; none if an address moves with all its policies.
    pub policy: Option<PolicyName>,
    /// The gateway it belongs to.
    pub gateway: GatewayName,
    /// The old node; none if it had none.
    pub from: Option<NodeName>,
    /// The new node; none if no node is ready.
    pub to: Option<NodeName>,
    /// Why it moves.
    pub cause: MoveCause,
}

/// Why something moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoveCause {
    /// The node was deleted.
    NodeDeleted,
    /// The node or its tunnel is not ready, or is being drained.
    NodeNotReady,
    /// The gateway's selector no longer matches the node.
    NotSelected,
    /// The node cannot hold the address.
    NodeExcluded,
    /// It had no node, and one is ready now.
    NodeReady,
}

/// The status of a gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GatewayView {
    /// Every node that the selector matches, with its addresses.
    pub nodes: BTreeMap<NodeName, Vec<EipUsers>>,
    /// Addresses in the pool: IPv4, then IPv6.
    pub total: [u64; 2],
    /// Addresses in the pool that no policy uses.
    pub free: [u64; 2],
    /// Policies with a grant.
    pub policies: u64,
}

/// An address on a node, or the node's own address, and the policies that use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EipUsers {
    /// None for the node's own address.
    pub eip: Eip,
    /// Sorted by name.
    pub policies: Vec<PolicyName>,
}

/// Why a policy does not get everything it requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unmet {
    /// The gateway does not exist.
    GatewayNotFound,
    /// No node is ready; what was granted stays granted.
    NoReadyNode,
    /// Every ready node has reached its capacity.
    NoCapacity,
    /// The pool has no free address.
    PoolEmpty,
    /// The requested address is not in the pool.
    OutsidePool(IpAddr),
    /// The two requested addresses are not a pair: the first address, and what it is paired with.
    PairMismatch(IpAddr, Option<IpAddr>),
    /// The address is held elsewhere or still being released.
    Taken(IpAddr),
    /// The address is reserved for another namespace.
    NotAllowed(IpAddr),
    /// The policy requests something else than it was granted; it keeps that.
    ImmutableField,
    /// Every slot is taken.
    SlotsExhausted,
    /// The policy was rejected before planning.
    Refused,
}
