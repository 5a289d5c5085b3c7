//! Real control planes, with sources and nodes in some of them.

use std::net::{IpAddr, Ipv4Addr};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Node, Secret, Service};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use portolan_api::mirror::RemoteCluster;
use portolan_control::install;
use portolan_testkit::{ControlPlane, builders};
use serde_json::{Value, json};

/// Requests of ours that are under way at a time.
const AT_ONCE: usize = 32;

/// A remote cluster. Its sources are in a namespace of its name.
pub(crate) struct RemotePlane {
    pub(crate) plane: ControlPlane,
    pub(crate) client: Client,
    pub(crate) name: String,
    number: u8,
}

impl RemotePlane {
    pub(crate) async fn start(number: u8, sources: usize, nodes: u32) -> anyhow::Result<Self> {
        let plane = ControlPlane::start()?;
        let client = plane.client();
        let remote = Self { plane, client, name: format!("remote-{number}"), number };
        namespace(&remote.client, &remote.name).await?;
        remote.add_nodes(0..nodes).await?;
        let all = (0..sources).map(|number| remote.create_source(number));
        stream::iter(all).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        Ok(remote)
    }

    /// Nodes that are ready, numbered from 0.
    pub(crate) async fn add_nodes(&self, numbers: std::ops::Range<u32>) -> anyhow::Result<()> {
        let nodes = Api::<Node>::all(self.client.clone());
        let all = numbers.map(|number| {
            let first = Ipv4Addr::new(10, 100 + self.number, 0, 1).to_bits();
            let address = IpAddr::V4(Ipv4Addr::from_bits(first + number));
            let node = builders::node(&format!("n{number}")).address(&address.to_string()).build();
            let nodes = nodes.clone();
            async move { builders::create(&nodes, &node).await.map(drop) }
        });
        stream::iter(all).buffer_unordered(AT_ONCE).try_collect().await
    }

    pub(crate) async fn set_ready(&self, node: &str, ready: bool) -> anyhow::Result<()> {
        let status = if ready { "True" } else { "False" };
        let conditions = json!({ "status": { "conditions": [{ "type": "Ready", "status": status }] } });
        let nodes = Api::<Node>::all(self.client.clone());
        nodes.patch_status(node, &PatchParams::default(), &Patch::Strategic(conditions)).await?;
        Ok(())
    }

    pub(crate) fn sources(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), &self.name)
    }

    async fn create_source(&self, number: usize) -> anyhow::Result<()> {
        let source = json!({
            "metadata": { "name": format!("s{number}") },
            "spec": { "type": "NodePort", "ports": [{ "name": "http", "port": 80 }] },
        });
        self.sources().create(&PostParams::default(), &serde_json::from_value(source)?).await?;
        Ok(())
    }

    /// Has a local cluster mirror this one.
    pub(crate) async fn declare(&self, local: &Client, fields: &Value) -> anyhow::Result<()> {
        let kubeconfig = std::fs::read_to_string(self.plane.kubeconfig_path())?;
        let secret = json!({ "metadata": { "name": self.name }, "stringData": { "kubeconfig": kubeconfig } });
        let secrets = Api::<Secret>::namespaced(local.clone(), "portolan");
        secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
        let mut spec = json!({
            "credentials": { "kubeconfigSecret": { "name": self.name } },
            "addresses": { "allowedCIDRs": ["10.0.0.0/8"] },
        });
        for (key, value) in fields.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        let remote = json!({ "metadata": { "name": self.name }, "spec": spec });
        Api::<RemoteCluster>::all(local.clone())
            .create(&PostParams::default(), &serde_json::from_value(remote)?)
            .await?;
        Ok(())
    }
}

/// A control plane to mirror into.
pub(crate) async fn local() -> anyhow::Result<(ControlPlane, Client)> {
    let plane = ControlPlane::start()?;
    let client = plane.client();
    install::definitions(&client).await?;
    namespace(&client, "portolan").await?;
    Ok((plane, client))
}

pub(crate) async fn namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &builders::namespace(name).build()).await?;
    Ok(())
}
