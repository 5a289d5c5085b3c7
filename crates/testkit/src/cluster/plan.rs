//! Addresses and ranges of a cluster, IPv4 and IPv6, IPv4 first.
//!
//! All of them lie in namespaces of the cluster's own, so any number of clusters can have the same plan. Clusters that are
//! to be connected need different ones.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The ranges of one cluster; equal indexes mean equal ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NetworkPlan {
    index: u8,
}

/// Where a node stands in the network.
#[derive(Debug, Clone)]
pub struct NodePlan {
    /// Its name.
    pub name: String,
    /// Its addresses.
    pub addresses: [IpAddr; 2],
    /// The addresses of its pods.
    pub pod_ranges: [String; 2],
    /// Whether the node hides its pods' addresses from the rest of the network, as many CNI plugins do.
    pub masquerade: bool,
}

impl NetworkPlan {
    /// One of the plans that do not overlap.
    ///
    /// # Panics
    ///
    /// There are 100 of them.
    pub fn new(index: u8) -> Self {
        assert!(index < 100, "there are 100 plans");
        Self { index }
    }

    /// Tells the plan from others.
    pub(super) fn index(self) -> u8 {
        self.index
    }

    /// The network that joins the hosts.
    pub fn hosts(self) -> [String; 2] {
        [format!("172.29.{}.0/24", self.index), format!("fd00:29:{}::/64", self.index)]
    }

    /// The addresses of all pods.
    pub fn pods(self) -> [String; 2] {
        [format!("10.{}.0.0/16", 250 - 2 * self.index), format!("fd00:250:{}::/48", self.index)]
    }

    /// The addresses of Services.
    pub fn services(self) -> [String; 2] {
        [format!("10.{}.0.0/16", 251 - 2 * self.index), format!("fd00:251:{}::/112", self.index)]
    }

    /// The Service `kubernetes`.
    pub(super) fn kubernetes_service(self) -> IpAddr {
        Ipv4Addr::new(10, 251 - 2 * self.index, 0, 1).into()
    }

    /// The addresses of the control plane, which is also the router of the network.
    pub fn control_plane(self) -> [IpAddr; 2] {
        self.host(1)
    }

    /// The addresses of the host that is no node.
    pub fn outside(self) -> [IpAddr; 2] {
        self.host(200)
    }

    /// The nodes: `node-1`, `node-2` and so on.
    pub(super) fn nodes(self, count: u8, masquerade: bool) -> Vec<NodePlan> {
        let node = |number: u8| NodePlan {
            name: format!("node-{number}"),
            addresses: self.host(10 + number),
            pod_ranges: [
                format!("10.{}.{number}.0/24", 250 - 2 * self.index),
                format!("fd00:250:{}:{number}::/64", self.index),
            ],
            masquerade,
        };
        (1..=count).map(node).collect()
    }

    fn host(self, number: u8) -> [IpAddr; 2] {
        let v6 = format!("fd00:29:{}::{number}", self.index);
        [
            Ipv4Addr::new(172, 29, self.index, number).into(),
            v6.parse::<Ipv6Addr>().expect("the text of an address").into(),
        ]
    }
}

impl NodePlan {
    /// The ways to its pods, as lines of `ip`; a node that is started again has the same.
    pub(super) fn routes(&self) -> [String; 2] {
        let [(range4, node4), (range6, node6)] =
            [0, 1].map(|family| (&self.pod_ranges[family], self.addresses[family]));
        [format!("route replace {range4} via {node4}"), format!("route replace {range6} via {node6}")]
    }
}

/// An address of the hosts' network, with its length.
pub(super) fn with_length(address: IpAddr) -> String {
    format!("{address}/{}", if address.is_ipv4() { 24 } else { 64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_with_different_indexes_share_no_range() {
        let ranges = |index| {
            let plan = NetworkPlan::new(index);
            [plan.hosts(), plan.pods(), plan.services()].concat()
        };
        let mut all: Vec<String> = (0..100).flat_map(ranges).collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!((all.len(), count), (600, 600), "equal lengths, so that ranges are equal or apart");
    }
}
