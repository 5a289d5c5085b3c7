//! What an operator that is gone has left, and `portolan cleanup` removes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use portolan_api::egress::{EgressClusterInfo, EgressEndpointSlice};
use portolan_control::cleanup::{self, Error, Found, Options};
use portolan_control::egress::CAPABILITY;
use portolan_control::runtime::lease;
use portolan_testkit::{FaultProxy, Faults, Interference};
use serde_json::json;

use super::harness::{Operator, World, agents, app};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(
    what_the_operator_made_goes_and_what_users_made_stays,
    nothing_is_removed_while_an_operator_leads,
    what_fails_stops_nothing_else_and_is_tried_again,
);

/// A world in which an operator has run, with one policy on one node.
async fn left(backend: Backend) -> anyhow::Result<(World, FaultProxy)> {
    let world = World::new(backend).await?;
    let proxy = FaultProxy::start(world.client.clone(), Faults::default()).await?;
    let (operator, agents) = (Operator::elected(&proxy, election(&world, "operator"))?, agents(&world)?);
    world.node("n1").await?;
    world.pod(&world.namespace, "p", "web", "10.244.0.7").await?;
    world.gateway("eg1", &["10.6.1.60"]).await?;
    world.policy_like("web", json!({ "egressGatewayName": "eg1", "appliedTo": app("web") })).await?;
    world.granted("web").await?;
    let slices = world.namespaced::<EgressEndpointSlice>();
    eventually("everything was written once", async || {
        let infos = Api::<EgressClusterInfo>::all(world.client.clone()).list(&ListParams::default()).await?;
        Ok(!infos.items.is_empty() && !slices.list(&ListParams::default()).await?.items.is_empty())
    })
    .await?;
    operator.stop().await?;
    agents.stop().await?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "portolan.dev/webhook-authority", "metadata": { "name": "portolan-webhook" }
    });
    world.namespaced::<Secret>().create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    Ok((world, proxy))
}

/// An operator's own election, in the test's namespace.
fn election(world: &World, identity: &str) -> lease::Options {
    lease::Options::of_operator(&world.namespace, identity)
}

fn options(world: &World) -> Options {
    Options::of_operator(&world.namespace, "cleanup")
}

async fn cleaned(world: &World, proxy: &FaultProxy) -> Result<Vec<(&'static str, usize)>, Error> {
    let mut told = Vec::new();
    let tell = |found: Found| told.push((found.kind, found.objects));
    cleanup::run(&[&CAPABILITY], &proxy.client(), &options(world), tell).await?;
    Ok(told)
}

async fn what_the_operator_made_goes_and_what_users_made_stays(backend: Backend) -> anyhow::Result<()> {
    let (world, proxy) = left(backend).await?;
    let foreign =
        json!({ "metadata": { "finalizers": ["example.com/kept", "egressgateway.spidernet.io/egressgateway"] } });
    world.gateways().patch("eg1", &PatchParams::default(), &Patch::Merge(foreign)).await?;
    let ledger = world.ledger().await?;
    let expected = [
        ("EgressGateway", 1),
        ("EgressTunnel", 1),
        ("EgressClusterInfo", 1),
        ("EgressEndpointSlice", 1),
        ("EgressClusterEndpointSlice", 0),
        ("AddressClaim", 1),
    ];
    let found = cleanup::find(&[&CAPABILITY], &world.client, "default").await?;
    assert_eq!(found.iter().map(|found| (found.kind, found.objects)).collect::<Vec<_>>(), expected);
    assert_eq!(world.tunnels().list(&ListParams::default()).await?.items.len(), 1, "looking changes nothing");

    assert_eq!(cleaned(&world, &proxy).await?, expected);
    assert_eq!(world.tunnels().list(&ListParams::default()).await?.items.len(), 0);
    let infos = Api::<EgressClusterInfo>::all(world.client.clone()).list(&ListParams::default()).await?;
    assert_eq!(infos.items.len(), 0);
    assert_eq!(world.namespaced::<EgressEndpointSlice>().list(&ListParams::default()).await?.items.len(), 0);
    assert!(world.namespaced::<Secret>().get_opt("portolan-webhook").await?.is_none());
    assert!(world.namespaced::<Lease>().get_opt("portolan-operator").await?.is_none());
    assert_eq!(world.gateways().get("eg1").await?.finalizers(), ["example.com/kept"]);
    assert_eq!(world.ledger().await?, ledger, "the policy finds its address again");
    let held = world.claims().list(&ListParams::default()).await?;
    assert!(held.iter().all(|claim| claim.finalizers().is_empty()), "{held:?}");

    let free = json!({ "metadata": { "finalizers": null } });
    world.gateways().patch("eg1", &PatchParams::default(), &Patch::Merge(free)).await?;
    let granted = world.status("web").await?.eip;
    let operator = Operator::start(&proxy)?;
    eventually("an operator that comes again holds the claim", async || {
        let claims = world.claims().list(&ListParams::default()).await?;
        Ok(claims.iter().all(|claim| !claim.finalizers().is_empty()))
    })
    .await?;
    assert_eq!(world.status("web").await?.eip, granted);
    operator.stop().await
}

