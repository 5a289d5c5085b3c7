//! Faults of single requests, and killed replicas.

use std::time::Duration;

use futures::StreamExt;
use kube::{
    Api, Error,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams},
};
use portolan_testkit::{ControlPlane, Exchange, Fault, FaultProxy, Faults, Phase, ticket::Ticket};
use serde_json::json;

use super::setting::{replica, soon, ticket};

#[tokio::test]
async fn a_dropped_answer_still_committed() {
    let (proxy, namespace) = replica(Faults { drop_after: 1.0, ..Faults::default() }).await;
    let tickets: Api<Ticket> = Api::namespaced(proxy.client(), &namespace);
    let lost = tickets.create(&PostParams::default(), &ticket("lost")).await.unwrap_err();
    assert!(!matches!(lost, Error::Api(_)), "no answer came: {lost}");

    proxy.set_faults(Faults::default());
    tickets.get("lost").await.unwrap();
    let writes = proxy.writes();
    assert_eq!(writes.len(), 1);
    let Exchange { upstream, answered, fault, .. } = writes[0];
    assert_eq!((upstream, answered, fault), (Some(201), None, Some(Fault::DroppedAfter)));
}

#[tokio::test]
async fn an_answer_can_break_off_in_the_middle() {
    let (proxy, namespace) = replica(Faults::default()).await;
    let tickets: Api<Ticket> = Api::namespaced(proxy.client(), &namespace);
    tickets.create(&PostParams::default(), &ticket("whole")).await.unwrap();
    proxy.set_faults(Faults { cut_answer: 1.0, ..Faults::default() });
    let broken = tickets.get("whole").await.unwrap_err();
    assert!(!matches!(broken, Error::Api(_) | Error::SerdeError(_)), "half an answer is no answer: {broken:?}");
    let last = proxy.trace().pop().unwrap();
    assert_eq!((last.upstream, last.answered, last.fault), (Some(200), Some(200), Some(Fault::CutAnswer)));
}

#[tokio::test]
async fn a_watch_whose_answer_is_dropped_does_not_hang() {
    let (proxy, namespace) = replica(Faults { drop_after: 1.0, ..Faults::default() }).await;
    let tickets: Api<Ticket> = Api::namespaced(proxy.client(), &namespace);
    let dropped = soon("the request fails", tickets.watch(&WatchParams::default(), "0")).await;
    assert!(dropped.is_err());
    assert_eq!(proxy.trace()[0].upstream, Some(200));
}

#[tokio::test]
async fn a_dropped_request_never_commits() {
    let (proxy, namespace) = replica(Faults { drop_before: 1.0, ..Faults::default() }).await;
    let tickets: Api<Ticket> = Api::namespaced(proxy.client(), &namespace);
    tickets.create(&PostParams::default(), &ticket("never")).await.unwrap_err();

    proxy.set_faults(Faults::default());
    assert!(tickets.get_opt("never").await.unwrap().is_none());
    assert_eq!((proxy.writes()[0].upstream, proxy.writes()[0].fault), (None, Some(Fault::DroppedBefore)));
}

#[tokio::test]
async fn a_killed_replica_is_cut_off_at_the_phase_asked_for() {
    for phase in [Phase::BeforeSend, Phase::AfterCommit, Phase::AfterAnswer] {
        let (proxy, namespace) = replica(Faults::default()).await;
        let tickets: Api<Ticket> = Api::namespaced(proxy.client(), &namespace);
        let mut watch = tickets.watch(&WatchParams::default(), "0").await.unwrap().boxed();
        let killed = proxy.kill_at_write(2, phase);

        tickets.create(&PostParams::default(), &ticket("first")).await.unwrap();
        let second = tickets.create(&PostParams::default(), &ticket("second")).await;
        assert_eq!(second.is_ok(), phase == Phase::AfterAnswer, "{phase:?}: {second:?}");
        tickets.create(&PostParams::default(), &ticket("third")).await.unwrap_err();
        soon("the receiver fires", killed).await.unwrap();
        assert!(!proxy.is_alive());

        let direct: Api<Ticket> = Api::namespaced(ControlPlane::shared().client(), &namespace);
        let committed = direct.get_opt("second").await.unwrap().is_some();
        assert_eq!(committed, phase != Phase::BeforeSend, "{phase:?}");
        assert!(direct.get_opt("third").await.unwrap().is_none(), "{phase:?}: nothing comes after");
        let cut = soon("the watch of a dead replica ends", async {
            while watch.next().await.is_some_and(|event| event.is_ok()) {}
        });
        cut.await;
        tickets.list(&ListParams::default()).await.unwrap_err();
        Api::<Ticket>::namespaced(proxy.client(), &namespace).list(&ListParams::default()).await.unwrap_err();

        proxy.revive();
        assert!(tickets.get("first").await.is_ok(), "{phase:?}: it serves again");
        let writes = proxy.writes();
        assert_eq!(writes.len(), 2);
        assert_eq!((writes[0].fault, writes[1].fault), (None, Some(Fault::Killed(phase))));
    }
}

