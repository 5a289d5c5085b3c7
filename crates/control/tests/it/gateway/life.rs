//! A converged cluster is left alone; Envoys are given what endpoints and ports say; what they refuse is shown.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use kube::api::{ListParams, Patch, PatchParams};
use portolan_api::gateway::{Endpoint, LoadBalancer, NodeConfig, ServiceGroup, ServicePrefix};
use portolan_core::gateway::ports::{PortNumber, Protocol};
use portolan_core::gateway::unit::State;
use portolan_testkit::Faults;
use serde_json::json;

use super::harness::{World, unit};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(
    an_endpoint_that_is_no_pod_of_the_tenant_is_refused,
    endpoints_and_ports_reach_envoy,
    objects_in_the_wrong_place_are_refused,
    restart_keeps_addresses,
    what_envoy_rejects_is_shown,
);

async fn restart_keeps_addresses(backend: Backend) -> anyhow::Result<()> {
    let (world, operator) = World::operated(backend, "192.0.2.0/24").await?;
    let base = json!({ "base": { "gue-endpoint": { "egw-address": "198.51.100.1" } } });
    world.create::<NodeConfig>("egw", "default", base).await?;
    let name = World::name("acme");
    world.account(&name).await?;
    for number in 0..5 {
        let balancer = format!("lb{number}");
        world.load_balancer(&name, &balancer).await?;
        let [address, node] = [format!("10.244.0.{number}"), format!("10.0.0.{number}")];
        world.endpoint(&name, &format!("e{number}"), &balancer, [&address, &node]).await?;
    }
    let mut before = Vec::new();
    for number in 0..5 {
        world.ready(&name, &format!("lb{number}")).await?;
    }
    let settled = async || {
        let endpoints = world.of::<Endpoint>(&format!("egw-{name}")).list(&ListParams::default()).await?;
        let is_done = |object: &Endpoint| {
            let status = object.status.clone().unwrap_or_default();
            let is_programmed = status.conditions.iter().any(|one| one.type_ == "Programmed" && one.status == "True");
            is_programmed && status.tunnel_id != 0
        };
        let group = world.of::<ServiceGroup>(&format!("egw-{name}")).get("sample").await?;
        let versions = group.status.unwrap_or_default().proxy_snapshot_versions;
        let prefix: ServicePrefix = world.of("egw").get("default").await?;
        let in_use = prefix.status.and_then(|status| status.addresses).map(|addresses| addresses.in_use);
        Ok(endpoints.items.iter().all(is_done) && versions.len() == 5 && in_use == Some(5))
    };
    eventually("everything is in service", settled).await?;
    for number in 0..5 {
        before.push(world.get(&name, &format!("lb{number}")).await?.spec);
    }
    operator.process.stop().await?;

    let operator = world.operator().await?;
    eventually("the Envoys run again", async || Ok(operator.proxies.running().len() == 5)).await?;
    // reservations that nobody needs are dropped after half a minute: this is not awaited here
    tokio::time::sleep(Duration::from_secs(3)).await;
    let writes = operator.writes();
    ensure!(writes.is_empty(), "{writes:#?}");
    for (number, spec) in before.iter().enumerate() {
        ensure!(world.get(&name, &format!("lb{number}")).await?.spec == *spec);
    }
    operator.process.stop().await?;
    Ok(())
}

