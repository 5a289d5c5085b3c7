//! The Nodes and their Leases.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

/// As kubelets do it.
const LEASES: &str = "kube-node-lease";
const RENEW_EVERY: Duration = Duration::from_secs(10);
const LEASE_SECONDS: u32 = 40;
/// Nothing listens there: whoever wants to talk to the kubelet is refused at once.
const CLOSED_PORT: u16 = 1;

/// A node without a machine.
#[derive(Debug, Clone)]
pub(super) struct FakeNode {
    pub(super) name: String,
    network: u8,
    index: u8,
}

impl FakeNode {
    pub(super) fn new(network: u8, index: u8) -> Self {
        Self { name: format!("fake-{network}-{index}"), network, index }
    }

    /// Its own addresses. They are on loopback, where nobody waits for an answer.
    pub(super) fn addresses(&self) -> (Ipv4Addr, Ipv6Addr) {
        (Ipv4Addr::new(127, self.network, self.index, 1), Ipv6Addr::LOCALHOST)
    }

    /// The addresses of a pod on it.
    pub(super) fn pod_addresses(&self, number: u8) -> (Ipv4Addr, Ipv6Addr) {
        let Self { network, index, .. } = self;
        // Written alike in both families, in decimal: fd00:244:1::2 is the pod 10.244.1.2.
        let group = |number: &u8| u16::from_str_radix(&number.to_string(), 16).unwrap_or_default();
        let v6 = Ipv6Addr::from([0xfd00, group(network), group(index), 0, 0, 0, 0, group(&number)]);
        (Ipv4Addr::new(10, *network, *index, number), v6)
    }

    /// Writes the Node, ready.
    pub(super) async fn register(&self, client: &Client) -> kube::Result<()> {
        let nodes: Api<Node> = Api::all(client.clone());
        let (v4, v6) = self.pod_addresses(0);
        let networks = [format!("{v4}/24"), format!("{v6}/64")];
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": self.name, "labels": { "kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux" } },
            "spec": { "podCIDR": networks[0], "podCIDRs": networks },
        });
        nodes.patch(&self.name, &manager(), &Patch::Apply(node)).await?;
        let (v4, v6) = self.addresses();
        let resources = json!({ "cpu": "8", "memory": "32Gi", "pods": "250" });
        let now = Timestamp::now();
        let status = json!({
            "status": {
                // No Hostname: the API server would look it up.
                "addresses": [{ "type": "InternalIP", "address": v4 }, { "type": "InternalIP", "address": v6 }],
                "allocatable": resources,
                "capacity": resources,
                "conditions": [{
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "message": "a node without a machine",
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }],
                "daemonEndpoints": { "kubeletEndpoint": { "Port": CLOSED_PORT } },
            },
        });
        // Not applied: that takes one address of each type at most.
        nodes.patch_status(&self.name, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    pub(super) async fn renew_lease(&self, client: &Client) -> kube::Result<()> {
        let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": self.name },
            "spec": {
                "holderIdentity": self.name,
                "leaseDurationSeconds": LEASE_SECONDS,
                "renewTime": format!("{:.6}", Timestamp::now()),
            },
        });
        leases.patch(&self.name, &manager(), &Patch::Apply(lease)).await?;
        Ok(())
    }
}

/// Renews the Leases for ever.
pub(super) async fn keep_leases(client: Client, nodes: Vec<FakeNode>) {
    loop {
        tokio::time::sleep(RENEW_EVERY).await;
        for node in &nodes {
            if let Err(error) = node.renew_lease(&client).await {
                tracing::warn!(%error, node = node.name, "renewing a Lease failed");
            }
        }
    }
}

fn manager() -> PatchParams {
    PatchParams::apply("portolan-fake-kubelet").force()
}
