//! Namespaces get addresses: any, those that they name, or the reason why not.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::ensure;
use kube::ResourceExt as _;
use portolan_api::ipam::CloudState;
use portolan_control::{CAPABILITIES, query};
use serde_json::{Value, json};

use super::harness::{PREFIX, STATUS, World};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    a_namespace_that_asks_gets_one_address_per_zone,
    requested_addresses_are_assigned,
    a_taken_address_fails_its_namespace_alone_until_it_is_free,
    a_changed_list_changes_the_addresses,
}

async fn a_namespace_that_asks_gets_one_address_per_zone(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, &[2, 2, 2]).await?;
    let operator = world.operator().await?;
    let name = world.asking(None).await?;
    let nodes = world.served(&name).await?;
    let zones: BTreeSet<u8> = nodes.keys().map(|address| address.octets()[2]).collect();
    ensure!(nodes.len() == 3 && zones == BTreeSet::from([0, 1, 2]), "{nodes:?}");
    let net_namespace = world.net_namespaces().get(&name).await?;
    let list = world.annotation(&name, &format!("{PREFIX}egressips")).await?;
    ensure!(net_namespace.annotations().get(&format!("{PREFIX}egressips")) == list.as_ref());
    for claim in world.claims_of(&name).await?.values() {
        ensure!(claim.labels().get("portolan.dev/use").is_some_and(|value| value == "cloud"), "{claim:?}");
        ensure!(claim.finalizers() == ["portolan.dev/address-claim"], "{claim:?}");
        let cloud = claim.status.clone().and_then(|status| status.cloud).unwrap_or_default();
        let holds: Vec<&str> =
            cloud.conditions.iter().filter(|one| one.status == "True").map(|one| &*one.type_).collect();
        ensure!(holds == ["Attached", "Published"] && cloud.served && cloud.node.is_some(), "{cloud:?}");
    }
    eventually("the events are there", async || Ok(world.events("EgressIPAssigned", &name).await?.len() == 3)).await?;
    operator.rests(&world).await?;
    ensure!(operator.failures(&name).await? == Some(0));
    // one Assign for each address, and nothing else
    ensure!(world.ec2_writes().len() == 3, "{:#?}", world.ec2_writes());
    operator.stop().await
}

async fn requested_addresses_are_assigned(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, &[1, 1, 1]).await?;
    let operator = world.operator().await?;
    let name = world.asking(Some("10.77.1.40, 10.77.0.50")).await?;
    eventually("all are published", async || {
        let claims = world.claims_of(&name).await?;
        let state = |claim: &portolan_api::address_claim::AddressClaim| {
            claim.status.as_ref().and_then(|status| Some(status.cloud.as_ref()?.state))
        };
        Ok(claims.len() == 2 && claims.values().all(|claim| state(claim) == Some(CloudState::Published)))
    })
    .await?;
    let nodes = world.served(&name).await?;
    let addresses: Vec<String> = nodes.keys().map(ToString::to_string).collect();
    ensure!(addresses == ["10.77.0.50", "10.77.1.40"], "{nodes:?}");
    let claims = world.claims_of(&name).await?;
    ensure!(claims.values().all(|claim| claim.spec.cloud.as_ref().is_some_and(|cloud| cloud.requested)));
    operator.rests(&world).await?;
    operator.stop().await
}

async fn a_taken_address_fails_its_namespace_alone_until_it_is_free(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, &[1, 1]).await?;
    let stranger = world.ec2.stranger_takes(&world.subnets[0], "10.77.0.60".parse()?);
    let operator = world.operator().await?;
    let name = world.asking(Some("10.77.0.60,10.77.1.60")).await?;
    let other = world.asking(None).await?;
    eventually("it is said why", async || {
        let status = world.annotation(&name, STATUS).await?.unwrap_or_default();
        Ok(status.starts_with("AddressInUse: IP not available, already used"))
    })
    .await?;
    world.served(&other).await?;
    eventually("the gauge shows it", async || Ok(operator.failures(&name).await? >= Some(1))).await?;
    ensure!(operator.failures(&other).await? == Some(0));
    ensure!(world.net_namespaces().get(&name).await?.egress_ips.is_empty(), "all or none");
    ensure!(world.events("AddressInUse", &name).await?.len() == 1, "reported once");
    operator.rests(&world).await?;
    world.ec2.stranger_leaves(&stranger);
    let nodes = world.served(&name).await?;
    ensure!(nodes.len() == 2, "{nodes:?}");
    eventually("nothing is said any more", async || Ok(world.annotation(&name, STATUS).await?.is_none())).await?;
    eventually("the gauge is down", async || Ok(operator.failures(&name).await? == Some(0))).await?;
    operator.stop().await
}

async fn a_changed_list_changes_the_addresses(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, &[2]).await?;
    let operator = world.operator().await?;
    let name = world.asking(Some("10.77.0.50")).await?;
    world.served(&name).await?;
    world.annotate(&name, json!({ format!("{PREFIX}egressips"): "10.77.0.70" })).await?;
    eventually("the other address is in service and the first is gone", async || {
        let nodes = world.service(&name).await?.unwrap_or_default();
        let addresses: Vec<String> = nodes.keys().map(ToString::to_string).collect();
        Ok(addresses == ["10.77.0.70"])
    })
    .await?;
    let all: Vec<_> = world.instances.keys().flat_map(|node| world.secondary(node)).collect();
    ensure!(all.iter().map(ToString::to_string).eq(["10.77.0.70"]), "{all:?}");
    operator.stop().await
}

/// OpenShift's kinds may be missing; then nothing is done, and nothing breaks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_openshift_kinds_disable_the_capability_with_a_message() -> anyhow::Result<()> {
    let world = World::without_sdn(Backend::Embedded, &[1]).await?;
    let operator = world.operator().await?;
    let name = world.asking(None).await?;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    ensure!(operator.writes().is_empty() && world.ec2.calls().is_empty(), "{:?}", operator.writes());
    let why = query::why(CAPABILITIES, &world.client, "namespace", &name, None).await?;
    let is_said =
        why.rows.iter().any(|row| row["says"].as_str().is_some_and(|says| says.contains("ipam does nothing")));
    ensure!(is_said, "{why:?}");
    world.install_sdn().await?;
    world.net_namespace(&name).await?;
    world.served(&name).await?;
    world.annotate(&name, json!({ format!("{PREFIX}egressipam"): Value::Null })).await?;
    operator.stop().await
}
