//! Nobody else attaches what OVN-Kubernetes asks for: the operator serves CloudPrivateIPConfigs.

use std::net::Ipv4Addr;

use anyhow::{Context as _, ensure};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, PostParams};
use portolan_testkit::openshift::CloudController;
use serde_json::{Value, json};

use super::super::harness::PREFIX;
use super::harness::OvnWorld;
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    addresses_of_a_namespace_are_attached_where_ovn_kubernetes_wants_them,
    a_lost_node_costs_one_call,
    addresses_of_other_egress_ips_are_attached_and_released,
    the_other_controller_hands_over_and_takes_back,
}

async fn addresses_of_a_namespace_are_attached_where_ovn_kubernetes_wants_them(backend: Backend) -> anyhow::Result<()> {
    let cluster = OvnWorld::new(backend, &[2, 1]).await?;
    let world = &cluster.world;
    let operator = cluster.operator().await?;
    let name = world.asking(None).await?;
    let nodes = cluster.served(&name).await?;
    ensure!(nodes.len() == 2 && world.ec2_writes().len() == 2, "{:#?}", world.ec2_writes());
    for (address, node) in &nodes {
        let object = cluster.private_ips().get(&address.to_string()).await?;
        let status = object.status.clone().context("it has a status")?;
        ensure!(status.node == *node && object.spec.node == *node && !object.finalizers().is_empty(), "{object:?}");
        let [condition] = &status.conditions[..] else { anyhow::bail!("{status:?}") };
        ensure!(
            (&*condition.type_, &*condition.status, &*condition.reason) == ("Assigned", "True", "CloudResponseSuccess")
        );
    }
    operator.rests(world).await?;
    world.annotate(&name, json!({ format!("{PREFIX}egressipam"): Value::Null })).await?;
    cluster.released(&name).await?;
    ensure!(world.ec2_writes().len() == 4, "{:#?}", world.ec2_writes());
    operator.stop().await
}

async fn a_lost_node_costs_one_call(backend: Backend) -> anyhow::Result<()> {
    let cluster = OvnWorld::new(backend, &[2]).await?;
    let world = &cluster.world;
    let operator = cluster.operator().await?;
    let name = world.asking(None).await?;
    let nodes = cluster.served(&name).await?;
    let (address, lost) = nodes.iter().next().context("it has one")?;
    world.ec2.clear_calls();
    world.set_ready(lost, false).await?;
    eventually("it is served elsewhere", async || {
        let service = cluster.service(&name).await?;
        Ok(service.is_some_and(|nodes| nodes.get(address).is_some_and(|node| node != lost)))
    })
    .await?;
    cluster.served(&name).await?;
    let calls = world.ec2_writes();
    let [one] = &calls[..] else { anyhow::bail!("{calls:#?}") };
    ensure!(one.action == "AssignPrivateIpAddresses" && one.parameter("AllowReassignment") == Some("true"));
    operator.rests(world).await?;
    operator.stop().await
}

async fn addresses_of_other_egress_ips_are_attached_and_released(backend: Backend) -> anyhow::Result<()> {
    let cluster = OvnWorld::new(backend, &[2]).await?;
    let world = &cluster.world;
    let operator = cluster.operator().await?;
    // nodes are made known once somebody asks
    let ours = world.asking(None).await?;
    cluster.served(&ours).await?;
    let foreign = json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "EgressIP", "metadata": { "name": "foreign" },
        "spec": { "egressIPs": ["10.77.0.50"], "namespaceSelector": { "matchLabels": { "team": "a" } } },
    });
    cluster.egress_ips().create(&PostParams::default(), &serde_json::from_value(foreign)?).await?;
    eventually("it is assigned", async || {
        let status = cluster.egress_ips().get("foreign").await?.status.unwrap_or_default();
        Ok(status.items.len() == 1)
    })
    .await?;
    let address = Ipv4Addr::new(10, 77, 0, 50);
    let holders = || world.instances.keys().filter(|node| world.secondary(node).contains(&address)).count();
    ensure!(holders() == 1);
    let claim = world.claims().get("10.77.0.50").await?;
    let owner = claim.spec.cloud.context("it is a claim of ipam")?.owner;
    ensure!((&*owner.kind, &*owner.name) == ("CloudPrivateIPConfig", "10.77.0.50"), "{owner:?}");
    cluster.egress_ips().delete("foreign", &DeleteParams::default()).await?;
    eventually("it is gone", async || Ok(cluster.private_ips().get_opt("10.77.0.50").await?.is_none())).await?;
    ensure!(holders() == 0);
    eventually("its claim is gone", async || Ok(world.claims().get_opt("10.77.0.50").await?.is_none())).await?;
    cluster.served(&ours).await?;
    operator.stop().await
}

async fn the_other_controller_hands_over_and_takes_back(backend: Backend) -> anyhow::Result<()> {
    let cluster = OvnWorld::new(backend, &[2]).await?;
    let world = &cluster.world;
    let controller = CloudController::start(world.client.clone(), world.ec2.neighbour()).await?;
    let operator = cluster.operator().await?;
    let name = world.asking(None).await?;
    let nodes = cluster.served(&name).await?;
    ensure!(world.ec2_writes().is_empty());
    drop(controller);
    let second = world.asking(None).await?;
    cluster.served(&second).await?;
    ensure!(world.ec2_writes().len() == 1, "{:#?}", world.ec2_writes());
    ensure!(cluster.served(&name).await? == nodes, "nothing moves");
    let _controller = CloudController::start(world.client.clone(), world.ec2.neighbour()).await?;
    let third = world.asking(None).await?;
    cluster.served(&third).await?;
    ensure!(world.ec2_writes().len() == 1, "{:#?}", world.ec2_writes());
    operator.stop().await
}
