//! What tenants may not do, as their objects say it.

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use portolan_api::mesh::{MeshStatus, Target, VirtualService};
use portolan_control::{install, mesh};
use serde_json::{Value, json};

use super::harness::{NODE, SIDECAR, World, has};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    a_name_in_another_namespace_needs_its_consent_and_nobody_learns_what_is_there,
    placement_in_another_namespace_needs_its_consent,
    addresses_of_the_machinery_are_no_endpoints,
    loopback_is_for_sidecars_and_neither_it_nor_nodes_for_pods_on_their_nodes_network,
    a_spec_that_is_too_large_is_refused,
}

fn message(status: Option<&MeshStatus>, condition: &str) -> String {
    let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let found = conditions.iter().find(|one| one.type_ == condition);
    found.map(|one| one.message.clone()).unwrap_or_default()
}

async fn vsvc(world: &World, name: &str, destination: Value) -> anyhow::Result<()> {
    let spec = json!({
        "selector": { "matchLabels": { "app": "gateway" } },
        "listener": { "protocol": "UDP", "port": 9001 },
        "rules": [{ "action": { "route": { "destination": destination } } }],
    });
    apply(world, "VirtualService", name, spec).await
}

async fn apply(world: &World, kind: &str, name: &str, spec: Value) -> anyhow::Result<()> {
    let object = json!({ "apiVersion": "l7mp.io/v1", "kind": kind, "metadata": { "name": name }, "spec": spec });
    let mut object: DynamicObject = serde_json::from_value(object)?;
    object.metadata.namespace = Some(world.namespace.clone());
    Ok(install::objects(&world.client, vec![object]).await?)
}

async fn annotate(world: &World, namespace: &str, annotation: &str, value: Value) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { annotation: value } } }));
    Api::<Namespace>::all(world.client.clone()).patch(namespace, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn a_name_in_another_namespace_needs_its_consent_and_nobody_learns_what_is_there(
    backend: Backend,
) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    let other = world.other_namespace().await?;
    world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    let spec = json!({ "selector": {}, "cluster": { "spec": { "protocol": "Echo" } } });
    let secret = json!({ "metadata": { "name": "there" }, "spec": spec });
    Api::<Target>::namespaced(world.client.clone(), &other)
        .create(&PostParams::default(), &serde_json::from_value(secret)?)
        .await?;
    let operator = world.operator().await?;
    let mut texts = Vec::new();
    for name in ["there", "absent"] {
        let full = format!("{name}.{other}.target.cluster.local");
        vsvc(&world, "v", json!(full)).await?;
        eventually("it is refused under this name", async || {
            let status = world.api::<VirtualService>().get("v").await?.status;
            Ok(has(status.as_ref(), "ResolvedRefs", "False", "RefNotPermitted")
                && message(status.as_ref(), "ResolvedRefs").contains(&format!("`{name}` of namespace `{other}`")))
        })
        .await?;
        let status = world.api::<VirtualService>().get("v").await?.status;
        texts.push(message(status.as_ref(), "ResolvedRefs").replace(name, "NAME"));
    }
    assert_eq!(texts[0], texts[1], "whether it is there is not told");
    annotate(&world, &other, "l7mp.io/export-to", json!(world.namespace)).await?;
    world.until("v", "ResolvedRefs", "False", "RefNotFound").await?;
    operator.process.stop().await?;
    Ok(())
}

async fn placement_in_another_namespace_needs_its_consent(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let other = world.other_namespace().await?;
    let operator = world.operator().await?;
    let spec = json!({
        "selector": { "matchNamespace": other },
        "listener": { "protocol": "UDP", "port": 9001 },
        "rules": [],
    });
    apply(&world, "VirtualService", "v", spec).await?;
    world.until("v", "ResolvedRefs", "False", "RefNotPermitted").await?;
    annotate(&world, &other, "l7mp.io/allow-config-from", json!("*")).await?;
    world.until("v", "Programmed", "False", "NoPods").await?;
    operator.process.stop().await?;
    Ok(())
}

