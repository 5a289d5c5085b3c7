//! Faults of watches: cut, expired, frozen, held.

use std::{collections::BTreeSet, pin::pin, time::Duration};

use futures::{Stream, StreamExt, TryStreamExt, stream::BoxStream};
use kube::{
    Api, Error, ResourceExt,
    api::{ListParams, PostParams, WatchEvent, WatchParams},
    runtime::{WatchStreamExt, watcher},
};
use portolan_testkit::{ControlPlane, Exchange, Fault, Faults, WatchStep, ticket::Ticket};

use super::setting::{replica, soon, ticket, until};

/// Long enough for an event to come if one does; only used to see that none comes.
const QUIET: Duration = Duration::from_millis(300);

#[tokio::test]
async fn a_frozen_view_stays_at_its_revision() {
    let (proxy, namespace) = replica(Faults::default()).await;
    let direct: Api<Ticket> = Api::namespaced(ControlPlane::shared().client(), &namespace);
    let tickets: Api<Ticket> = Api::namespaced(proxy.client(), &namespace);
    let before = add(&direct, "before").await;
    let last = add(&direct, "last").await;
    let mut watch = open(&tickets, &before).await;
    assert_eq!(name_of(watch.next()).await, "last");

    proxy.freeze_at(Some(last.parse().unwrap()));
    add(&direct, "after").await;
    assert_eq!(names(&tickets).await, ["before", "last"]);
    assert_eq!(names(&direct).await, ["after", "before", "last"]);
    assert!(is_quiet(&mut watch).await, "an open watch falls silent");
    let mut late = open(&tickets, &before).await;
    assert_eq!(name_of(late.next()).await, "last");
    assert!(is_quiet(&mut late).await, "so does one opened since");
    let page = tickets.list(&ListParams::default().limit(1)).await.unwrap();
    let next = ListParams::default().limit(1).continue_token(&page.metadata.continue_.unwrap());
    assert_eq!(tickets.list(&next).await.unwrap().items[0].name_any(), "last", "pages are of that version too");

    proxy.freeze_at(None);
    assert!(is_over(&mut watch).await);
    assert_eq!(names(&tickets).await, ["after", "before", "last"]);
    let mut resumed = open(&tickets, &last).await;
    assert_eq!(name_of(resumed.next()).await, "after");
}

#[tokio::test]
async fn a_watch_is_cut_and_expired_where_the_script_says() {
    let (proxy, namespace) = replica(Faults::default()).await;
    let tickets: Api<Ticket> = Api::namespaced(proxy.client(), &namespace);
    let start = version(&tickets).await;
    for name in ["one", "two", "three", "four"] {
        add(&tickets, name).await;
    }
    let path = format!("namespaces/{namespace}/tickets");
    let steps = [
        WatchStep::Pass(2),
        WatchStep::Cut,
        WatchStep::ExpireOnOpen,
        WatchStep::Lose(1),
        WatchStep::Pass(1),
        WatchStep::ExpireInStream,
        WatchStep::Pass(3),
        WatchStep::End,
    ];
    proxy.script_watch(&path, steps.to_vec());

    let mut cut = open(&tickets, &start).await;
    assert_eq!((name_of(cut.next()).await, name_of(cut.next()).await), ("one".into(), "two".into()));
    assert!(is_over(&mut cut).await);

    let refused = tickets.watch(&WatchParams::default(), &start).await.err();
    assert!(matches!(&refused, Some(Error::Api(status)) if status.code == 410), "{refused:?}");

    let mut expiring = open(&tickets, &start).await;
    assert_eq!(name_of(expiring.next()).await, "two", "the first is lost");
    let expired = soon("the error", expiring.next()).await;
    assert!(matches!(&expired, Some(Ok(WatchEvent::Error(status))) if status.code == 410), "{expired:?}");
    assert!(is_over(&mut expiring).await);

    assert_eq!(proxy.script_left(&path), 2);
    let ended: Vec<_> = soon("the end", open(&tickets, &start).await.try_collect()).await.unwrap();
    assert_eq!(ended.len(), 3);
    assert_eq!(proxy.script_left(&path), 0);

    let mut whole = open(&tickets, &start).await;
    for name in ["one", "two", "three", "four"] {
        assert_eq!(name_of(whole.next()).await, name, "after the script all pass");
    }
    let faults: Vec<_> = proxy.trace().into_iter().filter(Exchange::is_watch).map(|exchange| exchange.fault).collect();
    let cut = Some(Fault::CutWatch);
    assert_eq!(faults, [cut, Some(Fault::Gone), cut, cut, None]);
}

