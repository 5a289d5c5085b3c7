//! What the mirror costs: the planner at its full size, and the operator between real control planes.
//!
//! The planner runs in this process. For the rest there are real control planes on loopback, one local and five
//! remote, and the `portolan` binary as a process of its own, so that its CPU time, memory and writes are counted alone.
//! Writes are those that the operator counts, whatever became of them.
#![expect(clippy::cast_precision_loss, reason = "figures are made of counts")]

#[path = "mirror/by_hand.rs"]
mod by_hand;
#[path = "mirror/changes.rs"]
mod changes;
#[path = "mirror/clusters.rs"]
mod clusters;
#[path = "mirror/nodes.rs"]
mod nodes;
#[path = "mirror/operator.rs"]
mod operator;
#[path = "mirror/plan.rs"]
mod plan;
#[path = "mirror/remotes.rs"]
mod remotes;

use std::process::ExitCode;

use portolan_testkit::bench::Bench;

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<ExitCode> {
    let mut bench = Bench::from_arguments("mirror")?;
    plan::measure(&mut bench)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let _guard = runtime.enter();
    remotes::measure(&mut bench, &runtime)?;
    nodes::measure(&mut bench, &runtime)?;
    bench.finish()
}
