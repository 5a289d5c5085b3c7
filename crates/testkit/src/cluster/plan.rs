//! Addresses and ranges of a cluster. All of them lie in namespaces of its own, so any number of clusters can use them.

use std::net::Ipv4Addr;

/// The network that joins the hosts.
pub(super) const NETWORK_LENGTH: u8 = 24;
/// The address of the control plane in it.
pub(super) const CONTROL_PLANE: Ipv4Addr = Ipv4Addr::new(172, 29, 0, 1);
/// The address of the host that is no node.
pub(super) const OUTSIDE: Ipv4Addr = Ipv4Addr::new(172, 29, 0, 200);
/// The ranges of all pods.
pub(super) const POD_RANGE: &str = "10.250.0.0/16";
/// Addresses of Services.
pub(super) const SERVICE_RANGE: &str = "10.251.0.0/16";
/// The Service `kubernetes`.
pub(super) const KUBERNETES_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 251, 0, 1);

/// Where a node stands in the network.
#[derive(Debug, Clone)]
pub struct NodePlan {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// The addresses of its pods.
    pub pod_range: String,
    /// Whether the node hides its pods' addresses from the rest of the network, as many CNI plugins do.
    pub masquerade: bool,
}

/// The nodes of a cluster: `node-1`, `node-2` and so on.
pub(super) fn nodes(count: u8, masquerade: bool) -> Vec<NodePlan> {
    let node = |number: u8| NodePlan {
        name: format!("node-{number}"),
        address: Ipv4Addr::new(172, 29, 0, 10 + number),
        pod_range: format!("10.250.{number}.0/24"),
        masquerade,
    };
    (1..=count).map(node).collect()
}
