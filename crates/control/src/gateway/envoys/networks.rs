//! Networks of Multus: one for each prefix, to which the Envoys that serve its addresses are attached. Pure.

use std::net::IpAddr;

use k8s_openapi::NamespaceResourceScope;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt as _};
use portolan_api::gateway::ServicePrefix;
use portolan_core::gateway::PROVIDER_NAMESPACE;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Annotation of pods, which Multus reads.
pub(super) const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

/// A NetworkAttachmentDefinition.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(default)]
pub(in super::super) struct Network {
    pub(in super::super) metadata: ObjectMeta,
    pub(in super::super) spec: NetworkSpec,
}

/// What CNI plugins are given, as JSON.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(default)]
pub(in super::super) struct NetworkSpec {
    pub(in super::super) config: String,
}

portolan_api::resource!(
    Network,
    "k8s.cni.cncf.io",
    "v1",
    "NetworkAttachmentDefinition",
    "network-attachment-definitions",
    NamespaceResourceScope
);

/// The network of a prefix: named like it, beside it, and deleted with it.
pub(in super::super) fn network(prefix: &ServicePrefix) -> Network {
    Network {
        metadata: ObjectMeta {
            name: Some(prefix.name_any()),
            namespace: prefix.namespace(),
            owner_references: Some(prefix.controller_owner_ref(&()).into_iter().collect()),
            ..ObjectMeta::default()
        },
        spec: NetworkSpec { config: config(prefix).to_string() },
    }
}

fn config(prefix: &ServicePrefix) -> Value {
    // the address of each pod is in its annotation
    let mut addresses = json!({ "type": "static" });
    let mut plugins = vec![];
    if let Some(router) = prefix.spec.gateway.as_deref().filter(|router| !router.is_empty()) {
        // halves, because pods have a default route already, and a second one would not be added
        let halves = if router.contains(':') { ["::/1", "8000::/1"] } else { ["0.0.0.0/1", "128.0.0.0/1"] };
        addresses["routes"] = halves.map(|half| json!({ "dst": half, "gw": router })).to_vec().into();
        // it moves these routes to a table for packets from that address: all others leave as in other pods
        plugins.push(json!({ "type": "sbr" }));
    }
    let bridge = json!({
        "type": "bridge",
        "bridge": prefix.spec.multus_bridge,
        "capabilities": { "ips": true },
        "ipam": addresses,
    });
    plugins.insert(0, bridge);
    json!({ "cniVersion": "0.4.0", "name": prefix.name_any(), "plugins": plugins })
}

/// True if it was made for this prefix.
pub(in super::super) fn is_of(network: &Network, prefix: &ServicePrefix) -> bool {
    network.owner_references().iter().any(|owner| Some(&owner.uid) == prefix.metadata.uid.as_ref())
}

/// How a pod asks for an address of a prefix; none while its subnet cannot be read.
pub(in super::super) fn attachment(prefix: &ServicePrefix, address: IpAddr) -> Option<String> {
    let (_, length) = prefix.spec.subnet.split_once('/')?;
    let one =
        json!({ "name": prefix.name_any(), "namespace": PROVIDER_NAMESPACE, "ips": [format!("{address}/{length}")] });
    Some(json!([one]).to_string())
}
