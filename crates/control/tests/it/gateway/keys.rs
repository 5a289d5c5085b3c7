//! Keys and ids, as spec section 9 names the defects of the original.

use std::collections::BTreeSet;

use anyhow::ensure;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use portolan_api::gateway::{Account, Egw, Endpoint, LoadBalancer, NodeConfig};
use portolan_testkit::Faults;
use serde_json::json;

use super::harness::World;
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(
    account_update_keeps_key,
    counter_rebuilt_from_live_objects,
    dry_run_and_denied_create_burn_nothing,
    duplicates_of_restored_objects_are_not_given_new_keys,
    exhausted_keys_give_a_clear_condition,
    hundred_conflicts_still_allocate,
    namespace_without_prefix_takes_no_key,
    tunnel_freed_with_last_endpoint,
    two_endpoints_one_node_one_tunnel,
);

async fn account_update_keeps_key(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let operator = world.operator().await?;
    let name = World::name("acme");
    world.account(&name).await?;
    let accounts = world.of::<Account>("egw");
    let key = async || Ok::<_, anyhow::Error>(accounts.get(&name).await?.spec.gue_key);
    eventually("the account has a key", async || Ok(key().await? != 0)).await?;
    let before = key().await?;
    let change =
        Patch::Merge(json!({ "spec": { "limits": { "addresses": 3 } }, "metadata": { "labels": { "a": "b" } } }));
    accounts.patch(&name, &PatchParams::default(), &change).await?;
    let other = Patch::Merge(json!({ "spec": { "gue-key": before + 1 } }));
    let refused = accounts.patch(&name, &PatchParams::default(), &other).await;
    ensure!(refused.is_err_and(|problem| problem.to_string().contains("cannot be changed")));
    let without = Patch::Merge(json!({ "spec": { "gue-key": null } }));
    ensure!(accounts.patch(&name, &PatchParams::default(), &without).await.is_err(), "a key cannot be removed");
    world.account(&World::name("other")).await?;
    ensure!(key().await? == before);
    operator.process.stop().await?;
    Ok(())
}

async fn counter_rebuilt_from_live_objects(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.provider().await?;
    // restored from a backup without status
    let restored = World::name("restored");
    world.create::<Account>("egw", &restored, json!({ "gue-key": 7 })).await?;
    let operator = world.operator().await?;
    let name = World::name("fresh");
    world.account(&name).await?;
    let accounts = world.of::<Account>("egw");
    eventually("the account has a key", async || Ok(accounts.get(&name).await?.spec.gue_key != 0)).await?;
    ensure!(accounts.get(&name).await?.spec.gue_key == 8);
    let egw: Egw = world.of("egw").get("egw").await?;
    ensure!(egw.status.unwrap_or_default().current_account_gue_key == 8);
    let lower = Patch::Merge(json!({ "status": { "current-account-gue-key": 1 } }));
    let refused = world.of::<Egw>("egw").patch_status("egw", &PatchParams::default(), &lower).await;
    ensure!(refused.is_err_and(|problem| problem.to_string().contains("never decreases")));
    operator.process.stop().await?;
    Ok(())
}

async fn dry_run_and_denied_create_burn_nothing(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served_from(backend, "192.0.2.8/30").await?;
    let namespace = format!("egw-{name}");
    let object: LoadBalancer = serde_json::from_value(json!({
        "metadata": { "name": "dry" },
        "spec": { "service-group": "sample", "public-ports": [{ "port": 80 }] },
    }))?;
    let balancers = world.of::<LoadBalancer>(&namespace);
    balancers.create(&PostParams { dry_run: true, ..PostParams::default() }, &object).await?;
    let mut denied = object.clone();
    denied.spec.public_ports.push(denied.spec.public_ports[0].clone());
    let refused = balancers.create(&PostParams::default(), &denied).await;
    ensure!(refused.is_err_and(|problem| problem.to_string().contains("same number and protocol")));
    world.load_balancer(&name, "first").await?;
    let first = world.ready(&name, "first").await?;
    ensure!(first.spec.gue_key & 0xffff == 1, "{}", first.spec.gue_key);
    ensure!(first.spec.public_address == "192.0.2.8");
    operator.process.stop().await?;
    Ok(())
}

