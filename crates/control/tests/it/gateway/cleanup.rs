//! How things go, in whatever order.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use portolan_api::gateway::{Account, Endpoint, LoadBalancer, ServiceGroup, ServicePrefix};
use portolan_control::cleanup;
use portolan_control::gateway::{CAPABILITY, Options};
use portolan_testkit::Faults;
use serde_json::json;

use super::harness::{World, unit};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(
    a_load_balancer_waits_for_its_envoy,
    an_account_with_load_balancers_goes_only_with_its_contents,
    lb_dies_without_group_or_prefix,
    portolan_cleanup_leaves_load_balancers_with_their_addresses,
    relabelled_endpoint_still_goes,
    what_lost_its_finalizer_by_force_leaves_nothing,
);

async fn portolan_cleanup_leaves_load_balancers_with_their_addresses(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let kept_long = |options: Options| Options { address_quarantine: Duration::from_mins(10), ..options };
    let operator = world.operator_with(Faults::default(), kept_long).await?;
    world.pool("192.0.2.8/29").await?;
    let name = World::name("acme");
    let namespace = format!("egw-{name}");
    world.account(&name).await?;
    for load_balancer in ["goes", "stays"] {
        world.load_balancer(&name, load_balancer).await?;
    }
    let gone = world.ready(&name, "goes").await?.spec.public_address;
    let before = world.ready(&name, "stays").await?.spec;
    world.delete::<LoadBalancer>(&namespace, "goes").await?;
    world.gone::<LoadBalancer>(&namespace, "goes").await?;
    operator.process.stop().await?;
    ensure!(world.claims().get_opt(&gone).await?.is_some(), "the address is not given again yet");

    let options = cleanup::Options::of_operator(&world.cluster.namespace, "cleanup");
    cleanup::run(&[&CAPABILITY], &world.client, &options, |_| ()).await?;
    let claims = world.claims().list(&ListParams::default()).await?;
    let claims: Vec<String> = claims.iter().map(ResourceExt::name_any).collect();
    ensure!(claims == [before.public_address.clone()], "{claims:?}");
    let left = world.get(&name, "stays").await?;
    ensure!(left.spec == before && left.finalizers().is_empty(), "{left:?}");
    ensure!(world.of::<Account>("egw").get(&name).await?.finalizers().is_empty());

    let operator = world.operator().await?;
    eventually("an operator that comes again serves it", async || {
        Ok(!world.get(&name, "stays").await?.finalizers().is_empty())
    })
    .await?;
    ensure!(world.ready(&name, "stays").await?.spec == before);
    operator.process.stop().await?;
    Ok(())
}

async fn lb_dies_without_group_or_prefix(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served(backend).await?;
    let namespace = format!("egw-{name}");
    world.load_balancer(&name, "lb").await?;
    let object = world.ready(&name, "lb").await?;
    let finalizers = object.metadata.finalizers.unwrap_or_default();
    ensure!(finalizers == ["egw.acnodal.io/loadBalancerFinalizer"], "added once: {finalizers:?}");
    world.endpoint(&name, "e", "lb", ["10.244.0.1", "10.0.0.1"]).await?;
    world.delete::<ServiceGroup>(&namespace, "sample").await?;
    world.delete::<ServicePrefix>("egw", "default").await?;
    world.shows(&name, "lb", "ResolvedRefs", "ServiceGroupNotFound").await?;
    world.delete::<LoadBalancer>(&namespace, "lb").await?;
    world.gone::<LoadBalancer>(&namespace, "lb").await?;
    world.gone::<Endpoint>(&namespace, "e").await?;
    world.nothing_is_claimed().await?;
    ensure!(operator.proxies.running().is_empty());
    operator.process.stop().await?;
    Ok(())
}

