//! Upstream's conformance suite of the Multi-Cluster Services API, on two clusters with an operator each.
//!
//! ```text
//!            suite (Ginkgo, from the Go module in conformance/mcs)
//!            /                                    \
//! kube-apiserver of east                kube-apiserver of west        with upstream's CRDs, and nodes
//!            |       \                    /       |                   without machines (FakeKubelet)
//!     operator of east \---- reads ----/    operator of west
//! ```
//!
//! Pods have no containers and there is no DNS, so the specs that send traffic or look names up are left out.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use self::{clusters::Pair, progress::tell, report::Report, suite::Suite};
use crate::{Program, binaries::kubernetes_version, control_plane::folder::DataFolder};

mod clusters;
mod operator;
mod progress;
mod report;
mod suite;

const LABEL_FILTER: &str = "!DNS && !Connectivity";
/// Much longer than a suite in which every spec waits in vain.
const LIMIT: Duration = Duration::from_mins(25);
const TICK: Duration = Duration::from_millis(200);

/// Runs the suite with this `portolan`, writes the report, and says whether all required specs passed.
pub async fn mcs(portolan: &Path, report: &Path) -> anyhow::Result<bool> {
    let suite = Suite::build()?;
    let folder = DataFolder::new()?;
    tell("starting two control planes");
    let pair = Pair::start(&suite, portolan).await?;
    let contexts = folder.write("contexts.kubeconfig", &pair.kubeconfig()?.to_string())?;
    tell(&format!("running the suite, label filter `{LABEL_FILTER}`"));
    let started = Instant::now();
    let mut running = start(&suite, &contexts, &folder)?;
    finish(&mut running, &pair).await?;
    let json = fs::read_to_string(folder.path().join("report.json"));
    let json = json.with_context(|| format!("the suite wrote no report:\n{}", running.log_tail()))?;
    let found = Report::read(&json)?;
    let about = report::About {
        date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
        took: started.elapsed(),
        kubernetes: kubernetes_version(),
        suite: &suite,
        label_filter: LABEL_FILTER,
    };
    if let Some(parent) = report.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(report, found.markdown(&about)).with_context(|| format!("writing {} failed", report.display()))?;
    tell(&format!("{}: {}", report.display(), found.summary()));
    Ok(found.conforms())
}

/// The program that `go test -c` has made, rather than `go test`: it has no children, so nothing outlives us; and it
/// writes upstream's own reports to its folder, which would be the read-only module cache.
fn start(suite: &Suite, contexts: &str, folder: &DataFolder) -> anyhow::Result<Program> {
    let arguments = [
        format!("--kubeconfig={contexts}"),
        format!("--contexts={}", clusters::NAMES.join(",")),
        "--project=Portolan".into(),
        format!("--version={}", env!("CARGO_PKG_VERSION")),
        format!("--ginkgo.label-filter={LABEL_FILTER}"),
        format!("--ginkgo.timeout={}s", LIMIT.as_secs()),
        "--ginkgo.json-report=report.json".into(),
        "--ginkgo.no-color".into(),
    ];
    Program::start("suite", &suite.program, &arguments, folder.path())
}

/// Waits for the end of the suite; an operator that ends before is a failure.
async fn finish(suite: &mut Program, pair: &Pair) -> anyhow::Result<()> {
    let deadline = Instant::now() + LIMIT + LIMIT / 10;
    while suite.ended()?.is_none() {
        pair.check()?;
        if Instant::now() > deadline {
            bail!("the suite did not end within {} minutes:\n{}", LIMIT.as_secs() / 60, suite.log_tail());
        }
        tokio::time::sleep(TICK).await;
    }
    Ok(())
}
