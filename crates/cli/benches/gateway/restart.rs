//! An operator that starts where there are a thousand load balancers already. The Envoys exist in memory only, so that
//! nothing but the control plane is measured.

use std::time::{Duration, Instant};

use anyhow::ensure;
use portolan_testkit::ReservedAddress;
use portolan_testkit::bench::{Bench, Goal};
use tokio::runtime::Runtime;

use crate::http;
use crate::observer::Observer;
use crate::operators::Unelected;
use crate::site::{Site, names};

const READY: &str = "started again with 1,000 load balancers x 10 endpoints: until ready";
const WRITES: &str = "started again with 1,000 load balancers x 10 endpoints: writes";
const LOAD_BALANCERS: usize = 1_000;
const ENDPOINTS: usize = 10;
const ACCOUNTS: usize = 20;
/// Long enough for a write to come that somebody has put off.
const QUIET: Duration = Duration::from_secs(10);

pub(crate) fn measure(bench: &mut Bench, runtime: &Runtime) -> anyhow::Result<()> {
    if !bench.wants(READY) && !bench.wants(WRITES) {
        return Ok(());
    }
    let site = runtime.block_on(async {
        let site = Site::embedded().await?;
        site.provider("172.16.0.0/12", ACCOUNTS).await?;
        site.load_balancers(names(LOAD_BALANCERS, ACCOUNTS)).await?;
        site.endpoints(names(LOAD_BALANCERS, ACCOUNTS).zip(0..), ENDPOINTS).await?;
        anyhow::Ok(site)
    })?;
    let admin = ReservedAddress::new()?;
    let first = Unelected::start(&site.kubeconfig, admin.address(), None)?;
    let observer = Observer::start(&site.client);
    runtime.block_on(observer.until_allocated(LOAD_BALANCERS, true))?;
    at_rest(&admin)?;
    first.kill()?;
    let mut times = Vec::new();
    let mut written = 0.0;
    for _ in 0..5 {
        let began = Instant::now();
        let operator = Unelected::start(&site.kubeconfig, admin.address(), None)?;
        while !http::get(admin.address(), "/readyz").is_ok_and(|answer| answer.code == 200) {
            ensure!(began.elapsed() < Duration::from_mins(1), "the operator is not ready");
            std::thread::sleep(Duration::from_millis(5));
        }
        times.push(began.elapsed().as_secs_f64());
        std::thread::sleep(QUIET / 5);
        written += http::writes(admin.address())?;
        operator.kill()?;
    }
    let operator = Unelected::start(&site.kubeconfig, admin.address(), None)?;
    std::thread::sleep(QUIET);
    written += http::writes(admin.address())?;
    operator.kill()?;
    bench.count(READY, "s", Goal::value(2.0), crate::quantile(&mut times, 0.5))?;
    bench.count(WRITES, "writes", Goal::value(0.0), written)?;
    drop(observer);
    runtime.block_on(site.stop());
    Ok(())
}

fn at_rest(admin: &ReservedAddress) -> anyhow::Result<()> {
    let (began, mut last, mut since) = (Instant::now(), f64::NAN, Instant::now());
    // entries of reservations that nobody needs any more go after half a minute
    while since.elapsed() < Duration::from_secs(35) {
        ensure!(began.elapsed() < Duration::from_mins(10), "it never came to rest");
        let now = http::writes(admin.address())?;
        if now.total_cmp(&last).is_ne() {
            (last, since) = (now, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}
