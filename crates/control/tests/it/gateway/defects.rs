//! What the original did wrong, besides what stands with keys, addresses and clean-up; by the names of the specification.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use anyhow::ensure;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use parking_lot::Mutex;
use portolan_api::gateway::{Account, Egw, LoadBalancer, ServicePrefix};
use portolan_core::gateway::unit::Unit;
use portolan_testkit::Interference;
use serde_json::json;

use super::harness::{World, at_rest, unit};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(
    cleanup_error_is_retried,
    counter_has_one_meaning,
    delete_undoes_exactly_create,
    failed_create_returns_address,
    finalizer_added_once,
    memory_returns_after_scale_down,
    no_zero_key_when_api_fails,
    prefix_delete_settles,
    second_prefix_keeps_first,
    what_is_given_and_released_is_an_event,
);

async fn no_zero_key_when_api_fails(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served(backend).await?;
    world.load_balancer(&name, "before").await?;
    world.ready(&name, "before").await?;
    // every reservation fails, often enough for a client that tries three times
    operator.seen.interfere(|exchange| {
        let is_parent = exchange.resource() == Some("accounts") || exchange.resource() == Some("egws");
        (exchange.is_write() && is_parent).then_some(Interference::Status(503))
    });
    world.load_balancer(&name, "waits").await?;
    eventually("reservations were refused several times", async || {
        let refused = operator.seen.writes_but_leases();
        Ok(refused.iter().filter(|write| write.answered == Some(503)).count() > 4)
    })
    .await?;
    let waits = world.get(&name, "waits").await?;
    ensure!(waits.spec.gue_key == 0 && waits.metadata.finalizers.is_none(), "{waits:?}");
    ensure!(!operator.proxies.running().contains_key(&unit(&name, "waits")), "nothing is programmed without a key");
    operator.seen.interfere(|_| None);
    let waits = world.ready(&name, "waits").await?;
    ensure!(waits.spec.gue_key & 0xffff == 2, "{waits:?}");
    operator.process.stop().await?;
    Ok(())
}

async fn memory_returns_after_scale_down(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served(backend).await?;
    let (namespace, all) = (format!("egw-{name}"), ["a", "b", "c", "d"]);
    for balancer in all {
        world.load_balancer(&name, balancer).await?;
        world.endpoint(&name, balancer, balancer, ["10.244.0.1", "10.0.0.1"]).await?;
        world.ready(&name, balancer).await?;
    }
    at_rest(|| operator.writes().len()).await?;
    let units: Vec<Weak<Unit>> = operator.proxies.running().values().map(Arc::downgrade).collect();
    ensure!(units.len() == all.len() && units.iter().all(|unit| unit.strong_count() > 0));
    for balancer in all {
        world.delete::<LoadBalancer>(&namespace, balancer).await?;
        world.gone::<LoadBalancer>(&namespace, balancer).await?;
    }
    // plans, reports and what Envoys were to have
    eventually("nothing of their Envoys is kept", async || Ok(units.iter().all(|unit| unit.strong_count() == 0)))
        .await?;
    operator.process.stop().await?;
    Ok(())
}

async fn counter_has_one_meaning(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served(backend).await?;
    for number in 1..=3_u32 {
        let balancer = format!("lb{number}");
        world.load_balancer(&name, &balancer).await?;
        let key = world.ready(&name, &balancer).await?.spec.gue_key;
        let account: Account = world.of("egw").get(&name).await?;
        let egw: Egw = world.of("egw").get("egw").await?;
        let last = account.status.unwrap_or_default().current_service_gue_key;
        ensure!((key & 0xffff, u32::from(last)) == (number, number), "the counter is the last key that was given");
        ensure!(egw.status.unwrap_or_default().current_account_gue_key == account.spec.gue_key);
    }
    operator.process.stop().await?;
    let operator = world.operator().await?;
    world.load_balancer(&name, "next").await?;
    ensure!(world.ready(&name, "next").await?.spec.gue_key & 0xffff == 4, "and a restart skips none");
    operator.process.stop().await?;
    Ok(())
}

async fn finalizer_added_once(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served(backend).await?;
    world.load_balancer(&name, "lb").await?;
    world.ready(&name, "lb").await?;
    let balancers = world.of::<LoadBalancer>(&format!("egw-{name}"));
    for port in 1..=5 {
        let change = Patch::Merge(json!({ "spec": { "public-ports": [{ "port": port }] } }));
        balancers.patch("lb", &PatchParams::default(), &change).await?;
        world.ready(&name, "lb").await?;
    }
    let finalizers = balancers.get("lb").await?.metadata.finalizers.unwrap_or_default();
    ensure!(finalizers == ["egw.acnodal.io/loadBalancerFinalizer"], "{finalizers:?}");
    let change = Patch::Merge(json!({ "metadata": { "finalizers": ["example.com/other"] } }));
    balancers.patch("lb", &PatchParams::default(), &change).await?;
    eventually("it is put back beside that of another", async || {
        let finalizers = balancers.get("lb").await?.metadata.finalizers.unwrap_or_default();
        Ok(finalizers == ["example.com/other", "egw.acnodal.io/loadBalancerFinalizer"])
    })
    .await?;
    operator.process.stop().await?;
    Ok(())
}

