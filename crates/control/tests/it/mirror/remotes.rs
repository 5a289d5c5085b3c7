//! Remotes: how they are reached, and what is reported of them.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::harness::{World, status};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    a_source_is_mirrored_with_the_remotes_nodes_as_endpoints,
    a_remote_whose_secret_is_missing_says_so_and_starts_when_it_comes,
    a_remote_that_is_deleted_takes_its_mirrors_along,
    a_paused_remote_is_read_but_nothing_is_written,
}

async fn a_source_is_mirrored_with_the_remotes_nodes_as_endpoints(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    world.node("n2", "10.1.0.2").await?;
    world.node_with("n3", json!({}), status(false, &["10.1.0.3"])).await?;
    world.source("web", 30080).await?;
    world.east(json!({})).await?;
    let operator = world.operator().await?;
    let mirror = world.mirror("web").await?;
    let spec = mirror.spec.clone().unwrap_or_default();
    assert_eq!((spec.type_.as_deref(), spec.selector), (Some("ClusterIP"), None));
    let port = &spec.ports.unwrap_or_default()[0];
    assert_eq!((port.port, port.target_port.clone()), (80, Some(serde_json::from_value(json!(30080))?)));
    assert_eq!(mirror.labels()["mirror.portolan.dev/remote"], "east");
    world.endpoints_are("web", &["10.1.0.1:30080/TCP", "10.1.0.2:30080/TCP"]).await?;
    world.ready("east").await?;
    let status = world.remote_status("east").await?;
    let (services, nodes) = (status.services.unwrap_or_default(), status.nodes.unwrap_or_default());
    assert_eq!((services.candidates, services.mirrored, nodes.total, nodes.usable), (1, 1, 3, 2));
    assert!(status.cluster_uid.is_some() && status.server_version.is_some());
    operator.stop().await
}

async fn a_remote_whose_secret_is_missing_says_so_and_starts_when_it_comes(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    world.source("web", 30080).await?;
    world.remote_cluster("east", json!({})).await?;
    let operator = world.operator().await?;
    let message = world.condition("east", "Accepted", "False", "SecretMissing").await?;
    assert!(message.contains(&world.home) && message.contains("create it"), "{message}");
    world.credentials("east").await?;
    world.ready("east").await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    // Without its Secret it goes on from what is known, and nothing is lost.
    let secrets: Api<Secret> = Api::namespaced(world.local.clone(), &world.home);
    secrets.delete("east", &DeleteParams::default()).await?;
    world.condition("east", "Accepted", "False", "SecretMissing").await?;
    assert_eq!(world.endpoints("web").await?, ["10.1.0.1:30080/TCP"]);
    operator.stop().await
}

async fn a_remote_that_is_deleted_takes_its_mirrors_along(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    world.source("web", 30080).await?;
    world.east(json!({})).await?;
    let operator = world.operator().await?;
    world.mirror("web").await?;
    world.remotes().delete("east", &DeleteParams::default()).await?;
    world.gone("web").await?;
    operator.stop().await
}

async fn a_paused_remote_is_read_but_nothing_is_written(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    world.source("web", 30080).await?;
    world.east(json!({ "paused": true })).await?;
    let operator = world.operator().await?;
    world.condition("east", "Programmed", "False", "Paused").await?;
    world.condition("east", "Synced", "True", "Complete").await?;
    assert_eq!(operator.writes(), 0);
    let patch = Patch::Merge(json!({ "spec": { "paused": false } }));
    world.remotes().patch("east", &PatchParams::default(), &patch).await?;
    world.mirror("web").await?;
    eventually("it is ready", async || {
        tokio::time::sleep(Duration::from_millis(10)).await;
        Ok(world.remote_status("east").await?.services.is_some_and(|services| services.mirrored == 1))
    })
    .await?;
    operator.stop().await
}
