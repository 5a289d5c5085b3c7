//! What a tenant may try with write access to its own namespace.

use anyhow::ensure;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use portolan_api::gateway::{Account, Endpoint, LoadBalancer, ServiceGroup, ServicePrefix};
use portolan_control::{CAPABILITIES, query};
use serde_json::json;

use super::harness::{Tenants, World, unit};
use crate::chart::metrics;
use crate::harness::{Backend, on_both_servers};

on_both_servers!(
    a_finalizer_of_a_tenant_keeps_no_address,
    a_group_of_a_tenant_does_not_lead_past_a_fence,
    a_hostile_image_is_not_run,
    a_key_of_another_account_cannot_be_asked_for,
    credentials_are_shown_nowhere,
    names_and_owners_lead_nowhere,
    what_was_given_cannot_be_changed_afterwards,
);

async fn a_key_of_another_account_cannot_be_asked_for(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, Tenants { victim, thief, web }) = World::with_tenants(backend).await?;
    let key = web.spec.gue_key;
    for (name, wanted) in [("same", key), ("next", key + 1), ("last", key | 0xffff)] {
        world.load_balancer_with(&thief, name, json!({ "gue-key": wanted })).await?;
        world.shows(&thief, name, "Accepted", "Invalid").await?;
        ensure!(!operator.proxies.running().contains_key(&unit(&thief, name)));
    }
    let account: Account = world.of("egw").get(&victim).await?;
    ensure!(account.status.unwrap_or_default().current_service_gue_key == 1, "the victim loses no number");
    world.load_balancer(&victim, "second").await?;
    ensure!(world.ready(&victim, "second").await?.spec.gue_key == key + 1);
    operator.process.stop().await?;
    Ok(())
}

async fn what_was_given_cannot_be_changed_afterwards(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served(backend).await?;
    world.load_balancer(&name, "lb").await?;
    let before = world.ready(&name, "lb").await?.spec;
    world.endpoint(&name, "e", "lb", ["10.244.0.1", "10.0.0.1"]).await?;
    let balancers = world.of::<LoadBalancer>(&format!("egw-{name}"));
    for change in [
        json!({ "public-address": "192.0.2.12" }),
        json!({ "public-address": null }),
        json!({ "gue-key": before.gue_key + 1 }),
        json!({ "gue-key": null }),
        json!({ "gue-key": 0 }),
        json!({ "service-group": "other" }),
    ] {
        let patch = Patch::Merge(json!({ "spec": change }));
        let refused = balancers.patch("lb", &PatchParams::default(), &patch).await;
        ensure!(refused.is_err(), "{change} was accepted");
    }
    let endpoints = world.of::<Endpoint>(&format!("egw-{name}"));
    for change in [
        json!({ "address": "169.254.169.254" }),
        json!({ "load-balancer": "other" }),
        json!({ "node-address": "10.0.0.2" }),
        json!({ "port": { "port": 22 } }),
    ] {
        let refused = endpoints.patch("e", &PatchParams::default(), &Patch::Merge(json!({ "spec": change }))).await;
        ensure!(refused.is_err(), "{change} was accepted");
    }
    ensure!(world.ready(&name, "lb").await?.spec == before);
    operator.process.stop().await?;
    Ok(())
}

async fn a_group_of_a_tenant_does_not_lead_past_a_fence(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served(backend).await?;
    let fenced = json!({ "subnet": "198.51.100.0/24", "pool": "198.51.100.8/29", "accounts": ["somebody-else"] });
    world.create::<ServicePrefix>("egw", "fenced", fenced).await?;
    // groups are the provider's to write: even one that a tenant brought in gives it nothing
    world.group(&name, "fenced", "egw/fenced").await?;
    world.load_balancer_with(&name, "lb", json!({ "service-group": "fenced" })).await?;
    world.shows(&name, "lb", "Allocated", "PrefixNotAllowed").await?;
    let foreign = world.group(&name, "foreign", "kube-system/default").await;
    ensure!(foreign.is_err(), "a prefix outside of namespace egw was accepted");
    world.nothing_is_claimed().await?;
    operator.process.stop().await?;
    Ok(())
}

async fn a_hostile_image_is_not_run(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served(backend).await?;
    for (number, image) in ["evil.example/envoy:1", "a;reboot", "{{ .Values.x }}", "$(reboot)"].iter().enumerate() {
        let group = format!("g{number}");
        let spec = json!({ "service-prefix": "egw/default", "auth-creds": "fred", "envoy-image": image });
        if world.create::<ServiceGroup>(&format!("egw-{name}"), &group, spec).await.is_err() {
            continue;
        }
        world.load_balancer_with(&name, &group, json!({ "service-group": group })).await?;
        let refused = world.shows(&name, &group, "ResolvedRefs", "ServiceGroupNotReady").await?;
        ensure!(refused.spec.public_address.is_empty(), "{refused:?}");
    }
    ensure!(operator.proxies.running().is_empty());
    operator.process.stop().await?;
    Ok(())
}

