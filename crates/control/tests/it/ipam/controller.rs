//! cloud-network-config-controller attaches addresses while it holds its Lease; the operator then makes no call to EC2.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use kube::Api;
use kube::api::ListParams;
use portolan_api::ipam::CloudPrivateIpConfig;
use portolan_testkit::openshift::{CloudController, Sdn};
use serde_json::{Value, json};

use super::harness::{PREFIX, World};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    a_controller_that_runs_makes_every_call,
    once_its_lease_has_ended_the_operator_calls_itself,
}

async fn a_controller_that_runs_makes_every_call(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, &[2, 1]).await?;
    let _controller = CloudController::start(world.client.clone(), world.ec2.neighbour()).await?;
    let _sdn = Sdn::start(&world.client);
    let operator = world.operator().await?;
    let name = world.asking(None).await?;
    let nodes = world.served(&name).await?;
    ensure!(nodes.len() == 2, "{nodes:?}");
    let private_ips = Api::<CloudPrivateIpConfig>::all(world.client.clone());
    ensure!(private_ips.list(&ListParams::default()).await?.items.len() == 2);
    // its node is lost
    let (address, lost) = nodes.iter().find(|(_, node)| node.starts_with('a')).context("zone a has an address")?;
    world.set_ready(lost, false).await?;
    eventually("it is served elsewhere", async || {
        let service = world.service(&name).await?;
        Ok(service.is_some_and(|nodes| nodes.get(address).is_some_and(|node| node != lost)))
    })
    .await?;
    world.served(&name).await?;
    operator.rests(&world).await?;
    // and nobody asks any more
    world.annotate(&name, json!({ format!("{PREFIX}egressipam"): Value::Null })).await?;
    eventually("its claims are gone", async || Ok(world.claims_of(&name).await?.is_empty())).await?;
    ensure!(private_ips.list(&ListParams::default()).await?.items.is_empty());
    let left: Vec<_> = world.instances.keys().flat_map(|node| world.secondary(node)).collect();
    ensure!(left.is_empty(), "{left:?}");
    ensure!(world.ec2_writes().is_empty(), "{:#?}", world.ec2_writes());
    operator.stop().await
}

async fn once_its_lease_has_ended_the_operator_calls_itself(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, &[1]).await?;
    let controller = CloudController::start(world.client.clone(), world.ec2.neighbour()).await?;
    let sdn = Sdn::start(&world.client);
    let operator = world.operator().await?;
    let first = world.asking(None).await?;
    let nodes = world.served(&first).await?;
    drop((controller, sdn));
    let dropped = Instant::now();
    let second = world.asking(None).await?;
    world.served(&second).await?;
    ensure!(world.served(&first).await? == nodes, "what was attached stays");
    // The Lease was renewed less than a second before, and lasts for three.
    let calls = world.ec2_writes();
    let early = calls.iter().find(|call| call.at < dropped + Duration::from_millis(1_500));
    ensure!(early.is_none() && calls.len() == 1, "{calls:#?}");
    world.annotate(&first, json!({ format!("{PREFIX}egressipam"): Value::Null })).await?;
    eventually("its claims are gone", async || Ok(world.claims_of(&first).await?.is_empty())).await?;
    ensure!(world.ec2_writes().len() == 2, "{:#?}", world.ec2_writes());
    operator.stop().await
}