async fn duplicates_of_restored_objects_are_not_given_new_keys(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served_from(backend, "192.0.2.8/30").await?;
    world.load_balancer(&name, "one").await?;
    let one = world.ready(&name, "one").await?;
    world.load_balancer_with(&name, "two", json!({ "gue-key": one.spec.gue_key })).await?;
    let two = world.shows(&name, "two", "Accepted", "DuplicateKey").await?;
    ensure!(two.spec.gue_key == one.spec.gue_key && two.spec.public_address.is_empty(), "{two:?}");
    let foreign = one.spec.gue_key ^ 0x0004_0000;
    world.load_balancer_with(&name, "three", json!({ "gue-key": foreign })).await?;
    world.shows(&name, "three", "Accepted", "Invalid").await?;
    world.ready(&name, "one").await?;
    operator.process.stop().await?;
    Ok(())
}

async fn exhausted_keys_give_a_clear_condition(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.pool("192.0.2.8/29").await?;
    let name = World::name("acme");
    let operator = world.operator().await?;
    world.account(&name).await?;
    // the tenant took the last fresh number for itself
    let accounts = world.of::<Account>("egw");
    eventually("the account has a key", async || Ok(accounts.get(&name).await?.spec.gue_key != 0)).await?;
    let last = u32::from(accounts.get(&name).await?.spec.gue_key) << 16 | 0xffff;
    world.load_balancer_with(&name, "last", json!({ "gue-key": last })).await?;
    let object = world.ready(&name, "last").await?;
    ensure!(object.spec.gue_key == last);
    // nothing is used again before it was seen free for the whole quarantine
    world.load_balancer(&name, "waits").await?;
    let waits = world.get(&name, "waits").await?;
    ensure!(waits.spec.gue_key == 0 || waits.spec.gue_key & 0xffff == 1, "{waits:?}");
    let first = world.ready(&name, "waits").await?;
    ensure!(first.spec.gue_key & 0xffff == 1, "the lowest free one: {}", first.spec.gue_key);
    operator.process.stop().await?;

    let operator = world
        .operator_with(Faults::default(), |options| portolan_control::gateway::Options {
            key_quarantine: std::time::Duration::from_hours(1),
            ..options
        })
        .await?;
    world.load_balancer(&name, "refused").await?;
    let refused = world.shows(&name, "refused", "Allocated", "KeysExhausted").await?;
    ensure!(refused.spec.gue_key == 0 && refused.spec.public_address.is_empty(), "{refused:?}");
    operator.process.stop().await?;
    Ok(())
}

async fn hundred_conflicts_still_allocate(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.pool("192.0.2.0/24").await?;
    let faults = Faults { seed: 7, conflict: 0.6, ..Faults::default() };
    let operator = world.operator_with(faults, |options| options).await?;
    let name = World::name("acme");
    world.account(&name).await?;
    for number in 0..30 {
        world.load_balancer(&name, &format!("lb{number}")).await?;
    }
    for number in 0..30 {
        world.ready(&name, &format!("lb{number}")).await?;
    }
    let all = world.of::<LoadBalancer>(&format!("egw-{name}")).list(&ListParams::default()).await?;
    let keys: BTreeSet<u32> = all.items.iter().map(|object| object.spec.gue_key).collect();
    let addresses: BTreeSet<&str> = all.items.iter().map(|object| object.spec.public_address.as_str()).collect();
    ensure!((keys.len(), addresses.len()) == (30, 30), "{keys:?} {addresses:?}");
    ensure!(!keys.contains(&0));
    operator.process.stop().await?;
    Ok(())
}

