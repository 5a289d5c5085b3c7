//! What users ask about ipam, and that the operator then does what the answer said.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use portolan_control::runtime::query::{QueryError, QueryResult};
use portolan_control::{CAPABILITIES, ipam, query};
use portolan_drivers::cloud::aws::{AwsOptions, AwsSettings, LazyAws};
use serde_json::{Value, json};

use super::harness::{PREFIX, STATUS, World};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    status_and_why_say_who_is_served_and_where,
    a_plan_names_the_nodes_that_a_namespace_then_gets,
    the_loss_of_a_node_moves_what_was_predicted,
    a_cloud_that_cannot_be_read_is_reported_at_the_namespace,
}

async fn status(world: &World) -> anyhow::Result<QueryResult> {
    let mut sections = query::status(CAPABILITIES, &world.client, Some("ipam")).await?;
    Ok(sections.pop().context("one capability was asked for")?.result)
}

async fn why(world: &World, name: &str) -> Result<QueryResult, QueryError> {
    query::why(CAPABILITIES, &world.client, "namespace", name, None).await
}

fn says(result: &QueryResult) -> String {
    result.rows.iter().filter_map(|row| row["says"].as_str()).collect::<Vec<_>>().join("\n")
}

async fn status_and_why_say_who_is_served_and_where(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, &[1, 1]).await?;
    let name = world.asking(None).await?;
    let waiting = status(&world).await?;
    ensure!(!waiting.yes && waiting.rows[0]["served"] == false, "{waiting:?}");
    let waits = why(&world, &name).await?;
    ensure!(!waits.yes && waits.summary.contains("does the operator run"), "{waits:?}");
    let operator = world.operator().await?;
    let nodes = world.served(&name).await?;
    let result = status(&world).await?;
    let addresses: Vec<String> = nodes.keys().map(ToString::to_string).collect();
    ensure!(result.yes && result.summary == "1 of 1 namespaces are served", "{result:?}");
    ensure!(result.rows[0]["addresses"] == addresses.join(","), "{result:?}");
    let explained = why(&world, &name).await?;
    ensure!(explained.yes, "{explained:?}");
    for (address, node) in &nodes {
        ensure!(says(&explained).contains(&format!("for node {node}")), "{explained:?}");
        ensure!(says(&explained).contains(&format!("lists {address}")), "{explained:?}");
    }
    let bad = world.asking(Some("10.99.0.7")).await?;
    eventually("a bad request is reported", async || Ok(world.annotation(&bad, STATUS).await?.is_some())).await?;
    ensure!(!status(&world).await?.yes);
    let explained = why(&world, &bad).await?;
    ensure!(!explained.yes && says(&explained).contains("InvalidRequest"), "{explained:?}");
    let quiet = world.namespace().await?;
    let explained = why(&world, &quiet).await?;
    ensure!(explained.yes && says(&explained).contains("does not ask for egress addresses"), "{explained:?}");
    ensure!(matches!(why(&world, "nobody").await, Err(QueryError::NotFound { .. })));
    operator.stop().await
}

fn namespace(name: &str, list: Option<&str>) -> Value {
    let mut annotations = json!({ format!("{PREFIX}egressipam"): "yes" });
    if let Some(list) = list {
        annotations[format!("{PREFIX}egressips")] = list.into();
    }
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "annotations": annotations } })
}

/// The values of one column for rows with this change.
fn column<'a>(result: &'a QueryResult, change: &str, key: &str) -> Vec<&'a str> {
    let rows = result.rows.iter().filter(|row| row["change"].as_str().is_some_and(|text| text.starts_with(change)));
    rows.filter_map(|row| row[key].as_str()).collect()
}