#[tokio::test]
async fn a_kill_can_leave_leases_and_dry_runs_out_of_the_count() {
    let (proxy, namespace) = replica(Faults::default()).await;
    let killed = proxy.kill_at(1, Phase::BeforeSend, |exchange| exchange.is_write() && !exchange.is_lease());
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> = Api::namespaced(proxy.client(), &namespace);
    let lease = serde_json::from_value(json!({ "metadata": { "name": "leader" } })).unwrap();
    leases.create(&PostParams::default(), &lease).await.unwrap();
    let tickets: Api<Ticket> = Api::namespaced(proxy.client(), &namespace);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    tickets.create(&dry, &ticket("dry")).await.unwrap();
    assert!(proxy.is_alive());

    tickets.create(&PostParams::default(), &ticket("wet")).await.unwrap_err();
    soon("the receiver fires", killed).await.unwrap();
    assert_eq!((proxy.writes().len(), proxy.writes_but_leases().len()), (2, 1));
}

#[tokio::test]
async fn a_kill_waits_for_the_writes_under_way() {
    let (proxy, namespace) = replica(Faults::default()).await;
    let tickets: Api<Ticket> = Api::namespaced(proxy.client(), &namespace);
    let writing = (0..20).map(|n| {
        let tickets = tickets.clone();
        async move { tickets.create(&PostParams::default(), &ticket(&format!("t{n}"))).await }
    });
    let killed = proxy.kill_at_write(10, Phase::AfterCommit);
    let (_, killed) = tokio::join!(futures::future::join_all(writing), killed);
    killed.unwrap();

    // What the trace says was committed is all there is, and nothing comes later.
    let said = proxy.writes().iter().filter(|write| write.upstream == Some(201)).count();
    let direct: Api<Ticket> = Api::namespaced(ControlPlane::shared().client(), &namespace);
    assert_eq!(direct.list(&ListParams::default()).await.unwrap().items.len(), said);
    assert!(proxy.writes().iter().all(|write| write.finished.is_some()));
}

#[tokio::test]
async fn the_same_seed_gives_the_same_faults() {
    let storm = |seed| Faults {
        seed,
        delay: Some((0.2, Duration::from_millis(2))),
        drop_before: 0.1,
        drop_after: 0.1,
        conflict: 0.3,
        throttle: 0.1,
        server_error: 0.1,
        ..Faults::default()
    };
    let mut met = Vec::new();
    for seed in [1, 1, 2] {
        let (proxy, namespace) = replica(storm(seed)).await;
        let tickets: Api<Ticket> = Api::namespaced(proxy.client(), &namespace);
        for n in 0..40 {
            let patch = Patch::Merge(json!({ "spec": { "desk": n.to_string() } }));
            tickets.patch("none", &PatchParams::default(), &patch).await.unwrap_err();
        }
        let trace = proxy.trace();
        assert_eq!(trace.len(), 40, "the client retries nothing by itself");
        met.push(trace.into_iter().map(|exchange| (exchange.fault, exchange.delayed)).collect::<Vec<_>>());
    }
    assert_eq!(met[0], met[1]);
    assert_ne!(met[0], met[2]);
}

#[tokio::test]
async fn faults_are_worded_as_an_api_server_does() {
    let (proxy, namespace) = replica(Faults::default()).await;
    let tickets: Api<Ticket> = Api::namespaced(proxy.client(), &namespace);
    tickets.create(&PostParams::default(), &ticket("here")).await.unwrap();

    proxy.set_faults(Faults { conflict: 1.0, ..Faults::default() });
    let Err(Error::Api(conflict)) = tickets.delete("here", &DeleteParams::default()).await else { panic!("no fault") };
    assert_eq!((conflict.code, &*conflict.reason), (409, "Conflict"));
    tickets.create(&PostParams::default(), &ticket("created")).await.unwrap();

    proxy.set_faults(Faults { throttle: 1.0, ..Faults::default() });
    let Err(Error::Api(throttled)) = tickets.get("here").await else { panic!("no fault") };
    assert_eq!((throttled.code, throttled.details.as_ref().unwrap().retry_after_seconds), (429, 1));

    proxy.set_faults(Faults { server_error: 1.0, ..Faults::default() });
    let Err(Error::Api(broken)) = tickets.get("here").await else { panic!("no fault") };
    assert!([500, 503].contains(&broken.code));

    proxy.set_faults(Faults { gone: 1.0, ..Faults::default() });
    let page = tickets.list(&ListParams::default().limit(1)).await.unwrap();
    let next = ListParams::default().limit(1).continue_token(&page.metadata.continue_.unwrap());
    let Err(Error::Api(gone)) = tickets.list(&next).await else { panic!("no fault") };
    assert_eq!((gone.code, &*gone.reason), (410, "Expired"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_goes_through_a_proxy_by_its_kubeconfig() {
    let (proxy, namespace) = replica(Faults::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    proxy.write_kubeconfig(&kubeconfig).unwrap();
    let mut kubectl = ControlPlane::shared().kubectl();
    kubectl.env("KUBECONFIG", &kubeconfig).args(["create", "configmap", "made", "-n", &namespace]);
    let output = tokio::task::spawn_blocking(move || kubectl.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{output:?}");
    let writes = proxy.writes();
    assert!(writes.len() == 1 && writes[0].user_agent.starts_with("kubectl"), "{writes:?}");
}

#[tokio::test]
async fn a_proxy_that_is_dropped_closes_its_port() {
    let (proxy, namespace) = replica(Faults::default()).await;
    let tickets: Api<Ticket> = Api::namespaced(proxy.client(), &namespace);
    tickets.list(&ListParams::default()).await.unwrap();
    drop::<FaultProxy>(proxy);
    soon("the request fails", tickets.list(&ListParams::default())).await.unwrap_err();
}
