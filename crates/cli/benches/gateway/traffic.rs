//! Real traffic through a real Envoy that the operator starts, on kube-apiserver and etcd.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use portolan_testkit::bench::{Bench, Goal};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::operator::Operator;
use crate::site::{Site, account};

const COLD: &str = "POST of a service until its first good request, Envoy started for it: median";
const KILLED: &str = "Envoy killed until it answers again: median";
const DELETED: &str = "DELETE of a service until it answers no more, drain 0: median";
const ROUNDS: usize = 9;
const LIMIT: Duration = Duration::from_secs(30);
const PORT: u16 = 8080;

pub(crate) fn measure(bench: &mut Bench, runtime: &Runtime) -> anyhow::Result<()> {
    if ![COLD, KILLED, DELETED].iter().any(|row| bench.wants(row)) {
        return Ok(());
    }
    let site = runtime.block_on(async {
        let site = Site::real().await?;
        site.provider("127.77.0.0/24", 1).await?;
        anyhow::Ok(site)
    })?;
    let operator = Operator::start(&site.kubeconfig, &portolan_testkit::envoy::binary()?)?;
    let backend = serve()?;
    let (mut cold, mut killed, mut deleted) = (Vec::new(), Vec::new(), Vec::new());
    // the first one reads programs from the disk
    for round in 0..=ROUNDS {
        let service = Service::create(&operator, round, backend)?;
        let times = [service.created, service.kill(&operator)?, service.delete(&operator)?];
        if round > 0 {
            cold.push(times[0]);
            killed.push(times[1]);
            deleted.push(times[2]);
        }
    }
    for (what, times) in [("created", &mut cold), ("killed", &mut killed), ("deleted", &mut deleted)] {
        crate::note(&format!("{what}: slowest of {ROUNDS} {:.3} s", crate::quantile(times, 1.0)));
    }
    let median = |times: &mut Vec<f64>| crate::quantile(times, 0.5);
    bench.count_beside(COLD, "s", Goal::value(0.6), median(&mut cold), ("PureLB", 1.0))?;
    bench.count(KILLED, "s", Goal::value(0.6), median(&mut killed))?;
    bench.count_beside(DELETED, "s", Goal::value(0.2), median(&mut deleted), ("PureLB", 0.4))?;
    operator.stop()?;
    runtime.block_on(site.stop());
    Ok(())
}

/// A service that has answered.
struct Service {
    path: String,
    at: SocketAddr,
    created: f64,
}

impl Service {
    fn create(operator: &Operator, round: usize, backend: SocketAddr) -> anyhow::Result<Self> {
        let body = json!({ "service": {
            "metadata": { "name": format!("s{round}") },
            "spec": { "public-ports": [{ "port": PORT, "protocol": "TCP" }] },
        } });
        let endpoint = json!({ "endpoint": { "spec": {
            "address": backend.ip(), "node-address": "10.0.0.1",
            "port": { "port": backend.port(), "protocol": "TCP" },
        } } });
        let services = format!("/api/egw/accounts/{}/groups/sample/services", account(0));
        let began = Instant::now();
        let made = operator.send("POST", &services, &body.to_string())?.is(302)?;
        let path = made.header("location").context("a Location")?.to_owned();
        operator.send("POST", &format!("{path}/endpoints"), &endpoint.to_string())?.is(302)?;
        let address = loop {
            let seen = operator.get(&path)?.json()?;
            if let Some(address) = seen["service"]["spec"]["public-address"].as_str().filter(|text| !text.is_empty()) {
                break address.parse::<Ipv4Addr>()?;
            }
            ensure!(began.elapsed() < LIMIT, "it has no address: {seen}");
            std::thread::sleep(Duration::from_millis(1));
        };
        let at = SocketAddr::from((address, PORT));
        until(began, true, at)?;
        Ok(Self { path, at, created: began.elapsed().as_secs_f64() })
    }

    /// `kill -9` of its Envoy.
    fn kill(&self, operator: &Operator) -> anyhow::Result<f64> {
        let envoys = children(operator.id())?;
        let [envoy] = envoys[..] else { anyhow::bail!("one Envoy runs: {envoys:?}") };
        let began = Instant::now();
        portolan_testkit::program::kill(envoy)?;
        until(began, false, self.at)?;
        until(began, true, self.at)?;
        Ok(began.elapsed().as_secs_f64())
    }

    fn delete(self, operator: &Operator) -> anyhow::Result<f64> {
        let began = Instant::now();
        operator.send("DELETE", &self.path, "")?.is(200)?;
        until(began, false, self.at)?;
        let taken = began.elapsed().as_secs_f64();
        operator.until("stopped Envoy", || children(operator.id()).is_ok_and(|envoys| envoys.is_empty()))?;
        Ok(taken)
    }
}

/// Waits until an address answers, or until it does not.
fn until(began: Instant, answers: bool, at: SocketAddr) -> anyhow::Result<()> {
    while answered(at).is_some_and(|answer| answer.starts_with("HTTP/1.1 200 ")) != answers {
        ensure!(began.elapsed() < LIMIT, "{at} never changed");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn answered(at: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&at, LIMIT).ok()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// A pod: it answers each connection once.
fn serve() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let at = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let answer = |mut stream: TcpStream| {
                stream.set_read_timeout(Some(LIMIT))?;
                let mut request = [0; 1024];
                let read = stream.read(&mut request)?;
                let answer: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
                if read > 0 { stream.write_all(answer) } else { Ok(()) }
            };
            // a client that has gone is no problem of the pod
            stream.and_then(answer).ok();
        }
    });
    Ok(at)
}

/// The processes that another one has started.
fn children(of: u32) -> anyhow::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Ok(id) = entry?.file_name().to_string_lossy().parse::<u32>() else { continue };
        // it may have ended
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{id}/stat")) else { continue };
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let (state, parent) = (fields.next(), fields.next());
        if parent.and_then(|parent| parent.parse().ok()) == Some(of) && state != Some("Z") {
            found.push(id);
        }
    }
    Ok(found)
}