async fn namespace_without_prefix_takes_no_key(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let operator = world.operator().await?;
    let name = World::name("sample");
    world.account(&name).await?;
    world.namespace(&name).await?;
    let spec = json!({ "service-group": "sample", "public-ports": [{ "port": 80 }] });
    world.create::<LoadBalancer>(&name, "lb", spec).await?;
    let balancers = world.of::<LoadBalancer>(&name);
    eventually("it is refused", async || {
        let status = balancers.get("lb").await?.status.unwrap_or_default();
        Ok(status.conditions.iter().any(|one| one.type_ == "Accepted" && one.reason == "AccountNotFound"))
    })
    .await?;
    let object = balancers.get("lb").await?;
    ensure!(object.spec.gue_key == 0 && object.metadata.finalizers.is_none(), "{object:?}");
    let account: Account = world.of("egw").get(&name).await?;
    ensure!(account.status.unwrap_or_default().current_service_gue_key == 0);
    operator.process.stop().await?;
    Ok(())
}

async fn tunnel_world(backend: Backend) -> anyhow::Result<(World, super::harness::Operator, String)> {
    let (world, operator) = World::operated(backend, "192.0.2.8/29").await?;
    let base = json!({ "base": { "gue-endpoint": { "egw-address": "198.51.100.1" } } });
    world.create::<NodeConfig>("egw", "default", base).await?;
    let name = World::name("acme");
    world.account(&name).await?;
    world.load_balancer(&name, "lb").await?;
    world.ready(&name, "lb").await?;
    Ok((world, operator, name))
}

async fn two_endpoints_one_node_one_tunnel(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = tunnel_world(backend).await?;
    for number in 1..=5 {
        let [address, node] = [format!("10.244.0.{number}"), format!("10.0.0.{}", number % 2)];
        world.endpoint(&name, &format!("e{number}"), "lb", [&address, &node]).await?;
    }
    let endpoints = world.of::<Endpoint>(&format!("egw-{name}"));
    eventually("all endpoints have a tunnel", async || {
        let all = endpoints.list(&ListParams::default()).await?;
        Ok(all.items.iter().all(|object| object.status.as_ref().is_some_and(|status| status.tunnel_id != 0)))
    })
    .await?;
    let tunnels = world.get(&name, "lb").await?.status.unwrap_or_default().gue_tunnel_endpoints;
    let ids: BTreeSet<u32> = tunnels.values().map(|tunnel| tunnel.tunnel_id).collect();
    ensure!((tunnels.len(), ids.len()) == (2, 2), "{tunnels:?}");
    for object in endpoints.list(&ListParams::default()).await? {
        let status = object.status.unwrap_or_default();
        ensure!(tunnels[&object.spec.node_address].tunnel_id == status.tunnel_id, "{tunnels:?} {status:?}");
    }
    operator.process.stop().await?;
    Ok(())
}

async fn tunnel_freed_with_last_endpoint(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = tunnel_world(backend).await?;
    let namespace = format!("egw-{name}");
    world.endpoint(&name, "a", "lb", ["10.244.0.1", "10.0.0.1"]).await?;
    world.endpoint(&name, "b", "lb", ["10.244.0.2", "10.0.0.1"]).await?;
    let count = async || {
        Ok::<_, anyhow::Error>(world.get(&name, "lb").await?.status.unwrap_or_default().gue_tunnel_endpoints.len())
    };
    eventually("there is a tunnel", async || Ok(count().await? == 1)).await?;
    world.delete::<Endpoint>(&namespace, "a").await?;
    world.endpoint(&name, "c", "lb", ["10.244.0.3", "10.0.0.2"]).await?;
    eventually("there are two", async || Ok(count().await? == 2)).await?;
    world.delete::<Endpoint>(&namespace, "b").await?;
    eventually("the first is gone", async || Ok(count().await? == 1)).await?;
    operator.process.stop().await?;
    Ok(())
}