async fn a_finalizer_of_a_tenant_keeps_no_address(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served_from(backend, "192.0.2.8/32").await?;
    let namespace = format!("egw-{name}");
    world.load_balancer(&name, "lb").await?;
    world.ready(&name, "lb").await?;
    let balancers = world.of::<LoadBalancer>(&namespace);
    let held = Patch::Merge(json!({ "metadata": {
        "finalizers": ["egw.acnodal.io/loadBalancerFinalizer", "example.com/never"] } }));
    balancers.patch("lb", &PatchParams::default(), &held).await?;
    world.delete::<LoadBalancer>(&namespace, "lb").await?;
    // the object stays; its Envoy goes, and its address serves another
    world.load_balancer(&name, "next").await?;
    ensure!(world.ready(&name, "next").await?.spec.public_address == "192.0.2.8");
    ensure!(!operator.proxies.running().contains_key(&unit(&name, "lb")));
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    balancers.patch("lb", &PatchParams::default(), &free).await?;
    world.gone::<LoadBalancer>(&namespace, "lb").await?;
    world.ready(&name, "next").await?;
    operator.process.stop().await?;
    Ok(())
}

async fn names_and_owners_lead_nowhere(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, Tenants { victim, thief, .. }) = World::with_tenants(backend).await?;
    // an endpoint in the thief's namespace that names the victim's load balancer, as such and by a path
    for (name, target) in
        [("bare", "web".to_owned()), ("path", format!("egw-{victim}/web")), ("up", "../web".to_owned())]
    {
        let spec = json!({ "load-balancer": target, "address": "10.244.0.1", "node-address": "10.0.0.1",
            "port": { "port": 8080 } });
        if world.create::<Endpoint>(&format!("egw-{thief}"), name, spec).await.is_err() {
            ensure!(name != "bare", "a plain name is well-formed");
        }
    }
    let forged = json!({
        "apiVersion": "egw.acnodal.io/v1", "kind": "LoadBalancer",
        "metadata": { "name": "owned", "labels": { "owningLB": "web" }, "annotations": { "portolan.dev/created-by": "gateway" } },
        "spec": { "service-group": "sample", "public-ports": [{ "port": 1, "name": "a" }] },
        "status": { "proxy-ifname": "; reboot", "gue-tunnel-endpoints": {
            "10.0.0.1": { "egw-address": "198.51.100.1", "egw-port": { "port": 6080 }, "tunnel-id": 1 } } },
    });
    let namespace = format!("egw-{thief}");
    world.of::<LoadBalancer>(&namespace).create(&PostParams::default(), &serde_json::from_value(forged)?).await?;
    world.ready(&thief, "owned").await?;
    let units = operator.proxies.running();
    let of_victim = units.get(&unit(&victim, "web"));
    ensure!(
        of_victim.is_some_and(|unit| unit.listeners.values().all(|listener| listener.endpoints.is_empty())),
        "{units:?}"
    );
    operator.process.stop().await?;
    Ok(())
}

async fn credentials_are_shown_nowhere(backend: Backend) -> anyhow::Result<()> {
    const SECRET: &str = "fredfredfredfred";
    let (world, operator, name) = World::served(backend).await?;
    let namespace = format!("egw-{name}");
    let too_long = json!({ "service-prefix": "egw/default", "auth-creds": format!("{SECRET}x") });
    let refused = world.create::<ServiceGroup>(&namespace, "long", too_long).await;
    ensure!(refused.is_err(), "more than 16 bytes were accepted");
    world.load_balancer(&name, "lb").await?;
    world.ready(&name, "lb").await?;
    let change = json!({ "apiVersion": "egw.acnodal.io/v1", "kind": "ServiceGroup",
        "metadata": { "name": "sample", "namespace": namespace },
        "spec": { "service-prefix": "egw/missing", "auth-creds": SECRET } });
    let events: Api<Event> = Api::all(world.client.clone());
    let shown = [
        format!("{:?}", query::status(CAPABILITIES, &world.client, Some("gateway")).await?[0].result),
        format!("{:?}", query::why(CAPABILITIES, &world.client, "lb", &format!("{name}/lb"), None).await?),
        format!("{:?}", query::plan(CAPABILITIES, &world.client, vec![change]).await?),
        format!("{:?}", events.list(&ListParams::default()).await?.items),
        metrics(operator.process.admin_at()).await?,
    ];
    for text in shown {
        ensure!(!text.is_empty() && !text.contains("fred"), "{text}");
    }
    operator.process.stop().await?;
    Ok(())
}
