//! Several operators, one of which speaks to proxies.

use std::net::SocketAddr;
use std::time::Duration;

use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::DeleteParams;
use portolan_control::mesh;
use portolan_control::runtime::{app, lease};
use portolan_drivers::l7mp::{CallError, Credentials, ProxyClient};
use serde_json::json;

use super::away::echo;
use super::harness::{API, Operator, SIDECAR, World, fresh_address};
use super::relay::Relay;
use crate::egress::harness::options;
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(
    two_replicas_one_writer,
    a_leader_that_is_cut_off_calls_no_proxy_after_its_lease,
    a_leader_whose_lease_was_deleted_goes_on_in_a_higher_term,
);

async fn replica(world: &World, identity: &str) -> anyhow::Result<Operator> {
    replica_within(world, identity, Duration::from_secs(15), Duration::from_secs(10)).await
}

async fn replica_within(
    world: &World,
    identity: &str,
    duration: Duration,
    renew_deadline: Duration,
) -> anyhow::Result<Operator> {
    let election = lease::Options {
        namespace: world.namespace.clone(),
        name: "mesh".to_owned(),
        identity: identity.to_owned(),
        duration,
        renew_deadline,
        retry_period: Duration::from_millis(200),
    };
    let mesh = mesh::Options { namespace: world.namespace.clone(), ..mesh::Options::default() };
    world.replica(app::Options { election: Some(election), ..options() }, mesh).await
}

async fn two_replicas_one_writer(backend: Backend) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    let at = world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    let first = replica(&world, "first").await?;
    world.apply(&echo("one", "gateway", 7001)).await?;
    world.until("one", "Programmed", "True", "Programmed").await?;
    let told = world.generation(at).await?;
    let second = replica(&world, "second").await?;
    eventually("the second has seen everything", async || Ok(second.process.ctx().readiness.is_ready())).await?;
    world.apply(&echo("two", "gateway", 7002)).await?;
    world.until("two", "Programmed", "True", "Programmed").await?;
    let writes = second.seen.writes_but_leases();
    assert!(writes.is_empty(), "only the first leads: {writes:?}");
    assert_eq!(world.generation(at).await?, told + 1, "each change was told once");

    // the next one finds everything in place, and goes on
    first.process.stop().await?;
    world.apply(&echo("three", "gateway", 7003)).await?;
    world.until("three", "Programmed", "True", "Programmed").await?;
    assert_eq!(world.generation(at).await?, told + 2, "nothing was told again");
    second.process.stop().await?;
    Ok(())
}

async fn a_leader_that_is_cut_off_calls_no_proxy_after_its_lease(backend: Backend) -> anyhow::Result<()> {
    let (duration, renew_deadline) = (Duration::from_secs(6), Duration::from_secs(4));
    let mut world = World::new(backend).await?;
    let proxy = fresh_address();
    world.start("proxy", proxy, SIDECAR)?;
    let relay = Relay::start(proxy).await?;
    world.stand_in("gateway", &[("app", "gateway")], relay.address).await?;
    let first = replica_within(&world, "first", duration, renew_deadline).await?;
    world.apply(&echo("one", "gateway", 7001)).await?;
    world.until("one", "Programmed", "True", "Programmed").await?;
    let second = replica_within(&world, "second", duration, renew_deadline).await?;
    eventually("the second has seen everything", async || Ok(second.process.ctx().readiness.is_ready())).await?;

    // cut off from the API server but not from the proxy, which it finds gone and would like to configure
    relay.set_answers(false);
    first.seen.refuse(|_| true);
    let led_by = |term: u64| relay.seen().iter().any(|seen| seen.term == Some(term));
    eventually("the second leads", async || Ok(led_by(2))).await?;
    relay.set_answers(true);
    world.apply(&echo("two", "gateway", 7002)).await?;
    world.until("two", "Programmed", "True", "Programmed").await?;

    let renewed = first.seen.trace().into_iter().filter(|one| one.is_lease() && one.is_write());
    let renewed = renewed.filter(|one| one.answered.is_some_and(|code| code < 300)).map(|one| one.received).max();
    let lease_ended = renewed.expect("the first has led") + renew_deadline;
    let seen = relay.seen();
    assert!(seen.iter().all(|one| one.term.is_some()), "every call says in whose name it is made: {seen:?}");
    let (earlier, later): (Vec<_>, Vec<_>) = seen.iter().partition(|one| one.term == Some(1));
    let retried = earlier.iter().filter(|one| one.at + renew_deadline > lease_ended).count();
    assert!(retried > 1, "it would have liked to: {seen:?}");
    let late: Vec<_> = earlier.iter().filter(|one| one.at > lease_ended).collect();
    assert!(late.is_empty(), "calls after the lease had ended: {late:?}");
    let last = earlier.iter().map(|one| one.at).max();
    assert!(later.iter().all(|one| Some(one.at) > last && one.term == Some(2)), "one leader after the other: {seen:?}");

    // what such a leader had on its way is refused
    let credentials = Credentials { term: Some(1), ..Credentials::default() };
    let deposed = ProxyClient::new(SocketAddr::from((proxy, API)), credentials);
    let before = world.generation(proxy).await?;
    let body = json!({ "owner": "old", "ops": [{ "op": "delete", "kind": "listener", "name": "one" }] });
    let refused = deposed.call(Method::POST, "/api/v2/apply", Some(&body)).await;
    assert_eq!(refused, Err(CallError::LaterTerm(2)));
    assert_eq!(world.generation(proxy).await?, before);
    second.process.stop().await?;
    first.seen.refuse(|_| false);
    first.process.stop().await?;
    Ok(())
}

async fn a_leader_whose_lease_was_deleted_goes_on_in_a_higher_term(backend: Backend) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    let at = world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    let credentials = Credentials { term: Some(7), ..Credentials::default() };
    let earlier = ProxyClient::new(SocketAddr::from((at, API)), credentials);
    let body = json!({ "owner": "earlier", "ops": [] });
    eventually("the proxy is programmed in an earlier term", async || {
        Ok(earlier.call(Method::POST, "/api/v2/apply", Some(&body)).await.is_ok())
    })
    .await?;

    let operator = replica(&world, "first").await?;
    world.apply(&echo("one", "gateway", 7001)).await?;
    world.until("one", "Programmed", "True", "Programmed").await?;
    world.api::<Lease>().delete("mesh", &DeleteParams::default()).await?;
    world.apply(&echo("two", "gateway", 7002)).await?;
    world.until("two", "Programmed", "True", "Programmed").await?;
    let term = async || anyhow::Ok(world.held(at, "admin").await?["portolan"]["term"].as_u64());
    eventually("it leads in a term above those before", async || Ok(term().await? >= Some(8))).await?;
    operator.process.stop().await?;
    Ok(())
}
