//! Clouds: which instances and subnets there are, and which secondary addresses the interfaces have.
//!
//! [`Cloud`] has two back ends. [`AwsCloud`] speaks EC2's Query API; [`MemoryCloud`] enforces the same rules in this
//! process, for `portolan up` and for tests. Both pass the same contract tests.

pub mod aws;
#[cfg(test)]
mod contract;
mod limits;
mod memory;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use futures::future::BoxFuture;
use ipnet::Ipv4Net;
use portolan_core::ipam::{CloudError, CloudNode, CloudSubnet, InstanceId, InterfaceId, SubnetId};

pub use aws::AwsCloud;
pub use memory::MemoryCloud;

/// A cloud on whose interfaces addresses are attached.
///
/// Tests put faults between a controller and its cloud, so this is a trait, and not an enum of the two back ends.
pub trait Cloud: Send + Sync {
    /// Describes instances.
    fn nodes<'a>(&'a self, instances: &'a [InstanceId]) -> BoxFuture<'a, Result<NodeReport, CloudError>>;

    /// Describes subnets, with all addresses in use there. Unknown ones are left out.
    fn subnets<'a>(&'a self, subnets: &'a [SubnetId]) -> BoxFuture<'a, Result<Vec<CloudSubnet>, CloudError>>;

    /// Finds the interface that has an address, whoever it belongs to.
    fn locate<'a>(
        &'a self,
        address: Ipv4Addr,
        subnet: &'a SubnetId,
    ) -> BoxFuture<'a, Result<Option<InterfaceId>, CloudError>>;

    /// Adds addresses that no other interface has. Those already there stay, which is a success.
    fn assign<'a>(&'a self, interface: &'a InterfaceId, addresses: &'a [Ipv4Addr]) -> BoxFuture<'a, Outcomes>;

    /// Adds addresses even if other interfaces have them: those lose them in the same call.
    fn take<'a>(&'a self, interface: &'a InterfaceId, addresses: &'a [Ipv4Addr]) -> BoxFuture<'a, Outcomes>;

    /// Removes addresses. Those already gone are a success.
    fn release<'a>(&'a self, interface: &'a InterfaceId, addresses: &'a [Ipv4Addr]) -> BoxFuture<'a, Outcomes>;
}

/// What became of each address of a call: one that fails does not stop the others.
pub type Outcomes = BTreeMap<Ipv4Addr, Result<(), CloudError>>;

/// What a cloud says of instances. Those asked for and in neither part do not exist any more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeReport {
    /// The instances.
    pub nodes: Vec<CloudNode>,
    /// Instances that the cloud did not answer for, such as those of a disrupted zone: what was known of them holds.
    pub unanswered: BTreeSet<InstanceId>,
}

/// True if the cloud keeps the address of a subnet for itself: the first four and the last.
pub fn is_reserved(subnet: Ipv4Net, address: Ipv4Addr) -> bool {
    let offset = u32::from(address).wrapping_sub(u32::from(subnet.network()));
    offset < 4 || address == subnet.broadcast()
}

/// The same outcome for each address.
fn each(addresses: &[Ipv4Addr], outcome: &Result<(), CloudError>) -> Outcomes {
    addresses.iter().map(|address| (*address, outcome.clone())).collect()
}
