//! What users ask with OVN-Kubernetes in the cluster.

use anyhow::{Context as _, ensure};
use kube::api::{Patch, PatchParams};
use portolan_control::runtime::doctor::{Check, Examination, Verdict};
use portolan_control::{CAPABILITIES, ipam, query};
use serde_json::{Value, json};

use super::super::harness::PREFIX;
use super::harness::OvnWorld;
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    status_why_and_plans_know_the_egress_ip,
    doctor_repairs_an_edited_egress_ip,
}

async fn status_why_and_plans_know_the_egress_ip(backend: Backend) -> anyhow::Result<()> {
    let cluster = OvnWorld::new(backend, &[2, 1]).await?;
    let world = &cluster.world;
    let operator = cluster.operator().await?;
    let name = world.asking(None).await?;
    let nodes = cluster.served(&name).await?;
    let status = query::status(CAPABILITIES, &world.client, Some("ipam")).await?;
    let status = &status.first().context("one capability was asked for")?.result;
    ensure!(status.yes && status.warnings.is_empty() && status.rows.len() == 1, "{status:?}");
    let why = query::why(CAPABILITIES, &world.client, "namespace", &name, None).await?;
    let said: Vec<&str> = why.rows.iter().filter_map(|row| row["says"].as_str()).collect();
    ensure!(why.yes, "{why:?}");
    for (address, node) in &nodes {
        ensure!(said.iter().any(|said| said.contains(&format!("{address}, assigned to node {node}"))), "{said:?}");
        ensure!(said.contains(&&*format!("attached to node {node}")), "{said:?}");
    }
    let mut asking = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "planned" } });
    asking["metadata"]["annotations"] = json!({ format!("{PREFIX}egressipam"): "yes" });
    let plan = query::plan(CAPABILITIES, &world.client, vec![asking]).await?;
    let gets = |row: &&_| row_text(row, "change").starts_with("gets an address in zone");
    ensure!(plan.rows.iter().filter(gets).count() == 2, "{plan:?}");
    ensure!(plan.rows.iter().all(|row| row["to"].is_null()), "the node is not ours to choose: {plan:?}");
    let (address, node) = nodes.first_key_value().context("it has one")?;
    let lost = query::node_loss(CAPABILITIES, &world.client, Some("ipam"), node).await?;
    let lost = &lost.first().context("one capability was asked for")?.result;
    let [row] = &lost.rows[..] else { anyhow::bail!("{lost:?}") };
    ensure!(row_text(row, "what") == format!("address {address}") && row_text(row, "change") == "moved", "{row:?}");
    operator.stop().await
}

fn row_text<'a>(row: &'a portolan_control::runtime::query::Row, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

async fn wrong(cluster: &OvnWorld) -> anyhow::Result<Vec<Check>> {
    let examination = Examination { name: None, cloud: Some(cluster.world.cloud()) };
    let mut checks = (ipam::CAPABILITY.queries.doctor)(cluster.world.client.clone(), examination).await?;
    checks.retain(|check| check.verdict != Verdict::Ok);
    Ok(checks)
}

async fn doctor_repairs_an_edited_egress_ip(backend: Backend) -> anyhow::Result<()> {
    let cluster = OvnWorld::new(backend, &[2]).await?;
    let world = &cluster.world;
    let operator = cluster.operator().await?;
    let name = world.asking(None).await?;
    cluster.served(&name).await?;
    operator.stop().await?;
    let none = wrong(&cluster).await?;
    ensure!(none.is_empty(), "{none:#?}");
    let edits: [(Value, &str); 2] = [
        (json!({ "spec": { "namespaceSelector": { "matchLabels": { "team": "a" } } } }), "selector"),
        (json!({ "spec": { "egressIPs": ["10.77.0.250"] } }), "lacks"),
    ];
    for (edit, seen) in edits {
        cluster.egress_ips().patch(&name, &PatchParams::default(), &Patch::Merge(edit)).await?;
        let mut found = wrong(&cluster).await?;
        let object = format!("EgressIP/{name}");
        found.retain(|check| check.name == "egressip-addresses");
        let [check] = &mut found[..] else { anyhow::bail!("{found:#?}") };
        ensure!(check.object == object && check.seen.contains(seen), "{check:#?}");
        check.repair.take().context("it can be repaired")?.run().await?;
        let left = wrong(&cluster).await?;
        ensure!(left.iter().all(|check| check.name != "egressip-addresses"), "{left:#?}");
    }
    // the address went and came back: with the operator it is attached again
    let operator = cluster.operator().await?;
    cluster.served(&name).await?;
    eventually("doctor finds nothing", async || Ok(wrong(&cluster).await?.is_empty())).await?;
    operator.stop().await
}