#[tokio::test]
async fn a_script_and_a_cut_reach_watches_that_are_open() {
    let (proxy, namespace) = replica(Faults::default()).await;
    let tickets: Api<Ticket> = Api::namespaced(proxy.client(), &namespace);
    let start = version(&tickets).await;

    let mut ended = open(&tickets, &start).await;
    proxy.script_watch("tickets", vec![WatchStep::End]);
    assert!(is_over(&mut ended).await);

    let mut cut = open(&tickets, &start).await;
    proxy.cut_watches();
    assert!(is_over(&mut cut).await);

    let mut fresh = open(&tickets, &start).await;
    add(&tickets, "later").await;
    assert_eq!(name_of(fresh.next()).await, "later", "a cut does not reach watches opened since");
}

#[tokio::test]
async fn held_events_come_when_they_are_let_go() {
    let (proxy, namespace) = replica(Faults::default()).await;
    let tickets: Api<Ticket> = Api::namespaced(proxy.client(), &namespace);
    let mut watch = open(&tickets, &version(&tickets).await).await;
    proxy.hold_watch_events(Some("tickets"));
    add(&tickets, "held").await;
    assert!(is_quiet(&mut watch).await);
    proxy.hold_watch_events(None);
    assert_eq!(name_of(watch.next()).await, "held");
}

#[tokio::test]
async fn a_watcher_sees_everything_through_broken_watches() {
    let faults = Faults { seed: 3, cut_watch: 0.5, gone: 0.3, server_error: 0.1, throttle: 0.1, ..Faults::default() };
    let (proxy, namespace) = replica(faults).await;
    let direct: Api<Ticket> = Api::namespaced(ControlPlane::shared().client(), &namespace);
    let tickets: Api<Ticket> = Api::namespaced(proxy.client(), &namespace);
    let mut seen = pin!(watcher(tickets, watcher::Config::default()).touched_objects());
    let wanted: BTreeSet<String> = (0..10).map(|n| format!("t{n}")).collect();
    let adding = async {
        until("a watch is open", async || proxy.trace().iter().find(|sent| sent.is_watch()).map(drop)).await;
        for name in &wanted {
            add(&direct, name).await;
        }
    };
    let seeing = async {
        let mut got = BTreeSet::new();
        while got != wanted {
            if let Ok(object) = seen.next().await.unwrap() {
                got.insert(object.name_any());
            }
        }
    };
    soon("every object is seen", async { tokio::join!(adding, seeing) }).await;
    assert!(proxy.trace().iter().any(|exchange| exchange.fault == Some(Fault::CutWatch)), "something was cut");
}

async fn add(tickets: &Api<Ticket>, name: &str) -> String {
    tickets.create(&PostParams::default(), &ticket(name)).await.unwrap().resource_version().unwrap()
}

async fn version(tickets: &Api<Ticket>) -> String {
    tickets.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap()
}

async fn names(tickets: &Api<Ticket>) -> Vec<String> {
    tickets.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect()
}

async fn open(tickets: &Api<Ticket>, version: &str) -> BoxStream<'static, Result<WatchEvent<Ticket>, Error>> {
    tickets.watch(&WatchParams::default(), version).await.unwrap().boxed()
}

async fn name_of(event: impl Future<Output = Option<Result<WatchEvent<Ticket>, Error>>>) -> String {
    match soon("an event", event).await {
        Some(Ok(WatchEvent::Added(ticket))) => ticket.name_any(),
        other => panic!("{other:?}"),
    }
}

/// Whether a stream ends next; kube takes a connection that was cut for an end.
async fn is_over<T>(watch: &mut (impl Stream<Item = Result<T, Error>> + Unpin)) -> bool {
    matches!(soon("the end of the stream", watch.next()).await, None | Some(Err(_)))
}

async fn is_quiet(watch: &mut (impl Stream + Unpin)) -> bool {
    tokio::time::timeout(QUIET, watch.next()).await.is_err()
}
