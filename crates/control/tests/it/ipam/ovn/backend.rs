//! Which network plugin gets the addresses, where nobody says so by flag.

use kube::Api;
use kube::api::{Patch, PatchParams};
use portolan_api::ipam::NetworkConfig;
use portolan_control::ipam::{self, Backend as Plugin};
use portolan_testkit::openshift::CloudController;
use serde_json::json;

use super::super::harness::STATUS;
use super::harness::OvnWorld;
use crate::harness::{Backend, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_with_the_kinds_of_both_says_which_plugin_it_has() -> anyhow::Result<()> {
    let cluster = OvnWorld::new(Backend::Embedded, &[1]).await?;
    let world = &cluster.world;
    let _controller = CloudController::start(world.client.clone(), world.ec2.neighbour()).await?;
    let options = ipam::Options { backend: Plugin::Auto, ..cluster.options() };
    let operator = world.operator_with(options).await?;
    let name = world.asking(None).await?;
    eventually("it says why there is no address", async || {
        let status = world.annotation(&name, STATUS).await?;
        Ok(status.is_some_and(|status| status.starts_with("NetworkUnknown")))
    })
    .await?;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "networks.config.openshift.io" },
        "spec": {
            "group": "config.openshift.io", "scope": "Cluster",
            "names": { "plural": "networks", "singular": "network", "kind": "Network", "listKind": "NetworkList" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            } } }],
        },
    });
    portolan_testkit::install_definition(world.client.clone(), serde_json::from_value(definition)?).await?;
    let network = json!({
        "apiVersion": "config.openshift.io/v1", "kind": "Network", "metadata": { "name": "cluster" },
        "status": { "networkType": "OVNKubernetes" },
    });
    let networks: Api<NetworkConfig> = Api::all(world.client.clone());
    networks.patch("cluster", &PatchParams::apply("test"), &Patch::Apply(network)).await?;
    cluster.served(&name).await?;
    operator.stop().await
}
