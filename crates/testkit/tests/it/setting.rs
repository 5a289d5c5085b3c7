//! What the tests here begin with, and how they wait.

use std::{future::Future, time::Duration};

use portolan_testkit::{
    ControlPlane, FaultProxy, Faults, install,
    ticket::{Ticket, TicketSpec},
};

/// How long anything may take here before a test fails.
pub(crate) const LIMIT: Duration = Duration::from_mins(3);

/// Waits until `condition` gives a value.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut condition: impl FnMut() -> F) -> T {
    let polling = async {
        loop {
            if let Some(value) = condition().await {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let waited = tokio::time::timeout(LIMIT, polling).await;
    waited.unwrap_or_else(|_| panic!("waited {LIMIT:?} in vain: {what}"))
}

/// Waits for one thing, but not for ever.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("waited {LIMIT:?} in vain: {what}"))
}

/// A replica's view of a namespace of its own in which Tickets are known.
pub(crate) async fn replica(faults: Faults) -> (FaultProxy, String) {
    let plane = ControlPlane::shared();
    install::<Ticket>(plane.client()).await.unwrap();
    let namespace = plane.namespace("replica").await.unwrap();
    (FaultProxy::start(plane.client(), faults).await.unwrap(), namespace)
}

/// A Ticket that asks for something.
pub(crate) fn ticket(name: &str) -> Ticket {
    Ticket::new(name, TicketSpec { text: "a passport".into(), desk: None })
}