async fn addresses_of_the_machinery_are_no_endpoints(backend: Backend) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    let at = world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    let mut options = world.options();
    options.settings = mesh::Settings { denied_endpoints: vec!["10.66.0.0/16".parse()?], ..options.settings };
    options.settings.api_servers.insert("192.0.2.1".parse()?);
    let operator = world.operator_with(options).await?;
    for (address, says) in [
        ("169.254.169.254", "link-local, like the metadata service of clouds"),
        ("fe80::1", "link-local"),
        ("metadata.google.internal", "the metadata service of a cloud"),
        ("192.0.2.1", "it belongs to the API server"),
        ("kubernetes.default.svc", "it belongs to the API server"),
        ("10.66.1.2", "--mesh-deny-endpoint"),
        ("2130706433", "an IP address in another notation"),
    ] {
        let cluster =
            json!({ "spec": { "protocol": "UDP", "port": 53 }, "endpoints": [{ "spec": { "address": address } }] });
        vsvc(&world, "v", cluster.clone()).await?;
        apply(
            &world,
            "Target",
            "t",
            json!({ "selector": { "matchLabels": { "app": "gateway" } }, "cluster": cluster }),
        )
        .await?;
        eventually(&format!("{address} is refused"), async || {
            let (vsvc, target) = (world.api::<VirtualService>().get("v").await?, world.api::<Target>().get("t").await?);
            let refused = |status: Option<&MeshStatus>| {
                let text = message(status, "Accepted");
                has(status, "Accepted", "False", "EndpointNotAllowed") && text.contains(says) && text.contains(address)
            };
            Ok(refused(vsvc.status.as_ref()) && refused(target.status.as_ref()))
        })
        .await?;
        assert_eq!(world.held(at, "clusters").await?, json!([]), "{address}");
    }
    // what the cluster says of its API server counts as well
    let found = world.api_server().await?;
    if let Some(address) = &found {
        vsvc(
            &world,
            "v",
            json!({ "spec": { "protocol": "TCP", "port": 443 }, "endpoints": [{ "spec": { "address": address } }] }),
        )
        .await?;
        eventually("the API server's own address is refused", async || {
            let seen = world.api::<VirtualService>().get("v").await?;
            Ok(message(seen.status.as_ref(), "Accepted").contains(address.as_str()))
        })
        .await?;
    }
    assert!(found.is_some() || backend == Backend::Embedded, "a real server has the Service `kubernetes`");
    operator.process.stop().await?;
    Ok(())
}

async fn loopback_is_for_sidecars_and_neither_it_nor_nodes_for_pods_on_their_nodes_network(
    backend: Backend,
) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    let operator = world.operator().await?;
    let local =
        json!({ "spec": { "protocol": "UDP", "port": 53 }, "endpoints": [{ "spec": { "address": "127.0.0.1" } }] });
    vsvc(&world, "v", local).await?;
    world.until("v", "Programmed", "True", "Programmed").await?;

    world.remove("gateway").await?;
    world.host_pod("gateway-on-host", "gateway").await?;
    world.until("v", "Accepted", "False", "EndpointNotAllowed").await?;
    let seen = world.api::<VirtualService>().get("v").await?;
    let text = message(seen.status.as_ref(), "Accepted");
    assert!(text.contains("127.0.0.1") && text.contains("loopback"), "{text}");
    let node = json!({ "spec": { "protocol": "UDP", "port": 53 }, "endpoints": [{ "spec": { "address": NODE } }] });
    vsvc(&world, "v", node).await?;
    eventually("a node's address is refused", async || {
        let seen = world.api::<VirtualService>().get("v").await?;
        let text = message(seen.status.as_ref(), "Accepted");
        Ok(has(seen.status.as_ref(), "Accepted", "False", "EndpointNotAllowed")
            && text.contains("it belongs to a node"))
    })
    .await?;
    operator.process.stop().await?;
    Ok(())
}

async fn a_spec_that_is_too_large_is_refused(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let operator = world.operator().await?;
    let mut deep = json!({ "op": "test", "path": "/a", "value": 1 });
    for _ in 0..40 {
        deep = json!({ "op": "and", "apply": [deep] });
    }
    let rule = |matching: Value| {
        json!({
            "selector": {}, "listener": { "protocol": "UDP", "port": 1 },
            "rules": [{ "match": matching, "action": { "route": { "destination": { "spec": { "protocol": "Echo" } } } } }],
        })
    };
    apply(&world, "VirtualService", "deep", rule(deep)).await?;
    world.until("deep", "Accepted", "False", "SpecTooLarge").await?;
    let wide = json!({ "op": "in", "path": "/a", "value": "x".repeat(1_100_000) });
    apply(&world, "VirtualService", "wide", rule(wide)).await?;
    world.until("wide", "Accepted", "False", "SpecTooLarge").await?;
    let seen = world.api::<VirtualService>().get("wide").await?;
    let text = message(seen.status.as_ref(), "Accepted");
    assert!(text.contains("split it into several objects"), "{text}");
    world.api::<VirtualService>().delete("wide", &DeleteParams::default()).await?;
    operator.process.stop().await?;
    Ok(())
}
