//! The first moment of a term: nodes of a fresh cluster get ready one after another.

use std::time::Duration;

use portolan_control::egress::Options;
use portolan_testkit::{FaultProxy, Faults};
use serde_json::json;

use super::harness::{Operator, World, egress_options};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    a_fresh_cluster_is_spread_over_its_nodes,
    a_node_that_does_not_get_ready_is_not_waited_for_long,
}

/// Three nodes without tunnels, and six policies that want an address each.
async fn fresh(backend: Backend) -> anyhow::Result<(World, FaultProxy)> {
    let world = World::new(backend).await?;
    for node in ["n1", "n2", "n3"] {
        world.node(node).await?;
    }
    world.gateway("eg1", &["10.6.1.60-10.6.1.65"]).await?;
    for name in ["a", "b", "c", "d", "e", "f"] {
        world.policy(name, "eg1", json!({ "allocatorPolicy": "rr" })).await?;
    }
    let proxy = FaultProxy::start(world.client.clone(), Faults::default()).await?;
    Ok((world, proxy))
}

async fn a_fresh_cluster_is_spread_over_its_nodes(backend: Backend) -> anyhow::Result<()> {
    let (world, proxy) = fresh(backend).await?;
    let patient = Options { await_nodes: Duration::from_mins(2), ..egress_options() };
    let operator = Operator::start_with(&proxy, patient)?;
    for node in ["n1", "n2"] {
        world.set_phase(node, "Ready").await?;
        let turns = operator.turns();
        world.label_node(node, "seen", Some("true")).await?;
        eventually("the operator saw it", async || Ok(operator.turns() > turns)).await?;
        assert!(world.ledger().await?.is_empty(), "another node is coming");
    }
    let gateway = world.gateways().get("eg1").await?.metadata.uid;
    let about = |object: &k8s_openapi::api::core::v1::ObjectReference| {
        object.namespace.as_deref() == Some(world.namespace.as_str()) || object.uid == gateway
    };
    assert!(!world.event_reasons(about).await?.contains(&"NoReadyNode".to_owned()), "nobody must act yet");
    world.set_phase("n3", "Ready").await?;
    eventually("two addresses live on each node", async || {
        let ledger = world.ledger().await?;
        Ok(["n1", "n2", "n3"].iter().all(|node| ledger.values().filter(|holder| holder == node).count() == 2))
    })
    .await?;
    operator.stop().await
}

async fn a_node_that_does_not_get_ready_is_not_waited_for_long(backend: Backend) -> anyhow::Result<()> {
    let (world, proxy) = fresh(backend).await?;
    let hasty = Options { await_nodes: Duration::from_millis(500), ..egress_options() };
    let operator = Operator::start_with(&proxy, hasty)?;
    world.set_phase("n2", "Ready").await?;
    eventually("all addresses live on the one node that is ready", async || {
        let ledger = world.ledger().await?;
        Ok(ledger.len() == 6 && ledger.values().all(|holder| holder == "n2"))
    })
    .await?;
    operator.stop().await
}
