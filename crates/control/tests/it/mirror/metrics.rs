//! What the mirror counts.

use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::harness::{Operator, World, status};
use crate::harness::{Backend, eventually};

async fn counts(operator: &Operator, name: &str, words: &[&str], at_least: f64) -> anyhow::Result<()> {
    let what = format!("{name} {words:?} is {at_least}");
    eventually(&what, async || Ok(operator.metric(name, words).await? >= at_least)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_repairs_and_refusals_are_counted() -> anyhow::Result<()> {
    let world = World::new(Backend::Embedded).await?;
    world.node("n1", "10.1.0.1").await?;
    world.node_with("bad", json!({}), status(true, &["127.0.0.1"])).await?;
    world.source("web", 30080).await?;
    // A mirror of a remote that nobody knows.
    let labels = json!({ "tfw.io/barrelman": "managed-resource", "mirror.portolan.dev/remote": "west" });
    world
        .local_service(
            json!({ "metadata": { "name": "left", "labels": labels }, "spec": { "ports": [{ "port": 80 }] } }),
        )
        .await?;
    world.east(json!({ "addresses": { "allowedCIDRs": ["0.0.0.0/0"] } })).await?;
    let operator = world.operator().await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    counts(&operator, "portolan_mirror_unclaimed_objects", &[], 1.0).await?;
    counts(&operator, "portolan_mirror_addresses_rejected_total", &["east", "special"], 1.0).await?;
    let converged = "portolan_mirror_convergence_seconds_count";
    assert!(operator.metric(converged, &[]).await? < 0.5, "a first list is no change");

    world.source("late", 30090).await?;
    world.endpoints_are("late", &["10.1.0.1:30090/TCP"]).await?;
    counts(&operator, converged, &["east"], 1.0).await?;
    let repaired = "portolan_mirror_drift_repaired_total";
    assert!(operator.metric(repaired, &[]).await? < 0.5, "nobody changed anything here");

    let edit = json!({ "spec": { "ports": [{ "port": 81, "targetPort": 1 }] } });
    world.services().patch("web", &PatchParams::default(), &Patch::Merge(edit)).await?;
    counts(&operator, repaired, &["\"service\""], 1.0).await?;
    let slices =
        Api::<k8s_openapi::api::discovery::v1::EndpointSlice>::namespaced(world.local.clone(), &world.namespace);
    slices.delete(&world.slices("web").await?.remove(0).name_any(), &DeleteParams::default()).await?;
    counts(&operator, repaired, &["\"endpointslice\""], 1.0).await?;

    world.sources().delete("late", &DeleteParams::default()).await?;
    world.gone("late").await?;
    counts(&operator, "portolan_mirror_swept_total", &["east"], 1.0).await?;
    counts(&operator, converged, &["east"], 2.0).await?;
    assert!((operator.metric("portolan_mirror_addresses_rejected_total", &[]).await? - 1.0).abs() < 0.1, "once");
    operator.stop().await
}
