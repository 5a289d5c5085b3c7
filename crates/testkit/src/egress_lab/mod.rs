//! A cluster's network in namespaces, to send packets through gateways in.
//!
//! ```text
//! outside --- switch (a bridge) --- a, b, c, d: nodes, each with routes to the others' pods
//!                                   pods on a, b and d, each with addresses of several pods
//! ```
//! Nodes are as a CNI plugin leaves them: pods' packets to the outside are masqueraded, and bits of marks are cleared on
//! the way. What makes a node a source or a gateway is up to the test. [`Outside`] answers with the address that it saw;
//! a [`Sniffer`] there counts every packet from a source that is not expected.

mod malformed;
mod outside;
mod sniffer;
mod traffic;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use malformed::Malformed;
pub use outside::Outside;
pub use sniffer::{Packet, Seen, Sniffer};
pub use traffic::{TcpFlow, Transport, UdpFlow, ask};

use crate::NetworkNamespace;

/// The nodes' names; their numbers start at 1.
pub const NODES: [&str; 4] = ["a", "b", "c", "d"];
/// The link of every node to the others and to the outside.
pub const UPLINK: &str = "eth0";
/// Pods of a node have addresses that end in these numbers.
pub const PODS: std::ops::Range<u8> = 2..10;
/// The nodes that have pods.
const WITH_PODS: [&str; 3] = ["a", "b", "d"];

/// The namespaces; they end when dropped.
pub struct EgressLab {
    pub outside: Outside,
    pub nodes: Vec<LabNode>,
    _switch: NetworkNamespace,
}

/// A node and its pods.
pub struct LabNode {
    /// From 1 on, as in its addresses.
    pub number: u8,
    pub network: NetworkNamespace,
    /// One namespace for all pods of the node.
    pub pods: Option<NetworkNamespace>,
}

impl EgressLab {
    /// Builds it.
    pub fn new() -> anyhow::Result<Self> {
        let switch = NetworkNamespace::new("switch")?;
        switch.ip(&["link add name hub type bridge mcast_snooping 0", "link set hub up"])?;
        let outside = NetworkNamespace::new("outside")?;
        join(&switch, &outside, outside_addresses())?;
        let nodes = NODES.iter().zip(1..).map(|(name, number)| LabNode::new(&switch, name, number));
        let [elsewhere4, elsewhere6] = elsewhere_addresses();
        outside.ip(&[
            &format!("address add {elsewhere4}/24 dev {UPLINK}"),
            &format!("address add {elsewhere6}/64 dev {UPLINK} nodad"),
        ])?;
        Ok(Self { outside: Outside::start(outside)?, nodes: nodes.collect::<anyhow::Result<_>>()?, _switch: switch })
    }

    /// The node of a name.
    ///
    /// # Panics
    ///
    /// There are [`NODES`].
    pub fn node(&self, name: &str) -> &LabNode {
        self.nodes.iter().find(|node| node.network.name() == name).expect("the lab's nodes have fixed names")
    }
}

impl LabNode {
    fn new(switch: &NetworkNamespace, name: &str, number: u8) -> anyhow::Result<Self> {
        let network = NetworkNamespace::new(name)?;
        let node = Self { number, network, pods: None };
        join(switch, &node.network, node.addresses())?;
        node.network.set(&[
            ("ipv4/ip_forward", "1"),
            ("ipv6/conf/all/forwarding", "1"),
            ("ipv4/conf/all/rp_filter", "0"),
        ])?;
        let [outside4, outside6] = outside_addresses();
        let mut routes = vec![format!("route add default via {outside4}"), format!("route add default via {outside6}")];
        for other in (1..=4).filter(|other| *other != number) {
            let ([range4, range6], [node4, node6]) = (pod_ranges(other), node_addresses(other));
            routes.extend([format!("route add {range4} via {node4}"), format!("route add {range6} via {node6}")]);
        }
        node.network.ip(&routes.iter().map(String::as_str).collect::<Vec<_>>())?;
        let pods = WITH_PODS.contains(&name).then(|| node.make_pods()).transpose()?;
        Ok(Self { pods, ..node })
    }

