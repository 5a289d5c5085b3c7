//! What happened, as events on the objects and pods concerned.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use portolan_core::mesh::control::types::{MeshKind, ObjectName};
use portolan_core::mesh::control::{Change, Resolver};
use tokio::time::Instant;

use super::act::fleet::{Fleet, ReportDelta};
use super::observe::{Cache, key};
use super::owner::{Owner, display, reference};
use crate::runtime::events::{EventDetails, EventType, Recorder};

/// A proxy that does not answer for this long is reported.
const LONG: Duration = Duration::from_secs(5);
/// Users that an event names, at most.
const MOST_USERS: usize = 10;

/// Records events of the mesh.
#[derive(Clone)]
pub(super) struct MeshEvents {
    recorder: Recorder,
}

impl MeshEvents {
    pub(super) fn new(recorder: Recorder) -> Self {
        Self { recorder }
    }

    /// Something happened to an object.
    pub(super) fn record(
        &self,
        regarding: ObjectReference,
        event_type: EventType,
        (reason, action): (&'static str, &'static str),
        note: &str,
    ) {
        self.recorder.record_on(regarding, event_type, &EventDetails { reason, action, note });
    }

    /// What a proxy would not take, and whose sessions it ended.
    pub(super) fn report(&self, cache: &Cache, report: &ReportDelta) {
        for (owner, text) in &report.refused {
            let note = format!("its proxy refuses {}: {text}", display(owner));
            self.record(pod(cache, &report.pod), EventType::Warning, ("ProxyRejected", "Program"), &note);
        }
        for (owner, text) in &report.cut {
            let note = format!("on pod {}: {text}", report.pod);
            self.record(cache.reference(owner), EventType::Warning, ("SessionsCut", "Program"), &note);
        }
    }

    /// A proxy does not answer, or does again.
    pub(super) fn presence(&self, cache: &Cache, name: &ObjectName, presence: Presence<'_>) {
        let pod = pod(cache, name);
        match presence {
            Presence::Away(why) => {
                let note = format!("its proxy {why}; it keeps its configuration and is retried");
                self.record(pod, EventType::Warning, ("ProxyUnreachable", "Program"), &note);
            }
            Presence::Back => {
                let note = "its proxy answers again and is being reconfigured".to_owned();
                self.record(pod, EventType::Normal, ("ProxyBack", "Program"), &note);
            }
        }
    }

    /// What was deleted although others name it.
    pub(super) fn withdrawn(&self, Withdrawn { object, uid, users }: Withdrawn) {
        let names: Vec<String> = users.iter().take(MOST_USERS).map(display).collect();
        let more = users.len().saturating_sub(MOST_USERS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let note = format!(
            "it was deleted, and {}{more} still refer to it: their routes are withdrawn until it is back",
            names.join(", ")
        );
        let regarding = reference(&object, Some(uid));
        self.record(regarding, EventType::Warning, ("CascadeWithdrawn", "Withdraw"), &note);
    }
}

/// An object that went while others name it.
pub(super) struct Withdrawn {
    object: Owner,
    uid: String,
    users: Vec<Owner>,
}

/// Who named what a change takes away, before it does.
pub(super) fn before(resolver: &Resolver, change: &Change) -> Option<Withdrawn> {
    let Change::Object(kind @ (MeshKind::Target | MeshKind::Route), name, None) = change else { return None };
    let users = resolver.status(*kind, name)?.used_by;
    let uid = resolver.world().objects.get(&(*kind, name.clone()))?.uid.to_string();
    Some(Withdrawn { object: (*kind, name.clone()), uid, users })
}

/// Those of them that lack it now; none if all found something else under the name.
pub(super) fn after(resolver: &Resolver, mut withdrawn: Withdrawn) -> Option<Withdrawn> {
    let lacks = |(kind, name): &Owner| resolver.status(*kind, name).is_some_and(|verdict| !verdict.unmet.is_empty());
    withdrawn.users.retain(lacks);
    (!withdrawn.users.is_empty()).then_some(withdrawn)
}

/// Proxies that do not answer, and since when.
#[derive(Default)]
pub(super) struct Absences {
    since: BTreeMap<ObjectName, Instant>,
    told: BTreeSet<ObjectName>,
}

impl Absences {
    /// Takes note of who is away, and tells of those who are for long and of those who are back. Gives when to look
    /// again.
    pub(super) fn follow(
        &mut self,
        fleet: &Fleet,
        now: Instant,
        mut record: impl FnMut(&ObjectName, Presence<'_>),
    ) -> Option<Instant> {
        let away: BTreeMap<&ObjectName, &str> = fleet.away().collect();
        let Self { since, told } = self;
        since.retain(|pod, _| away.contains_key(pod));
        told.retain(|pod| {
            let stays = away.contains_key(pod);
            if !stays && fleet.has(pod) {
                record(pod, Presence::Back);
            }
            stays
        });
        let mut again: Option<Instant> = None;
        for (pod, why) in away {
            let due = *since.entry(pod.clone()).or_insert(now) + LONG;
            if told.contains(pod) {
                continue;
            }
            if due <= now {
                told.insert(pod.clone());
                record(pod, Presence::Away(why));
            } else {
                again = Some(again.map_or(due, |earlier| earlier.min(due)));
            }
        }
        again
    }
}

/// Whether a proxy answers.
#[derive(Clone, Copy)]
pub(super) enum Presence<'a> {
    Away(&'a str),
    Back,
}

fn pod(cache: &Cache, name: &ObjectName) -> ObjectReference {
    let seen = cache.pods.get(&key(name));
    let plain = || ObjectReference {
        kind: Some("Pod".to_owned()),
        name: Some(name.name.to_string()),
        namespace: Some(name.namespace.to_string()),
        ..ObjectReference::default()
    };
    seen.map_or_else(plain, |pod| pod.object_ref(&()))
}
