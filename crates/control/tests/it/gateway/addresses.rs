//! Addresses, as spec section 9 names the defects of the original.

use anyhow::ensure;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use portolan_api::gateway::{LoadBalancer, ServicePrefix};
use serde_json::json;

use super::harness::{Tenants, World, unit};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(
    a_fence_keeps_other_accounts_out_and_takes_nothing_away,
    a_pool_that_shrinks_takes_no_address_away,
    a_tenant_cannot_take_the_address_of_another,
    bad_prefix_stops_nothing,
    claim_deleted_by_hand_is_made_again,
    pool_is_the_groups,
    quota_checked_before_taking,
    release_keeps_other_sharers,
    same_name_two_accounts_two_addresses,
    the_address_returns_after_its_quarantine,
);

async fn prefix(world: &World, name: &str, spec: serde_json::Value) -> anyhow::Result<()> {
    world.provider().await?;
    world.create::<ServicePrefix>("egw", name, spec).await?;
    Ok(())
}

async fn pool_is_the_groups(backend: Backend) -> anyhow::Result<()> {
    let (world, operator) = World::operated(backend, "192.0.2.8/29").await?;
    prefix(&world, "second", json!({ "subnet": "2001:db8::/64", "pool": "2001:db8::/64" })).await?;
    let name = World::name("acme");
    world.account(&name).await?;
    world.group(&name, "six", "egw/second").await?;
    world.load_balancer(&name, "four").await?;
    world.load_balancer_with(&name, "six", json!({ "service-group": "six" })).await?;
    let four = world.ready(&name, "four").await?;
    let six = world.ready(&name, "six").await?;
    ensure!(four.spec.public_address == "192.0.2.8" && six.spec.public_address == "2001:db8::1", "{four:?} {six:?}");
    let claim = world.claims().get("2001.0db8.0000.0000.0000.0000.0000.0001").await?;
    let section = claim.spec.gateway.unwrap_or_default();
    ensure!(section.prefix_ref == "egw/second" && section.holders[0].name == "six", "{section:?}");
    operator.process.stop().await?;
    Ok(())
}

async fn same_name_two_accounts_two_addresses(backend: Backend) -> anyhow::Result<()> {
    let (world, operator) = World::operated(backend, "192.0.2.8/29").await?;
    let (one, other) = (World::name("one"), World::name("other"));
    for account in [&one, &other] {
        world.account(account).await?;
        world.load_balancer(account, "web").await?;
    }
    let first = world.ready(&one, "web").await?;
    let second = world.ready(&other, "web").await?;
    ensure!(first.spec.public_address != second.spec.public_address);
    ensure!(first.spec.gue_key != second.spec.gue_key);
    operator.process.stop().await?;
    Ok(())
}

async fn bad_prefix_stops_nothing(backend: Backend) -> anyhow::Result<()> {
    let (world, operator) = World::operated(backend, "192.0.2.8/29").await?;
    // which of two is older is known by the second
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    prefix(&world, "inside", json!({ "subnet": "192.0.2.0/24", "pool": "192.0.2.9-192.0.2.10" })).await?;
    // the order of a range is beyond CEL
    prefix(&world, "reversed", json!({ "subnet": "198.51.100.0/24", "pool": "198.51.100.9-198.51.100.2" })).await?;
    let refused = prefix(&world, "outside", json!({ "subnet": "198.51.100.0/24", "pool": "203.0.113.0/24" })).await;
    ensure!(refused.is_err_and(|problem| format!("{problem:#}").contains("inside spec.subnet")));
    let refused = prefix(&world, "host-bits", json!({ "subnet": "198.51.100.1/24", "pool": "198.51.100.2/32" })).await;
    ensure!(refused.is_err_and(|problem| format!("{problem:#}").contains("host bits")));
    let name = World::name("acme");
    world.account(&name).await?;
    for group in ["inside", "reversed"] {
        world.group(&name, group, &format!("egw/{group}")).await?;
        world.load_balancer_with(&name, group, json!({ "service-group": group })).await?;
        world.shows(&name, group, "ResolvedRefs", "PrefixNotReady").await?;
    }
    world.load_balancer(&name, "good").await?;
    world.ready(&name, "good").await?;
    let prefixes = world.of::<ServicePrefix>("egw");
    for (name, reason) in [("default", "Accepted"), ("inside", "PoolOverlap"), ("reversed", "Invalid")] {
        eventually(&format!("prefix {name} says {reason}"), async || {
            let status = prefixes.get(name).await?.status.unwrap_or_default();
            Ok(status.conditions.iter().any(|one| one.type_ == "Accepted" && one.reason == reason))
        })
        .await?;
    }
    eventually("the prefix counts its addresses", async || {
        let counts = prefixes.get("default").await?.status.unwrap_or_default().addresses.unwrap_or_default();
        Ok((counts.capacity, counts.in_use, counts.quarantined) == (8, 1, 0))
    })
    .await?;
    operator.process.stop().await?;
    Ok(())
}

