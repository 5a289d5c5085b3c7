//! `plan`, `why`, `status` and `doctor` say what the operator does.

use anyhow::ensure;
use kube::api::{Patch, PatchParams};
use portolan_api::gateway::{Endpoint, ServicePrefix};
use portolan_control::doctor::{self, Request};
use portolan_control::runtime::query::QueryResult;
use portolan_control::{CAPABILITIES, query};
use serde_json::{Value, json};

use super::harness::World;
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(a_plan_says_which_key_and_address_the_operator_gives, queries_name_the_first_problem);

fn object(kind: &str, namespace: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "egw.acnodal.io/v1", "kind": kind,
        "metadata": { "name": name, "namespace": namespace }, "spec": spec,
    })
}

fn rows(result: &QueryResult) -> Vec<(String, String, String)> {
    let text = |row: &serde_json::Map<String, Value>, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    result.rows.iter().map(|row| (text(row, "what"), text(row, "change"), text(row, "to"))).collect()
}

async fn a_plan_says_which_key_and_address_the_operator_gives(backend: Backend) -> anyhow::Result<()> {
    let (world, operator) = World::operated(backend, "192.0.2.8/29").await?;
    let acme = World::name("acme");
    world.account(&acme).await?;
    world.load_balancer(&acme, "first").await?;
    world.ready(&acme, "first").await?;
    let own = format!("egw-{acme}");
    let spec = json!({ "service-group": "sample", "public-ports": [{ "port": 80, "targetPort": 8080 }] });
    let endpoint = json!({
        "load-balancer": "second", "address": "10.1.0.1", "node-address": "10.0.0.1", "port": { "port": 8080 },
    });
    let changes = vec![object("LoadBalancer", &own, "second", &spec), object("Endpoint", &own, "e", &endpoint)];
    let planned = query::plan(CAPABILITIES, &world.client, changes).await?;
    ensure!(planned.warnings.is_empty(), "{planned:?}");
    let found = rows(&planned);
    world.load_balancer_with(&acme, "second", json!({ "public-ports": spec["public-ports"] })).await?;
    world.create::<Endpoint>(&own, "e", endpoint).await?;
    let given = world.ready(&acme, "second").await?.spec;
    let what = format!("LoadBalancer {acme}/second");
    let has = |change: &str, to: &str| found.contains(&(what.clone(), change.to_owned(), to.to_owned()));
    ensure!(has("gets a key", &given.gue_key.to_string()), "{found:?}");
    ensure!(has("gets an address", &given.public_address), "{found:?}");
    ensure!(
        found.iter().any(|(what, change, to)| what.starts_with("Envoy ") && change == "endpoints" && to == "1"),
        "{found:?}"
    );

    // what is refused is said before
    let denied = json!({
        "load-balancer": "second", "address": "169.254.169.254", "node-address": "10.0.0.1", "port": { "port": 8080 },
    });
    let planned = query::plan(CAPABILITIES, &world.client, vec![object("Endpoint", &own, "bad", &denied)]).await?;
    ensure!(rows(&planned).iter().any(|(_, change, _)| change == "AddressDenied"), "{:?}", planned.rows);
    ensure!(planned.warnings.iter().any(|warning| warning.contains("--gateway-endpoint-deny")), "{planned:?}");
    let shrunk =
        object("ServicePrefix", "egw", "default", &json!({ "subnet": "192.0.2.0/24", "pool": "192.0.2.9-192.0.2.10" }));
    let planned = query::plan(CAPABILITIES, &world.client, vec![shrunk]).await?;
    ensure!(rows(&planned).iter().any(|(_, change, _)| change == "OutsidePool"), "{:?}", planned.rows);
    operator.process.stop().await?;
    Ok(())
}

async fn queries_name_the_first_problem(backend: Backend) -> anyhow::Result<()> {
    let (world, operator) = World::operated(backend, "192.0.2.8-192.0.2.8").await?;
    let acme = World::name("acme");
    world.account(&acme).await?;
    world.load_balancer(&acme, "served").await?;
    world.ready(&acme, "served").await?;
    world.load_balancer(&acme, "waits").await?;
    world.shows(&acme, "waits", "Ready", "PoolExhausted").await?;

    let status = query::status(CAPABILITIES, &world.client, Some("gateway")).await?;
    let result = &status[0].result;
    ensure!(!result.yes, "{result:?}");
    let waiting = result.rows.iter().find(|row| row["name"] == "waits").and_then(|row| row["problem"].as_str());
    ensure!(waiting.is_some_and(|text| text.starts_with("PoolExhausted")), "{:?}", result.rows);
    let why = query::why(CAPABILITIES, &world.client, "lb", &format!("{acme}/served"), None).await?;
    ensure!(why.yes && why.summary.ends_with("is served at 192.0.2.8"), "{why:?}");
    let why = query::why(CAPABILITIES, &world.client, "lb", &format!("{acme}/waits"), None).await?;
    ensure!(!why.yes && why.summary.contains("PoolExhausted"), "{why:?}");
    ensure!(query::why(CAPABILITIES, &world.client, "lb", &format!("{acme}/none"), None).await.is_err());

    let request = Request { capability: Some("gateway".to_owned()), ..Request::default() };
    let found = async || -> anyhow::Result<String> {
        let diagnosis = doctor::examine(CAPABILITIES, &world.client, &request).await?;
        Ok(serde_json::to_string(&diagnosis.result().rows)?)
    };
    ensure!(found().await?.contains("PoolExhausted"), "{}", found().await?);
    let wider = Patch::Merge(json!({ "spec": { "pool": "192.0.2.8-192.0.2.9" } }));
    world.of::<ServicePrefix>("egw").patch("default", &PatchParams::default(), &wider).await?;
    world.ready(&acme, "waits").await?;
    eventually("status says yes", async || {
        Ok(query::status(CAPABILITIES, &world.client, Some("gateway")).await?[0].result.yes)
    })
    .await?;
    operator.process.stop().await?;
    Ok(())
}
