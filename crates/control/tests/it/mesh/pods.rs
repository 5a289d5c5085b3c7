//! Pods that come and go while packets flow, and proxies that are started again.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use portolan_drivers::l7mp::ProxyClient;

use super::harness::{ECHO, SIDECAR, World, api_of, held_by, median};
use super::traffic::{endpoints, gateway, programmed};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(
    endpoints_follow_pods_within_200_ms_and_no_other_session_loses_a_packet,
    a_proxy_that_is_killed_is_configured_again_within_a_second,
    endpoint_delete_moves_sessions,
);

/// Between two datagrams of a client.
const EVERY: Duration = Duration::from_millis(5);

/// A client that sends all the time, whatever comes back, and says in the end what did not.
struct Steady {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<(u32, BTreeSet<u32>)>>,
}

impl Steady {
    fn start(to: Ipv4Addr, port: u16) -> anyhow::Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect((to, port))?;
        socket.set_read_timeout(Some(Duration::from_millis(1)))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut sent, mut missing) = (0_u32, BTreeSet::new());
            let mut last = None;
            // what was sent last may still come
            while last.is_none_or(|last: Instant| !missing.is_empty() && last.elapsed() < Duration::from_secs(5)) {
                if stopped.load(Ordering::Relaxed) {
                    last.get_or_insert_with(Instant::now);
                } else {
                    socket.send(&sent.to_be_bytes())?;
                    missing.insert(sent);
                    sent += 1;
                }
                let next = Instant::now() + EVERY;
                let mut buffer = [0; 64];
                while Instant::now() < next {
                    if let Ok(4) = socket.recv(&mut buffer) {
                        missing.remove(&u32::from_be_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]));
                    }
                }
            }
            Ok((sent, missing))
        });
        Ok(Self { stop, thread })
    }

    /// How many it sent, and those that were not answered.
    fn end(self) -> anyhow::Result<(u32, BTreeSet<u32>)> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("the client panicked"))?
    }
}

/// Sessions that are spread over all workers, and move when theirs goes.
const SPREAD: &str = "
{apiVersion: l7mp.io/v1, kind: Target, metadata: {name: spread}, spec: {selector: {matchLabels: {app: gateway}}, \
 linkedVirtualService: worker-svc, cluster: {loadbalancer: {policy: RoundRobin}}}}
---
{apiVersion: l7mp.io/v1, kind: VirtualService, metadata: {name: spread-vsvc}, spec: {\
 selector: {matchLabels: {app: gateway}}, listener: {protocol: UDP, port: 9003}, \
 rules: [{action: {route: {destination: spread, retry: {retry_on: disconnect, num_retries: 3, timeout: 200}}}}]}}
";

/// Waits until the proxy has exactly these endpoints, looking all the time.
async fn lists(proxy: &ProxyClient, workers: &BTreeSet<Ipv4Addr>) -> anyhow::Result<()> {
    let mut wanted: Vec<String> = workers.iter().map(ToString::to_string).collect();
    wanted.sort();
    let limit = Instant::now() + Duration::from_mins(1);
    loop {
        let found = endpoints(&held_by(proxy, "clusters").await?);
        if found == wanted {
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < limit, "the proxy has {found:?}, not {wanted:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn endpoints_follow_pods_within_200_ms_and_no_other_session_loses_a_packet(
    backend: Backend,
) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    let at = world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    let mut workers = BTreeSet::new();
    for number in 0..3 {
        workers.insert(world.pod(&format!("worker-{number}"), &[("app", "worker")], ECHO).await?);
    }
    let operator = world.operator().await?;
    let stub = gateway(backend).split("---").next().context("the workers come first")?.to_owned();
    world.apply(&stub).await?;
    world.apply(SPREAD).await?;
    world.until("spread-vsvc", "Programmed", "True", "Programmed").await?;
    let proxy = api_of(at);
    lists(&proxy, &workers).await?;
    let clients = (0..6).map(|_| Steady::start(at, 9003)).collect::<Result<Vec<_>, _>>()?;
    eventually("every client has its session", async || {
        Ok(world.held(at, "sessions").await?.as_array().is_some_and(|sessions| sessions.len() == 6))
    })
    .await?;

    let (mut came, mut went) = (Vec::new(), Vec::new());
    for round in 0..5 {
        let name = format!("guest-{round}");
        let guest = world.pod(&name, &[("app", "worker")], ECHO).await?;
        let written = Instant::now();
        workers.insert(guest);
        lists(&proxy, &workers).await?;
        came.push(written.elapsed());
        tokio::time::sleep(10 * EVERY).await;

        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        world.api::<Pod>().delete(&name, &now).await?;
        let written = Instant::now();
        workers.remove(&guest);
        lists(&proxy, &workers).await?;
        went.push(written.elapsed());
        world.kill(&name);
        // packets pass between two changes
        tokio::time::sleep(10 * EVERY).await;
    }
    for client in clients {
        let (sent, missing) = client.end()?;
        assert!(sent > 50, "the client sent only {sent}");
        assert!(missing.is_empty(), "{} of {sent} were lost: {missing:?}", missing.len());
    }
    let limit = Duration::from_millis(200);
    assert!(median(came.clone()) <= limit, "new pods were listed after {came:?}");
    assert!(median(went.clone()) <= limit, "pods that went were listed for {went:?}");
    operator.process.stop().await?;
    Ok(())
}

async fn a_proxy_that_is_killed_is_configured_again_within_a_second(backend: Backend) -> anyhow::Result<()> {
    let (mut world, at, operator) = programmed(backend).await?;
    let mut times = Vec::new();
    for round in 0..5 {
        world.kill("gateway");
        // away for longer and longer
        tokio::time::sleep(Duration::from_millis(400 * round)).await;
        world.start("gateway", at, SIDECAR)?;
        let proxy = api_of(at);
        let mut answered = None;
        let listeners = async || anyhow::Ok(held_by(&proxy, "listeners").await.ok());
        eventually("it is told everything again", async || {
            let Some(held) = listeners().await? else { return Ok(false) };
            answered.get_or_insert_with(Instant::now);
            Ok(held.as_array().is_some_and(|all| all.len() == 1))
        })
        .await?;
        times.push(answered.context("it answered")?.elapsed());
    }
    assert!(median(times.clone()) <= Duration::from_secs(1), "configured after {times:?}");
    operator.process.stop().await?;
    Ok(())
}

async fn endpoint_delete_moves_sessions(backend: Backend) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    let at = world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    world.pod("worker-0", &[("app", "worker")], ECHO).await?;
    world.pod("worker-1", &[("app", "worker")], ECHO).await?;
    let operator = world.operator().await?;
    let stub = gateway(backend).split("---").next().context("the workers come first")?.to_owned();
    world.apply(&stub).await?;
    world.apply(SPREAD).await?;
    world.until("spread-vsvc", "Programmed", "True", "Programmed").await?;
    let callers = (0..4).map(|_| super::harness::Caller::new(at, 9003)).collect::<Result<Vec<_>, _>>()?;
    for caller in &callers {
        super::traffic::answers(caller).await?;
    }
    // its sessions go with its pod, and are led to the other
    world.remove("worker-0").await?;
    for caller in &callers {
        super::traffic::answers(caller).await?;
    }
    let sessions = world.held(at, "sessions").await?;
    assert_eq!(sessions.as_array().map(Vec::len), Some(4), "they are the same sessions");
    operator.process.stop().await?;
    Ok(())
}
