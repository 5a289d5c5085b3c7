//! Tells what happened as events, in its own time: nobody waits for them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use portolan_core::mesh::control::types::{MeshKind, ObjectName};
use portolan_core::mesh::control::{Change, Resolver};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::fleet::{Fleet, News, Owner};
use super::observe::{Cache, key};
use crate::runtime::app::Ctx;
use crate::runtime::events::{Recorder, Tone, What};

/// Events that wait to be sent, at most; beyond that they are dropped.
const MOST_WAITING: usize = 1000;
/// A proxy that does not answer for this long is told of.
const LONG: Duration = Duration::from_secs(5);
/// Users that an event names, at most.
const MOST_USERS: usize = 10;

struct Event {
    regarding: ObjectReference,
    tone: Tone,
    reason: &'static str,
    action: &'static str,
    note: String,
}

/// Sends events, one after the other.
#[derive(Clone)]
pub(super) struct Teller {
    queue: mpsc::Sender<Event>,
}

impl Teller {
    pub(super) fn start(ctx: &Ctx) -> Self {
        let (queue, events) = mpsc::channel(MOST_WAITING);
        let (recorder, stop) = (ctx.recorder("mesh"), ctx.tasks.stop());
        ctx.tasks.spawn("mesh events", async move {
            tokio::select! { () = stop.cancelled() => {} () = send(recorder, events) => {} }
        });
        Self { queue }
    }

    /// Something happened to an object.
    pub(super) fn tell(
        &self,
        regarding: ObjectReference,
        tone: Tone,
        (reason, action): (&'static str, &'static str),
        note: String,
    ) {
        drop(self.queue.try_send(Event { regarding, tone, reason, action, note }));
    }

    /// What a proxy would not take, and whose sessions it ended.
    pub(super) fn news(&self, cache: &Cache, news: &News) {
        for (owner, text) in &news.refused {
            let note = format!("its proxy refuses {}: {text}", told(owner));
            self.tell(pod(cache, &news.pod), Tone::Warning, ("ProxyRejected", "Program"), note);
        }
        for (owner, text) in &news.cut {
            let note = format!("on pod {}: {text}", news.pod);
            self.tell(cache.reference(owner), Tone::Warning, ("SessionsCut", "Program"), note);
        }
    }

    /// A proxy does not answer, or does again.
    pub(super) fn presence(&self, cache: &Cache, name: &ObjectName, presence: Presence<'_>) {
        let pod = pod(cache, name);
        match presence {
            Presence::Away(why) => {
                let note = format!("its proxy {why}; it keeps what it holds, and is tried again and again");
                self.tell(pod, Tone::Warning, ("ProxyUnreachable", "Program"), note);
            }
            Presence::Back => {
                let note = "its proxy answers again, and is brought to what it should hold".to_owned();
                self.tell(pod, Tone::Normal, ("ProxyBack", "Program"), note);
            }
        }
    }

    /// What was deleted although others name it.
    pub(super) fn withdrawn(&self, Withdrawn { object, uid, users }: Withdrawn) {
        let names: Vec<String> = users.iter().take(MOST_USERS).map(told).collect();
        let more = users.len().saturating_sub(MOST_USERS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let note = format!(
            "it was deleted, and {}{more} still name it: their ways are withdrawn until it is back",
            names.join(", ")
        );
        let regarding = reference(&object, Some(uid));
        self.tell(regarding, Tone::Warning, ("CascadeWithdrawn", "Withdraw"), note);
    }
}

async fn send(recorder: Recorder, mut events: mpsc::Receiver<Event>) {
    while let Some(Event { regarding, tone, reason, action, note }) = events.recv().await {
        recorder.report_on(regarding, tone, &What { reason, action, note: &note }).await;
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
        mut tell: impl FnMut(&ObjectName, Presence<'_>),
    ) -> Option<Instant> {
        let away: BTreeMap<&ObjectName, &str> = fleet.away().collect();
        let Self { since, told } = self;
        since.retain(|pod, _| away.contains_key(pod));
        told.retain(|pod| {
            let stays = away.contains_key(pod);
            if !stays && fleet.has(pod) {
                tell(pod, Presence::Back);
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
                tell(pod, Presence::Away(why));
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

/// An object as people name it.
pub(super) fn told((kind, name): &Owner) -> String {
    format!("{} {name}", kind.as_str())
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

/// An object of the mesh, or a Service, as events name it.
pub(super) fn reference((kind, name): &Owner, uid: Option<String>) -> ObjectReference {
    ObjectReference {
        api_version: Some(if *kind == MeshKind::Service { "v1" } else { "l7mp.io/v1" }.to_owned()),
        kind: Some(kind.as_str().to_owned()),
        name: Some(name.name.to_string()),
        namespace: Some(name.namespace.to_string()),
        uid,
        ..ObjectReference::default()
    }
}
