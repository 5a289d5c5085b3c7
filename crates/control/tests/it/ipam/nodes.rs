//! Nodes are lost, and their addresses go elsewhere by one call each.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::harness::World;
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    a_lost_node_loses_its_addresses_to_the_least_loaded_ones,
    a_terminated_instance_loses_its_addresses,
    an_address_that_vanished_is_put_back,
}

async fn a_lost_node_loses_its_addresses_to_the_least_loaded_ones(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, &[3]).await?;
    let operator = world.operator().await?;
    let mut hosts: BTreeMap<Ipv4Addr, (String, String)> = BTreeMap::new();
    for _ in 0..6 {
        let name = world.asking(None).await?;
        let nodes = world.served(&name).await?;
        hosts.extend(nodes.into_iter().map(|(address, node)| (address, (name.clone(), node))));
    }
    let load = |node: &str| hosts.values().filter(|(_, host)| host == node).count();
    ensure!([load("a1"), load("a2"), load("a3")] == [2, 2, 2], "spread evenly: {hosts:?}");
    world.ec2.clear_calls();
    world.set_ready("a1", false).await?;
    let lost: Vec<(&Ipv4Addr, &String)> =
        hosts.iter().filter(|(_, (_, host))| host == "a1").map(|(address, (name, _))| (address, name)).collect();
    for (_, name) in &lost {
        let what = format!("{name} is served elsewhere");
        eventually(&what, async || {
            let service = world.service(name).await?;
            Ok(service.is_some_and(|nodes| nodes.values().all(|node| node != "a1")))
        })
        .await?;
        let nodes = world.served(name).await?;
        ensure!(nodes.len() == 1, "{nodes:?}");
    }
    ensure!(world.secondary("a1").is_empty());
    ensure!([world.secondary("a2").len(), world.secondary("a3").len()] == [3, 3], "least loaded first");
    let calls = world.ec2_writes();
    for (address, _) in &lost {
        let about: Vec<_> = calls
            .iter()
            .filter(|call| call.parameters.iter().any(|(_, value)| *value == address.to_string()))
            .collect();
        let [one] = about[..] else { anyhow::bail!("{address} was moved by {about:#?}") };
        ensure!(one.action == "AssignPrivateIpAddresses" && one.parameter("AllowReassignment") == Some("true"));
    }
    let moved = world.events("EgressIPMoved", lost[0].1).await?;
    ensure!(moved.len() == 1, "{moved:?}");
    for (metric, count) in [("failover_seconds", lost.len()), ("assign_seconds", hosts.len())] {
        let counted = operator.metric(&format!("portolan_ipam_{metric}_count")).await?;
        ensure!(counted == count.to_string(), "{metric} was counted {counted} times");
    }
    let visible = operator.metric("portolan_ipam_visible_seconds_count{action=\"take\"}").await?;
    ensure!(visible == lost.len().to_string(), "{visible} moves became visible");
    ensure!(operator.metric("portolan_ipam_journal_oldest_unsettled_seconds").await? == "0");
    // it comes back, and nothing moves
    world.set_ready("a1", true).await?;
    operator.rests(&world).await?;
    operator.stop().await
}

async fn a_terminated_instance_loses_its_addresses(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, &[2]).await?;
    let operator = world.operator().await?;
    let name = world.asking(None).await?;
    let before = world.served(&name).await?;
    let (address, node) = before.into_iter().next().context("it has one")?;
    world.ec2.terminate(&world.instances[&node].instance);
    Api::<Node>::all(world.client.clone()).delete(&node, &DeleteParams::default()).await?;
    world.host_subnets().delete(&node, &DeleteParams::default()).await?;
    eventually("it is served elsewhere", async || {
        let service = world.service(&name).await?;
        Ok(service.is_some_and(|nodes| nodes.get(&address).is_some_and(|host| *host != node)))
    })
    .await?;
    world.served(&name).await?;
    operator.rests(&world).await?;
    operator.stop().await
}

async fn an_address_that_vanished_is_put_back(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, &[2]).await?;
    let operator = world.operator().await?;
    let name = world.asking(None).await?;
    let before = world.served(&name).await?;
    let (address, node) = before.iter().next().context("it has one")?;
    let interface = world.instances[node].interface.as_str().into();
    let outcome = portolan_drivers::cloud::Cloud::release(&*world.cloud(), &interface, &[*address]).await;
    ensure!(outcome[address].is_ok(), "{outcome:?}");
    eventually("it is there again", async || Ok(world.secondary(node).contains(address))).await?;
    ensure!(world.served(&name).await? == before);
    let repaired = world.events("EgressIPRepaired", &name).await?;
    ensure!(repaired.len() == 1, "{repaired:?}");
    // somebody else's edits count as well, each where it was
    let nothing = Patch::Merge(json!({ "egressIPs": [] }));
    world.net_namespaces().patch(&name, &PatchParams::default(), &nothing).await?;
    world.served(&name).await?;
    world.host_subnets().patch(node, &PatchParams::default(), &nothing).await?;
    eventually("the HostSubnet lists it again", async || {
        Ok(world.host_subnets().get(node).await?.egress_ips.contains(&address.to_string()))
    })
    .await?;
    for place in ["cloud", "netnamespace", "hostsubnet"] {
        let series = format!("portolan_ipam_drift_repairs_total{{where=\"{place}\"}}");
        eventually(&series, async || Ok(operator.metric(&series).await.is_ok_and(|count| count == "1"))).await?;
    }
    operator.stop().await
}
