//! The webhook: what is wrong is refused before it is stored, with what to do; nothing is allocated there.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use portolan_api::gateway::{Account, Endpoint, LoadBalancer, NodeConfig, ServiceGroup, ServicePrefix};
use portolan_control::gateway;
use portolan_control::runtime::app::Process;
use portolan_control::runtime::webhook;
use portolan_drivers::envoy::MemoryProxies;
use serde_json::json;
use tokio::sync::Notify;

use super::harness::World;
use crate::egress::harness::options;
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(
    an_account_with_load_balancers_is_not_deleted_by_accident,
    update_is_validated,
    what_is_wrong_is_refused_and_owners_are_labelled,
    without_a_webhook_everything_is_stored_and_judged_later,
);

/// The operator with its webhook.
async fn hooked(world: &World) -> anyhow::Result<Process> {
    let mut started = None;
    let wake = Arc::new(Notify::new());
    let proxies = MemoryProxies::new({
        let wake = Arc::clone(&wake);
        move || wake.notify_one()
    });
    world.namespace("portolan").await?;
    let process = Process::start(world.client.clone(), options(), |ctx, registry| {
        let gateway = World::options(&proxies);
        let cache = gateway::start(ctx, registry, wake, gateway.clone());
        let config = webhook::Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            names: vec!["127.0.0.1".to_owned()],
            client_ca: None,
            secret_namespace: "portolan".to_owned(),
            secret_name: World::name("webhook"),
            validating: vec![gateway::webhooks::NAME.to_owned()],
            mutating: vec![gateway::webhooks::NAME.to_owned()],
            schedule: webhook::Schedule::default(),
            linger: Duration::ZERO,
        };
        let handlers = gateway::webhooks::handlers(webhook::Webhooks::new(), &cache, &gateway);
        let host = webhook::Host { tasks: &ctx.tasks, readiness: &ctx.readiness, registry };
        started = Some(webhook::run(&ctx.unfenced, config, handlers, host));
    })?;
    let address = started.context("the process was started")??.address();
    let (validating, mutating) = gateway::webhooks::configurations(|path| WebhookClientConfig {
        url: Some(format!("https://{address}{path}")),
        ..WebhookClientConfig::default()
    });
    let (validators, mutators) = configurations(world);
    validators.create(&PostParams::default(), &validating).await?;
    mutators.create(&PostParams::default(), &mutating).await?;
    world.provider().await?;
    eventually("the API server asks", async || {
        let probe = world.create::<NodeConfig>("default", "default", json!({ "base": {} })).await;
        if probe.is_ok() {
            world.delete::<NodeConfig>("default", "default").await?;
        }
        Ok(probe.is_err())
    })
    .await?;
    Ok(process)
}

fn configurations(world: &World) -> (Api<ValidatingWebhookConfiguration>, Api<MutatingWebhookConfiguration>) {
    (Api::all(world.client.clone()), Api::all(world.client.clone()))
}

async fn end(world: &World, process: Process) -> anyhow::Result<()> {
    let (validators, mutators) = configurations(world);
    validators.delete(gateway::webhooks::NAME, &DeleteParams::default()).await?;
    mutators.delete(gateway::webhooks::NAME, &DeleteParams::default()).await?;
    process.stop().await?;
    Ok(())
}

fn says<T: std::fmt::Debug>(refused: anyhow::Result<T>, what: &str) -> anyhow::Result<()> {
    let text = format!("{:#}", refused.err().with_context(|| format!("it should be refused with: {what}"))?);
    ensure!(text.contains(what), "{text} should say {what}");
    Ok(())
}

