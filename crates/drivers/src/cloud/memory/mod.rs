//! A cloud in memory: EC2's rules without its delays.

mod world;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use ipnet::Ipv4Net;
use parking_lot::Mutex;
use portolan_core::ipam::{CloudError, CloudNode, CloudSubnet, InstanceId, InstanceState, InterfaceId, SubnetId};

use super::{Cloud, NodeReport, Outcomes};
use world::World;

/// A cloud in memory. Instances and subnets come and go by its methods.
#[derive(Debug, Default)]
pub struct MemoryCloud {
    world: Mutex<World>,
}

impl MemoryCloud {
    /// An empty cloud.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a subnet.
    pub fn add_subnet(&self, id: &str, zone: &str, cidr: Ipv4Net) {
        self.world.lock().add_subnet(id, zone, cidr);
    }

    /// Removes a subnet that has no interfaces; false if it has some.
    pub fn remove_subnet(&self, id: &str) -> bool {
        self.world.lock().remove_subnet(id)
    }

    /// Starts an instance with the first free address of a subnet as its primary one.
    pub fn run_instance(&self, id: &str, instance_type: &str, subnet: &str) -> Result<CloudNode, CloudError> {
        self.world.lock().run(id, instance_type, subnet)
    }

    /// Sets the state of an instance. A terminated one loses its interface, and the addresses are free.
    pub fn set_state(&self, id: &str, state: InstanceState) -> Result<(), CloudError> {
        self.world.lock().set_state(id, state)
    }

    /// Forgets an instance, as EC2 does an hour after its end.
    pub fn remove_instance(&self, id: &str) {
        self.world.lock().remove_instance(id);
    }

    /// Puts an address on an interface of somebody else, such as a load balancer.
    pub fn occupy(&self, subnet: &str, address: Ipv4Addr) -> Result<InterfaceId, CloudError> {
        self.world.lock().occupy(subnet, address)
    }

    /// Removes an interface that [`occupy`](Self::occupy) made.
    pub fn vacate(&self, interface: &InterfaceId) {
        self.world.lock().vacate(interface);
    }
}

impl Cloud for MemoryCloud {
    fn nodes<'a>(&'a self, instances: &'a [InstanceId]) -> BoxFuture<'a, Result<NodeReport, CloudError>> {
        let world = self.world.lock();
        let nodes = instances.iter().filter_map(|id| world.node(id)).collect();
        ready(Ok(NodeReport { nodes, ..NodeReport::default() })).boxed()
    }

    fn subnets<'a>(&'a self, subnets: &'a [SubnetId]) -> BoxFuture<'a, Result<Vec<CloudSubnet>, CloudError>> {
        let world = self.world.lock();
        ready(Ok(subnets.iter().filter_map(|id| world.subnet(id)).collect())).boxed()
    }

    fn locate<'a>(
        &'a self,
        address: Ipv4Addr,
        subnet: &'a SubnetId,
    ) -> BoxFuture<'a, Result<Option<InterfaceId>, CloudError>> {
        ready(Ok(self.world.lock().locate(address, subnet))).boxed()
    }

    fn assign<'a>(&'a self, interface: &'a InterfaceId, addresses: &'a [Ipv4Addr]) -> BoxFuture<'a, Outcomes> {
        ready(self.each(addresses, |world, address| world.add(interface, address, false))).boxed()
    }

    fn take<'a>(&'a self, interface: &'a InterfaceId, addresses: &'a [Ipv4Addr]) -> BoxFuture<'a, Outcomes> {
        ready(self.each(addresses, |world, address| world.add(interface, address, true))).boxed()
    }

    fn release<'a>(&'a self, interface: &'a InterfaceId, addresses: &'a [Ipv4Addr]) -> BoxFuture<'a, Outcomes> {
        ready(self.each(addresses, |world, address| world.remove(interface, address))).boxed()
    }
}

impl MemoryCloud {
    fn each(
        &self,
        addresses: &[Ipv4Addr],
        mut call: impl FnMut(&mut World, Ipv4Addr) -> Result<(), CloudError>,
    ) -> Outcomes {
        let mut world = self.world.lock();
        let addresses: BTreeSet<Ipv4Addr> = addresses.iter().copied().collect();
        addresses.into_iter().map(|address| (address, call(&mut world, address))).collect()
    }
}
