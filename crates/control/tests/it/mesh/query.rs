//! Queries about the mesh: why an object has its status, what a change would do, and the state of all objects.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use portolan_api::mesh::VirtualService;
use portolan_control::CAPABILITIES;
use portolan_control::query;
use portolan_control::runtime::query::{QueryError, QueryResult};
use serde_json::{Map, Value, json};

use super::harness::{ECHO, SIDECAR, World};
use crate::chart::{deploy, metrics};
use crate::harness::{Backend, eventually};

const GATEWAY: &str = "
{apiVersion: v1, kind: Service, metadata: {name: worker-svc}, spec: {selector: {app: worker}, ports: [{protocol: UDP, port: 9999}]}}
---
{apiVersion: l7mp.io/v1, kind: Route, metadata: {name: way}, spec: {destination: worker-svc, ingress: [{spec: {protocol: Echo}}]}}
---
{apiVersion: l7mp.io/v1, kind: VirtualService, metadata: {name: gateway-vsvc}, spec: {
  selector: {matchLabels: {app: gateway}}, listener: {spec: {UDP: {port: 9001}}}, rules: {action: {route: way}}}}
";

/// A gateway that leads to a naked worker, in force.
async fn gateway() -> anyhow::Result<(World, super::harness::Operator)> {
    let mut world = World::new(Backend::Embedded).await?;
    world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    world.pod("worker-1", &[("app", "worker")], ECHO).await?;
    let operator = world.operator().await?;
    world.apply(GATEWAY).await?;
    world.until("gateway-vsvc", "Programmed", "True", "Programmed").await?;
    eventually("all is said of it and of its route", async || {
        let seen = world.api::<VirtualService>().get("gateway-vsvc").await?;
        let said = seen.annotations().contains_key("operator.l7mp.io/applied");
        Ok(said && status(&world).await?.yes)
    })
    .await?;
    Ok((world, operator))
}

async fn why(world: &World, kind: &str, name: &str) -> Result<QueryResult, QueryError> {
    query::why(CAPABILITIES, &world.client, kind, &format!("{}/{name}", world.namespace), None).await
}

async fn status(world: &World) -> anyhow::Result<QueryResult> {
    let mut sections = query::status(CAPABILITIES, &world.client, Some("mesh")).await?;
    anyhow::ensure!(sections.len() == 1, "one capability was asked for: {sections:#?}");
    Ok(sections.remove(0).result)
}

fn of_kind<'a>(result: &'a QueryResult, kind: &str) -> anyhow::Result<&'a Map<String, Value>> {
    let found = result.rows.iter().find(|row| row["kind"] == kind);
    found.ok_or_else(|| anyhow::anyhow!("no {kind}: {:#?}", result.rows))
}

fn at<'a>(answer: &'a QueryResult, place: &str) -> anyhow::Result<&'a Map<String, Value>> {
    let found = answer.rows.iter().find(|row| row["place"] == place);
    found.ok_or_else(|| anyhow::anyhow!("nothing stands at {place}: {:#?}", answer.rows))
}

