//! A converged world is left alone, and one bad object stops nothing else.

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use portolan_testkit::ticket::Ticket;
use portolan_testkit::{FaultProxy, Faults};
use serde_json::json;

use crate::harness::{Backend, Replica, World, eventually, on_both_servers, proxy, ticket};

on_both_servers! {
    a_converged_world_resynced_ten_times_is_not_written_to,
    no_plan_is_made_on_a_view_older_than_our_own_last_write,
    a_bad_object_gets_its_reason_and_the_others_go_on,
    kubectl_waits_on_conditions_and_each_transition_is_told_once,
}

async fn a_converged_world_resynced_ten_times_is_not_written_to(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, "steady", 100).await?;
    let proxy = proxy(&world, Faults::default()).await?;
    for index in 0..20 {
        world.add_ticket(&format!("t{index}")).await?;
    }
    let replica = Replica::start(&proxy, &world)?;
    world.converged(20).await?;
    replica.process.stop().await?;
    let written = proxy.writes_but_leases().len();
    assert!(written >= 41, "an office, 20 receipts and 20 statuses were written: {written}");

    for round in 0..10 {
        let replica = Replica::start(&proxy, &world)?;
        let lists = || proxy.trace().iter().filter(|exchange| exchange.is_list()).count();
        eventually("the world was planned once more", async || Ok(replica.turns() > 0)).await?;
        // And once more after every watch was cut and every kind listed anew.
        let (turns, listed) = (replica.turns(), lists());
        proxy.script_watch("tickets", vec![portolan_testkit::WatchStep::ExpireInStream]);
        eventually("the tickets were listed anew", async || Ok(lists() > listed && replica.turns() > turns)).await?;
        replica.process.stop().await?;
        assert_eq!(proxy.writes_but_leases().len(), written, "round {round} wrote");
    }
    Ok(())
}

async fn no_plan_is_made_on_a_view_older_than_our_own_last_write(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, "stale", 100).await?;
    let proxy = proxy(&world, Faults::default()).await?;
    world.add_ticket("one").await?;
    let replica = Replica::start(&proxy, &world)?;
    world.converged(1).await?;
    eventually("the replica rests", async || Ok(replica.turns() >= 2)).await?;

    // From here on it sees tickets come, and not what it records in the office itself.
    proxy.hold_watch_events(Some("offices"));
    for name in ["two", "three", "four"] {
        world.add_ticket(name).await?;
        sees(&proxy, &world, name).await?;
    }
    eventually("it has planned for the first of them", async || {
        let office = world.offices().get("office").await?;
        Ok(office.status.is_some_and(|status| status.taken.contains_key("two")))
    })
    .await?;

    proxy.hold_watch_events(None);
    world.converged(4).await?;
    replica.process.stop().await?;
    let conflicts: Vec<_> = proxy.writes().into_iter().filter(|write| write.answered == Some(409)).collect();
    assert!(conflicts.is_empty(), "a plan on an old view meets conflicts: {conflicts:?}");
    Ok(())
}

/// Waits until another watch through the same proxy has seen the ticket.
async fn sees(proxy: &FaultProxy, world: &World, name: &str) -> anyhow::Result<()> {
    let tickets: Api<Ticket> = Api::namespaced(proxy.client(), &world.namespace);
    await_condition(tickets, name, |ticket: Option<&Ticket>| ticket.is_some()).await?;
    Ok(())
}

async fn a_bad_object_gets_its_reason_and_the_others_go_on(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, "bad", 2).await?;
    let proxy = proxy(&world, Faults::default()).await?;
    for (name, desk) in [("bad", Some("two words")), ("good", None), ("better", None), ("late", None)] {
        world.tickets().create(&PostParams::default(), &ticket(name, desk)).await?;
    }
    let replica = Replica::start(&proxy, &world)?;
    for (name, reason) in
        [("bad", "InvalidDesk"), ("good", "Numbered"), ("better", "Numbered"), ("late", "NoNumberFree")]
    {
        eventually(&format!("{name} is {reason}"), async || Ok(reason_of(&world, name).await? == reason)).await?;
    }

    // Capacity that is given back wakes who waits for it.
    world.tickets().delete("good", &DeleteParams::default()).await?;
    eventually("late gets the freed number", async || Ok(reason_of(&world, "late").await? == "Numbered")).await?;
    // A mended object is taken up.
    world.tickets().delete("better", &DeleteParams::default()).await?;
    let mended = Patch::Merge(json!({ "spec": { "desk": "west" } }));
    world.tickets().patch("bad", &PatchParams::default(), &mended).await?;
    eventually("bad gets a number", async || Ok(reason_of(&world, "bad").await? == "Numbered")).await?;
    replica.process.stop().await?;
    Ok(())
}

async fn reason_of(world: &World, name: &str) -> anyhow::Result<String> {
    let status = world.tickets().get(name).await?.status.unwrap_or_default();
    Ok(status.conditions.first().map(|condition| condition.reason.clone()).unwrap_or_default())
}

async fn kubectl_waits_on_conditions_and_each_transition_is_told_once(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend, "events", 1).await?;
    let proxy = proxy(&world, Faults::default()).await?;
    world.add_ticket("one").await?;
    world.add_ticket("two").await?;
    let replica = Replica::start(&proxy, &world)?;
    let waited = world.kubectl(&["wait", "--for=condition=Ready", "ticket/one", "--timeout=60s"])?;
    assert!(waited.status.success(), "{waited:?}");
    let shown = world.kubectl(&["get", "ticket", "one", "-o", "jsonpath={.status.conditions[0].reason}"])?;
    assert_eq!(String::from_utf8_lossy(&shown.stdout), "Numbered");
    replica.process.stop().await?;

    // A restart repeats nothing; a transition is told.
    let replica = Replica::start(&proxy, &world)?;
    world.tickets().delete("one", &DeleteParams::default()).await?;
    eventually("two gets the number", async || Ok(reason_of(&world, "two").await? == "Numbered")).await?;
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    let told = async || -> anyhow::Result<Vec<(String, String, String)>> {
        let listed = events.list(&ListParams::default()).await?;
        let about = |event: Event| Some((event.regarding?.name?, event.type_?, event.reason?));
        let mut told: Vec<_> = listed.items.into_iter().filter_map(about).collect();
        told.sort();
        Ok(told)
    };
    // That `one` was fine from the start is no news.
    let expected = [("two", "Normal", "Numbered"), ("two", "Warning", "NoNumberFree")]
        .map(|(name, kind, reason)| (name.to_owned(), kind.to_owned(), reason.to_owned()));
    eventually("two transitions are told", async || Ok(told().await?.len() >= 2)).await?;
    replica.process.stop().await?;
    assert_eq!(told().await?, expected);
    Ok(())
}
