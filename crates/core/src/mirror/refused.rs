//! Which addresses of a remote are refused as endpoints of a Service.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::addresses::{AddressRefused, check};
use super::planner::Planner;
use super::rules::TargetMode;
use super::types::{RemoteName, Role, ServiceName, SourceSlices};

impl Planner {
    /// Addresses of a remote that would be endpoints of this local name if they were allowed.
    pub fn refused_addresses(&self, name: &ServiceName, remote: &RemoteName) -> BTreeMap<IpAddr, AddressRefused> {
        let local = &self.world().local;
        let Some(of) = self.world().remotes.get(remote) else { return BTreeMap::new() };
        let is_hand_labelled = local.services.get(name).is_some_and(|service| service.role == Role::HandLabelled);
        if is_hand_labelled || of.rules.target == TargetMode::NodePort {
            return self.refused_nodes(remote).clone();
        }
        let Some(source) = of.rules.source_name(name) else { return BTreeMap::new() };
        let addresses: Vec<IpAddr> = match (of.rules.target, &of.slices) {
            (TargetMode::LoadBalancer, _) => {
                of.services.get(&source).map(|source| source.ingress.clone()).unwrap_or_default()
            }
            (_, SourceSlices::Read(slices)) => {
                let slices = slices.get(&source).into_iter().flat_map(BTreeMap::values);
                slices.flat_map(|slice| &slice.endpoints).map(|source| source.endpoint.address).collect()
            }
            (_, SourceSlices::Unread | SourceSlices::Forbidden) => Vec::new(),
        };
        let refused = |address: IpAddr| Some((address, check(local, &of.rules, address).err()?));
        addresses.into_iter().filter_map(refused).collect()
    }
}