fn change<'a>(answer: &'a QueryResult, what: &str, change: &str) -> anyhow::Result<&'a Map<String, Value>> {
    let found = answer.rows.iter().find(|row| row["what"] == what && row["change"] == change);
    found.ok_or_else(|| anyhow::anyhow!("{what} is not {change}: {:#?}", answer.rows))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_names_the_step_that_decided_over_each_hop_and_shows_the_normal_form() -> anyhow::Result<()> {
    let (world, operator) = gateway().await?;
    let answer = why(&world, "vsvc", "gateway-vsvc").await?;
    assert!(answer.yes, "{answer:#?}");
    let hop = at(&answer, "rules[0].route.destination")?;
    assert_eq!((&hop["name"], &hop["step"]), (&json!("worker-svc"), &json!(3)));
    let says = hop["says"].as_str().unwrap_or_default();
    assert!(says.contains("worker-svc, through a generated VirtualService"), "{says}");
    assert_eq!(at(&answer, "rules[0].route.ingress[0]")?["says"], "an inline Target");
    assert_eq!(at(&answer, "spec")?["normal"]["listener"], json!({ "protocol": "UDP", "port": 9001 }));
    assert_eq!(at(&answer, "proxy")?["name"], format!("{}/gateway", world.namespace));
    assert_eq!(at(&answer, "status")?["says"], "1 of 1 proxies hold it");
    assert!(answer.summary.ends_with("gateway-vsvc is programmed"), "{}", answer.summary);

    let route = why(&world, "rte", "way").await?;
    assert_eq!(at(&route, "destination")?["step"], 3);
    assert_eq!(at(&route, "used by")?["name"], format!("VirtualService {}/gateway-vsvc", world.namespace));
    let target = why(&world, "target", "worker-svc").await?;
    let users = at(&target, "generated")?["says"].as_str().unwrap_or_default();
    assert!(users.starts_with("generated for ") && users.contains("way"), "{users}");

    let status = status(&world).await?;
    assert!(status.yes, "{status:#?}");
    let gateway = of_kind(&status, "VirtualService")?;
    assert_eq!(
        (&gateway["programmed"], &gateway["proxies"]),
        (&json!("True"), &json!({ "programmed": 1, "total": 1 }))
    );
    assert_eq!(status.summary, "all 2 mesh objects are programmed", "generated objects are not listed");

    world.apply("{apiVersion: l7mp.io/v1, kind: Route, metadata: {name: astray}, spec: {destination: nobody}}").await?;
    let astray = why(&world, "route", "astray").await?;
    assert_eq!((astray.yes, &at(&astray, "destination")?["step"]), (false, &json!(4)));
    assert!(matches!(why(&world, "tr", "nobody").await, Err(QueryError::NotFound { .. })));
    eventually("the status of all names the one that is not programmed", async || {
        let status = self::status(&world).await?;
        let astray = status.rows.iter().find(|row| row["name"] == "astray");
        let problem = astray.and_then(|row| row["problem"].as_str()).unwrap_or_default();
        Ok(!status.yes && problem.starts_with("RefNotFound: "))
    })
    .await?;
    operator.process.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_says_what_each_proxy_would_be_told_whose_sessions_end_and_writes_nothing() -> anyhow::Result<()> {
    let (world, operator) = gateway().await?;
    let namespace = &world.namespace;
    let version = world.api::<VirtualService>().get("gateway-vsvc").await?.metadata.resource_version;
    let object = |text: &str| -> anyhow::Result<Value> {
        let mut object: Value = serde_saphyr::from_str(text)?;
        object["metadata"]["namespace"] = json!(namespace);
        Ok(object)
    };
    let proxy = format!("proxy {namespace}/gateway");

    let same = query::plan(
        CAPABILITIES,
        &world.client,
        serde_saphyr::from_multiple::<Value>(GATEWAY)?
            .into_iter()
            .filter(|one| !one.is_null())
            .map(|mut one| {
                one["metadata"]["namespace"] = json!(namespace);
                one
            })
            .collect(),
    )
    .await?;
    assert_eq!((same.yes, same.summary.as_str()), (true, "nothing would change"), "{:#?}", same.rows);

    // a Target of the hop's name takes over from the generated one
    let own = object(
        "{apiVersion: l7mp.io/MSM/v1, kind: Target, metadata: {name: worker-svc}, spec: {selector: {matchLabels: {app: gateway}}, cluster: {spec: {protocol: UDP, port: 7777}, endpoints: [{spec: {address: 10.1.2.3}}]}}}",
    )?;
    let answer = query::plan(CAPABILITIES, &world.client, vec![own]).await?;
    assert!(!answer.yes);
    assert!(answer.warnings[0].contains("`l7mp.io/MSM/v1` cannot be stored: write `l7mp.io/v1`"), "{answer:#?}");
    change(&answer, &proxy, "put cluster")?;
    let gone = change(&answer, &proxy, "delete endpoint");
    assert!(gone.is_err() || gone?["why"] == "its sessions fail over if their route retries, else end");

    // without the rule that names it nothing is generated, and the way goes; the listener stays as it is
    let stub = object(
        "{apiVersion: l7mp.io/v1, kind: VirtualService, metadata: {name: gateway-vsvc}, spec: {selector: {matchLabels: {app: gateway}}, listener: {spec: {UDP: {port: 9001}}}, rules: []}}",
    )?;
    let answer = query::plan(CAPABILITIES, &world.client, vec![stub]).await?;
    for what in ["delete rule", "delete route"] {
        assert_eq!(change(&answer, &proxy, what)?["why"], "open sessions continue");
    }
    assert!(change(&answer, &proxy, "delete listener").is_err());

    let bad = object(
        "{apiVersion: l7mp.io/v1, kind: VirtualService, metadata: {name: second}, spec: {selector: {matchLabels: {app: gateway}}, listener: {protocol: UDP, port: 9001}, rules: []}}",
    )?;
    let answer = query::plan(CAPABILITIES, &world.client, vec![bad]).await?;
    change(&answer, &format!("VirtualService {namespace}/second"), "PortConflict")?;

    assert_eq!(world.api::<VirtualService>().get("gateway-vsvc").await?.metadata.resource_version, version);
    operator.process.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_of_the_mesh_that_is_shown_or_documented_exists() -> anyhow::Result<()> {
    let (_world, operator) = gateway().await?;
    let known = metrics(operator.process.admin_at()).await?;
    let known: BTreeSet<&str> =
        known.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    for file in ["monitoring/alerts.yaml", "monitoring/dashboard.json", "../docs/reference/mesh.md"] {
        let text = std::fs::read_to_string(deploy().join(file))?;
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let shown: BTreeSet<&str> = words
            .filter(|word| word.starts_with("portolan_mesh_"))
            .map(|word| word.trim_end_matches("_bucket").trim_end_matches("_total"))
            .collect();
        anyhow::ensure!(!shown.is_empty(), "{file} shows none");
        let missing: Vec<_> = shown.difference(&known).collect();
        assert!(missing.is_empty(), "{file}: {missing:?}");
    }
    operator.process.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_file_may_hold_objects_of_egress_and_of_the_mesh() -> anyhow::Result<()> {
    let (world, operator) = gateway().await?;
    let text = "
{apiVersion: egressgateway.spidernet.io/v1beta1, kind: EgressGateway, metadata: {name: eg1}, spec: {ippools: {ipv4: [nonsense]}, nodeSelector: {selector: {matchLabels: {egress: \"true\"}}}}}
---
{apiVersion: l7mp.io/v1, kind: VirtualService, metadata: {name: more, namespace: NAMESPACE}, spec: {selector: {matchLabels: {app: gateway}}, listener: {protocol: UDP, port: 9002}, rules: []}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: app}, spec: {}}
";
    let changes = serde_saphyr::from_multiple(&text.replace("NAMESPACE", &world.namespace))?;
    let answer = query::plan(CAPABILITIES, &world.client, changes).await?;
    change(&answer, "gateway eg1", "Invalid")?;
    change(&answer, &format!("proxy {}/gateway", world.namespace), "put listener")?;
    assert_eq!(answer.warnings, ["Deployment skipped: no capability plans changes to it"]);
    let alone = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "app" } });
    assert!(matches!(query::plan(CAPABILITIES, &world.client, vec![alone]).await, Err(QueryError::Invalid { .. })));
    eventually("the pods are still there", async || {
        Ok(world.api::<Pod>().list(&ListParams::default()).await?.items.len() == 2)
    })
    .await?;
    operator.process.stop().await?;
    Ok(())
}