async fn the_address_returns_after_its_quarantine(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served_from(backend, "192.0.2.8/32").await?;
    world.load_balancer(&name, "one").await?;
    world.ready(&name, "one").await?;
    world.load_balancer(&name, "two").await?;
    let two = world.shows(&name, "two", "Allocated", "PoolExhausted").await?;
    ensure!(two.spec.public_address.is_empty());
    world.delete::<LoadBalancer>(&format!("egw-{name}"), "one").await?;
    let two = world.ready(&name, "two").await?;
    ensure!(two.spec.public_address == "192.0.2.8");
    operator.process.stop().await?;
    Ok(())
}

async fn release_keeps_other_sharers(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served(backend).await?;
    let port = |number: u16, protocol: &str| json!({ "sharing-key": "web", "public-ports": [{ "port": number, "protocol": protocol }] });
    world.load_balancer_with(&name, "http", port(80, "TCP")).await?;
    world.ready(&name, "http").await?;
    world.load_balancer_with(&name, "https", port(443, "tcp")).await?;
    world.load_balancer_with(&name, "quic", port(443, "UDP")).await?;
    world.load_balancer_with(&name, "clash", port(80, "TCP")).await?;
    for sharer in ["http", "https", "quic"] {
        let object = world.ready(&name, sharer).await?;
        ensure!(object.spec.public_address == "192.0.2.8", "{object:?}");
    }
    let clash = world.ready(&name, "clash").await?;
    ensure!(clash.spec.public_address == "192.0.2.9");
    world.delete::<LoadBalancer>(&format!("egw-{name}"), "https").await?;
    world.gone::<LoadBalancer>(&format!("egw-{name}"), "https").await?;
    let claim = world.claims().get("192.0.2.8").await?.spec.gateway.unwrap_or_default();
    let mut holders: Vec<&str> = claim.holders.iter().map(|holder| holder.name.as_str()).collect();
    holders.sort_unstable();
    ensure!(holders == ["http", "quic"], "{holders:?}");
    let units = operator.proxies.running();
    let shared = units.get(&unit(&name, "share.192.0.2.8")).map(|unit| unit.listeners.len());
    ensure!(shared == Some(2), "{units:?}");
    operator.process.stop().await?;
    Ok(())
}

async fn a_tenant_cannot_take_the_address_of_another(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, Tenants { victim, thief, web }) = World::with_tenants(backend).await?;
    let held = web.spec.public_address;
    // as if it had been given the address: with finalizer, sharing key and all
    let namespace = format!("egw-{thief}");
    let forged = json!({
        "apiVersion": "egw.acnodal.io/v1", "kind": "LoadBalancer",
        "metadata": { "name": "forged", "finalizers": ["egw.acnodal.io/loadBalancerFinalizer"] },
        "spec": { "service-group": "sample", "public-address": held, "public-ports": [{ "port": 9999 }] },
    });
    world.of::<LoadBalancer>(&namespace).create(&PostParams::default(), &serde_json::from_value(forged)?).await?;
    let forged = world.shows(&thief, "forged", "Allocated", "AddressInUse").await?;
    let message = forged.status.unwrap_or_default().conditions.into_iter().find(|one| one.type_ == "Allocated");
    let message = message.map(|one| one.message).unwrap_or_default();
    ensure!(!message.contains(&victim) && !message.contains("web"), "the holder is hidden: {message}");
    world.load_balancer_with(&thief, "outside", json!({ "public-address": "203.0.113.1" })).await?;
    world.shows(&thief, "outside", "Allocated", "AddressNotAllowed").await?;
    ensure!(!operator.proxies.running().contains_key(&unit(&thief, "forged")));
    world.ready(&victim, "web").await?;
    operator.process.stop().await?;
    Ok(())
}

