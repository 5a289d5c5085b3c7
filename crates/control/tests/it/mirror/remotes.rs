//! Remotes: how they are reached, and what is reported of them.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Endpoints, Secret};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::harness::{World, status, stays};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    a_source_is_mirrored_with_the_remotes_nodes_as_endpoints,
    a_remote_whose_secret_is_missing_says_so_and_starts_when_it_comes,
    a_remote_that_is_deleted_takes_its_mirrors_along,
    a_paused_remote_is_read_but_nothing_is_written,
    endpoints_are_written_beside_slices_where_a_remote_asks_for_it,
    ready_only_when_synced,
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

async fn endpoints_are_written_beside_slices_where_a_remote_asks_for_it(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    world.node("n2", "10.1.0.2").await?;
    world.source("web", 30080).await?;
    world.east(json!({ "writeEndpoints": true })).await?;
    let operator = world.operator().await?;
    let all: Api<Endpoints> = Api::namespaced(world.local.clone(), &world.namespace);
    let addresses = async || -> anyhow::Result<Option<Vec<String>>> {
        let Some(found) = all.get_opt("web").await? else { return Ok(None) };
        let labels = found.labels();
        assert_eq!(
            (labels["tfw.io/barrelman"].as_str(), labels["mirror.portolan.dev/remote"].as_str()),
            ("true", "east")
        );
        assert_eq!(labels["endpointslice.kubernetes.io/skip-mirror"], "true");
        let mut addresses = Vec::new();
        for subset in found.subsets.iter().flatten() {
            let port = subset.ports.iter().flatten().map(|port| port.port).next().unwrap_or_default();
            addresses.extend(subset.addresses.iter().flatten().map(|address| format!("{}:{port}", address.ip)));
        }
        Ok(Some(addresses))
    };
    eventually("Endpoints have both nodes", async || {
        Ok(addresses().await?.is_some_and(|found| found == ["10.1.0.1:30080", "10.1.0.2:30080"]))
    })
    .await?;
    world.node_with("n1", json!({}), status(false, &["10.1.0.1"])).await?;
    eventually("they follow the nodes", async || {
        Ok(addresses().await?.is_some_and(|found| found == ["10.1.0.2:30080"]))
    })
    .await?;
    // Kubernetes makes no second set of slices of them.
    world.endpoints_are("web", &["10.1.0.2:30080/TCP"]).await?;
    world.caught_up().await?;
    let before = all.get("web").await?.resource_version();
    world.caught_up().await?;
    assert_eq!(all.get("web").await?.resource_version(), before, "they are written again and again");
    world
        .remotes()
        .patch("east", &PatchParams::default(), &Patch::Merge(json!({ "spec": { "writeEndpoints": null } })))
        .await?;
    eventually("they go when nobody asks for them", async || Ok(all.get_opt("web").await?.is_none())).await?;
    operator.stop().await
}

async fn ready_only_when_synced(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    world.source("web", 30080).await?;
    let view = world.remote_view().await?;
    // A server that takes connections and says nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let (port, silent_port) = (format!(":{}", view.front.port()), format!(":{}", silent.local_addr()?.port()));
    let unanswered = view.front.kubeconfig("any").to_string().replace(&port, &silent_port);
    world.secret("east", "kubeconfig", &unanswered).await?;
    world.remote_cluster("east", json!({})).await?;
    // One that cannot be read at all holds up nobody.
    world.remote_cluster("lost", json!({})).await?;
    let operator = world.operator().await?;
    let readiness = operator.process.ctx().readiness.clone();
    eventually("it waits for the remote alone", async || Ok(readiness.waiting() == ["remote east"])).await?;
    stays("it waits", async || Ok(readiness.waiting() == ["remote east"])).await?;
    world.secret("east", "kubeconfig", &view.front.kubeconfig("any").to_string()).await?;
    eventually("it is ready", async || Ok(readiness.is_ready())).await?;
    world.mirror("web").await?;
    operator.stop().await
}
