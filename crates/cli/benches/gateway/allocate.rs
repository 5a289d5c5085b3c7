//! Keys and addresses from end to end: two operators that both act, on a real API server.

use std::time::Instant;

use anyhow::ensure;
use portolan_testkit::bench::{Bench, Goal};
use tokio::runtime::Runtime;

use crate::observer::Observer;
use crate::operators::{Unelected, any_port};
use crate::site::{Site, names};

/// How many load balancers; the larger number is measured when it is asked for by name.
const SIZES: [(&str, usize); 2] = [("2,000 allocations by two processes", 2_000), (LARGE, 10_000)];
const LARGE: &str = "10,000 allocations by two processes";
const ACCOUNTS: usize = 20;
/// 500 a second.
const GOAL_MILLIS: f64 = 2.0;

pub(crate) fn measure(bench: &mut Bench, runtime: &Runtime) -> anyhow::Result<()> {
    for (name, count) in SIZES {
        let [time, twice] = [format!("{name}: time for each"), format!("{name}: numbers held twice")];
        let asked = if name == LARGE { bench.names(&time) || bench.names(&twice) } else { bench.wants(&time) };
        if !asked {
            continue;
        }
        let (millis, held_twice) = runtime.block_on(allocated(count))?;
        bench.count(&time, "ms", Goal::value(GOAL_MILLIS), millis)?;
        bench.count(&twice, "numbers", Goal::value(0.0), held_twice as f64)?;
    }
    Ok(())
}

/// Milliseconds for each, from the start of the operators to the last one; and how many numbers were held twice.
async fn allocated(count: usize) -> anyhow::Result<(f64, usize)> {
    let site = Site::real().await?;
    site.provider("172.16.0.0/12", ACCOUNTS).await?;
    site.load_balancers(names(count, ACCOUNTS)).await?;
    let observer = Observer::start(&site.client);
    let began = Instant::now();
    let mut operators = Vec::new();
    for _ in 0..2 {
        operators.push(Unelected::start(&site.kubeconfig, any_port(), None)?);
    }
    observer.until_allocated(count, false).await?;
    let taken = began.elapsed();
    for operator in &mut operators {
        operator.check()?;
    }
    let [keys, addresses, _] = observer.distinct();
    ensure!((keys, addresses) == (count, count), "{keys} keys, {addresses} addresses");
    let twice = observer.twice();
    for problem in &twice {
        crate::note(problem);
    }
    drop((operators, observer));
    site.stop().await;
    Ok((taken.as_secs_f64() * 1e3 / count as f64, twice.len()))
}
