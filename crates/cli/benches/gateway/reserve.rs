//! Reservations of keys on a real API server: one write for up to 64, against one write for each.
//!
//! The other side is the loop of the original: eight workers that each read the Account, raise its counter and write it
//! back. Where the original gave up after three conflicts and admitted key 0, these workers go on until they have a key.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use parking_lot::Mutex;
use portolan_api::gateway::{Account, AccountSpec, AccountStatus, PendingService};
use portolan_core::gateway::keys::KeySpace;
use portolan_core::gateway::reserve::{Child, Holder, Parent, reserve};
use portolan_testkit::bench::{Bench, Goal, Side};
use tokio::runtime::Runtime;

use crate::site::{Site, account};

const CPU: &str = "keys reserved on kube-apiserver: CPU of all processes";
const WALL: &str = "keys reserved on kube-apiserver: wall time, as a share of one write per key";
const WORKERS: usize = 8;
/// Keys of one turn of each side.
const OURS: u32 = 1_280;
const THEIRS: u32 = 128;
/// A worker of the original tries so often.
const TRIES: u32 = 3;
/// A twentieth of the cost.
const GOAL: f64 = 0.05;

pub(crate) fn measure(bench: &mut Bench, runtime: &Runtime) -> anyhow::Result<()> {
    if !bench.wants(CPU) && !bench.wants(WALL) {
        return Ok(());
    }
    let site = runtime.block_on(async {
        let site = Site::real().await?;
        site.provider("172.16.0.0/12", 2).await?;
        anyhow::Ok(site)
    })?;
    let accounts: Api<Account> = site.of("egw");
    let processes: Vec<u32> = site.processes().into_iter().chain([std::process::id()]).collect();
    let (failed, all) = (AtomicU64::new(0), AtomicU64::new(0));
    let walls: [Mutex<Vec<f64>>; 2] = Default::default();
    let timed = |side: usize, keys: u32, work: &dyn Fn() -> anyhow::Result<()>| {
        let began = Instant::now();
        work()?;
        walls[side].lock().push(began.elapsed().as_secs_f64() / f64::from(keys));
        anyhow::Ok(u64::from(keys))
    };
    let (mine, theirs) = (account(0), account(1));
    let ours = Side::new("portolan", || timed(0, OURS, &|| runtime.block_on(batches(&accounts, &mine))));
    let one_by_one = || runtime.block_on(one_by_one(&accounts, &theirs, &failed, &all));
    let other = Side::new("8 workers, one PUT per key", || timed(1, THEIRS, &one_by_one));
    // counters never decrease: each turn has an Account of its own
    let ours = ours.prepared(|| runtime.block_on(reset(&accounts, &mine))).of_processes(processes.clone());
    let other = other.prepared(|| runtime.block_on(reset(&accounts, &theirs))).of_processes(processes);
    bench.compare(CPU, "key", Goal::ratio(GOAL), ours, other)?;
    let median = |side: usize| {
        let mut values = walls[side].lock().clone();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().context("it was measured")
    };
    if bench.wants(CPU) {
        let (ours, other) = (median(0)?, median(1)?);
        bench.count(WALL, "ratio", Goal::value(GOAL), ours / other)?;
        crate::note(&format!(
            "{:.0} keys a second, against {:.0}; {} of the {} others needed more than {TRIES} tries",
            1.0 / ours,
            1.0 / other,
            failed.load(Ordering::Relaxed),
            all.load(Ordering::Relaxed),
        ));
    }
    runtime.block_on(site.stop());
    Ok(())
}

/// Reserves as the operator does: a plan says what the Account's status should be, and each write reserves for many.
async fn batches(accounts: &Api<Account>, name: &str) -> anyhow::Result<()> {
    let mut seen = accounts.get(name).await?;
    let mut parent = Parent::default();
    let holder = |number: u32| Holder {
        uid: format!("00000000-0000-0000-0000-{number:012}").into(),
        object: format!("egw-{name}/lb{number}").into(),
        node: None,
    };
    let mut children: Vec<Child> = (0..OURS).map(|number| Child { holder: holder(number), number: None }).collect();
    while children.iter().any(|child| child.number.is_none()) {
        let decided = reserve(&parent, &children, KeySpace::keys(u16::try_from(parent.counter)?));
        ensure!(decided.exhausted.is_empty(), "there is no key left");
        seen.status = Some(status(&decided.parent)?);
        seen = accounts.replace_status(name, &PostParams::default(), &seen).await?;
        parent = decided.parent;
        // each child is written with what is reserved for it: another write, which both sides have and neither makes here
        for child in &mut children {
            child.number = child.number.or_else(|| parent.pending.get(&child.holder).copied());
        }
    }
    ensure!(parent.counter == OURS, "{} keys", parent.counter);
    Ok(())
}

fn status(parent: &Parent) -> anyhow::Result<AccountStatus> {
    let entry = |(holder, key): (&Holder, &u32)| {
        let (holder, uid) = (holder.object.to_string(), holder.uid.to_string());
        anyhow::Ok(PendingService { key: u16::try_from(*key)?, holder, uid })
    };
    Ok(AccountStatus {
        current_service_gue_key: u16::try_from(parent.counter)?,
        pending: parent.pending.iter().map(entry).collect::<anyhow::Result<_>>()?,
        conditions: Vec::new(),
    })
}

/// Reserves as the original did.
async fn one_by_one(accounts: &Api<Account>, name: &str, failed: &AtomicU64, all: &AtomicU64) -> anyhow::Result<()> {
    let worker = |_| async {
        let mut given = Vec::new();
        for _ in 0..THEIRS as usize / WORKERS {
            let (key, tries) = raise(accounts, name).await?;
            given.push(key);
            all.fetch_add(1, Ordering::Relaxed);
            failed.fetch_add(u64::from(tries > TRIES), Ordering::Relaxed);
        }
        anyhow::Ok(given)
    };
    let mut given = try_join_all((0..WORKERS).map(worker)).await?.concat();
    given.sort_unstable();
    given.dedup();
    ensure!(given.len() == THEIRS as usize, "{} different keys", given.len());
    Ok(())
}

/// Gives a key, and how many tries it took.
async fn raise(accounts: &Api<Account>, name: &str) -> anyhow::Result<(u16, u32)> {
    let mut tries = 0;
    loop {
        tries += 1;
        let mut object = accounts.get(name).await?;
        let status = object.status.get_or_insert_default();
        status.current_service_gue_key += 1;
        let key = status.current_service_gue_key;
        match accounts.replace_status(name, &PostParams::default(), &object).await {
            Ok(_) => return Ok((key, tries)),
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(problem) => return Err(problem.into()),
        }
    }
}

async fn reset(accounts: &Api<Account>, name: &str) -> anyhow::Result<()> {
    accounts.delete(name, &DeleteParams::default()).await?;
    let fresh = Account::new(name, AccountSpec::default());
    accounts.create(&PostParams::default(), &fresh).await?;
    Ok(())
}
