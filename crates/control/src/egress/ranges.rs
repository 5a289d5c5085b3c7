//! Which addresses are inside the cluster: those of nodes, pods and services, for EgressClusterInfo. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use portolan_api::egress::{AutoDetect, EgressClusterInfoSpec, EgressClusterInfoStatus, IpLists};

use super::observe::Cache;
use super::slim::Node;
use crate::runtime::store::Key;

/// The name of the one EgressClusterInfo.
pub(super) const NAME: &str = "default";

/// The desired status of EgressClusterInfo.
pub(super) fn detect(cache: &Cache) -> EgressClusterInfoStatus {
    let key = Key::of_cluster(NAME);
    let spec = cache.infos.get(&key).map(|info| info.spec.clone()).unwrap_or_default();
    let EgressClusterInfoSpec { auto_detect, extra_cidr } = spec;
    let AutoDetect { pod_cidr_mode, cluster_ip, node_ip } = auto_detect.unwrap_or_default();
    let calico = calico_ranges(cache);
    let mode = match pod_cidr_mode.as_deref() {
        Some("k8s") => "k8s",
        Some("calico") => "calico",
        _ if calico.is_empty() => "k8s",
        _ => "calico",
    };
    let mut nodes = BTreeMap::new();
    let mut pods = if mode == "calico" { calico } else { BTreeMap::new() };
    cache.nodes.for_each(|key, node| {
        nodes.insert(key.name.clone(), by_family(addresses(node).iter().map(ToString::to_string)));
        if mode == "k8s" && !node.spec.pod_cidrs.is_empty() {
            pods.insert(key.name.clone(), by_family(node.spec.pod_cidrs.clone()));
        }
    });
    EgressClusterInfoStatus {
        pod_cidr_mode: Some(mode.to_owned()),
        node_ip: if node_ip.unwrap_or(true) { nodes } else { BTreeMap::new() },
        cluster_ip: cluster_ip.unwrap_or(true).then(|| service_ranges(cache)),
        pod_cidr: pods,
        extra_cidr,
    }
}

/// All ranges of the status, as CIDRs or single addresses.
pub(super) fn all(status: &EgressClusterInfoStatus) -> impl Iterator<Item = &str> {
    let lists = status.node_ip.values().chain(status.pod_cidr.values()).chain(&status.cluster_ip);
    lists.flat_map(|lists| lists.ipv4.iter().chain(&lists.ipv6)).chain(&status.extra_cidr).map(String::as_str)
}

/// A node's own addresses.
pub(super) fn addresses(node: &Node) -> BTreeSet<IpAddr> {
    let addresses = node.status.addresses.iter().filter(|address| address.type_.ends_with("IP"));
    addresses.filter_map(|address| address.address.parse().ok()).collect()
}

fn calico_ranges(cache: &Cache) -> BTreeMap<String, IpLists> {
    let mut ranges = BTreeMap::new();
    cache.calico_pools.for_each(|key, pool| {
        if !pool.spec.disabled {
            ranges.insert(key.name.clone(), by_family([pool.spec.cidr.clone()]));
        }
    });
    ranges
}

/// From ServiceCIDR objects where the cluster has them, else from the flags of its control plane's pods.
fn service_ranges(cache: &Cache) -> IpLists {
    let mut ranges = BTreeSet::new();
    cache.service_cidrs.for_each(|_, object| {
        ranges.extend(object.spec.iter().flat_map(|spec| spec.cidrs.iter().flatten().cloned()));
    });
    if ranges.is_empty() {
        cache.pods.in_namespace("kube-system", |_, pod| ranges.extend(pod.service_ranges().map(str::to_owned)));
    }
    by_family(ranges)
}

fn by_family(items: impl IntoIterator<Item = String>) -> IpLists {
    let (ipv6, ipv4) = items.into_iter().partition(|item| item.contains(':'));
    IpLists { ipv4, ipv6 }
}