async fn relabelled_endpoint_still_goes(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served(backend).await?;
    let namespace = format!("egw-{name}");
    world.load_balancer(&name, "lb").await?;
    world.ready(&name, "lb").await?;
    world.endpoint(&name, "e", "lb", ["10.244.0.1", "10.0.0.1"]).await?;
    let original = Patch::Merge(json!({ "metadata": {
        "labels": { "owningLB": "other" }, "finalizers": ["egw.acnodal.io/endpointFinalizer"] } }));
    world.of::<Endpoint>(&namespace).patch("e", &PatchParams::default(), &original).await?;
    world.delete::<LoadBalancer>(&namespace, "lb").await?;
    world.gone::<Endpoint>(&namespace, "e").await?;
    world.gone::<LoadBalancer>(&namespace, "lb").await?;
    operator.process.stop().await?;
    Ok(())
}

async fn a_load_balancer_waits_for_its_envoy(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served_from(backend, "192.0.2.8/32").await?;
    let namespace = format!("egw-{name}");
    world.load_balancer(&name, "lb").await?;
    world.ready(&name, "lb").await?;
    operator.proxies.hold(unit(&name, "lb"), true);
    world.delete::<LoadBalancer>(&namespace, "lb").await?;
    world.load_balancer(&name, "next").await?;
    world.shows(&name, "next", "Allocated", "PoolExhausted").await?;
    let claim = world.claims().get("192.0.2.8").await?.spec.gateway.unwrap_or_default();
    ensure!(claim.holders.len() == 1 && claim.released_at.is_none(), "Envoy still drains: {claim:?}");
    ensure!(world.get(&name, "lb").await.is_ok());
    operator.proxies.hold(unit(&name, "lb"), false);
    world.gone::<LoadBalancer>(&namespace, "lb").await?;
    world.ready(&name, "next").await?;
    operator.process.stop().await?;
    Ok(())
}

async fn what_lost_its_finalizer_by_force_leaves_nothing(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served(backend).await?;
    let namespace = format!("egw-{name}");
    world.load_balancer(&name, "lb").await?;
    world.ready(&name, "lb").await?;
    operator.proxies.hold(unit(&name, "lb"), true);
    let balancers = world.of::<LoadBalancer>(&namespace);
    balancers.delete("lb", &DeleteParams::default()).await?;
    let force = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    balancers.patch("lb", &PatchParams::default(), &force).await?;
    world.gone::<LoadBalancer>(&namespace, "lb").await?;
    operator.proxies.hold(unit(&name, "lb"), false);
    world.nothing_is_claimed().await?;
    ensure!(operator.proxies.running().is_empty());
    operator.process.stop().await?;
    Ok(())
}

async fn an_account_with_load_balancers_goes_only_with_its_contents(backend: Backend) -> anyhow::Result<()> {
    let (world, operator) = World::operated(backend, "192.0.2.8/29").await?;
    let name = World::name("acme-widgets");
    let namespace = format!("egw-{name}");
    world.account(&name).await?;
    world.load_balancer(&name, "lb").await?;
    world.ready(&name, "lb").await?;
    world.delete::<Account>("egw", &name).await?;
    let accounts = world.of::<Account>("egw");
    eventually("the account says why it waits", async || {
        let status = accounts.get(&name).await?.status.unwrap_or_default();
        Ok(status.conditions.iter().any(|one| one.type_ == "Ready" && one.reason == "HasLoadBalancers"))
    })
    .await?;
    world.ready(&name, "lb").await?;
    ensure!(operator.proxies.running().contains_key(&unit(&name, "lb")), "it keeps serving");
    let agreed =
        Patch::Merge(json!({ "metadata": { "annotations": { "portolan.dev/delete-with-contents": "true" } } }));
    accounts.patch(&name, &PatchParams::default(), &agreed).await?;
    world.gone::<Account>("egw", &name).await?;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    eventually("the namespace goes", async || {
        let found = namespaces.get_opt(&namespace).await?;
        Ok(found.is_none_or(|found| found.metadata.deletion_timestamp.is_some()))
    })
    .await?;
    ensure!(world.of::<LoadBalancer>(&namespace).list(&ListParams::default()).await?.items.is_empty());
    world.nothing_is_claimed().await?;
    operator.process.stop().await?;
    Ok(())
}
