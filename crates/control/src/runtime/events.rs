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

use super::conditions::transitions;
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

    /// Tells each condition that moved between `seen` and `now`. An event that cannot be sent is dropped.
    pub async fn tell<K: Resource<DynamicType = ()>>(&self, object: &K, seen: &[Condition], now: &[Condition]) {
        for condition in transitions(seen, now) {
            let event = self.event(object, condition);
            let namespace = event.metadata.namespace.clone().unwrap_or_default();
            match Endpoint::<Event>::new(&self.client, &namespace).create(&event).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                Err(problem) => debug!(%problem, reason = condition.reason, "event not sent"),
            }
        }
    }

    fn event<K: Resource<DynamicType = ()>>(&self, object: &K, condition: &Condition) -> Event {
        let regarding: ObjectReference = object.object_ref(&());
        let namespace = regarding.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let moment = format!(
            "{}|{}|{}|{}|{}",
            regarding.uid.as_deref().unwrap_or_default(),
            condition.type_,
            condition.status,
            condition.reason,
            regarding.resource_version.as_deref().unwrap_or_default(),
        );
        let name = format!("{}.{:016x}", regarding.name.as_deref().unwrap_or_default(), xxh3_64(moment.as_bytes()));
        Event {
            metadata: ObjectMeta { name: Some(name), namespace: Some(namespace), ..ObjectMeta::default() },
            action: Some(condition.type_.clone()),
            event_time: Some(MicroTime(Timestamp::now())),
            note: Some(limited(&condition.message)),
            reason: Some(condition.reason.clone()),
            regarding: Some(regarding),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(if condition.status == "False" { "Warning" } else { "Normal" }.to_owned()),
            ..Event::default()
        }
    }
}

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
