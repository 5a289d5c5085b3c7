//! Addresses go when nobody asks for them any more, and only those that are recorded as ours.

use anyhow::ensure;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use portolan_control::{cleanup, egress, ipam};
use serde_json::{Value, json};

use super::harness::{PREFIX, World};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    whoever_opts_out_gives_everything_back_and_foreign_addresses_stay,
    a_deleted_claim_is_made_good,
    cleanup_leaves_the_records_of_attached_addresses_alone,
}

async fn whoever_opts_out_gives_everything_back_and_foreign_addresses_stay(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, &[1, 1]).await?;
    let foreign = ["10.77.0.99".parse()?, "10.77.0.100".parse()?];
    world.ec2.others_assign(&world.instances["a1"].interface, &foreign);
    let operator = world.operator().await?;
    let name = world.asking(None).await?;
    let nodes = world.served(&name).await?;
    ensure!(nodes.len() == 2 && world.secondary("a1").len() == 3, "{nodes:?}");
    world.annotate(&name, json!({ format!("{PREFIX}egressipam"): Value::Null })).await?;
    eventually("its claims are gone", async || Ok(world.claims_of(&name).await?.is_empty())).await?;
    let namespace = world.namespaces().get(&name).await?;
    ensure!(!namespace.annotations().keys().any(|key| key.starts_with(PREFIX)), "{namespace:?}");
    let net_namespace = world.net_namespaces().get(&name).await?;
    ensure!(net_namespace.egress_ips.is_empty() && net_namespace.annotations().is_empty(), "{net_namespace:?}");
    for subnet in world.host_subnets().list(&ListParams::default()).await? {
        ensure!(subnet.egress_ips.is_empty() && subnet.annotations().is_empty(), "{subnet:?}");
    }
    ensure!(world.secondary("a1") == foreign.into() && world.secondary("b1").is_empty());
    let released = world.events("EgressIPReleased", &name).await?;
    ensure!(released.len() == 2, "{released:?}");
    operator.rests(&world).await?;
    ensure!(world.ec2_writes().len() == 4, "{:#?}", world.ec2_writes());
    operator.stop().await
}

/// Somebody deletes a claim: its address is released in order, and then given to the namespace again.
async fn a_deleted_claim_is_made_good(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, &[2]).await?;
    let operator = world.operator().await?;
    let name = world.asking(None).await?;
    let before = world.served(&name).await?;
    let address = before.keys().next().map(ToString::to_string).unwrap_or_default();
    let uid = world.claims().get(&address).await?.uid();
    world.claims().delete(&address, &DeleteParams::default()).await?;
    eventually("the claim is gone", async || {
        Ok(world.claims().get_opt(&address).await?.is_none_or(|claim| claim.uid() != uid))
    })
    .await?;
    world.served(&name).await?;
    operator.stop().await
}

async fn cleanup_leaves_the_records_of_attached_addresses_alone(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, &[1]).await?;
    let operator = world.operator().await?;
    let name = world.asking(None).await?;
    let nodes = world.served(&name).await?;
    operator.stop().await?;
    let (table, lease_namespace) = ([&egress::CAPABILITY, &ipam::CAPABILITY], world.namespace().await?);
    let options = cleanup::Options::of_operator(&lease_namespace, "cleanup");
    cleanup::run(&table, &world.client, &options, |_| {}).await?;
    for (address, claim) in world.claims_of(&name).await? {
        ensure!(!claim.finalizers().is_empty(), "a deletion would lose the only record of {address}: {claim:?}");
    }
    let operator = world.operator().await?;
    ensure!(world.served(&name).await? == nodes, "an operator that returns finds everything");
    operator.stop().await
}
