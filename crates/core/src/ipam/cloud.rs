//! What a cloud reports: instances with their primary interface, and subnets.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::Ipv4Net;

/// Id of an instance, such as `i-0123456789abcdef0`.
pub type InstanceId = Arc<str>;
/// Id of a network interface, such as `eni-0123456789abcdef0`.
pub type InterfaceId = Arc<str>;
/// Id of a subnet, such as `subnet-0123456789abcdef0`.
pub type SubnetId = Arc<str>;
/// Name of an availability zone.
pub type Zone = Arc<str>;

/// An instance that may be a node, as the cloud describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudNode {
    /// Its id.
    pub instance: InstanceId,
    /// Whether it runs.
    pub state: InstanceState,
    /// Its type, such as `m5.large`.
    pub instance_type: Arc<str>,
    /// The zone that it is in.
    pub zone: Zone,
    /// The subnet of its primary interface.
    pub subnet: SubnetId,
    /// The interface with device index 0. None once the instance is terminated.
    pub interface: Option<CloudInterface>,
    /// How many IPv4 addresses the interface can have, the primary one included.
    pub address_limit: u16,
}

/// State of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "EC2's own words")]
pub enum InstanceState {
    Pending,
    Running,
    ShuttingDown,
    Terminated,
    Stopping,
    Stopped,
}

/// The primary interface of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudInterface {
    /// Its id.
    pub id: InterfaceId,
    /// The address that the instance itself has; never moved.
    pub primary: Ipv4Addr,
    /// All other addresses.
    pub secondary: BTreeSet<Ipv4Addr>,
    /// Prefixes delegated to it; each takes the place of one address.
    pub prefixes: u16,
}

/// A subnet, and the addresses in it that any interface has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudSubnet {
    /// Its id.
    pub id: SubnetId,
    /// The zone that it is in.
    pub zone: Zone,
    /// Its range.
    pub cidr: Ipv4Net,
    /// Addresses on interfaces, whoever they belong to.
    pub used: BTreeSet<Ipv4Addr>,
}