async fn nothing_is_removed_while_an_operator_leads(backend: Backend) -> anyhow::Result<()> {
    let (world, proxy) = left(backend).await?;
    let edited = json!({ "spec": { "extraCidr": ["10.9.0.0/16"] } });
    let infos = Api::<EgressClusterInfo>::all(world.client.clone());
    infos.patch("default", &PatchParams::default(), &Patch::Merge(edited)).await?;
    let operator = Operator::elected(&proxy, election(&world, "another"))?;
    operator.process.ctx().leadership.acquired().await;
    let short = Options { patience: Duration::from_secs(6), ..options(&world) };
    let told = cleanup::run(&[&CAPABILITY], &world.client, &short, |_| ()).await;
    assert!(matches!(&told, Err(Error::OperatorRuns { holder, .. }) if holder == "another"), "{told:?}");
    assert_eq!(world.tunnels().list(&ListParams::default()).await?.items.len(), 1);
    operator.stop().await?;

    cleaned(&world, &proxy).await?;
    assert_eq!(infos.list(&ListParams::default()).await?.items.len(), 1, "a user wrote into it");
    Ok(())
}

async fn what_fails_stops_nothing_else_and_is_tried_again(backend: Backend) -> anyhow::Result<()> {
    let (world, proxy) = left(backend).await?;
    let wanted = json!({ "apiVersion": "egressgateway.spidernet.io/v1beta1", "kind": "EgressTunnel",
        "metadata": { "name": "n2" }, "spec": {} });
    world.tunnels().create(&PostParams::default(), &serde_json::from_value(wanted)?).await?;
    proxy.interfere(|exchange| {
        (exchange.method == http::Method::DELETE && exchange.path.ends_with("/n1")).then_some(Interference::Status(500))
    });
    let told = cleaned(&world, &proxy).await;
    assert!(matches!(&told, Err(Error::Remove { kind: "EgressTunnel", left: 1, .. })), "{told:?}");
    let tunnels = world.tunnels().list(&ListParams::default()).await?;
    assert_eq!(tunnels.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>(), ["n1"]);

    // somebody else writes at the same time: the object is read again
    let conflicts = AtomicUsize::new(0);
    proxy.interfere(move |exchange| {
        let first = exchange.path.contains("/addressclaims/") && conflicts.fetch_add(1, Ordering::Relaxed) == 0;
        (first && exchange.is_write()).then_some(Interference::Status(409))
    });
    cleaned(&world, &proxy).await?;
    assert_eq!(world.tunnels().list(&ListParams::default()).await?.items.len(), 0);
    let held = world.claims().list(&ListParams::default()).await?;
    assert!(held.iter().all(|claim| claim.finalizers().is_empty()), "{held:?}");
    assert!(world.namespaced::<Lease>().get_opt("portolan-operator").await?.is_none());
    Ok(())
}
