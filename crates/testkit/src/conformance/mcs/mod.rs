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

use anyhow::Context as _;

use self::{clusters::Pair, report::Report, suite::Suite};
use super::progress::tell;
use super::run::{finish, today, write_page};
use crate::{Program, binaries::kubernetes_version, control_plane::folder::DataFolder};

mod clusters;
mod operator;
mod report;
mod suite;

const LABEL_FILTER: &str = "!DNS && !Connectivity";
/// Much longer than a suite in which every spec waits in vain.
const LIMIT: Duration = Duration::from_mins(25);

/// Runs the suite with this `portolan`, writes the report, and says whether all required specs passed.
pub async fn run(portolan: &Path, report: &Path) -> anyhow::Result<bool> {
    let suite = Suite::build()?;
    let folder = DataFolder::new()?;
    tell("starting two control planes");
    let pair = Pair::start(&suite, portolan).await?;
    let contexts = folder.write("contexts.kubeconfig", &pair.kubeconfig()?.to_string())?;
    tell(&format!("running the suite, label filter `{LABEL_FILTER}`"));
    let started = Instant::now();
    let mut running = start(&suite, &contexts, &folder)?;
    finish(&mut running, LIMIT, || pair.check()).await?;
    let json = fs::read_to_string(folder.path().join("report.json"));
    let json = json.with_context(|| format!("the suite wrote no report:\n{}", running.log_tail()))?;
    let found = Report::read(&json)?;
    let about = report::About {
        date: today(),
        took: started.elapsed(),
        kubernetes: kubernetes_version(),
        suite: &suite,
        label_filter: LABEL_FILTER,
    };
    write_page(report, &found.markdown(&about))?;
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