async fn endpoints_and_ports_reach_envoy(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served(backend).await?;
    let namespace = format!("egw-{name}");
    let ports = json!({ "public-ports": [
        { "name": "web", "port": 80, "targetPort": 8080 }, { "name": "dns", "port": 53, "protocol": "UDP" }] });
    world.load_balancer_with(&name, "lb", ports).await?;
    world.ready(&name, "lb").await?;
    world.endpoint(&name, "web", "lb", ["10.244.0.1", "10.0.0.1"]).await?;
    let dns = json!({ "load-balancer": "lb", "address": "10.244.0.1", "node-address": "10.0.0.1",
        "port": { "name": "dns", "port": 5353, "protocol": "udp" } });
    world.create::<Endpoint>(&namespace, "dns", dns).await?;
    let listener = |protocol, port| {
        let unit = operator.proxies.running().get(&unit(&name, "lb")).cloned()?;
        let listener = unit.listeners.get(&PortNumber { protocol, port })?;
        Some(listener.endpoints.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
    };
    eventually("both endpoints are there", async || {
        Ok(listener(Protocol::Tcp, 80).as_deref() == Some("10.244.0.1:8080")
            && listener(Protocol::Udp, 53).as_deref() == Some("10.244.0.1:5353"))
    })
    .await?;
    world.endpoint(&name, "second", "lb", ["10.244.0.2", "10.0.0.1"]).await?;
    world.delete::<Endpoint>(&namespace, "web").await?;
    eventually("one came, one went", async || Ok(listener(Protocol::Tcp, 80).as_deref() == Some("10.244.0.2:8080")))
        .await?;
    let changed =
        Patch::Merge(json!({ "spec": { "public-ports": [{ "name": "web", "port": 81, "targetPort": 8080 }] } }));
    world.of::<LoadBalancer>(&namespace).patch("lb", &PatchParams::default(), &changed).await?;
    eventually("the other port is served", async || {
        Ok(listener(Protocol::Tcp, 81).is_some()
            && listener(Protocol::Tcp, 80).is_none()
            && listener(Protocol::Udp, 53).is_none())
    })
    .await?;
    let groups = world.of::<ServiceGroup>(&namespace);
    eventually("the group counts it", async || {
        let versions = groups.get("sample").await?.status.unwrap_or_default().proxy_snapshot_versions;
        Ok(versions.get("lb") == Some(&2))
    })
    .await?;
    operator.process.stop().await?;
    Ok(())
}

async fn what_envoy_rejects_is_shown(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served(backend).await?;
    world.load_balancer(&name, "lb").await?;
    world.ready(&name, "lb").await?;
    let port = PortNumber { protocol: Protocol::Tcp, port: 8888 };
    operator.proxies.reject(unit(&name, "lb"), port, Some("cannot bind '192.0.2.8:8888': Address already in use"));
    let object = world.shows(&name, "lb", "Programmed", "EnvoyRejected").await?;
    let conditions = object.status.unwrap_or_default().conditions;
    let message = conditions.iter().find(|one| one.type_ == "Ready").map(|one| one.message.clone());
    ensure!(message.context("it has a summary")?.contains("Address already in use"));
    operator.proxies.reject(unit(&name, "lb"), port, None);
    world.ready(&name, "lb").await?;
    operator.proxies.set_state(unit(&name, "lb"), Some(State::Crashed("exit status 1".into())));
    world.shows(&name, "lb", "Programmed", "EnvoyCrashed").await?;
    operator.proxies.set_state(unit(&name, "lb"), None);
    world.ready(&name, "lb").await?;
    operator.process.stop().await?;
    Ok(())
}

async fn an_endpoint_that_is_no_pod_of_the_tenant_is_refused(backend: Backend) -> anyhow::Result<()> {
    let (world, operator) = World::operated(backend, "192.0.2.8/29").await?;
    let (one, other) = (World::name("one"), World::name("other"));
    for account in [&one, &other] {
        world.account(account).await?;
        world.load_balancer(account, "lb").await?;
        world.ready(account, "lb").await?;
    }
    world.endpoint(&one, "good", "lb", ["10.244.0.1", "10.0.0.1"]).await?;
    // which of two is older is known by the second
    tokio::time::sleep(Duration::from_millis(1100)).await;
    world.endpoint(&one, "metadata", "lb", ["169.254.169.254", "10.0.0.1"]).await?;
    world.endpoint(&one, "translated", "lb", ["64:ff9b::7f00:1", "10.0.0.1"]).await?;
    world.endpoint(&one, "pool", "lb", ["192.0.2.9", "10.0.0.1"]).await?;
    world.endpoint(&one, "again", "lb", ["10.244.0.1", "10.0.0.1"]).await?;
    world.endpoint(&one, "elsewhere", "lb", ["10.244.0.1", "10.0.0.2"]).await?;
    world.endpoint(&one, "orphan", "missing", ["10.244.0.7", "10.0.0.2"]).await?;
    let reason = async |account: &str, name: &str, kind: &str| {
        let object: Endpoint = world.of(&format!("egw-{account}")).get(name).await?;
        let conditions = object.status.unwrap_or_default().conditions;
        Ok::<_, anyhow::Error>(conditions.into_iter().find(|one| one.type_ == kind).map(|one| one.reason))
    };
    for (name, kind, wanted) in [
        ("good", "Programmed", "Programmed"),
        ("metadata", "Accepted", "AddressDenied"),
        ("translated", "Accepted", "AddressDenied"),
        ("pool", "Accepted", "AddressDenied"),
        ("again", "Accepted", "DuplicateEndpoint"),
        ("elsewhere", "Accepted", "AmbiguousEndpoint"),
        ("orphan", "ResolvedRefs", "LoadBalancerNotFound"),
    ] {
        let what = format!("endpoint {name} says {wanted}");
        eventually(&what, async || Ok(reason(&one, name, kind).await?.as_deref() == Some(wanted))).await?;
    }
    world.endpoint(&other, "taken", "lb", ["10.244.0.1", "10.0.0.9"]).await?;
    eventually("the other account is refused", async || {
        Ok(reason(&other, "taken", "Accepted").await?.as_deref() == Some("AddressInUse"))
    })
    .await?;
    let units = operator.proxies.running();
    let sockets =
        |account: &str| units[&unit(account, "lb")].listeners.values().map(|one| one.endpoints.len()).sum::<usize>();
    ensure!((sockets(&one), sockets(&other)) == (1, 0), "{units:?}");
    operator.process.stop().await?;
    Ok(())
}

async fn objects_in_the_wrong_place_are_refused(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let operator = world.operator_with(Faults::default(), |options| options).await?;
    world.provider().await?;
    let elsewhere = World::name("elsewhere");
    world.namespace(&elsewhere).await?;
    let refused = world.create::<portolan_api::gateway::Egw>("egw", "second", json!({})).await;
    ensure!(refused.is_err_and(|problem| format!("{problem:#}").contains("its name is `egw`")));
    world.create::<portolan_api::gateway::Egw>(&elsewhere, "egw", json!({})).await?;
    world.create::<portolan_api::gateway::Account>(&elsewhere, "lost", json!({})).await?;
    let egws = world.of::<portolan_api::gateway::Egw>(&elsewhere);
    eventually("the other EGW is refused", async || {
        let status = egws.get("egw").await?.status.unwrap_or_default();
        Ok(status.conditions.iter().any(|one| one.reason == "NotSingleton"))
    })
    .await?;
    let accounts = world.of::<portolan_api::gateway::Account>(&elsewhere);
    eventually("the account is refused", async || {
        let status = accounts.get("lost").await?.status.unwrap_or_default();
        Ok(status.conditions.iter().any(|one| one.reason == "Invalid"))
    })
    .await?;
    ensure!(accounts.get("lost").await?.spec.gue_key == 0);
    operator.process.stop().await?;
    Ok(())
}
