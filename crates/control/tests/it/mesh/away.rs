//! Proxies that do not answer, or not as they should: they are named, and delay nobody.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use kube::api::DeleteParams;
use portolan_api::mesh::VirtualService;
use portolan_control::mesh::Options;
use portolan_drivers::l7mp::CALL_TIMEOUT;

use super::harness::{SIDECAR, World, api_of, fresh_address, held_by, median};
use super::stand_in::{Habit, StandIn};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(
    slow_proxy_blocks_nobody,
    a_status_waits_for_a_proxy_that_is_still_starting,
    wrong_answers_are_survived_and_named,
    no_call_to_unmarked_pods,
);

/// A VirtualService that answers by itself, on the pods of an app.
pub(super) fn echo(name: &str, app: &str, port: u16) -> String {
    format!(
        "{{apiVersion: l7mp.io/v1, kind: VirtualService, metadata: {{name: {name}}}, spec: {{\
         selector: {{matchLabels: {{app: {app}}}}}, listener: {{protocol: UDP, port: {port}}}, \
         rules: [{{action: {{route: {{destination: {{spec: {{protocol: Echo}}}}}}}}}}]}}}}\n"
    )
}

/// How long it takes, in the middle, until a change is on a proxy.
async fn time_of_a_change(world: &World, app: &str, at: Ipv4Addr) -> anyhow::Result<Duration> {
    let proxy = api_of(at);
    let mut times = Vec::new();
    for port in 7000..7009 {
        let listeners = async |count: usize| {
            let limit = Instant::now() + Duration::from_mins(1);
            while held_by(&proxy, "listeners").await?.as_array().map(Vec::len) != Some(count) {
                anyhow::ensure!(Instant::now() < limit, "the change does not arrive");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            anyhow::Ok(())
        };
        world.apply(&echo("probe", app, port)).await?;
        let written = Instant::now();
        listeners(1).await?;
        times.push(written.elapsed());
        world.api::<VirtualService>().delete("probe", &DeleteParams::default()).await?;
        listeners(0).await?;
    }
    Ok(median(times))
}

async fn slow_proxy_blocks_nobody(backend: Backend) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    let good = world.pod("good", &[("app", "mesh"), ("kind", "good")], SIDECAR).await?;
    let operator = world.operator_with(Options { at_once: 2, ..world.options() }).await?;
    // many more of them than are worked on at once, all with the same VirtualServices as the good one
    let mut silent = Vec::new();
    for number in 0..24 {
        let one = StandIn::start(Habit::Silent).await?;
        world.stand_in(&format!("silent-{number}"), &[("app", "mesh")], one.address).await?;
        silent.push(one);
    }
    world.stand_in("refuses", &[("app", "mesh")], fresh_address()).await?;
    eventually("all of them are asked", async || Ok(silent.iter().all(|one| one.asked() > 0))).await?;
    // who waits for a silent proxy waits until the call to it is given up
    let beside = time_of_a_change(&world, "mesh", good).await?;
    assert!(beside < CALL_TIMEOUT / 2, "a change took {beside:?} beside the others");

    world.apply(&echo("v", "mesh", 7100)).await?;
    world.until("v", "Programmed", "False", "Unreachable").await?;
    let seen = world.api::<VirtualService>().get("v").await?;
    let status = seen.status.unwrap_or_default();
    let message = status.conditions.iter().find(|one| one.type_ == "Programmed").map(|one| one.message.as_str());
    let message = message.unwrap_or_default();
    assert!(message.starts_with("1 of 26 proxies hold it; the proxy of pod "), "{message}");
    operator.process.stop().await?;
    Ok(())
}

async fn a_status_waits_for_a_proxy_that_is_still_starting(backend: Backend) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    let at = fresh_address();
    world.stand_in("gateway", &[("app", "gateway")], at).await?;
    let patience = Duration::from_mins(10);
    let operator = world.operator_with(Options { patience, ..world.options() }).await?;
    world.apply(&echo("v", "gateway", 7000)).await?;
    world.told("Pod", "gateway", "ProxyUnreachable").await?;
    let status = world.api::<VirtualService>().get("v").await?.status;
    assert_eq!(status, None, "calls to its proxy have failed, and that alone says nothing");
    world.start("gateway", at, SIDECAR)?;
    world.until("v", "Programmed", "True", "Programmed").await?;
    world.told("VirtualService", "v", "Programmed").await?;
    assert_eq!(world.events("VirtualService", "v").await?, ["Programmed"]);
    operator.process.stop().await?;
    Ok(())
}

async fn wrong_answers_are_survived_and_named(backend: Backend) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    let good = world.pod("good", &[("app", "good")], SIDECAR).await?;
    let elsewhere = StandIn::start(Habit::Silent).await?;
    let redirect = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://{}:1234/api/v1/admin\r\nContent-Length: 0\r\n\r\n",
        elsewhere.address
    );
    let habits = [
        ("broken", Habit::Says("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n".to_owned()), "answered 500"),
        (
            "cut",
            Habit::Says("HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{\"version\":".to_owned()),
            "closed the connection",
        ),
        ("elsewhere", Habit::Says(redirect), "answered 302"),
        ("garbage", Habit::Says("SSH-2.0-OpenSSH_9.2\r\n".to_owned()), "closed the connection"),
        ("text", Habit::Says("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_owned()), "the answer is no JSON"),
        ("long", Habit::Long(65 << 20), "length limit exceeded"),
    ];
    let mut others = Vec::new();
    for (name, habit, _) in &habits {
        let one = StandIn::start(habit.clone()).await?;
        world.stand_in(name, &[("app", name)], one.address).await?;
        others.push(one);
    }
    let operator = world.operator().await?;
    for (number, (name, ..)) in (1..).zip(&habits) {
        world.apply(&echo(name, name, 7000 + number)).await?;
    }
    world.apply(&echo("good", "good", 7000)).await?;
    world.until("good", "Programmed", "True", "Programmed").await?;
    for (name, _, words) in &habits {
        world.until(name, "Programmed", "False", "Unreachable").await?;
        let status = world.api::<VirtualService>().get(name).await?.status.unwrap_or_default();
        let message = status.conditions.iter().find(|one| one.type_ == "Programmed").map(|one| one.message.clone());
        let message = message.unwrap_or_default();
        let whose = format!("0 of 1 proxies hold it; the proxy of pod {}/{name} ", world.namespace);
        assert!(message.starts_with(&whose) && message.contains(words), "{name}: {message}");
    }
    assert_eq!(elsewhere.asked(), 0, "a proxy does not send us elsewhere");
    assert_eq!(world.held(good, "listeners").await?.as_array().map(Vec::len), Some(1));
    operator.process.stop().await?;
    Ok(())
}

async fn no_call_to_unmarked_pods(backend: Backend) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    let good = world.pod("good", &[("app", "mesh")], SIDECAR).await?;
    let naked = StandIn::start(Habit::Silent).await?;
    world.pod("naked", &[("app", "mesh")], &[]).await?;
    world.shows("naked", naked.address, 0).await?;
    let operator = world.operator().await?;
    world.apply(&echo("v", "mesh", 7000)).await?;
    world.until("v", "Programmed", "True", "Programmed").await?;
    assert_eq!(world.held(good, "listeners").await?.as_array().map(Vec::len), Some(1));
    let status = world.api::<VirtualService>().get("v").await?.status.unwrap_or_default();
    let proxies = status.proxies.unwrap_or_default();
    assert_eq!((proxies.matched, proxies.naked), (1, 1));
    assert_eq!(naked.asked(), 0, "a pod that is not marked is never called");
    operator.process.stop().await?;
    Ok(())
}