async fn delete_undoes_exactly_create(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served(backend).await?;
    world.load_balancer(&name, "stays").await?;
    world.ready(&name, "stays").await?;
    let claims = async || {
        let list = world.claims().list(&ListParams::default()).await?;
        Ok::<_, anyhow::Error>(list.items.into_iter().map(|claim| claim.spec).collect::<Vec<_>>())
    };
    let before = (claims().await?, operator.proxies.running());
    let ports = json!([{ "name": "web", "port": 80 }, { "name": "dns", "port": 53, "protocol": "UDP" }]);
    world.load_balancer_with(&name, "goes", json!({ "public-ports": ports })).await?;
    world.ready(&name, "goes").await?;
    world.endpoint(&name, "e", "stays", ["10.244.0.9", "10.0.0.1"]).await?;
    world.delete::<LoadBalancer>(&format!("egw-{name}"), "goes").await?;
    world.gone::<LoadBalancer>(&format!("egw-{name}"), "goes").await?;
    world.delete::<portolan_api::gateway::Endpoint>(&format!("egw-{name}"), "e").await?;
    eventually("all is as before", async || Ok((claims().await?, operator.proxies.running()) == before)).await?;
    operator.process.stop().await?;
    Ok(())
}

async fn cleanup_error_is_retried(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served(backend).await?;
    let namespace = format!("egw-{name}");
    world.load_balancer(&name, "lb").await?;
    world.ready(&name, "lb").await?;
    for number in 0..4 {
        let (endpoint, address) = (format!("e{number}"), format!("10.244.0.{number}"));
        world.endpoint(&name, &endpoint, "lb", [&address, "10.0.0.1"]).await?;
    }
    // every write fails three times, those of the Lease excepted
    let tries = Mutex::new(BTreeMap::new());
    operator.seen.interfere(move |exchange| {
        let is_counted = exchange.is_write() && !exchange.is_lease();
        let mut tries = tries.lock();
        let tried: &mut u32 = tries.entry((exchange.method.to_string(), exchange.path.clone())).or_default();
        *tried += u32::from(is_counted);
        (is_counted && *tried <= 3).then_some(Interference::Status(500))
    });
    world.delete::<LoadBalancer>(&namespace, "lb").await?;
    world.gone::<LoadBalancer>(&namespace, "lb").await?;
    let endpoints = world.of::<portolan_api::gateway::Endpoint>(&namespace).list(&ListParams::default()).await?;
    ensure!(endpoints.items.is_empty(), "{endpoints:?}");
    world.nothing_is_claimed().await?;
    ensure!(operator.proxies.running().is_empty());
    operator.process.stop().await?;
    Ok(())
}

async fn failed_create_returns_address(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served(backend).await?;
    // the claim is written, and the load balancer itself cannot be
    operator.seen.interfere(|exchange| {
        let is_object = exchange.resource() == Some("loadbalancers") && !exchange.path.ends_with("/status");
        (exchange.is_write() && is_object).then_some(Interference::Status(500))
    });
    world.load_balancer(&name, "lb").await?;
    eventually("its address is claimed", async || {
        Ok(world.claims().list(&ListParams::default()).await?.items.len() == 1)
    })
    .await?;
    ensure!(world.get(&name, "lb").await?.spec.public_address.is_empty());
    world.delete::<LoadBalancer>(&format!("egw-{name}"), "lb").await?;
    world.gone::<LoadBalancer>(&format!("egw-{name}"), "lb").await?;
    world.nothing_is_claimed().await?;
    operator.process.stop().await?;
    Ok(())
}

async fn prefix_delete_settles(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served(backend).await?;
    world.load_balancer(&name, "lb").await?;
    world.ready(&name, "lb").await?;
    world.delete::<ServicePrefix>("egw", "default").await?;
    world.shows(&name, "lb", "AddressInPool", "PrefixMissing").await?;
    at_rest(|| operator.writes().len()).await?;
    operator.process.stop().await?;
    Ok(())
}

async fn second_prefix_keeps_first(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served(backend).await?;
    world.load_balancer(&name, "one").await?;
    let one = world.ready(&name, "one").await?;
    let spec = json!({ "subnet": "198.51.100.0/24", "pool": "198.51.100.8/29" });
    world.create::<ServicePrefix>("egw", "second", spec).await?;
    world.group(&name, "second", "egw/second").await?;
    world.load_balancer_with(&name, "two", json!({ "service-group": "second" })).await?;
    ensure!(world.ready(&name, "two").await?.spec.public_address == "198.51.100.8");
    let change = Patch::Merge(json!({ "spec": { "pool": "198.51.100.8/28" } }));
    world.of::<ServicePrefix>("egw").patch("second", &PatchParams::default(), &change).await?;
    world.load_balancer(&name, "three").await?;
    ensure!(world.ready(&name, "three").await?.spec.public_address == "192.0.2.9");
    ensure!(world.ready(&name, "one").await?.spec == one.spec);
    operator.process.stop().await?;
    Ok(())
}

async fn what_is_given_and_released_is_an_event(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served(backend).await?;
    let namespace = format!("egw-{name}");
    world.load_balancer(&name, "lb").await?;
    let key = world.ready(&name, "lb").await?.spec.gue_key;
    let events: Api<Event> = Api::namespaced(world.client.clone(), &namespace);
    let notes = async |reason: &str| {
        let list = events.list(&ListParams::default()).await?;
        let of_reason = list.items.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
        Ok::<_, anyhow::Error>(of_reason.filter_map(|event| event.note).collect::<Vec<_>>())
    };
    let expected = format!("key {key} ({}/1), address 192.0.2.8", key >> 16);
    eventually("what it was given is an event", async || Ok(notes("Allocated").await?.contains(&expected))).await?;
    world.delete::<LoadBalancer>(&namespace, "lb").await?;
    eventually("what it gave back is one", async || {
        Ok(notes("Released").await? == ["192.0.2.8 can be given again after its quarantine"])
    })
    .await?;
    operator.process.stop().await?;
    Ok(())
}
