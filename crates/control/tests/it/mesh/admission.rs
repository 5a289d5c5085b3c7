//! The webhook: what is wrong by itself is refused before it is stored, with what to do.

use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{ValidatingWebhookConfiguration, WebhookClientConfig};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use portolan_api::mesh::VirtualService;
use portolan_control::mesh;
use portolan_control::runtime::app::Process;
use portolan_control::runtime::webhook;
use serde_json::{Value, json};

use super::harness::World;
use crate::egress::harness::options;
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(what_is_wrong_by_itself_is_refused_with_what_to_do);

/// The operator with its webhook, which the API server asks about this namespace alone.
async fn hooked(world: &World) -> anyhow::Result<(Process, String)> {
    let mut started = None;
    let process = Process::start(world.client.clone(), options(), |ctx, registry| {
        let cache = mesh::start(ctx, registry, world.options());
        let config = webhook::Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            names: vec!["127.0.0.1".to_owned()],
            client_ca: None,
            secret_namespace: world.namespace.clone(),
            secret_name: "webhook".to_owned(),
            validating: vec![world.namespace.clone()],
            mutating: Vec::new(),
            schedule: webhook::Schedule::default(),
            linger: Duration::ZERO,
        };
        let handlers = mesh::webhooks::handlers(webhook::Webhooks::new(), &cache, &world.options());
        let host = webhook::Host { tasks: &ctx.tasks, readiness: &ctx.readiness, registry };
        started = Some(webhook::run(&ctx.unfenced, config, handlers, host));
    })?;
    let address = started.expect("the process was started")?.address();
    let configuration = mesh::webhooks::configuration(|path| WebhookClientConfig {
        url: Some(format!("https://{address}{path}")),
        ..WebhookClientConfig::default()
    });
    let mut configuration = serde_json::to_value(configuration)?;
    configuration["metadata"]["name"] = json!(world.namespace);
    for hook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
        hook["namespaceSelector"] = json!({ "matchLabels": { "kubernetes.io/metadata.name": world.namespace } });
    }
    let api: Api<ValidatingWebhookConfiguration> = Api::all(world.client.clone());
    api.create(&PostParams::default(), &serde_json::from_value(configuration)?).await?;
    eventually("the API server asks", async || match create(world, "Route", "probe", json!({})).await {
        Err(kube::Error::Api(status)) => Ok(status.message.contains("MissingField")),
        Err(other) => Err(other.into()),
        Ok(()) => {
            of(world, "Route").delete("probe", &DeleteParams::default()).await?;
            Ok(false)
        }
    })
    .await?;
    Ok((process, world.namespace.clone()))
}

fn of(world: &World, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("l7mp.io", "v1", kind));
    Api::namespaced_with(world.client.clone(), &world.namespace, &resource)
}

async fn create(world: &World, kind: &str, name: &str, spec: Value) -> Result<(), kube::Error> {
    let object = json!({ "apiVersion": "l7mp.io/v1", "kind": kind, "metadata": { "name": name }, "spec": spec });
    let object: DynamicObject = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
    of(world, kind).create(&PostParams::default(), &object).await.map(drop)
}

async fn what_is_wrong_by_itself_is_refused_with_what_to_do(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let to = |destination: Value| json!([{ "action": { "route": { "destination": destination } } }]);
    let vsvc = |rules: Value| json!({ "selector": {}, "listener": { "protocol": "UDP", "port": 1 }, "rules": rules });
    let udp = |address: &str| json!({ "spec": { "protocol": "UDP", "port": 1 }, "endpoints": [{ "spec": { "address": address } }] });
    // stored before anybody judged: its metadata stays editable
    create(&world, "VirtualService", "old", vsvc(json!([{ "action": {} }]))).await?;
    let (process, configuration) = hooked(&world).await?;

    for (kind, spec, says) in [
        ("VirtualService", vsvc(json!([{ "action": { "rewrite": [{ "path": "/a", "value": 1 }] } }])), "NoRoute"),
        ("VirtualService", vsvc(json!([{ "match": { "op": "similar" }, "action": { "apply": "x" } }])), "BadMatch"),
        ("VirtualService", vsvc(to(udp("169.254.169.254"))), "EndpointNotAllowed"),
        ("VirtualService", vsvc(to(json!({ "spec": { "protocol": "L7mpController" } }))), "ReservedProtocol"),
        (
            "VirtualService",
            vsvc(
                json!([{ "match": { "op": "in", "path": "/a", "value": "x".repeat(1_100_000) }, "action": { "apply": "x" } }]),
            ),
            "SpecTooLarge",
        ),
        ("Route", json!({ "ingress": ["x"] }), "MissingField"),
        ("Target", json!({ "selector": {}, "cluster": udp("fe80::1") }), "EndpointNotAllowed"),
        (
            "Target",
            json!({ "selector": {}, "linkedVirtualService": "v", "cluster": { "spec": { "protocol": "Echo" } } }),
            "ConflictingFields",
        ),
        ("Rule", json!({ "selector": {}, "rulelist": "l", "rule": { "action": {} } }), "NoRoute"),
    ] {
        match create(&world, kind, "bad", spec).await {
            Err(kube::Error::Api(status)) => {
                assert!(status.message.contains(says), "{kind}: {} should say {says}", status.message);
            }
            other => anyhow::bail!("{kind} should be refused with {says}: {other:?}"),
        }
    }
    // what the cluster lacks is no reason to refuse
    create(&world, "VirtualService", "early", vsvc(to(json!("nobody-yet")))).await?;
    let label = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }));
    world.api::<VirtualService>().patch("old", &PatchParams::default(), &label).await?;
    let worse = Patch::Merge(json!({ "spec": { "listener": { "port": 2 } } }));
    let refused = world.api::<VirtualService>().patch("old", &PatchParams::default(), &worse).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("NoRoute")));

    Api::<ValidatingWebhookConfiguration>::all(world.client.clone())
        .delete(&configuration, &DeleteParams::default())
        .await?;
    process.stop().await?;
    Ok(())
}
