//! The cloud is slow, late, throttled, denied or silent, or others were there first: nothing leaks, and it is visible.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use kube::api::{Patch, PatchParams};
use portolan_api::address_claim::AddressClaim;
use portolan_api::ipam::CloudState;
use portolan_control::ipam;
use portolan_control::runtime::app::{self, Process};
use portolan_control::runtime::lease;
use portolan_testkit::Phase;
use portolan_testkit::aws::{Answered, Throttle};
use serde_json::{Value, json};

use super::harness::{PREFIX, STATUS, World};
use crate::egress::harness::options;
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    one_failure_is_visible,
    what_is_late_slow_and_throttled_still_converges_with_the_calls_that_are_needed,
    an_operator_that_dies_at_a_call_is_healed,
    what_is_in_service_already_is_adopted_without_a_call,
    where_a_zone_fails_the_others_serve_if_that_is_allowed,
    of_two_replicas_one_calls_the_cloud_and_the_other_takes_over,
    a_zone_that_does_not_answer_keeps_its_addresses,
    the_example_policy_allows_exactly_the_calls_that_are_made,
}

/// Every address on an interface, and every one that is recorded.
async fn everywhere(world: &World, names: &[String]) -> anyhow::Result<(BTreeSet<Ipv4Addr>, BTreeSet<Ipv4Addr>)> {
    let attached = world.instances.keys().flat_map(|node| world.secondary(node)).collect();
    let mut recorded = BTreeSet::new();
    for name in names {
        recorded.extend(world.claims_of(name).await?.into_keys());
    }
    Ok((attached, recorded))
}

async fn one_failure_is_visible(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, &[1, 1]).await?;
    world.ec2.deny("AssignPrivateIpAddresses", true);
    let operator = world.operator().await?;
    let name = world.asking(None).await?;
    eventually("the gauge shows it", async || Ok(operator.failures(&name).await? >= Some(1))).await?;
    eventually("the namespace says why", async || {
        let status = world.annotation(&name, STATUS).await?.unwrap_or_default();
        Ok(status.starts_with("CloudDenied") && status.contains("ec2:AssignPrivateIpAddresses"))
    })
    .await?;
    ensure!(world.net_namespaces().get(&name).await?.egress_ips.is_empty(), "all or none");
    world.ec2.deny("AssignPrivateIpAddresses", false);
    world.served(&name).await?;
    eventually("the gauge is down", async || Ok(operator.failures(&name).await? == Some(0))).await?;
    ensure!(world.annotation(&name, STATUS).await?.is_none());
    operator.stop().await
}

async fn what_is_late_slow_and_throttled_still_converges_with_the_calls_that_are_needed(
    backend: Backend,
) -> anyhow::Result<()> {
    let world = World::new(backend, &[2, 2]).await?;
    world.ec2.set_lag(Duration::from_secs(1));
    world.ec2.set_latency(Duration::from_millis(100));
    let slow = Throttle { burst: 3.0, per_second: 2.0 };
    world.ec2.set_throttle(slow, slow);
    let mut names = Vec::new();
    for _ in 0..3 {
        names.push(world.asking(None).await?);
    }
    let operator = world.operator().await?;
    for name in &names {
        world.served(name).await?;
    }
    world.ec2.settle();
    let (attached, recorded) = everywhere(&world, &names).await?;
    ensure!(attached == recorded && attached.len() == 6, "{attached:?} {recorded:?}");
    // Each address at most once: several for one interface may share a call.
    let mut assigned: BTreeMap<String, usize> = BTreeMap::new();
    for call in world.ec2_writes().iter().filter(|call| call.answered == Answered::Ok) {
        let addresses = call.parameters.iter().filter(|(key, _)| key.starts_with("PrivateIpAddress"));
        addresses.for_each(|(_, address)| *assigned.entry(address.clone()).or_default() += 1);
    }
    ensure!(assigned.values().all(|times| *times == 1), "{assigned:?}");
    operator.stop().await
}

