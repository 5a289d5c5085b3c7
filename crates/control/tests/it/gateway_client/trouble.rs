//! A gateway that is away, refuses, hangs, loses answers or forgets.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use http::Method;
use portolan_api::well_known::gateway_client::ANNOUNCED;
use serde_json::json;

use super::harness::{World, is_held};
use super::rules::PASSWORD;
use super::stand_in::{Asked, Fault};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(
    a_gateway_that_asks_to_wait_is_left_alone,
    a_gateway_that_is_away_changes_no_address,
    a_hanging_call_holds_up_nobody_else,
    a_login_that_is_missing_or_wrong_is_reported_and_a_right_one_taken_at_once,
    a_service_that_the_gateway_forgets_is_announced_again,
    a_service_with_a_pool_that_is_empty_waits_for_an_address,
    every_answer_may_be_lost,
    objects_go_in_any_order,
);

async fn a_gateway_that_is_away_changes_no_address(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    // At the start.
    world.gateway.stop();
    let operator = world.operator().await?;
    world.service("web").await?;
    world.pods("web", &[("10.1.0.1", "n1")]).await?;
    let reported = world.shows("web", ANNOUNCED, "GatewayUnreachable").await?;
    ensure!(reported.status == "False", "{reported:?}");
    world.event("GatewayUnreachable", "web").await?;
    world.gateway.listen().await?;
    let address = world.announced("web").await?;
    // In the middle.
    world.gateway.stop();
    world.pods("web", &[("10.1.0.1", "n1"), ("10.1.0.2", "n2")]).await?;
    world.shows("web", ANNOUNCED, "GatewayUnreachable").await?;
    ensure!(world.address("web").await?.as_ref() == Some(&address), "the address stays");
    world.service("late").await?;
    world.shows("late", ANNOUNCED, "GatewayUnreachable").await?;
    world.gateway.listen().await?;
    world.endpoints_are("web", &["10.1.0.1:8080/TCP@10.0.0.1", "10.1.0.2:8080/TCP@10.0.0.2"]).await?;
    ensure!(world.announced("web").await? == address);
    world.announced("late").await?;
    // During deletion.
    world.gateway.stop();
    world.delete("web").await?;
    eventually("the deletion is under way", async || Ok(world.get("web").await?.metadata.deletion_timestamp.is_some()))
        .await?;
    ensure!(is_held(&world.get("web").await?));
    world.gateway.listen().await?;
    world.gone("web").await?;
    ensure!(world.gateway.service("web").is_none() && world.gateway.service("late").is_some());
    operator.process.stop().await?;
    Ok(())
}

async fn every_answer_may_be_lost(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    // Each request of a kind loses its answer when it comes for the first time.
    let mut seen = std::collections::BTreeSet::new();
    world.gateway.fail(move |asked: &Asked| {
        let is_first = seen.insert((asked.method.to_string(), asked.path.clone()));
        if is_first { Fault::LoseAnswer } else { Fault::None }
    });
    let operator = world.operator().await?;
    world.service("web").await?;
    world.pods("web", &[("10.1.0.1", "n1"), ("10.1.0.2", "n2")]).await?;
    ensure!(world.announced("web").await? == "192.0.2.1");
    world.endpoints_are("web", &["10.1.0.1:8080/TCP@10.0.0.1", "10.1.0.2:8080/TCP@10.0.0.2"]).await?;
    world
        .change("web", &json!({ "spec": { "ports": [{ "port": 81, "targetPort": 8080, "protocol": "TCP" }] } }))
        .await?;
    eventually("the port is replaced", async || {
        Ok(world.gateway.service("web").is_some_and(|stored| stored.ports[0]["port"] == 81))
    })
    .await?;
    world.at_rest().await?;
    let of = |method: Method| world.gateway.asked().iter().filter(|one| one.method == method).count();
    ensure!(of(Method::POST) == 1, "what was carried out is not asked for again: {:#?}", world.gateway.asked());
    ensure!(of(Method::PUT) == 3, "two nodes and the ports: {:#?}", world.gateway.asked());
    world.delete("web").await?;
    world.gone("web").await?;
    ensure!(world.gateway.is_empty());
    operator.process.stop().await?;
    Ok(())
}

async fn a_service_that_the_gateway_forgets_is_announced_again(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let operator = world.operator().await?;
    world.service("web").await?;
    world.pods("web", &[("10.1.0.1", "n1")]).await?;
    let first = world.announced("web").await?;
    // It cannot come back at once, so that the withdrawal is seen.
    world.gateway.fail(|asked| if asked.method == Method::POST { Fault::Refuse(503, None) } else { Fault::None });
    world.gateway.store(|store| {
        store.services.clear();
        store.addresses.remove(&1);
    });
    eventually("the address is withdrawn", async || Ok(world.address("web").await?.is_none())).await?;
    world.event("AddressWithdrawn", "web").await?;
    world.gateway.fail(|_| Fault::None);
    let second = world.announced("web").await?;
    ensure!(first == "192.0.2.1" && second == "192.0.2.2", "{first} {second}");
    world.endpoints_are("web", &["10.1.0.1:8080/TCP@10.0.0.1"]).await?;
    // One of the same name that somebody made anew has no endpoints.
    world.gateway.store(|store| {
        for stored in store.services.values_mut() {
            "another".clone_into(&mut stored.uid);
            stored.endpoints.clear();
        }
    });
    world.endpoints_are("web", &["10.1.0.1:8080/TCP@10.0.0.1"]).await?;
    operator.process.stop().await?;
    Ok(())
}

