//! Phone calls, one after the other and many at once, among a hundred others and among ten thousand.

use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use portolan_testkit::bench::{Bench, Goal, Side};
use tokio::runtime::Runtime;

use crate::operator::{cpu_seconds, resident};
use crate::setting::{CHANGES, CLOSELY, Call, PROXIES, Setting};

const FEW: usize = 100;
const MANY: usize = 10_000;
/// Calls at once, and for how long.
const AT_ONCE: usize = 32;
const LONG: Duration = Duration::from_secs(30);
/// Many callers look less often.
const LOOSELY: Duration = Duration::from_millis(5);
const MILLISECONDS: f64 = 1e3;
const MIB: f64 = 1024.0 * 1024.0;

pub(crate) fn measure(bench: &mut Bench) -> anyhow::Result<()> {
    if !bench.wants("calls") && bench.against().is_none() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let _guard = runtime.enter();
    let program = std::env::current_exe()?;
    if let Some(other) = bench.against().map(Path::to_owned) {
        return against_other_build(bench, &runtime, &program, &other);
    }
    let few = runtime.block_on(Setting::new(FEW, &program))?;
    let mut many = runtime.block_on(Setting::new(MANY, &program))?;
    one_by_one(bench, &runtime, &few, &many)?;
    let ready = "calls: memory of the operator with 10,000 VirtualServices and 10,000 Targets";
    bench.count(ready, "MiB", Goal::value(1536.0), resident(many.operator.id())? / MIB)?;
    runtime.block_on(at_once(bench, &many))?;
    runtime.block_on(restart(bench, &mut many))?;
    runtime.block_on(async {
        few.stop().await;
        many.stop().await;
    });
    Ok(())
}

/// The same calls with our operator and with that of another build, such as an older commit's, in turns.
fn against_other_build(bench: &mut Bench, runtime: &Runtime, program: &Path, other: &Path) -> anyhow::Result<()> {
    const NO_WORSE: Goal = Goal::ratio(1.03);
    const ROUNDS: usize = 10;
    let settings = [runtime.block_on(Setting::new(MANY, program))?, runtime.block_on(Setting::new(MANY, other))?];
    let [ours, other] = &settings;
    let times = [RefCell::new(Vec::new()), RefCell::new(Vec::new())];
    let sides = [("portolan", ours, &times[0]), ("other build", other, &times[1])];
    let [side, their_side] = sides.map(|(name, setting, times)| {
        Side::new(name, || runtime.block_on(some(setting, times))).of_processes(vec![setting.operator.id()])
    });
    bench.compare("calls one by one among 10,000: CPU of the operator", "change", NO_WORSE, side, their_side)?;
    let [took, they_took] = times.map(|times| percentile(&times.into_inner(), 50));
    let words = "calls one by one: until in force, median, against other build";
    bench.count(words, "ratio", Goal::value(1.03), took / they_took)?;
    let [side, their_side] = [("portolan", ours), ("other build", other)].map(|(name, setting)| {
        let turn = || Ok(runtime.block_on(busy(setting, |round| round < ROUNDS))?.len() as u64 / 3 * CHANGES);
        Side::new(name, turn).of_processes(vec![setting.operator.id()])
    });
    bench.compare("calls at once among 10,000: CPU of the operator", "change", NO_WORSE, side, their_side)?;
    let memory = resident(ours.operator.id())? / resident(other.operator.id())?;
    bench.count("calls: memory of the operator, against other build", "ratio", Goal::value(1.03), memory)?;
    runtime.block_on(async {
        for setting in settings {
            setting.stop().await;
        }
    });
    Ok(())
}

/// A single call: what it costs must not depend on the others.
fn one_by_one(bench: &mut Bench, runtime: &Runtime, few: &Setting, many: &Setting) -> anyhow::Result<()> {
    let (small, large) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let before = (runtime.block_on(many.generations())?, many.operator.calls()?);
    bench.compare(
        "calls one by one: CPU of the operator among 10,000, against 100",
        "change",
        Goal::ratio(1.5),
        Side::new("among 10,000", || runtime.block_on(some(many, &large))).of_processes(vec![many.operator.id()]),
        Side::new("among 100", || runtime.block_on(some(few, &small))).of_processes(vec![few.operator.id()]),
    )?;
    let (small, large) = (small.into_inner(), large.into_inner());
    let made = f64::from(u32::try_from(large.len())?) / 3.0 * CHANGES as f64;
    let taken = runtime.block_on(many.generations())? - before.0;
    let called = many.operator.calls()? - before.1;
    bench.count("calls one by one: REST calls per change", "", Goal::value(1.0), called / made)?;
    ensure!(taken as f64 <= called + 0.5, "proxies took {taken} changes in {called} calls");
    let [few50, many50] = [percentile(&small, 50), percentile(&large, 50)];
    bench.count(
        "calls one by one: until in force, median, among 10,000 against 100",
        "ratio",
        Goal::value(1.5),
        many50 / few50,
    )?;
    bench.count("calls one by one: until in force, p50", "ms", Goal::value(50.0), many50)?;
    bench.count("calls one by one: until in force, p99", "ms", Goal::value(250.0), percentile(&large, 99))
}

