//! Remotes of GKE: found by Google's APIs, reached with its tokens.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::PostParams;
use portolan_control::mirror::Options;
use portolan_drivers::gke;
use portolan_testkit::gke::{EMAIL, FakeGke};
use portolan_testkit::{ControlPlane, control_plane};
use serde_json::{Value, json};

use super::harness::World;
use crate::harness::{Backend, eventually};

const CLUSTER: &str = "projects/example/locations/europe-west1/clusters/east";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gke_cluster_is_found_with_a_key_file_and_followed_when_it_moves() -> anyhow::Result<()> {
    let world = World::new(Backend::Embedded).await?;
    world.node("n1", "10.1.0.1").await?;
    world.source("web", 30080).await?;
    let view = world.remote_view().await?;
    let google = FakeGke::start().await?;
    let record = |front: &portolan_testkit::TlsFront| record(front.port(), &front.ca());
    world.secret("key", "credentials.json", &google.wrong_key_file()).await?;
    remote_cluster(&world).await?;
    let operator = world.operator_with(options(&world, &google)).await?;
    world.condition("east", "Connected", "False", "CredentialsRefused").await?;
    // The right key is taken at once; then the account may not read, then there is no such cluster.
    google.forbid(true);
    world.secret("key", "credentials.json", &google.key_file()).await?;
    let message = world.condition("east", "Connected", "False", "PermissionDenied").await?;
    ensure!(message.contains("roles/container.viewer"), "{message}");
    google.forbid(false);
    world.condition("east", "Connected", "False", "ClusterNotFound").await?;
    google.set_cluster(CLUSTER, record(&view.front));
    world.ready("east").await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    let status = world.remote_status("east").await?;
    ensure!(status.credentials_expire.is_some() && status.server_version.is_some());
    let asked = async |words: &[&str]| operator.metric("portolan_mirror_gke_requests_total", words).await;
    ensure!(
        asked(&["\"token\"", "200"]).await? > 0.5 && asked(&["\"cluster\"", "404"]).await? > 0.5,
        "all are counted"
    );
    // The cluster gets another certificate, and its record says so.
    view.front.rotate()?;
    google.set_cluster(CLUSTER, record(&view.front));
    view.proxy.kill().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    view.proxy.revive();
    world.source("late", 30090).await?;
    world.mirror("late").await?;
    // It moves: nobody answers at its old address any more.
    let moved = view.proxy.with_tls().await?;
    google.set_cluster(CLUSTER, record(&moved));
    drop(view.front);
    view.proxy.kill().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    view.proxy.revive();
    world.source("later", 30091).await?;
    world.mirror("later").await?;
    world.event("EndpointChanged", "east").await?;
    operator.stop().await
}

/// What Google says about a cluster on this port.
fn record(port: u16, ca: &str) -> Value {
    use base64::Engine as _;
    let ca = base64::engine::general_purpose::STANDARD.encode(ca);
    json!({
        "name": "east", "status": "RUNNING", "endpoint": format!("127.0.0.1:{port}"),
        "currentMasterVersion": "1.36.4-gke.1", "masterAuth": { "clusterCaCertificate": ca },
    })
}

/// Makes the RemoteCluster `east` one of GKE, with the key in the Secret `key`.
async fn remote_cluster(world: &World) -> anyhow::Result<()> {
    let gke =
        json!({ "project": "example", "location": "europe-west1", "cluster": "east", "keySecret": { "name": "key" } });
    let spec = json!({ "credentials": { "gke": gke }, "addresses": { "allowedCIDRs": ["10.0.0.0/8"] } });
    let object = json!({ "metadata": { "name": "east" }, "spec": spec });
    world.remotes().create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

fn options(world: &World, google: &FakeGke) -> Options {
    let gke = gke::Options {
        container_endpoint: google.container_endpoint(),
        allow_loopback: true,
        ..gke::Options::default()
    };
    Options { gke, google_lookup_interval: Duration::from_secs(1), ..world.options() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_a_gke_cluster_are_renewed_before_its_api_server_refuses_them() -> anyhow::Result<()> {
    let google = FakeGke::start().await?;
    let plane = control_plane::Options { token_webhook: Some(google.token_review_url()), ..Default::default() };
    let plane = tokio::task::block_in_place(|| ControlPlane::start_with(plane))?;
    let world = World::with_remote(&plane).await?;
    world.node("n1", "10.1.0.1").await?;
    world.source("web", 30080).await?;
    let server = plane.config().cluster_url.port_u16().context("the API server has a port")?;
    google.set_cluster(CLUSTER, record(server, plane.ca_pem()));
    google.set_token_lifetime(Duration::from_secs(4));
    world.secret("key", "credentials.json", &google.key_file()).await?;
    remote_cluster(&world).await?;
    let operator = world.operator_with(options(&world, &google)).await?;
    // The account may do nothing until the example's role is bound to its e-mail address.
    world.condition("east", "Connected", "False", "RemoteForbidden").await?;
    bind_example_role(&world).await?;
    world.ready("east").await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    // Several lifetimes later it was never refused: each token was replaced in time.
    let issued = || google.requests().iter().filter(|request| request.line == "POST /token").count();
    let before = issued();
    eventually("three more tokens were asked for", async || Ok(issued() >= before + 3)).await?;
    world.source("late", 30090).await?;
    world.mirror("late").await?;
    let lost = world.events("CredentialsRefused", "east").await?;
    ensure!(lost == 0, "it was refused {lost} times");
    // Revoked ones are refused by the API server, and replaced.
    google.revoke_tokens();
    world.source("later", 30091).await?;
    world.mirror("later").await?;
    world.ready("east").await?;
    operator.stop().await
}

/// Gives the GKE account the role of `examples/mirror/remote-rbac.yaml`.
async fn bind_example_role(world: &World) -> anyhow::Result<()> {
    let text = include_str!("../../../../../examples/mirror/remote-rbac.yaml");
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    let of = |kind: &str| documents.iter().find(|document| document["kind"] == kind).cloned().context("in the example");
    let mut binding = of("ClusterRoleBinding")?;
    binding["subjects"] = json!([{ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": EMAIL }]);
    let roles = Api::<ClusterRole>::all(world.remote.clone());
    roles.create(&PostParams::default(), &serde_json::from_value(of("ClusterRole")?)?).await?;
    let bindings = Api::<ClusterRoleBinding>::all(world.remote.clone());
    bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    Ok(())
}
