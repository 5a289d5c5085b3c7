//! What the mesh costs: the resolver at its full size, and phone calls that come, change and go.
//!
//! The resolver runs in this process. For calls there is an embedded API server here, real proxies on loopback
//! addresses, and the mesh's operator as a process of its own, so that its CPU time, memory and calls are counted
//! alone. A call is a Target and a VirtualService, and five changes: both are created, one is edited, both are deleted.
//! A change is in force when the proxy shows it.
#![expect(clippy::cast_precision_loss, reason = "figures are made of counts")]

#[path = "mesh/calls.rs"]
mod calls;
#[path = "mesh/operator.rs"]
mod operator;
#[path = "mesh/plan.rs"]
mod plan;
#[path = "mesh/setting.rs"]
mod setting;

use std::process::ExitCode;

use portolan_testkit::bench::Bench;

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [role, kubeconfig, admin] = &words[..]
        && role == operator::ROLE
    {
        operator::play(kubeconfig, admin)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut bench = Bench::with_arguments("mesh", words.into_iter())?;
    if bench.against().is_some() {
        // what differs between two builds is less than one round differs from the next
        bench = bench.with_rounds(20);
    } else {
        plan::measure(&mut bench)?;
    }
    calls::measure(&mut bench)?;
    bench.finish()
}
