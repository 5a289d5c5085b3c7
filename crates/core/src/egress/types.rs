//! What the egress planner reads and writes: validated, ordered, free of Kubernetes types.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

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

/// Everything a decision may use.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct World {
    /// Seeds every draw: a hash of the cluster's identity, so that every replica and every restart draws alike.
    pub seed: u64,
    /// Gateways by name.
    pub gateways: BTreeMap<GatewayName, Gateway>,
    /// Policies by name, those of a gateway that does not exist among them.
    pub policies: BTreeMap<PolicyName, Policy>,
    /// All nodes of the cluster.
    pub nodes: BTreeMap<NodeName, Node>,
    /// Addresses that are held elsewhere or on their way out: never given, but kept by those who have them.
    pub taken: BTreeSet<IpAddr>,
    /// Nodes on which an address cannot live.
    pub excluded_nodes: BTreeMap<IpAddr, BTreeSet<NodeName>>,
    /// Nothing is recycled: an object that cannot be read might be using it.
    pub keep_unused: bool,
}

/// A set of nodes over which a pool of addresses floats.
#[derive(Debug, Clone, PartialEq)]
pub struct Gateway {
    /// Tells this gateway from one that had its name before.
    pub uid: Arc<str>,
    /// The addresses, in pool order.
    pub pool: Pool,
    /// What [`Ask::Default`] gets; the two halves go together.
    pub default: Eip,
    /// Which nodes.
    pub selector: Selector,
    /// How a node is chosen.
    pub mode: NodeMode,
    /// An explicitly asked-for address serves one namespace.
    pub exclusive: bool,
}

/// How a gateway chooses among its eligible nodes. Load is the number of its policies that a node serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeMode {
    /// Least load, then fewest addresses.
    Average,
    /// Highest load, so that few nodes are used.
    FewestNodes,
    /// Fill a node up to this load, then the next; when all are full, any.
    Limit(u16),
}

/// A node, as far as addresses can live on it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Node {
    /// Its labels.
    pub labels: Labels,
    /// Node and tunnel are ready, and it is not being drained.
    pub ready: bool,
    /// How many addresses it can hold; none means any number.
    pub capacity: Option<u32>,
}

/// A wish for a way out.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Tells this policy from one that had its name before.
    pub uid: Arc<str>,
    /// The gateway it names, or that was found for it.
    pub gateway: GatewayName,
    /// When it was created, in seconds: the order in which policies are served.
    pub created: i64,
    /// What it asks for.
    pub request: AddressRequest,
    /// It was refused: it keeps what is recorded for it and gets nothing new.
    pub refused: bool,
}

/// What a policy asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressRequest {
    /// The gateway node's own address.
    NodeAddress,
    /// This address, or this pair.
    Explicit(Eip),
    /// The gateway's default address.
    Default,
    /// Any address of the pool, used or not.
    Random,
    /// The lowest unused address; when all are used, any used one.
    PreferUnallocated,
    /// An address that serves fewer than this many policies, the busiest first.
    Limit(u16),
}

/// An egress address, or a pair of them, one of each family. Without either it stands for none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Eip {
    /// IPv4 half.
    pub v4: Option<Ipv4Addr>,
    /// IPv6 half.
    pub v6: Option<Ipv6Addr>,
}

impl Eip {
    /// Both halves that are there.
    pub fn addresses(self) -> impl Iterator<Item = IpAddr> {
        self.v4.map(IpAddr::V4).into_iter().chain(self.v6.map(IpAddr::V6))
    }

    /// True when no half is there.
    pub fn is_none(self) -> bool {
        self.v4.is_none() && self.v6.is_none()
    }
}

impl FromIterator<IpAddr> for Eip {
    /// The last of each family.
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

/// What is recorded. It claims first, so a restart moves nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ledger {
    /// Every address with a claim of this capability; the halves of a pair agree in all but a crash's wake, and then
    /// the higher epoch counts.
    pub addresses: BTreeMap<IpAddr, AddressRecord>,
    /// What each policy was granted.
    pub bindings: BTreeMap<PolicyName, Binding>,
}

