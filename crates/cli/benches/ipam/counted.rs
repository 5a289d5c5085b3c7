//! A cloud that counts what is asked of it.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::BoxFuture;
use portolan_core::ipam::{CloudError, CloudSubnet, InstanceId, InterfaceId, SubnetId};
use portolan_drivers::cloud::{Cloud, MemoryCloud, NodeReport, Outcomes};

/// Calls so far.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) cloud: MemoryCloud,
    /// Calls that change something.
    pub(crate) writes: AtomicU64,
    /// Descriptions of instances or subnets.
    pub(crate) reads: AtomicU64,
}

impl Cloud for Counted {
    fn nodes<'a>(&'a self, instances: &'a [InstanceId]) -> BoxFuture<'a, Result<NodeReport, CloudError>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.cloud.nodes(instances)
    }

    fn subnets<'a>(&'a self, subnets: &'a [SubnetId]) -> BoxFuture<'a, Result<Vec<CloudSubnet>, CloudError>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.cloud.subnets(subnets)
    }

    fn locate<'a>(
        &'a self,
        address: Ipv4Addr,
        subnet: &'a SubnetId,
    ) -> BoxFuture<'a, Result<Option<InterfaceId>, CloudError>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.cloud.locate(address, subnet)
    }

    fn assign<'a>(&'a self, interface: &'a InterfaceId, addresses: &'a [Ipv4Addr]) -> BoxFuture<'a, Outcomes> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.cloud.assign(interface, addresses)
    }

    fn take<'a>(&'a self, interface: &'a InterfaceId, addresses: &'a [Ipv4Addr]) -> BoxFuture<'a, Outcomes> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.cloud.take(interface, addresses)
    }

    fn release<'a>(&'a self, interface: &'a InterfaceId, addresses: &'a [Ipv4Addr]) -> BoxFuture<'a, Outcomes> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.cloud.release(interface, addresses)
    }
}
