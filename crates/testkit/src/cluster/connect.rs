//! A link between the routers of two clusters.
//!
//! It has no addresses but those that the routers have anyhow, and ends with either of them.

use anyhow::ensure;

use super::{host::Host, plan::NetworkPlan};

/// Joins two routers; each then knows the way to the other's hosts and pods.
pub(super) fn routers(one: (&Host, NetworkPlan), other: (&Host, NetworkPlan)) -> anyhow::Result<()> {
    ensure!(one.1 != other.1, "clusters that are connected need different addresses");
    let (there, process) = (link_to(one.1), other.0.first_process());
    one.0.ip(&[&format!("link add {} type veth peer name {there} netns {process}", link_to(other.1))])?;
    set_up(one, other.1)?;
    set_up(other, one.1)
}

fn set_up((router, own): (&Host, NetworkPlan), other: NetworkPlan) -> anyhow::Result<()> {
    let link = link_to(other);
    let [own4, own6] = own.control_plane();
    let mut lines = vec![
        // Neighbours are asked for by an address of this link.
        format!("address add {own4}/32 dev {link}"),
        format!("address add {own6}/128 dev {link} nodad"),
        format!("link set {link} up"),
    ];
    for ranges in [other.hosts(), other.pods()] {
        let ways = ranges.into_iter().zip(other.control_plane());
        lines.extend(ways.map(|(range, router)| format!("route add {range} via {router} dev {link} onlink")));
    }
    router.ip(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

fn link_to(network: NetworkPlan) -> String {
    format!("cluster-{}", network.index())
}