async fn a_fence_keeps_other_accounts_out_and_takes_nothing_away(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let operator = world.operator().await?;
    let (one, other) = (World::name("one"), World::name("other"));
    let spec = json!({ "subnet": "192.0.2.0/24", "pool": "192.0.2.8/29", "accounts": [one] });
    prefix(&world, "default", spec).await?;
    world.account(&one).await?;
    world.account(&other).await?;
    world.load_balancer(&other, "web").await?;
    world.shows(&other, "web", "Allocated", "PrefixNotAllowed").await?;
    world.load_balancer(&one, "web").await?;
    world.ready(&one, "web").await?;
    let tightened = Patch::Merge(json!({ "spec": { "accounts": [other] } }));
    world.of::<ServicePrefix>("egw").patch("default", &PatchParams::default(), &tightened).await?;
    world.ready(&other, "web").await?;
    world.shows(&one, "web", "AddressInPool", "PrefixNotAllowed").await?;
    world.ready(&one, "web").await?;
    operator.process.stop().await?;
    Ok(())
}

async fn quota_checked_before_taking(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served_from(backend, "192.0.2.0/24").await?;
    let accounts = world.of::<portolan_api::gateway::Account>("egw");
    let limited = Patch::Merge(json!({ "spec": { "limits": { "load-balancers": 4, "addresses": 2 } } }));
    accounts.patch(&name, &PatchParams::default(), &limited).await?;
    for number in 0..8 {
        world.load_balancer(&name, &format!("lb{number}")).await?;
    }
    let balancers = world.of::<LoadBalancer>(&format!("egw-{name}"));
    eventually("all are decided", async || {
        let all = balancers.list(&ListParams::default()).await?;
        let decided = |object: &LoadBalancer| {
            let status = object.status.clone().unwrap_or_default();
            status
                .conditions
                .iter()
                .any(|one| one.type_ == "Ready" && (one.status == "True" || one.reason == "QuotaExceeded"))
        };
        Ok(all.items.iter().all(decided))
    })
    .await?;
    let all = balancers.list(&ListParams::default()).await?;
    let keys = all.items.iter().filter(|object| object.spec.gue_key != 0).count();
    let addresses = all.items.iter().filter(|object| !object.spec.public_address.is_empty()).count();
    ensure!((keys, addresses) == (4, 2), "{keys} keys, {addresses} addresses");
    ensure!(world.claims().list(&ListParams::default()).await?.items.len() == 2);
    operator.process.stop().await?;
    Ok(())
}

async fn claim_deleted_by_hand_is_made_again(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served_from(backend, "192.0.2.8/31").await?;
    world.load_balancer(&name, "one").await?;
    let uid = world.ready(&name, "one").await?.metadata.uid;
    world.claims().delete("192.0.2.8", &DeleteParams::default()).await?;
    world.load_balancer(&name, "two").await?;
    let two = world.ready(&name, "two").await?;
    ensure!(two.spec.public_address == "192.0.2.9", "{two:?}");
    let claim = world.claims().get("192.0.2.8").await?.spec.gateway.unwrap_or_default();
    ensure!(Some(&claim.holders[0].uid) == uid.as_ref(), "{claim:?}");
    world.ready(&name, "one").await?;
    operator.process.stop().await?;
    Ok(())
}

async fn a_pool_that_shrinks_takes_no_address_away(backend: Backend) -> anyhow::Result<()> {
    let (world, operator, name) = World::served(backend).await?;
    world.load_balancer(&name, "web").await?;
    world.ready(&name, "web").await?;
    let smaller = Patch::Merge(json!({ "spec": { "pool": "192.0.2.12/30" } }));
    world.of::<ServicePrefix>("egw").patch("default", &PatchParams::default(), &smaller).await?;
    world.shows(&name, "web", "AddressInPool", "OutsidePool").await?;
    world.delete::<ServicePrefix>("egw", "default").await?;
    world.shows(&name, "web", "AddressInPool", "PrefixMissing").await?;
    let web = world.ready(&name, "web").await?;
    ensure!(web.spec.public_address == "192.0.2.8");
    ensure!(operator.proxies.running().contains_key(&unit(&name, "web")));
    operator.process.stop().await?;
    Ok(())
}
