//! Upstream's end-to-end suite of Kubernetes, on the embedded API server as `portolan up` runs it.
//!
//! ```text
//!   e2e.test (Ginkgo, from the Go module in conformance/kubernetes) ----> portolan up: the API server, its
//!     the specs of sig-api-machinery that upstream calls conformance       controllers, three simulated nodes
//! ```
//!
//! No container runs, so specs that need a program in a pod are left out, and others that wait for minutes in vain. Of the
//! rest each one must pass, or stand in [`expected`] with the reason why it cannot; one that stands there and passes is a
//! failure, too.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, Client,
    config::{KubeConfigOptions, Kubeconfig},
};
use parking_lot::Mutex;

use self::expected::{CONFORMANCE, SIG};
use self::report::Report;
use super::progress::tell;
use super::run::{finish, today, write_page};
use crate::{Binaries, Program, binaries::kubernetes_version, control_plane::folder::DataFolder};

mod expected;
mod report;
mod suite;

/// Much longer than a run in which every spec waits in vain.
const LIMIT: Duration = Duration::from_hours(1);
/// How long `portolan up` may take until it serves.
const START: Duration = Duration::from_mins(1);
const TICK: Duration = Duration::from_millis(100);

/// Runs the suite against this `portolan`, writes the report, and says whether every spec did what is expected of it.
pub async fn run(portolan: &Path, report: &Path) -> anyhow::Result<bool> {
    let suite = suite::build()?;
    let kubectl = Binaries::locate()?.program("kubectl");
    let folder = DataFolder::new()?;
    tell("starting portolan up");
    let kubeconfig = folder.path().join("up.kubeconfig");
    let up = Mutex::new(start_up(portolan, &folder, &kubeconfig)?);
    wait_until_served(&up, &kubeconfig).await?;
    tell(&format!("running the specs {SIG} ... {CONFORMANCE}"));
    let started = Instant::now();
    let mut running = Program::start("suite", &suite, &arguments(&kubeconfig, &kubectl), folder.path())?;
    finish(&mut running, LIMIT, || check(&up)).await?;
    let json = fs::read_to_string(folder.path().join("report.json"));
    let json = json.with_context(|| format!("the suite wrote no report:\n{}", running.log_tail()))?;
    let found = Report::read(&json)?;
    let about = report::About {
        date: today(),
        took: started.elapsed(),
        kubernetes: kubernetes_version(),
        checksum: suite::checksum(),
    };
    write_page(report, &found.markdown(&about))?;
    tell(&format!("{}: {}", report.display(), found.summary()));
    for surprise in found.surprises() {
        tell(&surprise);
    }
    Ok(found.is_as_expected())
}

fn start_up(portolan: &Path, folder: &DataFolder, kubeconfig: &Path) -> anyhow::Result<Program> {
    let arguments =
        ["up".to_owned(), "--listen=127.0.0.1:0".to_owned(), format!("--kubeconfig={}", kubeconfig.display())];
    Program::start("up", &std::path::absolute(portolan)?, &arguments, folder.path())
}

/// Fails once `portolan up` has ended.
fn check(up: &Mutex<Program>) -> anyhow::Result<()> {
    let mut up = up.lock();
    match up.ended()? {
        Some(status) => Err(anyhow::anyhow!("`portolan up` ended ({status}):\n{}", up.log_tail())),
        None => Ok(()),
    }
}

/// Waits for Service `default/kubernetes`, which the suite reads first.
async fn wait_until_served(up: &Mutex<Program>, kubeconfig: &Path) -> anyhow::Result<()> {
    let deadline = Instant::now() + START;
    loop {
        check(up)?;
        if is_served(kubeconfig).await.unwrap_or(false) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "`portolan up` does not serve:\n{}", up.lock().log_tail());
        tokio::time::sleep(TICK).await;
    }
}

async fn is_served(kubeconfig: &Path) -> anyhow::Result<bool> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    let services: Api<Service> = Api::namespaced(Client::try_from(config)?, "default");
    Ok(services.get_opt("kubernetes").await?.is_some())
}

fn arguments(kubeconfig: &Path, kubectl: &Path) -> Vec<String> {
    let focus = [SIG, ".*", CONFORMANCE].map(|part| part.replace('[', "\\[").replace(']', "\\]")).concat();
    let skip = expected::LEFT_OUT.map(|(area, _)| area).join("|");
    [
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--kubectl-path={}", kubectl.display()),
        "--provider=skeleton".into(),
        // Simulated nodes and pods: nothing to wait for, nothing to collect from.
        "--allowed-not-ready-nodes=10".into(),
        "--node-schedulable-timeout=10s".into(),
        "--system-daemonsets-startup-timeout=1s".into(),
        "--dump-logs-on-failure=false".into(),
        "--disable-log-dump".into(),
        format!("--ginkgo.focus={focus}"),
        format!("--ginkgo.skip={skip}"),
        format!("--ginkgo.timeout={}s", LIMIT.as_secs()),
        "--ginkgo.json-report=report.json".into(),
        "--ginkgo.no-color".into(),
    ]
    .into()
}
