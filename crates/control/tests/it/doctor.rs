//! `portolan doctor` over a table of capabilities: what is missing on a cluster, and repairs that others race with.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::ensure;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use portolan_control::doctor::{self, Request};
use portolan_control::runtime::capability::{Capability, Queries};
use portolan_control::runtime::doctor::{Check, Checks, Examination, Repair, edit};
use portolan_control::runtime::query::{QueryError, QueryResult};
use portolan_control::{CAPABILITIES, install};
use serde_json::json;

use crate::harness::{Backend, Server, on_both_servers};
use crate::tickets;

/// What the rows with this verdict are about.
fn objects(result: &QueryResult, verdict: &str) -> Vec<String> {
    let rows = result.rows.iter().filter(|row| row["verdict"] == verdict);
    rows.map(|row| format!("{} {}", row["check"], row["object"]).replace('"', "")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_definitions_are_found_and_an_operator_in_the_same_process_is_enough() -> anyhow::Result<()> {
    let server = Server::start(Backend::Embedded).await?;
    let request = Request::default();
    let before = doctor::examine(CAPABILITIES, &server.client, &request).await?.result();
    let missing = objects(&before, "fail");
    ensure!(!before.yes && missing.len() > 5, "{before:#?}");
    let gateways = "definitions CustomResourceDefinition/egressgateways.egressgateway.spidernet.io";
    ensure!(missing.iter().any(|object| object == gateways), "{missing:?}");
    install::definitions(&server.client).await?;
    let after = doctor::examine(CAPABILITIES, &server.client, &request).await?.result();
    ensure!(after.yes && after.summary == "nothing is wrong", "{after:#?}");
    let unknown = Request { capability: Some("egres".to_owned()), ..Request::default() };
    let refused = doctor::examine(CAPABILITIES, &server.client, &unknown).await;
    ensure!(matches!(refused, Err(QueryError::Invalid { .. })), "{refused:?}");
    let named = Examination { name: Some("nobody".to_owned()), cloud: None };
    let unknown = Request { capability: Some("egress".to_owned()), examination: named };
    let refused = doctor::examine(CAPABILITIES, &server.client, &unknown).await;
    ensure!(matches!(refused, Err(QueryError::NotFound { .. })), "{refused:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_nobody_renews_is_an_operator_that_does_not_run() -> anyhow::Result<()> {
    let server = Server::start(Backend::Embedded).await?;
    let namespace = server.namespace("doctor").await?;
    let leases: Api<Lease> = Api::namespaced(server.client.clone(), &namespace);
    let spec =
        json!({ "holderIdentity": "pod-1", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z" });
    let lease = json!({ "metadata": { "name": "portolan-operator" }, "spec": spec });
    leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
    let result = doctor::examine(&[], &server.client, &Request::default()).await?.result();
    ensure!(objects(&result, "fail") == [format!("operator Lease/{namespace}/portolan-operator")], "{result:#?}");
    let now =
        json!({ "spec": { "renewTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string() } });
    leases.patch("portolan-operator", &PatchParams::default(), &Patch::Merge(now)).await?;
    let result = doctor::examine(&[], &server.client, &Request::default()).await?.result();
    ensure!(result.yes, "{result:#?}");
    Ok(())
}

on_both_servers! {
    a_repair_is_made_in_spite_of_others_who_write_and_shown_with_the_new_state,
}

/// Tickets, with a check of their own.
const CAPABILITY: Capability = Capability {
    kinds: &[],
    admission: None,
    queries: Queries { doctor: |client, examination| check(client, examination), ..tickets::CAPABILITY.queries },
    ..tickets::CAPABILITY
};

/// Whether ConfigMap `receipt` of the namespace that was asked for is marked.
fn check(client: Client, examination: Examination) -> Checks {
    Box::pin(async move {
        let namespace = examination.name.unwrap_or_default();
        let receipts: Api<ConfigMap> = Api::namespaced(client, &namespace);
        let read = receipts.get("receipt").await;
        let receipt = read.map_err(|cause| QueryError::Unreachable { what: "receipts", cause: Box::new(cause) })?;
        if receipt.annotations().contains_key("marked") {
            return Ok(vec![Check::ok("receipts", "marked")]);
        }
        let repair = Repair::new("mark ConfigMap receipt", async move { mark(&receipts).await });
        let found = Check::fail("receipts", "ConfigMap/receipt", "not marked", "mark it");
        Ok(vec![Check { repair: Some(repair), ..found }])
    })
}

/// Marks it, while somebody else writes it once.
async fn mark(receipts: &Api<ConfigMap>) -> Result<(), kube::Error> {
    let disturbed = AtomicBool::new(false);
    edit(receipts, "receipt", |seen| {
        let other = Patch::Merge(json!({ "data": { "written": "by another" } }));
        if !disturbed.swap(true, Ordering::SeqCst) {
            let parameters = PatchParams::default();
            let writing = receipts.patch("receipt", &parameters, &other);
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(writing)).ok()?;
        }
        (!seen.annotations().contains_key("marked"))
            .then(|| json!({ "metadata": { "annotations": { "marked": "yes" } } }))
    })
    .await
}

async fn a_repair_is_made_in_spite_of_others_who_write_and_shown_with_the_new_state(
    backend: Backend,
) -> anyhow::Result<()> {
    let server = Server::start(backend).await?;
    let namespace = server.namespace("doctor").await?;
    let receipts: Api<ConfigMap> = Api::namespaced(server.client.clone(), &namespace);
    let receipt = serde_json::from_value(json!({ "metadata": { "name": "receipt" } }))?;
    receipts.create(&PostParams::default(), &receipt).await?;
    let examination = Examination { name: Some(namespace), cloud: None };
    let request = Request { capability: Some("tickets".to_owned()), examination };
    let table = [&CAPABILITY];
    let found = doctor::examine(&table, &server.client, &request).await?;
    ensure!(found.repairs().collect::<Vec<_>>() == ["mark ConfigMap receipt"], "{found:#?}");
    let repaired = doctor::repair(&table, &server.client, &request, found).await?;
    ensure!(repaired.repairs().next().is_none(), "{repaired:#?}");
    let rows = repaired.result().rows;
    let of_receipts: Vec<_> = rows.iter().filter(|row| row["check"] == "receipts").collect();
    let [done, now] = of_receipts[..] else { anyhow::bail!("{rows:#?}") };
    ensure!(done["verdict"] == "ok" && done["seen"] == "repaired: mark ConfigMap receipt", "{done:?}");
    ensure!(now["verdict"] == "ok" && now["seen"] == "marked", "{now:?}");
    let receipt = receipts.get("receipt").await?;
    ensure!(receipt.data.is_some(), "the other write stays: {receipt:?}");
    Ok(())
}