async fn an_operator_that_dies_at_a_call_is_healed(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, &[1]).await?;
    let mut names = Vec::new();
    // the first call of each namespace is the one that assigns
    for phase in [Phase::BeforeSend, Phase::AfterCommit, Phase::AfterAnswer] {
        let dead = world.ec2.kill_at_write(1, phase);
        let operator = world.operator().await?;
        let name = world.asking(None).await?;
        tokio::time::timeout(Duration::from_mins(1), dead).await.context("no call was made")??;
        operator.stop().await?;
        world.ec2.revive();
        let next = world.operator().await?;
        world.served(&name).await?;
        next.stop().await?;
        names.push(name);
        let (attached, recorded) = everywhere(&world, &names).await?;
        ensure!(attached == recorded && attached.len() == names.len(), "{phase:?}: {attached:?} {recorded:?}");
    }
    // the first call of each that gives back
    for (phase, name) in [Phase::BeforeSend, Phase::AfterCommit, Phase::AfterAnswer].into_iter().zip(&names) {
        let dead = world.ec2.kill_at_write(1, phase);
        let operator = world.operator().await?;
        world.annotate(name, json!({ format!("{PREFIX}egressipam"): Value::Null })).await?;
        tokio::time::timeout(Duration::from_mins(1), dead).await.context("no call was made")??;
        operator.stop().await?;
        world.ec2.revive();
        let next = world.operator().await?;
        eventually("its claims are gone", async || Ok(world.claims_of(name).await?.is_empty())).await?;
        next.stop().await?;
    }
    let (attached, recorded) = everywhere(&world, &names).await?;
    ensure!(attached.is_empty() && recorded.is_empty(), "{attached:?} {recorded:?}");
    ensure!(world.ec2.violations().is_empty(), "{:?}", world.ec2.violations());
    Ok(())
}

async fn what_is_in_service_already_is_adopted_without_a_call(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, &[1, 1]).await?;
    let name = world.namespace().await?;
    let hosts = [("a1", "10.77.0.40"), ("b1", "10.77.1.40")];
    for (node, address) in hosts {
        world.ec2.others_assign(&world.instances[node].interface, &[address.parse()?]);
        let listed = json!({
            "metadata": { "annotations": { format!("{PREFIX}{address}"): name } }, "egressIPs": [address],
        });
        world.host_subnets().patch(node, &PatchParams::default(), &Patch::Merge(listed)).await?;
    }
    let addresses = hosts.map(|(_, address)| address);
    let listed = json!({
        "metadata": { "annotations": { format!("{PREFIX}egressips"): addresses.join(",") } }, "egressIPs": addresses,
    });
    world.net_namespaces().patch(&name, &PatchParams::default(), &Patch::Merge(listed)).await?;
    let annotations =
        json!({ format!("{PREFIX}egressipam"): "aws", format!("{PREFIX}egressips"): addresses.join(",") });
    world.annotate(&name, annotations).await?;
    let operator = world.operator().await?;
    let nodes = world.served(&name).await?;
    let expected = hosts.map(|(node, address)| (address.parse(), node.to_owned()));
    for (address, node) in expected {
        ensure!(nodes.get(&address?) == Some(&node), "{nodes:?}");
    }
    ensure!(world.ec2_writes().is_empty(), "{:#?}", world.ec2_writes());
    operator.stop().await
}

async fn where_a_zone_fails_the_others_serve_if_that_is_allowed(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, &[1, 1]).await?;
    // m5.large has room for nine addresses beside the primary one
    let full: Vec<Ipv4Addr> = (200..209).map(|last| Ipv4Addr::new(10, 77, 1, last)).collect();
    world.ec2.others_assign(&world.instances["b1"].interface, &full);
    let operator = world.operator().await?;
    let name = world.asking(None).await?;
    eventually("it is said why", async || {
        Ok(world.annotation(&name, STATUS).await?.is_some_and(|status| status.starts_with("NoCapacity")))
    })
    .await?;
    ensure!(world.net_namespaces().get(&name).await?.egress_ips.is_empty(), "all or none");
    operator.stop().await?;
    let partial = ipam::Options { partial: true, ..world.options() };
    let operator = world.operator_with(partial).await?;
    eventually("the other zone serves", async || {
        let claims = world.claims_of(&name).await?;
        let listed = world.net_namespaces().get(&name).await?.egress_ips;
        let is_published = |claim: &AddressClaim| {
            let cloud = claim.status.as_ref().and_then(|status| status.cloud.as_ref());
            cloud.is_some_and(|cloud| cloud.state == CloudState::Published)
        };
        Ok(listed.len() == 1 && listed[0].starts_with("10.77.0.") && claims.values().all(is_published))
    })
    .await?;
    operator.rests(&world).await?;
    let status = world.annotation(&name, STATUS).await?.unwrap_or_default();
    ensure!(status.starts_with("NoCapacity"), "what is missing is still said: {status}");
    ensure!(world.annotation(&name, &format!("{PREFIX}egressips")).await?.is_none(), "a list would be a request");
    ensure!(world.ec2.neighbour().detach(&world.instances["b1"].interface, full[0]));
    let nodes = world.served(&name).await?;
    ensure!(nodes.len() == 2 && world.annotation(&name, STATUS).await?.is_none(), "{nodes:?}");
    operator.stop().await
}

