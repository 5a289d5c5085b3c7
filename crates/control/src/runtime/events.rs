//! Events that a person can act on, sent on transitions only.
//!
//! What is a transition is read from the conditions that were recorded before, so a restart repeats nothing.
//! The name of an event follows from the transition, so a retry after a crash makes no second one.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, ObjectMeta};
use kube::{Client, Resource};
use tracing::debug;
use xxhash_rust::xxh3::xxh3_64;

use super::conditions::{find, transitions};
use super::endpoint::Endpoint;

/// Sends events in the name of one controller.
#[derive(Clone)]
pub struct Recorder {
    client: Client,
    controller: String,
    instance: String,
}

impl Recorder {
    /// `controller` is who reports, `instance` which replica of it.
    pub fn new(client: Client, controller: &str, instance: &str) -> Self {
        Self { client, controller: controller.to_owned(), instance: instance.to_owned() }
    }

    /// Tells each condition that moved between `seen` and `now`. That an object is fine from the start is no news.
    pub async fn tell<K: Resource<DynamicType = ()>>(&self, object: &K, seen: &[Condition], now: &[Condition]) {
        let moved = transitions(seen, now);
        for (place, condition) in moved.iter().enumerate() {
            let fine = condition.status == "True";
            // that something is not in force because it is refused is told with the refusal
            let is_told = |one: &&Condition| (&one.status, &one.reason) == (&condition.status, &condition.reason);
            if (fine && find(seen, &condition.type_).is_none()) || moved[..place].iter().any(is_told) {
                continue;
            }
            let what = What { reason: &condition.reason, action: &condition.type_, note: &condition.message };
            self.report(object, if condition.status == "False" { Tone::Warning } else { Tone::Normal }, &what).await;
        }
    }

    /// Tells what happened to an object. An event that cannot be sent is dropped; one that was sent already for this
    /// version of the object is not repeated.
    pub async fn report<K: Resource<DynamicType = ()>>(&self, object: &K, tone: Tone, what: &What<'_>) {
        self.report_on(object.object_ref(&()), tone, what).await;
    }

    /// The same for an object that is known by its reference.
    pub async fn report_on(&self, regarding: ObjectReference, tone: Tone, what: &What<'_>) {
        let event = self.event(regarding, tone, what);
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        match Endpoint::<Event>::new(&self.client, &namespace).create(&event).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(problem) => debug!(%problem, reason = what.reason, "event not sent"),
        }
    }

    fn event(&self, regarding: ObjectReference, tone: Tone, what: &What<'_>) -> Event {
        let namespace = regarding.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let moment = format!(
            "{}|{}|{}|{}|{}",
            regarding.uid.as_deref().unwrap_or_default(),
            what.action,
            what.reason,
            what.note,
            regarding.resource_version.as_deref().unwrap_or_default(),
        );
        let about = regarding.name.as_deref().unwrap_or_default();
        let about = about[..about.floor_char_boundary(LONGEST_NAME - 17)].trim_end_matches(['.', '-']);
        let name = format!("{about}.{:016x}", xxh3_64(moment.as_bytes()));
        Event {
            metadata: ObjectMeta { name: Some(name), namespace: Some(namespace), ..ObjectMeta::default() },
            action: Some(what.action.to_owned()),
            event_time: Some(MicroTime(Timestamp::now())),
            note: Some(limited(what.note)),
            reason: Some(what.reason.to_owned()),
            regarding: Some(regarding),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(match tone {
                Tone::Normal => "Normal".to_owned(),
                Tone::Warning => "Warning".to_owned(),
            }),
            ..Event::default()
        }
    }
}

/// Whether the user must act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Good to know.
    Normal,
    /// The user must act.
    Warning,
}

/// What happened: a reason from the bounded vocabulary, what was being done, and a note for people.
#[derive(Debug, Clone, Copy)]
pub struct What<'a> {
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
}
