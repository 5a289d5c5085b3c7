//! Nodes, as OVN-Kubernetes sees them.

use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::Value;

/// A node, and what it can have.
pub(super) struct EgressNode {
    pub(super) name: String,
    /// It is ready, and may be used.
    pub(super) is_usable: bool,
    pub(super) subnet: Ipv4Net,
    pub(super) capacity: usize,
}

impl EgressNode {
    /// None if the node does not say what it can have.
    pub(super) fn of(node: &Node) -> Option<Self> {
        let config = node.annotations().get("cloud.network.openshift.io/egress-ipconfig")?;
        let config: Value = serde_json::from_str(config).ok()?;
        let capacity = &config[0]["capacity"];
        let capacity = capacity["ip"].as_u64().or_else(|| capacity["ipv4"].as_u64())?;
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let is_ready = conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True");
        Some(Self {
            name: node.name_any(),
            is_usable: is_ready && node.labels().contains_key("k8s.ovn.org/egress-assignable"),
            subnet: config[0]["ifaddr"]["ipv4"].as_str()?.parse().ok()?,
            capacity: usize::try_from(capacity).ok()?,
        })
    }
}