/// A recorded address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressRecord {
    /// Whose pool it came from.
    pub gateway: GatewayName,
    /// The other half.
    pub pair: Option<IpAddr>,
    /// The number that stands for it in marks and frames.
    pub slot: u16,
    /// Where it lives; none while no node is eligible.
    pub node: Option<NodeName>,
    /// Counts its moves; starts at 1.
    pub epoch: u64,
}

/// What a policy was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The address, or none for the node's own.
    pub eip: Eip,
    /// The node that serves it; none while no node is eligible.
    pub node: Option<NodeName>,
    /// The gateway that granted it.
    pub gateway: GatewayName,
}

/// What should be.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Every address in service.
    pub addresses: BTreeMap<IpAddr, PlannedAddress>,
    /// What each policy is granted.
    pub bindings: BTreeMap<PolicyName, Binding>,
    /// Recorded addresses that nobody uses any more.
    pub recycled: BTreeSet<IpAddr>,
    /// Recorded addresses, and policies on a node's own address, that change their node.
    pub moves: Vec<Move>,
    /// What each gateway shows.
    pub views: BTreeMap<GatewayName, GatewayView>,
    /// What cannot be met, and why; by policy.
    pub unmet: BTreeMap<PolicyName, Unmet>,
}

/// An address in service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedAddress {
    /// As it is to be recorded.
    pub record: AddressRecord,
    /// Who takes over if its node is lost, first choice first: at most three.
    pub standby: Vec<NodeName>,
    /// It is no longer in the pool, but in use.
    pub outside_pool: bool,
}

/// Something that changes its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The address; or none, when it is a policy on its node's own address.
    pub eip: Eip,
    /// That policy; none when an address moves with all its policies.
    pub policy: Option<PolicyName>,
    /// The gateway it belongs to.
    pub gateway: GatewayName,
    /// Where it was; none if it had no place.
    pub from: Option<NodeName>,
    /// Where it goes; none if no node is eligible.
    pub to: Option<NodeName>,
    /// Why it could not stay.
    pub cause: MoveCause,
}

/// Why something moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoveCause {
    /// The node is gone.
    NodeDeleted,
    /// The node or its tunnel is not ready, or is being drained.
    NodeNotReady,
    /// The gateway's selector no longer matches the node.
    NotSelected,
    /// The address cannot live on the node.
    NodeExcluded,
    /// It had no place, and there is one now.
    NodeReady,
}

/// What a gateway shows of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GatewayView {
    /// Every node that the selector matches, with what it serves.
    pub nodes: BTreeMap<NodeName, Vec<EipUsers>>,
    /// How many addresses the pool has, by family: IPv4, then IPv6.
    pub total: [u64; 2],
    /// How many of them nobody uses.
    pub free: [u64; 2],
    /// How many policies it serves.
    pub policies: u64,
}

/// An address on a node, or the node's own address, and whom it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EipUsers {
    /// None for the node's own address.
    pub eip: Eip,
    /// In order of name.
    pub policies: Vec<PolicyName>,
}

/// Why a policy does not get all it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unmet {
    /// The gateway does not exist.
    GatewayNotFound,
    /// No node is eligible; what was granted stays granted.
    NoReadyNode,
    /// Every eligible node holds as many addresses as it can.
    NoCapacity,
    /// The pool has no address to give.
    PoolEmpty,
    /// The address asked for is not in the pool.
    OutsidePool(IpAddr),
    /// The two halves asked for are no pair; the pair of the first is the second.
    PairMismatch(IpAddr, Option<IpAddr>),
    /// The address is held elsewhere or still on its way out.
    Taken(IpAddr),
    /// Another namespace has the address for itself.
    NotAllowed(IpAddr),
    /// The policy asks for something else than what it was granted; it keeps that.
    ImmutableField,
    /// Every slot is taken.
    SlotsExhausted,
    /// The policy was refused before planning.
    Refused,
}
