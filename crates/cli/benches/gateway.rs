//! What the gateway costs: the planner at its full size, numbers and addresses on a real API server, a thousand load
//! balancers in one operator, and real traffic through a real Envoy.
//!
//! The operator is the `portolan` binary, a process of its own, so that its memory is counted alone. Where several
//! operators act at once, which the program never does, they are processes of this benchmark.
#![expect(clippy::cast_precision_loss, reason = "figures are made of counts")]

#[path = "gateway/allocate.rs"]
mod allocate;
#[path = "gateway/contention.rs"]
mod contention;
#[path = "gateway/fleet.rs"]
mod fleet;
#[path = "gateway/http.rs"]
mod http;
#[path = "gateway/observer.rs"]
mod observer;
#[path = "gateway/operator.rs"]
mod operator;
#[path = "gateway/operators.rs"]
mod operators;
#[path = "gateway/plan.rs"]
mod plan;
#[path = "gateway/reserve.rs"]
mod reserve;
#[path = "gateway/rest.rs"]
mod rest;
#[path = "gateway/restart.rs"]
mod restart;
#[path = "gateway/site.rs"]
mod site;
#[path = "gateway/traffic.rs"]
mod traffic;
#[path = "gateway/xds.rs"]
mod xds;

use std::io::Write as _;
use std::process::ExitCode;

use portolan_testkit::bench::Bench;

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().is_some_and(|first| first == operators::ROLE) {
        operators::run(&arguments.collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut bench = Bench::from_arguments("gateway")?;
    plan::measure(&mut bench)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let _guard = runtime.enter();
    reserve::measure(&mut bench, &runtime)?;
    allocate::measure(&mut bench, &runtime)?;
    contention::measure(&mut bench, &runtime)?;
    restart::measure(&mut bench, &runtime)?;
    fleet::measure(&mut bench, &runtime)?;
    traffic::measure(&mut bench, &runtime)?;
    bench.finish()
}

/// Something worth knowing that is no row.
fn note(text: &str) {
    // nobody reads it if that fails
    writeln!(std::io::stderr(), "note: {text}").ok();
}

/// The value below which this share of the values lies.
fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in a list")]
    let place = (share * last as f64).ceil() as usize;
    values.get(place).copied().unwrap_or(f64::NAN)
}