async fn objects_go_in_any_order(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let operator = world.operator().await?;
    // The gateway's object first, then the Service.
    world.service("web").await?;
    world.pods("web", &[("10.1.0.1", "n1")]).await?;
    world.announced("web").await?;
    world.gateway.store(|store| store.services.clear());
    world.delete("web").await?;
    world.gone("web").await?;
    // Slices and nodes first.
    world.service("web").await?;
    world.announced("web").await?;
    world.slices().delete("web-1", &kube::api::DeleteParams::default()).await?;
    world.endpoints_are("web", &[]).await?;
    // A Service that is made again while its load balancer is on its way out waits for that.
    world.gateway.store(|store| store.services.values_mut().for_each(|stored| stored.is_leaving = true));
    eventually("the address is withdrawn", async || Ok(world.address("web").await?.is_none())).await?;
    world.gateway.store(|store| store.services.clear());
    world.announced("web").await?;
    world.delete("web").await?;
    world.gone("web").await?;
    ensure!(world.gateway.is_empty());
    operator.process.stop().await?;
    Ok(())
}

async fn a_hanging_call_holds_up_nobody_else(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.gateway.fail(|asked| {
        let is_slow = asked.path.contains("/services/slow-") || asked.path.ends_with("/services");
        if is_slow { Fault::Hang } else { Fault::None }
    });
    let operator = world.operator().await?;
    // Lists hang, too, and so do more calls than are made at a time.
    for number in 0..20 {
        world.service(&format!("slow-{number}")).await?;
    }
    eventually("many calls hang", async || Ok(world.gateway.asked().len() > 16)).await?;
    // A POST leads to the path of lists; this one is to go through.
    world.gateway.fail(|asked| {
        let is_list = asked.path.ends_with("/services") && asked.method == Method::GET;
        if is_list || asked.path.contains("/services/slow-") { Fault::Hang } else { Fault::None }
    });
    let began = Instant::now();
    world.service("quick").await?;
    world.pods("quick", &[("10.1.0.1", "n1")]).await?;
    world.announced("quick").await?;
    ensure!(began.elapsed() < Duration::from_secs(10), "calls end after 12 s, and it took {:?}", began.elapsed());
    world.delete("quick").await?;
    world.gone("quick").await?;
    ensure!(began.elapsed() < Duration::from_secs(11), "{:?}", began.elapsed());
    operator.process.stop().await?;
    Ok(())
}

async fn a_gateway_that_asks_to_wait_is_left_alone(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let operator = world.operator().await?;
    world.service("first").await?;
    world.announced("first").await?;
    world.at_rest().await?;
    let before = world.gateway.asked().len();
    let mut is_first = true;
    world.gateway.fail(move |asked| {
        let refused = is_first && asked.path.contains("/services/web-");
        is_first &= !refused;
        if refused { Fault::Refuse(429, Some(3)) } else { Fault::None }
    });
    world.service("web").await?;
    world.announced("web").await?;
    let asked = world.gateway.asked();
    let refused = asked[before..].iter().find(|one| one.status == Some(429)).context("it was refused once")?;
    let next = asked[before..].iter().filter(|one| one.at > refused.at).map(|one| one.at).min();
    let pause = next.context("it was asked again")?.duration_since(refused.at);
    ensure!(pause >= Duration::from_millis(2_900), "all calls of the account wait, this one {pause:?}");
    operator.process.stop().await?;
    Ok(())
}

async fn a_service_with_a_pool_that_is_empty_waits_for_an_address(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.gateway.store(|store| store.addresses = [1].into());
    let operator = world.operator().await?;
    world.service("first").await?;
    world.announced("first").await?;
    world.service("second").await?;
    world.shows("second", ANNOUNCED, "PoolExhausted").await?;
    // Others are served meanwhile.
    world.pods("first", &[("10.1.0.1", "n1")]).await?;
    world.endpoints_are("first", &["10.1.0.1:8080/TCP@10.0.0.1"]).await?;
    world.delete("first").await?;
    world.gone("first").await?;
    ensure!(world.announced("second").await? == "192.0.2.1");
    world.gateway.store(|store| store.quota = 1);
    world.service("third").await?;
    world.shows("third", ANNOUNCED, "QuotaExceeded").await?;
    operator.process.stop().await?;
    Ok(())
}

async fn a_login_that_is_missing_or_wrong_is_reported_and_a_right_one_taken_at_once(
    backend: Backend,
) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.login(&json!({ "username": "tenant" })).await?;
    let operator = world.operator().await?;
    world.service("web").await?;
    world.shows("web", ANNOUNCED, "LoginMissing").await?;
    ensure!(world.gateway.asked().is_empty(), "nobody is asked without a login");
    world.login(&json!({ "username": "tenant", "password": "wrong" })).await?;
    let refused = world.shows("web", ANNOUNCED, "LoginRefused").await?;
    ensure!(!refused.message.contains("wrong"), "{refused:?}");
    let count = world.gateway.asked().len();
    ensure!(count < 10, "a wrong login is not tried again and again: {count}");
    world.login(&json!({ "username": "tenant", "password": PASSWORD })).await?;
    world.announced("web").await?;
    operator.process.stop().await?;
    Ok(())
}