    /// Its addresses, IPv4 and IPv6.
    pub fn addresses(&self) -> [IpAddr; 2] {
        node_addresses(self.number)
    }

    /// The ranges of its pods.
    pub fn pod_ranges(&self) -> [String; 2] {
        pod_ranges(self.number)
    }

    /// The addresses of one of its pods.
    pub fn pod(&self, last: u8) -> [IpAddr; 2] {
        [
            Ipv4Addr::new(10, 244, self.number, last).into(),
            Ipv6Addr::new(0xfd44, self.number.into(), 0, 0, 0, 0, 0, last.into()).into(),
        ]
    }

    /// The namespace of its pods.
    ///
    /// # Panics
    ///
    /// Node `c` has none.
    pub fn pods(&self) -> &NetworkNamespace {
        self.pods.as_ref().expect("only some nodes have pods")
    }

    fn make_pods(&self) -> anyhow::Result<NetworkNamespace> {
        let pods = NetworkNamespace::new(&format!("pods of {}", self.network.name()))?;
        self.network.ip(&[&format!("link add pods type veth peer name eth0 netns {}", pods.path())])?;
        let [router4, router6] = self.pod(1);
        self.network.ip(&[
            &format!("address add {router4}/24 dev pods"),
            &format!("address add {router6}/64 dev pods nodad"),
            "link set pods up",
        ])?;
        let mut lines = vec!["link set eth0 up".to_owned()];
        for [pod4, pod6] in PODS.map(|last| self.pod(last)) {
            lines.extend([format!("address add {pod4}/24 dev eth0"), format!("address add {pod6}/64 dev eth0 nodad")]);
        }
        lines.extend([format!("route add default via {router4}"), format!("route add default via {router6}")]);
        pods.ip(&lines.iter().map(String::as_str).collect::<Vec<_>>())?;
        self.network.nft(CNI)?;
        Ok(pods)
    }
}

/// The addresses of the outside, IPv4 and IPv6.
pub fn outside_addresses() -> [IpAddr; 2] {
    host(1)
}

/// Other addresses of the outside.
pub(crate) fn elsewhere_addresses() -> [IpAddr; 2] {
    host(2)
}

/// An address that no host has, on the network of all hosts: for egress.
pub fn egress_addresses(last: u8) -> (Ipv4Addr, Ipv6Addr) {
    (Ipv4Addr::new(10, 99, 0, last), Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, last.into()))
}

/// The ranges of all pods.
pub const ALL_PODS: [&str; 2] = ["10.244.0.0/16", "fd44::/16"];

/// What a CNI plugin does to packets of pods.
const CNI: &str = "
table inet cni {
    chain post {
        type nat hook postrouting priority 100;
        ip saddr 10.244.0.0/16 ip daddr != 10.244.0.0/16 masquerade
        ip6 saddr fd44::/16 ip6 daddr != fd44::/16 masquerade
    }
    chain marks {
        type filter hook forward priority 0;
        meta mark set meta mark & 0xfff0ffff
    }
}";

fn node_addresses(number: u8) -> [IpAddr; 2] {
    host(10 + number)
}

fn pod_ranges(number: u8) -> [String; 2] {
    [format!("10.244.{number}.0/24"), format!("fd44:{number}::/64")]
}

fn host(last: u8) -> [IpAddr; 2] {
    let (v4, v6) = egress_addresses(last);
    [v4.into(), v6.into()]
}

/// Gives a host a link to the switch.
fn join(switch: &NetworkNamespace, host: &NetworkNamespace, [v4, v6]: [IpAddr; 2]) -> anyhow::Result<()> {
    let (port, path) = (format!("to-{}", host.name()), host.path());
    switch.ip(&[
        &format!("link add {port} type veth peer name {UPLINK} netns {path}"),
        &format!("link set {port} master hub up"),
    ])?;
    host.ip(&[
        &format!("address add {v4}/24 dev {UPLINK}"),
        &format!("address add {v6}/64 dev {UPLINK} nodad"),
        &format!("link set {UPLINK} up"),
    ])
}
