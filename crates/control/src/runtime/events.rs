//! Events that a person can act on, sent on transitions only.
//!
//! What is a transition is read from the conditions that were recorded before, so a restart repeats nothing.
//! The name of an event follows from the transition, so a retry after a crash makes no second one.
//!
//! Events leave by a bounded queue with a worker of its own: nobody waits for them, and what does not fit is counted
//! and dropped.

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, ObjectMeta};
use kube::{Client, Resource};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::debug;
use xxhash_rust::xxh3::xxh3_64;

use super::conditions::{find, transitions};
use super::endpoint::Endpoint;
use super::metrics::Metrics;

/// Events that wait to be sent, at most; further ones are dropped and counted.
pub const CAPACITY: usize = 8_192;
/// Events under way at a time.
const AT_ONCE: usize = 16;

/// The entrance of a process's event queue. Clones are the same queue.
#[derive(Clone)]
pub struct EventQueue {
    queue: mpsc::Sender<Event>,
    metrics: Metrics,
}

/// The exit of a process's event queue.
pub struct EventSender {
    client: Client,
    queue: mpsc::Receiver<Event>,
}

/// Makes a queue; nothing is sent until its sender runs.
pub fn queue(client: Client, metrics: Metrics) -> (EventQueue, EventSender) {
    let (entrance, exit) = mpsc::channel(CAPACITY);
    (EventQueue { queue: entrance, metrics }, EventSender { client, queue: exit })
}

impl EventQueue {
    fn add(&self, event: Event) {
        if self.queue.try_send(event).is_err() {
            self.metrics.events_dropped.inc();
        }
    }
}

impl EventSender {
    /// Sends until stopped, then what still waits.
    pub async fn run(self, stop: CancellationToken) {
        let Self { client, queue } = self;
        let events = futures::stream::unfold((queue, stop), async |(mut queue, stop)| {
            let event = tokio::select! {
                biased;
                event = queue.recv() => event,
                () = stop.cancelled() => queue.try_recv().ok(),
            };
            event.map(|event| (event, (queue, stop)))
        });
        events.for_each_concurrent(AT_ONCE, |event| send(&client, event)).await;
    }
}

/// An event that cannot be sent is dropped; one that was sent already is not repeated.
async fn send(client: &Client, event: Event) {
    let namespace = event.metadata.namespace.clone().unwrap_or_default();
    match Endpoint::<Event>::new(client, &namespace).create(&event).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(problem) => debug!(%problem, reason = event.reason, "event not sent"),
    }
}

/// Records events in the name of one controller.
#[derive(Clone)]
pub struct Recorder {
    queue: EventQueue,
    controller: String,
    instance: String,
}

impl Recorder {
    /// `controller` is who reports, `instance` which replica of it.
    pub fn new(queue: EventQueue, controller: &str, instance: &str) -> Self {
        Self { queue, controller: controller.to_owned(), instance: instance.to_owned() }
    }

    /// Records each condition that changed between `seen` and `now`. An object that is fine from the start gives none.
    pub fn transitions<K: Resource<DynamicType = ()>>(&self, object: &K, seen: &[Condition], now: &[Condition]) {
        let moved = transitions(seen, now);
        for (place, condition) in moved.iter().enumerate() {
            let fine = condition.status == "True";
            // several conditions that are false for the same reason give one event
            let is_same = |one: &&Condition| (&one.status, &one.reason) == (&condition.status, &condition.reason);
            if (fine && find(seen, &condition.type_).is_none()) || moved[..place].iter().any(is_same) {
                continue;
            }
            let details =
                EventDetails { reason: &condition.reason, action: &condition.type_, note: &condition.message };
            let event_type = if condition.status == "False" { EventType::Warning } else { EventType::Normal };
            self.record(object, event_type, &details);
        }
    }

    /// Records what happened to an object, once per version of the object.
    pub fn record<K: Resource<DynamicType = ()>>(&self, object: &K, event_type: EventType, details: &EventDetails<'_>) {
        self.record_on(object.object_ref(&()), event_type, details);
    }

    /// The same for an object that is known by its reference.
    pub fn record_on(&self, regarding: ObjectReference, event_type: EventType, details: &EventDetails<'_>) {
        self.queue.add(self.event(regarding, event_type, details));
    }

    fn event(&self, regarding: ObjectReference, event_type: EventType, details: &EventDetails<'_>) -> Event {
        let namespace = regarding.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let moment = format!(
            "{}|{}|{}|{}|{}",
            regarding.uid.as_deref().unwrap_or_default(),
            details.action,
            details.reason,
            details.note,
            regarding.resource_version.as_deref().unwrap_or_default(),
        );
        let about = regarding.name.as_deref().unwrap_or_default();
        let about = about[..about.floor_char_boundary(LONGEST_NAME - 17)].trim_end_matches(['.', '-']);
        let name = format!("{about}.{:016x}", xxh3_64(moment.as_bytes()));
        Event {
            metadata: ObjectMeta { name: Some(name), namespace: Some(namespace), ..ObjectMeta::default() },
            action: Some(details.action.to_owned()),
            event_time: Some(MicroTime(Timestamp::now())),
            note: Some(limited(details.note)),
            reason: Some(details.reason.to_owned()),
            regarding: Some(regarding),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(match event_type {
                EventType::Normal => "Normal".to_owned(),
                EventType::Warning => "Warning".to_owned(),
            }),
            ..Event::default()
        }
    }
}

/// Whether the user must act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// Good to know.
    Normal,
    /// The user must act.
    Warning,
}

/// What happened: a reason from the bounded vocabulary, what was being done, and a note for people.
#[derive(Debug, Clone, Copy)]
pub struct EventDetails<'a> {
    pub reason: &'a str,
    pub action: &'a str,
    pub note: &'a str,
}

/// The API server refuses names over 253 bytes.
const LONGEST_NAME: usize = 253;

/// The API server refuses notes over 1,024 bytes.
fn limited(note: &str) -> String {
    note[..note.floor_char_boundary(1024)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_note_is_cut_at_a_character() {
        let note = format!("{}é", "x".repeat(1023));
        assert_eq!(limited(&note).len(), 1023);
        assert_eq!(limited("short"), "short");
    }

    #[tokio::test]
    async fn what_does_not_fit_is_counted_and_nobody_waits() {
        let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
        let (entrance, _exit) = queue(unused_client(), metrics.clone());
        let recorder = Recorder::new(entrance, "portolan-test", "test");
        let details = EventDetails { reason: "Test", action: "Test", note: "" };
        for _ in 0..CAPACITY + 3 {
            recorder.record_on(ObjectReference::default(), EventType::Normal, &details);
        }
        assert_eq!(metrics.events_dropped.get(), 3);
    }

    fn unused_client() -> Client {
        type Answer = Result<http::Response<kube::client::Body>, tower::BoxError>;
        Client::new(tower::service_fn(async |_| -> Answer { Err("unused".into()) }), "ns")
    }
}
