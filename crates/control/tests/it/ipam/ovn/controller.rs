//! cloud-network-config-controller runs and attaches; the operator chooses addresses.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use portolan_testkit::openshift::CloudController;
use serde_json::{Value, json};

use super::super::harness::{PREFIX, STATUS};
use super::harness::OvnWorld;
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    a_namespace_gets_an_egress_ip_with_an_address_per_zone,
    requested_addresses_are_entered_as_they_are,
    addresses_follow_to_the_node_that_ovn_kubernetes_chose,
    an_egress_ip_of_somebody_else_is_left_alone,
}

async fn a_namespace_gets_an_egress_ip_with_an_address_per_zone(backend: Backend) -> anyhow::Result<()> {
    let cluster = OvnWorld::new(backend, &[2, 1]).await?;
    let world = &cluster.world;
    let _controller = CloudController::start(world.client.clone(), world.ec2.neighbour()).await?;
    let operator = cluster.operator().await?;
    let name = world.asking(None).await?;
    let nodes = cluster.served(&name).await?;
    ensure!(nodes.len() == 2 && nodes.values().any(|node| node == "b1"), "{nodes:?}");
    let egress_ip = cluster.egress_ip(&name).await?.context("it was served")?;
    ensure!(egress_ip.name_any() == name && egress_ip.labels().get("portolan.dev/use").is_some_and(|it| it == "cloud"));
    let selected = egress_ip.spec.namespace_selector.match_labels.unwrap_or_default();
    ensure!(selected.into_iter().eq([("kubernetes.io/metadata.name".to_owned(), name.clone())]));
    let node = Api::<Node>::all(world.client.clone()).get("a1").await?;
    ensure!(node.labels().get("k8s.ovn.org/egress-assignable").is_some_and(String::is_empty));
    operator.rests(world).await?;
    world.annotate(&name, json!({ format!("{PREFIX}egressipam"): Value::Null })).await?;
    cluster.released(&name).await?;
    ensure!(world.annotation(&name, &format!("{PREFIX}egressips")).await?.is_none());
    ensure!(world.ec2_writes().is_empty(), "{:#?}", world.ec2_writes());
    operator.stop().await
}

async fn requested_addresses_are_entered_as_they_are(backend: Backend) -> anyhow::Result<()> {
    // one node for each address, and one for the address that comes before another goes
    let cluster = OvnWorld::new(backend, &[3]).await?;
    let world = &cluster.world;
    let _controller = CloudController::start(world.client.clone(), world.ec2.neighbour()).await?;
    let operator = cluster.operator().await?;
    let name = world.asking(Some("10.77.0.50,10.77.0.51")).await?;
    let nodes = cluster.served(&name).await?;
    let addresses: Vec<String> = nodes.keys().map(ToString::to_string).collect();
    ensure!(addresses == ["10.77.0.50", "10.77.0.51"], "{nodes:?}");
    // one of them is replaced
    world.annotate(&name, json!({ format!("{PREFIX}egressips"): "10.77.0.51,10.77.0.52" })).await?;
    eventually("the list is served", async || {
        let service = cluster.service(&name).await?;
        Ok(service.is_some_and(|nodes| nodes.contains_key(&std::net::Ipv4Addr::new(10, 77, 0, 52))))
    })
    .await?;
    let wrong = world.asking(Some("192.168.0.1")).await?;
    eventually("a wrong request is refused", async || {
        let status = world.annotation(&wrong, STATUS).await?;
        Ok(status.is_some_and(|status| status.starts_with("InvalidRequest")))
    })
    .await?;
    operator.stop().await
}

async fn addresses_follow_to_the_node_that_ovn_kubernetes_chose(backend: Backend) -> anyhow::Result<()> {
    let cluster = OvnWorld::new(backend, &[3]).await?;
    let world = &cluster.world;
    let _controller = CloudController::start(world.client.clone(), world.ec2.neighbour()).await?;
    let operator = cluster.operator().await?;
    let name = world.asking(None).await?;
    let nodes = cluster.served(&name).await?;
    let (address, lost) = nodes.iter().next().context("it has one")?;
    world.set_ready(lost, false).await?;
    eventually("it is served elsewhere", async || {
        let service = cluster.service(&name).await?;
        Ok(service.is_some_and(|nodes| nodes.get(address).is_some_and(|node| node != lost)))
    })
    .await?;
    cluster.served(&name).await?;
    operator.rests(world).await?;
    operator.stop().await
}

async fn an_egress_ip_of_somebody_else_is_left_alone(backend: Backend) -> anyhow::Result<()> {
    let cluster = OvnWorld::new(backend, &[2]).await?;
    let world = &cluster.world;
    let _controller = CloudController::start(world.client.clone(), world.ec2.neighbour()).await?;
    let name = world.namespace().await?;
    let foreign = json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "EgressIP", "metadata": { "name": name },
        "spec": { "egressIPs": ["10.77.0.50"], "namespaceSelector": { "matchLabels": { "team": "a" } } },
    });
    let foreign = cluster.egress_ips().create(&PostParams::default(), &serde_json::from_value(foreign)?).await?;
    let operator = cluster.operator().await?;
    world.annotate(&name, json!({ format!("{PREFIX}egressipam"): "aws" })).await?;
    cluster.served(&name).await?;
    let ours = cluster.egress_ip(&name).await?.context("it was served")?;
    ensure!(ours.name_any() == format!("portolan-{name}"));
    world.annotate(&name, json!({ format!("{PREFIX}egressipam"): Value::Null })).await?;
    eventually("its claims are gone", async || Ok(world.claims_of(&name).await?.is_empty())).await?;
    ensure!(cluster.egress_ips().get(&name).await?.spec == foreign.spec);
    operator.stop().await
}