/// Twenty calls, each waited for.
async fn some(setting: &Setting, times: &RefCell<Vec<Duration>>) -> anyhow::Result<u64> {
    const CALLS: usize = 20;
    for number in 0..CALLS {
        let call = Call::new(&setting.client, &new_name(), number % PROXIES, 50_000 + number);
        let proxy = setting.proxy(call.proxy());
        let took = call.whole(&proxy, CLOSELY).await?;
        times.borrow_mut().extend(took);
    }
    Ok(CALLS as u64 * CHANGES)
}

/// No call is taken for an earlier one, whose status was written just now.
fn new_name() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("call-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// As many calls as there can be, each of which waits until its change is in force.
async fn at_once(bench: &mut Bench, setting: &Setting) -> anyhow::Result<()> {
    let began = Instant::now();
    let before = (cpu_seconds(setting.operator.id())?, setting.operator.calls()?, setting.operator.writes()?);
    let times = busy(setting, |_| began.elapsed() < LONG).await?;
    let wall = began.elapsed().as_secs_f64();
    let (cpu, called, wrote) = (
        cpu_seconds(setting.operator.id())? - before.0,
        setting.operator.calls()? - before.1,
        setting.operator.writes()? - before.2,
    );
    // the last second of what was said is still to come
    let behind = Instant::now();
    setting.rest()?;
    let behind = behind.elapsed().as_secs_f64();
    let changes = times.len() as f64 / 3.0 * CHANGES as f64;
    let per = |value: f64| value / changes;
    bench.count(
        "calls at once: wall time per change, of 1,000 a second",
        "ms",
        Goal::value(1.0),
        per(wall) * MILLISECONDS,
    )?;
    bench.count("calls at once: until in force, p50", "ms", Goal::value(250.0), percentile(&times, 50))?;
    bench.count("calls at once: until in force, p99", "ms", Goal::value(250.0), percentile(&times, 99))?;
    bench.count("calls at once: CPU of the operator per change", "ms", Goal::value(1.0), per(cpu) * MILLISECONDS)?;
    bench.count("calls at once: REST calls per change", "", Goal::value(1.0), per(called))?;
    bench.count("calls at once: API writes of the operator per change", "", Goal::value(1.0), per(wrote))?;
    bench.count("calls at once: at rest after", "s", Goal::value(10.0), behind)
}

/// Callers who make one call after the other, as long as `more` says of the rounds they have made; gives all times.
async fn busy(setting: &Setting, more: impl Fn(usize) -> bool + Copy) -> anyhow::Result<Vec<Duration>> {
    let callers = (0..AT_ONCE).map(|caller| async move {
        let (mut times, mut round) = (Vec::new(), 0);
        while more(round) {
            let call = Call::new(&setting.client, &new_name(), caller % PROXIES, 51_000 + caller);
            let proxy = setting.proxy(call.proxy());
            times.extend(call.whole(&proxy, LOOSELY).await?);
            round += 1;
        }
        anyhow::Ok(times)
    });
    Ok(futures::future::try_join_all(callers).await?.concat())
}

/// An operator that starts again finds everything as it should be.
async fn restart(bench: &mut Bench, setting: &mut Setting) -> anyhow::Result<()> {
    let before = setting.generations().await?;
    let began = Instant::now();
    setting.restart()?;
    setting.met_all()?;
    let ready = began.elapsed().as_secs_f64();
    setting.rest()?;
    bench.count("calls, operator started again: until it has compared all proxies", "s", Goal::value(10.0), ready)?;
    let told = setting.generations().await? - before;
    let calls = setting.operator.calls()?.max(told as f64);
    bench.count("calls, operator started again: calls that change a proxy", "", Goal::value(0.0), calls)?;
    bench.count("calls, operator started again: writes", "", Goal::value(0.0), setting.operator.writes()?)
}

/// In milliseconds.
fn percentile(times: &[Duration], percent: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort();
    let at = (times.len() * percent / 100).min(times.len().saturating_sub(1));
    times.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * MILLISECONDS)
}