async fn a_plan_names_the_nodes_that_a_namespace_then_gets(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, &[3, 2]).await?;
    let operator = world.operator().await?;
    let first = world.asking(None).await?;
    let taken = *world.served(&first).await?.keys().next().context("it has addresses")?;
    let name = world.namespace().await?;
    let result = query::plan(CAPABILITIES, &world.client, vec![namespace(&name, None)]).await?;
    let mut planned: Vec<String> = column(&result, "gets an address", "to").into_iter().map(str::to_owned).collect();
    ensure!(planned.len() == 2 && !result.yes, "{result:?}");
    let again = query::plan(CAPABILITIES, &world.client, vec![namespace(&first, None)]).await?;
    ensure!(again.yes, "a namespace that is served changes nothing: {again:?}");
    let asked = query::plan(CAPABILITIES, &world.client, vec![namespace(&name, Some(&taken.to_string()))]).await?;
    ensure!(column(&asked, "AddressInUse", "to") == [taken.to_string()], "{asked:?}");
    let asked = query::plan(CAPABILITIES, &world.client, vec![namespace(&name, Some("10.77.0.99"))]).await?;
    ensure!(column(&asked, "requested", "to") == ["10.77.0.99"], "{asked:?}");
    world.annotate(&name, json!({ format!("{PREFIX}egressipam"): "yes" })).await?;
    let mut got: Vec<String> = world.served(&name).await?.into_values().collect();
    planned.sort();
    got.sort();
    ensure!(planned == got, "{planned:?} were named, {got:?} got them");
    let mut leaving = namespace(&first, None);
    leaving["metadata"]["annotations"][format!("{PREFIX}egressipam")] = Value::Null;
    let result = query::plan(CAPABILITIES, &world.client, vec![leaving]).await?;
    ensure!(column(&result, "released", "what").len() == 2, "{result:?}");
    operator.stop().await
}

async fn the_loss_of_a_node_moves_what_was_predicted(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, &[3]).await?;
    let operator = world.operator().await?;
    let mut names = BTreeMap::new();
    for _ in 0..4 {
        let name = world.asking(None).await?;
        for address in world.served(&name).await?.into_keys() {
            names.insert(address.to_string(), name.clone());
        }
    }
    let mut sections = query::node_loss(CAPABILITIES, &world.client, Some("ipam"), "a1").await?;
    let result = sections.pop().context("one capability was asked for")?.result;
    let moved = column(&result, "moved", "what").into_iter().zip(column(&result, "moved", "to"));
    let planned: BTreeMap<String, String> =
        moved.map(|(what, to)| (what.trim_start_matches("address ").to_owned(), to.to_owned())).collect();
    ensure!(!planned.is_empty(), "{result:?}");
    world.set_ready("a1", false).await?;
    for (address, to) in &planned {
        let is_there = async || {
            let service = world.service(&names[address]).await?;
            Ok(service.is_some_and(|nodes| nodes.values().any(|node| node == to)))
        };
        eventually(&format!("{address} is on {to}"), is_there).await?;
    }
    let none = query::node_loss(CAPABILITIES, &world.client, Some("ipam"), "nobody").await;
    ensure!(matches!(none, Err(QueryError::NotFound { .. })));
    operator.stop().await
}

async fn a_cloud_that_cannot_be_read_is_reported_at_the_namespace(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, &[1]).await?;
    let name = world.asking(None).await?;
    let nowhere = AwsSettings { metadata_disabled: true, ..AwsSettings::default() };
    let cloud = Arc::new(LazyAws::new(nowhere, AwsOptions::default()));
    let operator =
        world.operator_with(ipam::Options { backend: ipam::Backend::Sdn, ..ipam::Options::on(cloud) }).await?;
    eventually("the namespace says why", async || {
        Ok(world.annotation(&name, STATUS).await?.is_some_and(|status| status.contains("set AWS_REGION")))
    })
    .await?;
    ensure!(operator.failures(&name).await? == Some(1), "the gauge shows it");
    operator.stop().await?;
    let operator = world.operator().await?;
    world.served(&name).await?;
    ensure!(world.annotation(&name, STATUS).await?.is_none(), "it is served, so nothing is wrong");
    operator.stop().await
}