fn replica(world: &World, namespace: &str, identity: &str) -> anyhow::Result<Process> {
    let election = lease::Options {
        duration: Duration::from_secs(4),
        renew_deadline: Duration::from_secs(3),
        retry_period: Duration::from_millis(300),
        ..lease::Options::of_operator(namespace, identity)
    };
    let ipam = world.options();
    let options = app::Options { election: Some(election), ..options() };
    Ok(Process::start(world.client.clone(), options, |ctx, registry| drop(ipam::start(ctx, registry, ipam)))?)
}

async fn of_two_replicas_one_calls_the_cloud_and_the_other_takes_over(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, &[2]).await?;
    let namespace = world.namespace().await?;
    let first = replica(&world, &namespace, "first")?;
    let name = world.asking(None).await?;
    let nodes = world.served(&name).await?;
    let second = replica(&world, &namespace, "second")?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    ensure!(world.ec2_writes().len() == 1, "one address, one call: {:#?}", world.ec2_writes());
    first.stop().await?;
    let other = world.asking(None).await?;
    world.served(&other).await?;
    ensure!(world.served(&name).await? == nodes, "nothing moved");
    ensure!(world.ec2_writes().len() == 2, "{:#?}", world.ec2_writes());
    second.stop().await?;
    Ok(())
}

async fn a_zone_that_does_not_answer_keeps_its_addresses(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, &[2, 1]).await?;
    let operator = world.operator().await?;
    let name = world.asking(None).await?;
    let nodes = world.served(&name).await?;
    let calls = world.ec2_writes().len();
    world.ec2.black_out_zone("eu-central-1a", true);
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(world.service(&name).await? == Some(nodes.clone()), "it is still served");
    ensure!(world.ec2_writes().len() == calls, "nothing moved: {:#?}", world.ec2_writes());
    world.ec2.black_out_zone("eu-central-1a", false);
    let reads = world.ec2.calls().len();
    eventually("the cloud is read again", async || Ok(world.ec2.calls().len() > reads)).await?;
    ensure!(world.served(&name).await? == nodes);
    ensure!(world.ec2_writes().len() == calls, "nothing moved: {:#?}", world.ec2_writes());
    operator.stop().await
}

async fn the_example_policy_allows_exactly_the_calls_that_are_made(backend: Backend) -> anyhow::Result<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/ipam/iam-policy.json");
    let policy: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    let statements = policy["Statement"].as_array().context("a policy has statements")?;
    let actions = statements.iter().flat_map(|statement| statement["Action"].as_array().into_iter().flatten());
    let allowed: BTreeSet<&str> = actions.filter_map(|action| action.as_str()?.strip_prefix("ec2:")).collect();
    let world = World::new(backend, &[2]).await?;
    let operator = world.operator().await?;
    let name = world.asking(None).await?;
    let nodes = world.served(&name).await?;
    let node = nodes.values().next().context("it has an address")?;
    world.set_ready(node, false).await?;
    eventually("it moved", async || {
        Ok(world.service(&name).await?.is_some_and(|now| now.values().all(|host| host != node)))
    })
    .await?;
    world.annotate(&name, json!({ format!("{PREFIX}egressipam"): Value::Null })).await?;
    eventually("its claims are gone", async || Ok(world.claims_of(&name).await?.is_empty())).await?;
    let calls = world.ec2.calls();
    let made: BTreeSet<&str> = calls.iter().map(|call| call.action.as_str()).collect();
    ensure!(made == allowed, "{made:?} were made, {allowed:?} are allowed");
    operator.stop().await
}