async fn what_is_wrong_is_refused_and_owners_are_labelled(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let process = hooked(&world).await?;
    world.pool("192.0.2.8/29").await?;
    let acme = World::name("acme");
    world.account(&acme).await?;
    let own = format!("egw-{acme}");

    says(world.create::<Account>("default", "lost", json!({})).await, "are in namespace egw")?;
    let reversed = json!({ "subnet": "192.0.2.0/24", "pool": "192.0.2.20-192.0.2.10" });
    says(world.create::<ServicePrefix>("egw", "reversed", reversed).await, "pool")?;
    let hostile = json!({ "service-prefix": "egw/default", "auth-creds": "x", "envoy-image": "evil.example/envoy" });
    says(world.create::<ServiceGroup>(&own, "hostile", hostile).await, "is not allowed here")?;
    let protocol = json!({ "service-group": "sample", "public-ports": [{ "port": 80, "protocol": "SCTP" }] });
    says(world.create::<LoadBalancer>(&own, "sctp", protocol).await, "use TCP or UDP")?;
    world.load_balancer(&acme, "web").await?;
    for address in ["127.0.0.1", "169.254.169.254", "64:ff9b::169.254.169.254", "192.0.2.9"] {
        says(world.endpoint(&acme, "inside", "web", [address, "10.0.0.1"]).await, "cannot be an endpoint")?;
    }
    world.endpoint(&acme, "first", "web", ["10.1.0.1", "10.0.0.1"]).await?;
    let endpoints = world.of::<Endpoint>(&own);
    let labels = endpoints.get("first").await?.metadata.labels.unwrap_or_default();
    ensure!(labels.get("owningLB").map(String::as_str) == Some("web"), "{labels:?}");
    eventually("a duplicate is refused by name", async || {
        let again = world.endpoint(&acme, "again", "web", ["10.1.0.1", "10.0.0.2"]).await;
        if again.is_ok() {
            world.delete::<Endpoint>(&own, "again").await?;
        }
        Ok(again.err().is_some_and(|error| format!("{error:#}").contains("duplicate endpoint: first")))
    })
    .await?;
    end(&world, process).await
}

async fn update_is_validated(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let process = hooked(&world).await?;
    world.pool("192.0.2.8/29").await?;
    let prefixes = world.of::<ServicePrefix>("egw");
    let change = |spec: serde_json::Value| Patch::Merge(json!({ "spec": spec }));
    let outside =
        prefixes.patch("default", &PatchParams::default(), &change(json!({ "pool": "198.51.100.0/29" }))).await;
    says(outside.map_err(Into::into), "subnet")?;
    let labelled = Patch::Merge(json!({ "metadata": { "labels": { "of": "mine" } } }));
    prefixes.patch("default", &PatchParams::default(), &labelled).await?;
    end(&world, process).await
}

async fn an_account_with_load_balancers_is_not_deleted_by_accident(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let process = hooked(&world).await?;
    world.pool("192.0.2.8/29").await?;
    let acme = World::name("acme");
    world.account(&acme).await?;
    world.load_balancer(&acme, "web").await?;
    world.ready(&acme, "web").await?;
    says(world.delete::<Account>("egw", &acme).await, "delete-with-contents=true")?;
    let confirmed = json!({ "metadata": { "annotations": { "portolan.dev/delete-with-contents": "true" } } });
    world.of::<Account>("egw").patch(&acme, &PatchParams::default(), &Patch::Merge(confirmed)).await?;
    world.delete::<Account>("egw", &acme).await?;
    world.gone::<Account>("egw", &acme).await?;
    end(&world, process).await
}

async fn without_a_webhook_everything_is_stored_and_judged_later(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let process = hooked(&world).await?;
    let (validators, mutators) = configurations(&world);
    // nobody listens there: the API server goes on
    let nowhere = |path: &str| WebhookClientConfig {
        url: Some(format!("https://127.0.0.1:1{path}")),
        ..WebhookClientConfig::default()
    };
    let (validating, mutating) = gateway::webhooks::configurations(nowhere);
    let force = PatchParams::apply("test").force();
    validators.patch(gateway::webhooks::NAME, &force, &Patch::Apply(typed("Validating", &validating)?)).await?;
    mutators.patch(gateway::webhooks::NAME, &force, &Patch::Apply(typed("Mutating", &mutating)?)).await?;
    world.pool("192.0.2.8/29").await?;
    let acme = World::name("acme");
    world.account(&acme).await?;
    let protocol = json!({ "public-ports": [{ "port": 80, "protocol": "SCTP" }] });
    eventually("the API server asks nobody", async || {
        Ok(world.load_balancer_with(&acme, "web", protocol.clone()).await.is_ok())
    })
    .await?;
    world.shows(&acme, "web", "Accepted", "UnsupportedProtocol").await?;
    end(&world, process).await
}

fn typed(kind: &str, configuration: &impl serde::Serialize) -> anyhow::Result<serde_json::Value> {
    let mut value = serde_json::to_value(configuration)?;
    value["apiVersion"] = json!("admissionregistration.k8s.io/v1");
    value["kind"] = json!(format!("{kind}WebhookConfiguration"));
    Ok(value)
}
