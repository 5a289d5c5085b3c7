//! The original's document: its dumps and its commands.

use anyhow::{Context as _, ensure};
use kube::api::{Patch, PatchParams};
use portolan_api::gateway::{Account, Egw, Endpoint, LoadBalancer, NodeConfig};
use portolan_testkit::Binaries;
use serde_json::{Value, json};

use super::harness::World;
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(seed_yaml_roundtrip, seed_story);

fn dumps() -> [(&'static str, Value); 4] {
    let gue = json!({ "appProtocol": "gue", "port": 6080, "protocol": "UDP" });
    [
        (
            "egws",
            json!({
                "apiVersion": "egw.acnodal.io/v1", "kind": "EGW", "metadata": { "name": "egw", "namespace": "egw" },
                "spec": {}, "status": { "current-account-gue-key": 1, "current-tunnel-id": 4 },
            }),
        ),
        (
            "accounts",
            json!({
                "apiVersion": "egw.acnodal.io/v1", "kind": "Account",
                "metadata": { "name": "sample", "namespace": "egw" },
                "spec": { "gue-key": 1 }, "status": { "current-service-gue-key": 3 },
            }),
        ),
        (
            "loadbalancers",
            json!({
                "apiVersion": "egw.acnodal.io/v1", "kind": "LoadBalancer",
                "metadata": { "name": "sample-acnodal", "namespace": "egw-sample" },
                "spec": {
                    "gue-key": 65537, "public-address": "192.168.77.2",
                    "public-ports": [{ "nodePort": 30390, "port": 8888, "protocol": "TCP", "targetPort": 8080 }],
                    "service-group": "sample",
                },
                "status": {
                    "gue-tunnel-endpoints": {
                        "192.168.1.16": { "egw-address": "192.168.1.40", "egw-port": gue, "tunnel-id": 2 },
                        "192.168.1.25": { "egw-address": "192.168.1.40", "egw-port": gue, "tunnel-id": 1 },
                    },
                    "proxy-ifindex": 16, "proxy-ifname": "veth67060f1f",
                },
            }),
        ),
        (
            "endpoints",
            json!({
                "apiVersion": "egw.acnodal.io/v1", "kind": "Endpoint",
                "metadata": { "name": "d2e08096-a3e4-4d1f-8555-d1641c7fa9ed", "namespace": "egw-sample" },
                "spec": {
                    "address": "10.244.1.5", "load-balancer": "sample2-acnodal", "node-address": "192.168.1.25",
                    "port": { "name": "second", "port": 8080, "protocol": "TCP" },
                },
                "status": { "gue-key": 65539, "proxy-ifindex": 20, "tunnel-id": 4 },
            }),
        ),
    ]
}

/// Without an operator: what the document shows is kept as it is.
async fn seed_yaml_roundtrip(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.provider().await?;
    world.namespace("egw-sample").await?;
    for (plural, dump) in dumps() {
        let namespace = dump["metadata"]["namespace"].as_str().context("a namespace")?;
        let name = dump["metadata"]["name"].as_str().context("a name")?;
        let resource = kube::api::ApiResource {
            group: "egw.acnodal.io".to_owned(),
            version: "v1".to_owned(),
            api_version: "egw.acnodal.io/v1".to_owned(),
            kind: dump["kind"].as_str().unwrap_or_default().to_owned(),
            plural: plural.to_owned(),
        };
        let objects: kube::Api<kube::api::DynamicObject> =
            kube::Api::namespaced_with(world.client.clone(), namespace, &resource);
        let apply = PatchParams::apply("test").force();
        let mut without_status = dump.clone();
        without_status.as_object_mut().context("an object")?.remove("status");
        objects.patch(name, &apply, &Patch::Apply(&without_status)).await.context(plural)?;
        let status = json!({ "status": dump["status"] });
        objects.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await?;
        let read = objects.get(name).await?;
        for part in ["spec", "status"] {
            ensure!(read.data[part] == dump[part], "{plural}: {part} is {}, not {}", read.data[part], dump[part]);
        }
    }
    Ok(())
}

/// With an operator: the numbers of the document come about, and its commands show them.
async fn seed_story(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let operator = world.operator().await?;
    world.provider().await?;
    world
        .create::<portolan_api::gateway::ServicePrefix>(
            "egw",
            "default",
            json!({ "subnet": "192.168.77.0/24", "pool": "192.168.77.2-192.168.77.9", "gateway": "192.168.77.1" }),
        )
        .await?;
    world
        .create::<NodeConfig>(
            "egw",
            "default",
            json!({ "base": { "gue-endpoint": { "egw-address": "192.168.1.40" } } }),
        )
        .await?;
    world.account("sample").await?;
    world
        .load_balancer_with(
            "sample",
            "sample-acnodal",
            json!({ "public-ports": [
        { "nodePort": 30390, "port": 8888, "protocol": "TCP", "targetPort": 8080 }] }),
        )
        .await?;
    let first = world.ready("sample", "sample-acnodal").await?;
    ensure!((first.spec.gue_key, first.spec.public_address.as_str()) == (65537, "192.168.77.2"), "{first:?}");
    tunnel(&world, "a", "sample-acnodal", ["10.244.1.4", "192.168.1.25"], 1).await?;
    tunnel(&world, "b", "sample-acnodal", ["10.244.0.4", "192.168.1.16"], 2).await?;
    world.load_balancer("sample", "gone-acnodal").await?;
    world.ready("sample", "gone-acnodal").await?;
    tunnel(&world, "c", "gone-acnodal", ["10.244.0.9", "192.168.1.16"], 3).await?;
    world.delete::<LoadBalancer>("egw-sample", "gone-acnodal").await?;
    world.load_balancer("sample", "sample2-acnodal").await?;
    world.ready("sample", "sample2-acnodal").await?;
    let name = "d2e08096-a3e4-4d1f-8555-d1641c7fa9ed";
    tunnel(&world, name, "sample2-acnodal", ["10.244.1.5", "192.168.1.25"], 4).await?;
    let endpoint: Endpoint = world.of("egw-sample").get(name).await?;
    let status = endpoint.status.unwrap_or_default();
    ensure!((status.gue_key, status.tunnel_id) == (65539, 4), "{status:?}");

    let commands = [
        "get -n egw egws.egw.acnodal.io egw -o yaml",
        "get -n egw accounts.egw.acnodal.io sample -o yaml",
        "get -n egw-sample loadbalancers.egw.acnodal.io sample-acnodal -o yaml",
        "get -n egw-sample endpoints.egw.acnodal.io d2e08096-a3e4-4d1f-8555-d1641c7fa9ed -o yaml",
    ];
    let shown = [
        &["current-account-gue-key: 1", "current-tunnel-id: 4"][..],
        &["gue-key: 1", "current-service-gue-key: 3"],
        &["gue-key: 65537", "192.168.1.25:", "tunnel-id: 1", "192.168.1.16:", "tunnel-id: 2", "appProtocol: gue"],
        &["gue-key: 65539", "tunnel-id: 4", "load-balancer: sample2-acnodal"],
    ];
    for (command, words) in commands.into_iter().zip(shown) {
        let mut kubectl = Binaries::locate()?.kubectl(world.cluster.kubeconfig());
        let output = kubectl.args(command.split(' ')).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        for word in words {
            ensure!(
                text.contains(word),
                "kubectl {command} lacks `{word}`:\n{text}{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
    let account: Account = world.of("egw").get("sample").await?;
    ensure!(account.status.unwrap_or_default().current_service_gue_key == 3);
    let egw: Egw = world.of("egw").get("egw").await?;
    ensure!(egw.status.unwrap_or_default().current_tunnel_id == 4);
    operator.process.stop().await?;
    Ok(())
}

/// An endpoint on a new node, which gets this tunnel.
async fn tunnel(
    world: &World,
    name: &str,
    load_balancer: &str,
    [address, node]: [&str; 2],
    id: u32,
) -> anyhow::Result<()> {
    world.endpoint("sample", name, load_balancer, [address, node]).await?;
    let what = format!("the tunnel of {load_balancer} to {node} is {id}, and its endpoint is programmed");
    let endpoints = world.of::<Endpoint>("egw-sample");
    eventually(&what, async || {
        let object = world.get("sample", load_balancer).await?;
        let tunnels = object.status.unwrap_or_default().gue_tunnel_endpoints;
        let status = endpoints.get(name).await?.status.unwrap_or_default();
        let is_programmed =
            status.conditions.iter().any(|condition| condition.type_ == "Programmed" && condition.status == "True");
        Ok(tunnels.get(node).is_some_and(|tunnel| tunnel.tunnel_id == id && tunnel.egw_address == "192.168.1.40")
            && status.tunnel_id == id
            && is_programmed)
    })
    .await
}
