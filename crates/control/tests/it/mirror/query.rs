//! `portolan why`, `plan` and `status` about mirrors.

use anyhow::ensure;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::PostParams;
use portolan_control::mirror::CAPABILITY;
use portolan_control::query;
use portolan_control::runtime::query::QueryResult;
use serde_json::json;

use super::harness::World;
use crate::harness::Backend;

/// A world in which the operator's namespace can be found, with a Service `web` in the remote.
async fn world() -> anyhow::Result<World> {
    let world = World::new(Backend::Embedded).await?;
    let leases: Api<Lease> = Api::namespaced(world.local.clone(), &world.home);
    let lease = json!({ "metadata": { "name": "portolan-operator" }, "spec": {} });
    leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
    world.node("n1", "10.1.0.1").await?;
    world.source("web", 30080).await?;
    Ok(world)
}

async fn why(world: &World, name: &str) -> anyhow::Result<QueryResult> {
    let name = format!("{}/{name}", world.namespace);
    Ok(query::why(&[&CAPABILITY], &world.local, "service", &name, None).await?)
}

fn says(result: &QueryResult, part: &str) -> bool {
    result.rows.iter().any(|row| row["says"].as_str().is_some_and(|text| text.contains(part)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_service_names_the_row_that_decided_and_what_stands_against_it() -> anyhow::Result<()> {
    let world = world().await?;
    world.east(json!({})).await?;
    let before = why(&world, "web").await?;
    ensure!(!before.yes && says(&before, "the operator has something to write"), "{before:#?}");
    let operator = world.operator().await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    let mirrored = why(&world, "web").await?;
    ensure!(
        mirrored.yes && says(&mirrored, "made for east") && says(&mirrored, "1 endpoints of east"),
        "{mirrored:#?}"
    );
    let internal = json!({ "type": "ClusterIP", "ports": [{ "port": 80 }] });
    world.source_with("internal", internal).await?;
    let internal = why(&world, "internal").await?;
    ensure!(!internal.yes && says(&internal, "its type is not mirrored"), "{internal:#?}");
    let nobody = query::why(&[&CAPABILITY], &world.local, "service", "nowhere/nothing", None).await;
    ensure!(nobody.is_err(), "{nobody:?}");
    let status = query::status(&[&CAPABILITY], &world.local, None).await?;
    world.ready("east").await?;
    ensure!(status.len() == 1 && status[0].result.rows[0]["name"] == "east", "{status:?}");
    operator.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_says_what_a_remote_cluster_would_mirror_and_what_a_service_would_displace() -> anyhow::Result<()> {
    let world = world().await?;
    world.credentials("east").await?;
    let east = json!({
        "apiVersion": "portolan.dev/v1alpha1", "kind": "RemoteCluster", "metadata": { "name": "east" },
        "spec": {
            "credentials": { "kubeconfigSecret": { "name": "east" } }, "addresses": { "allowedCIDRs": ["10.0.0.0/8"] },
        },
    });
    let plan = query::plan(&[&CAPABILITY], &world.local, vec![east]).await?;
    let web = format!("service {}/web", world.namespace);
    let mirrored = plan.rows.iter().any(|row| row["what"] == web.as_str() && row["change"] == "mirrored");
    ensure!(mirrored && !plan.yes, "{plan:#?}");
    world.east(json!({})).await?;
    let own = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web", "namespace": world.namespace },
        "spec": { "ports": [{ "port": 80 }] },
    });
    let plan = query::plan(&[&CAPABILITY], &world.local, vec![own]).await?;
    let conflict = plan.rows.iter().any(|row| row["what"] == web.as_str() && row["change"] == "NameConflict");
    ensure!(conflict, "{plan:#?}");
    Ok(())
}
