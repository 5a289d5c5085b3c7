//! Numbers from one object, by many tasks, through conflicts.

use std::collections::BTreeSet;

use anyhow::Context as _;
use portolan_control::runtime::Error;
use portolan_control::runtime::allocate::{Change, change};
use portolan_control::runtime::endpoint::Part;
use portolan_control::runtime::store::Key;
use portolan_testkit::Faults;
use portolan_testkit::ticket::Office;
use tokio_util::sync::CancellationToken;

use crate::harness::{Backend, World, on_both_servers, proxy};

on_both_servers! {
    eight_tasks_take_2000_distinct_ids_through_30_percent_injected_conflicts,
    answers_that_are_lost_lose_and_double_no_id,
    exhaustion_is_a_clear_error_and_a_stop_ends_the_wait,
}

/// Takes the next number for `name`, or finds the one it took before its answer was lost.
fn take(office: &mut Office, name: &str) -> Result<Change<u64>, Error> {
    let status = office.status.get_or_insert_default();
    if let Some(number) = status.taken.get(name) {
        return Ok(Change::Keep(*number));
    }
    if status.next >= office.spec.last {
        let problem = format!("all {} numbers are taken: raise spec.last", office.spec.last);
        return Err(Error::Invalid { what: "taking a number".into(), problem });
    }
    status.next += 1;
    status.taken.insert(name.to_owned(), status.next);
    Ok(Change::Write(status.next))
}

async fn eight_tasks_take(backend: Backend, per_task: u64, faults: Faults) -> anyhow::Result<()> {
    let world = World::new(backend, "allocation", 10_000).await?;
    let proxy = proxy(&world, faults).await?;
    let key = Key { namespace: world.namespace.clone(), name: "office".into() };
    let stop = CancellationToken::new();
    let task = async |task: u64| {
        let client = proxy.client();
        let mut numbers = Vec::new();
        for index in 0..per_task {
            let name = format!("task{task}-{index}");
            numbers.push(change(&client, &key, Part::Status, &stop, |office| take(office, &name)).await?);
        }
        Ok::<_, Error>(numbers)
    };
    let answered = futures::future::try_join_all((0..8).map(task)).await?.concat();
    let distinct: BTreeSet<u64> = answered.iter().copied().collect();
    assert_eq!(distinct, (1..=8 * per_task).collect(), "each number once, none skipped");
    let recorded = world.offices().get("office").await?.status.context("the office has a status")?;
    assert_eq!(recorded.taken.values().copied().collect::<BTreeSet<_>>(), distinct, "what was answered is recorded");
    let conflicts = proxy.writes().iter().filter(|write| write.answered == Some(409)).count();
    assert!(conflicts > 0, "there were conflicts to live through");
    Ok(())
}

async fn eight_tasks_take_2000_distinct_ids_through_30_percent_injected_conflicts(
    backend: Backend,
) -> anyhow::Result<()> {
    eight_tasks_take(backend, 250, Faults { seed: 1, conflict: 0.3, ..Faults::default() }).await
}

async fn answers_that_are_lost_lose_and_double_no_id(backend: Backend) -> anyhow::Result<()> {
    eight_tasks_take(
        backend,
        10,
        Faults { seed: 2, drop_before: 0.1, drop_after: 0.2, conflict: 0.1, ..Faults::default() },
    )
    .await
}

async fn exhaustion_is_a_clear_error_and_a_stop_ends_the_wait(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, "allocation", 0).await?;
    let proxy = proxy(&world, Faults { conflict: 1.0, ..Faults::default() }).await?;
    let key = Key { namespace: world.namespace.clone(), name: "office".into() };
    let stop = CancellationToken::new();
    let full = change(&proxy.client(), &key, Part::Status, &stop, |office| take(office, "late")).await;
    assert_eq!(
        full.expect_err("no number is free").to_string(),
        "taking a number: all 0 numbers are taken: raise spec.last"
    );

    let client = proxy.client();
    let endless = change(&client, &key, Part::Status, &stop, |office: &mut Office| {
        office.status.get_or_insert_default().next = 1;
        Ok::<_, Error>(Change::Write(()))
    });
    let (ended, ()) = tokio::join!(endless, async {
        while proxy.writes().len() < 5 {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    });
    assert_eq!(ended.expect_err("it was stopped").reason(), "Stopped");
    Ok(())
}
