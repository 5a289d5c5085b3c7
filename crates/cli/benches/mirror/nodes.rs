//! Nodes of a remote that come and go under 1,000 mirrors.

use std::time::{Duration, Instant};

use portolan_testkit::bench::{Bench, Goal};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::clusters::{self, RemotePlane};
use crate::operator::Operator;

const MIRRORS: f64 = 1_000.0;
const DOWN: &str = "one node of 100 down, 1,000 mirrors";
const FLIPS: &str = "one node flips three times in a second, 1,000 mirrors";
const ADDED: &str = "one node added to 1,000, 1,000 mirrors of ten slices";
/// Nothing more is written for a change of a node after this time: it is gathered for a second.
const QUIET: Duration = Duration::from_secs(5);

pub(crate) fn measure(bench: &mut Bench, runtime: &Runtime) -> anyhow::Result<()> {
    if ![DOWN, FLIPS, ADDED].iter().any(|row| bench.wants(row)) {
        return Ok(());
    }
    let (plane, local) = runtime.block_on(clusters::local())?;
    let remote = runtime.block_on(RemotePlane::start(0, 1_000, 100))?;
    runtime.block_on(remote.declare(&local, &json!({})))?;
    let operator = Operator::start(plane.kubeconfig_path(), &[])?;
    let slices = |operator: &Operator| anyhow::Ok(operator.metrics()?.writes_of("EndpointSlice"));
    operator.until("wrote all slices", |metrics| metrics.writes_of("EndpointSlice") >= MIRRORS)?;
    operator.at_rest(QUIET)?;

    let before = operator.metrics()?.writes();
    let began = Instant::now();
    runtime.block_on(remote.set_ready("n7", false))?;
    operator.until("wrote all slices", |metrics| metrics.writes() >= before + MIRRORS)?;
    let took = began.elapsed();
    let made = operator.at_rest(QUIET)?.writes() - before;
    bench.count(&format!("{DOWN}: until all is written"), "s", Goal::value(10.0), took.as_secs_f64())?;
    bench.count(&format!("{DOWN}: writes for one needed"), "", Goal::value(1.0), made / MIRRORS)?;

    let before = operator.metrics()?.writes();
    for ready in [true, false, true] {
        runtime.block_on(remote.set_ready("n7", ready))?;
    }
    let made = operator.at_rest(QUIET)?.writes() - before;
    bench.count(&format!("{FLIPS}: writes for one mirror"), "", Goal::value(1.0), made / MIRRORS)?;
    operator.stop()?;

    runtime.block_on(remote.add_nodes(100..1_000))?;
    let operator = Operator::start(plane.kubeconfig_path(), &[])?;
    operator.until("wrote nine more slices for each", |metrics| metrics.writes_of("EndpointSlice") >= 9.0 * MIRRORS)?;
    operator.at_rest(QUIET)?;
    let before = slices(&operator)?;
    runtime.block_on(remote.add_nodes(1_000..1_001))?;
    operator.until("wrote one slice for each", |metrics| metrics.writes_of("EndpointSlice") >= before + MIRRORS)?;
    let made = operator.at_rest(QUIET)?.writes_of("EndpointSlice") - before;
    bench.count(&format!("{ADDED}: slice writes for one mirror"), "", Goal::value(1.0), made / MIRRORS)?;
    operator.stop()
}
