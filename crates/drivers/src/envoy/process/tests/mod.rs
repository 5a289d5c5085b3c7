//! Real Envoys. They bind addresses of 127.77.0.0/16, of which all are local.

mod life;
mod peers;
mod traffic;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use portolan_core::gateway::ports::{PortNumber, Protocol};
use portolan_core::gateway::unit::{Listener, Unit, UnitId};
use rustix::process::Pid;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{ProcessOptions, ProcessProxies};
use crate::envoy::{Proxies as _, Report, State};

/// Longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_mins(1);

/// A driver with its folder.
struct Lab {
    proxies: ProcessProxies,
    stop: oneshot::Sender<()>,
    driver: JoinSet<()>,
    folder: TempDir,
}

impl Lab {
    fn start(drain: Duration) -> Self {
        Self::with_binary(portolan_testkit::envoy::binary().unwrap(), drain)
    }

    fn with_binary(binary: PathBuf, drain: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = ProcessOptions {
            binary: Some(binary),
            search_path: ["/usr/bin", "/bin"].map(PathBuf::from).to_vec(),
            folder: folder.path().to_owned(),
            drain,
        };
        let (proxies, driver) = ProcessProxies::new(options, || {}).unwrap();
        let (stop, stopped) = oneshot::channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(driver.run(async { stopped.await.unwrap_or_default() }));
        Self { proxies, stop, driver: tasks, folder }
    }

    fn want(&self, units: &[(&UnitId, &Unit)]) {
        self.proxies.want(units.iter().map(|(id, unit)| ((*id).clone(), Arc::new((*unit).clone()))).collect());
    }

    /// Wants one unit, and waits until Envoy has answered for it.
    async fn serve(&self, id: &UnitId, unit: &Unit) -> Report {
        self.want(&[(id, unit)]);
        self.wait(id, "it is answered for", |report| {
            report.answered.as_deref() == Some(unit) && report.state == State::Running
        })
        .await
    }

    async fn wait(&self, id: &UnitId, what: &str, is_met: impl Fn(&Report) -> bool) -> Report {
        let begun = Instant::now();
        loop {
            let reports = self.proxies.reports().expect("this replica leads");
            if let Some(report) = reports.get(id).filter(|report| is_met(report)) {
                return report.clone();
            }
            assert!(begun.elapsed() < LIMIT, "{what}: {reports:#?}\n{}", self.log());
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// The folder of the only unit.
    fn unit_folder(&self) -> PathBuf {
        let mut folders = std::fs::read_dir(self.folder.path()).unwrap();
        folders.next().expect("a unit runs").unwrap().path()
    }

    fn log(&self) -> String {
        let folders = std::fs::read_dir(self.folder.path()).into_iter().flatten().flatten();
        folders.filter_map(|folder| std::fs::read_to_string(folder.path().join("envoy.log")).ok()).collect()
    }

    /// The process of the only unit.
    fn envoy(&self) -> Pid {
        self.find_envoy().expect("an Envoy runs")
    }

    fn find_envoy(&self) -> Option<Pid> {
        let folder = self.folder.path().to_string_lossy().into_owned();
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let mut ids = processes.filter_map(|process| process.file_name().to_str()?.parse::<i32>().ok());
        let id = ids.find(|id| {
            let words = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).contains(&folder)
        })?;
        Pid::from_raw(id)
    }

    /// Asks the admin interface of the only unit.
    async fn admin(&self, path: &str) -> String {
        let mut admin = UnixStream::connect(self.unit_folder().join("admin.sock")).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n");
        admin.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        admin.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// A counter of the only unit.
    async fn counter(&self, name: &str) -> u64 {
        let answer = self.admin(&format!("/stats?filter=^{name}$")).await;
        let line = answer.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.unwrap_or_else(|| panic!("no {name} in {answer}")).trim().parse().unwrap()
    }

    async fn stop(self) {
        let Self { stop, mut driver, folder, .. } = self;
        stop.send(()).unwrap();
        driver.join_next().await.expect("it runs").unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left of a unit");
    }
}

fn id() -> UnitId {
    UnitId { namespace: "egw-acme".into(), name: "web".into() }
}

fn port(protocol: Protocol, port: u16) -> PortNumber {
    PortNumber { protocol, port }
}

/// An address that no other test has.
fn public_address() -> IpAddr {
    Ipv4Addr::new(127, 77, fastrand::u8(1..255), fastrand::u8(1..255)).into()
}

fn unit<const N: usize>(address: IpAddr, listeners: [(PortNumber, &str, &[SocketAddr]); N]) -> Unit {
    let listener = |(port, load_balancer, endpoints): (PortNumber, &str, &[SocketAddr])| {
        let endpoints: BTreeSet<_> = endpoints.iter().copied().collect();
        (port, Listener { load_balancer: load_balancer.into(), endpoints })
    };
    let listeners: BTreeMap<_, _> = listeners.into_iter().map(listener).collect();
    Unit { address, image: "".into(), prefix: "default".into(), listeners }
}
