//! Garbage collection by owner references, for every kind of the server.
//!
//! The watches keep a view of everything; when something in it goes, begins to go or has owners, the view is swept. It
//! only says whom to look at: before anything is deleted the server is asked again, and the deletion carries uid and
//! version as preconditions. A stale view costs a request, never an object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::stream::{BoxStream, SelectAll};
use futures::{FutureExt, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::DynamicObject;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::discover::{self, Served};
use super::{Pace, code};

/// The finalizer of an object that waits until its dependents are deleted.
const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object that waits until its dependents have forgotten it.
const ORPHAN: &str = "orphan";

/// The loop.
pub struct Garbage;

impl Garbage {
    /// Runs until told to stop.
    pub async fn run(self, client: Client, stop: CancellationToken) {
        stop.run_until_cancelled(Box::pin(collect(client))).await;
    }
}

async fn collect(client: Client) {
    let mut kinds = std::pin::pin!(discover::changes(client.clone()));
    // What of each change a sweep may find something in.
    let mut touched: SelectAll<BoxStream<'static, ()>> = SelectAll::new();
    let mut collector = Collector { client, watched: BTreeMap::new() };
    let mut pace = Pace::default();
    loop {
        tokio::select! {
            biased;
            Some(kinds) = kinds.next() => {
                collector.follow(kinds, &mut touched);
                pace.touch();
            }
            Some(()) = touched.next(), if !touched.is_empty() => pace.touch(),
            () = pace.due() => pace.worked(collector.sweep().await),
        }
    }
}

/// Why an object must be looked at again.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Server(#[from] kube::Error),
    #[error("not every kind has been listed, or the kind of an owner is unknown, or the view is old")]
    Unsure,
}

struct Collector {
    client: Client,
    watched: BTreeMap<Served, (Store<DynamicObject>, CancellationToken)>,
}

/// Everything that goes or has owners, by uid, and who names whom as owner.
#[derive(Default)]
struct View<'a> {
    objects: BTreeMap<String, (&'a Served, Arc<DynamicObject>)>,
    dependents: BTreeMap<String, BTreeSet<String>>,
    /// Every kind has been listed.
    complete: bool,
}

impl Collector {
    /// Watches what came, and forgets what went.
    fn follow(&mut self, served: BTreeSet<Served>, touched: &mut SelectAll<BoxStream<'static, ()>>) {
        self.watched.retain(|kind, (_, stop)| {
            let stays = served.contains(kind);
            if !stays {
                stop.cancel();
            }
            stays
        });
        for kind in served.into_iter().filter(|kind| kind.kind != "Event") {
            let (client, watched) = (&self.client, &mut self.watched);
            let entry = watched.entry(kind);
            let kind = entry.key().clone();
            entry.or_insert_with(|| {
                let (stop, writer) = (CancellationToken::new(), Writer::new(kind.resource()));
                let store = writer.as_reader();
                let events = watcher(kind.api(client, ""), watcher::Config::default()).default_backoff();
                let events = events.modify(strip).reflect(writer).filter_map(|event| async {
                    let look = match event {
                        Ok(Event::Apply(object)) => is_going(&object) || !object.owner_references().is_empty(),
                        Ok(Event::Delete(_) | Event::InitDone) => true,
                        Ok(Event::Init | Event::InitApply(_)) | Err(_) => false,
                    };
                    look.then_some(())
                });
                touched.push(events.take_until(stop.clone().cancelled_owned()).boxed());
                (store, stop)
            });
        }
    }

    fn view(&self) -> View<'_> {
        let mut view = View { complete: true, ..View::default() };
        for (kind, (store, _)) in &self.watched {
            view.complete &= store.wait_until_ready().now_or_never().is_some();
            let found = store.state().into_iter();
            for object in found.filter(|object| is_going(object) || !object.owner_references().is_empty()) {
                let uid = object.uid().unwrap_or_default();
                for owner in object.owner_references() {
                    view.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
                }
                view.objects.insert(uid, (kind, object));
            }
        }
        view
    }

    /// Looks at everything that has owners or waits for its dependents; false if something must be looked at again.
    async fn sweep(&self) -> bool {
        let view = self.view();
        let mut clean = true;
        for (uid, (kind, object)) in &view.objects {
            let outcome = if is_going(object) {
                self.release(&view, uid, kind, object).await
            } else {
                self.weigh(&view, uid, kind, object).await
            };
            if let Err(trouble) = outcome {
                tracing::debug!(%trouble, uid, kind = kind.kind, "collecting garbage failed and is tried again");
                clean = false;
            }
        }
        clean
    }

    /// Lets an object go that waits for its dependents, once they are gone or have forgotten it.
    async fn release(&self, view: &View<'_>, uid: &str, kind: &Served, object: &DynamicObject) -> Result<(), Trouble> {
        let finalizer = match [ORPHAN, FOREGROUND].into_iter().find(|finalizer| has(object, finalizer)) {
            None => return Ok(()),
            // Who depends on whom is known only when everything has been listed.
            Some(_) if !view.complete => return Err(Trouble::Unsure),
            Some(finalizer) => finalizer,
        };
        for (kind, dependent) in view.dependents(uid) {
            let blocks = |owner: &OwnerReference| owner.uid == uid && owner.block_owner_deletion == Some(true);
            if finalizer == ORPHAN {
                self.keep_owners(kind, dependent, |owner| owner.uid != uid).await?;
            } else if dependent.owner_references().iter().any(blocks) {
                return Ok(());
            }
        }
        let Some(latest) = self.latest(kind, object).await? else { return Ok(()) };
        let kept: Vec<&String> = latest.finalizers().iter().filter(|mine| *mine != finalizer).collect();
        self.patch(kind, &latest, json!({ "finalizers": kept })).await
    }

    /// Deletes an object without owners, or takes the owners from it that are gone or wait for it.
    async fn weigh(&self, view: &View<'_>, uid: &str, kind: &Served, object: &DynamicObject) -> Result<(), Trouble> {
        let (mut solid, mut waiting) = (BTreeSet::new(), false);
        for owner in object.owner_references() {
            match self.owner(object, owner).await? {
                Some(found) if is_going(&found) && has(&found, FOREGROUND) => waiting = true,
                Some(_) => drop(solid.insert(owner.uid.as_str())),
                None => {}
            }
        }
        if solid.len() == object.owner_references().len() {
            return Ok(());
        }
        if !solid.is_empty() {
            return self.keep_owners(kind, object, |owner| solid.contains(owner.uid.as_str())).await;
        }
        let Some(latest) = self.latest(kind, object).await? else { return Ok(()) };
        if latest.owner_references() != object.owner_references() {
            return Err(Trouble::Unsure);
        }
        // Whoever waits for this one waits for those that depend on it, too.
        let foreground = waiting && view.dependents.contains_key(uid);
        let params = DeleteParams {
            propagation_policy: foreground.then_some(PropagationPolicy::Foreground),
            preconditions: Some(Preconditions { resource_version: latest.resource_version(), uid: latest.uid() }),
            ..DeleteParams::default()
        };
        let api = kind.api(&self.client, &latest.namespace().unwrap_or_default());
        fine(api.delete(&latest.name_any(), &params).await.map(drop))
    }

    /// The owner that a reference means, if there is one; the server is asked about one that was not seen.
    async fn owner(
        &self,
        object: &DynamicObject,
        owner: &OwnerReference,
    ) -> Result<Option<Arc<DynamicObject>>, Trouble> {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let mut kinds = self.watched.iter();
        let found = kinds.find(|(kind, _)| kind.group == group && kind.kind == owner.kind);
        let (kind, (store, _)) = found.ok_or(Trouble::Unsure)?;
        let namespace = object.namespace().filter(|_| kind.namespaced);
        let mut name = ObjectRef::new_with(&owner.name, kind.resource());
        name.namespace.clone_from(&namespace);
        if let Some(found) = store.get(&name).filter(|found| found.uid().as_ref() == Some(&owner.uid)) {
            return Ok(Some(found));
        }
        // A cluster-wide object cannot have an owner in a namespace: such an owner counts as there.
        if kind.namespaced && namespace.is_none() {
            return Ok(Some(Arc::new(object.clone())));
        }
        let found = kind.api(&self.client, &namespace.unwrap_or_default()).get_opt(&owner.name).await?;
        Ok(found.filter(|found| found.uid().as_ref() == Some(&owner.uid)).map(Arc::new))
    }

    async fn latest(&self, kind: &Served, object: &DynamicObject) -> Result<Option<DynamicObject>, Trouble> {
        let api = kind.api(&self.client, &object.namespace().unwrap_or_default());
        Ok(api.get_opt(&object.name_any()).await?.filter(|found| found.uid() == object.uid()))
    }

    async fn keep_owners(
        &self,
        kind: &Served,
        object: &DynamicObject,
        stays: impl Fn(&OwnerReference) -> bool,
    ) -> Result<(), Trouble> {
        let Some(latest) = self.latest(kind, object).await? else { return Ok(()) };
        let kept: Vec<&OwnerReference> = latest.owner_references().iter().filter(|owner| stays(owner)).collect();
        let kept = if kept.is_empty() { json!(null) } else { json!(kept) };
        self.patch(kind, &latest, json!({ "ownerReferences": kept })).await
    }

    async fn patch(&self, kind: &Served, latest: &DynamicObject, mut metadata: Value) -> Result<(), Trouble> {
        metadata["uid"] = json!(latest.uid());
        metadata["resourceVersion"] = json!(latest.resource_version());
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let api = kind.api(&self.client, &latest.namespace().unwrap_or_default());
        fine(api.patch(&latest.name_any(), &PatchParams::default(), &patch).await.map(drop))
    }
}

impl View<'_> {
    /// Those that name `uid` as owner.
    fn dependents(&self, uid: &str) -> impl Iterator<Item = (&Served, &DynamicObject)> {
        let uids = self.dependents.get(uid).into_iter().flatten();
        uids.filter_map(|uid| self.objects.get(uid)).map(|(kind, object)| (*kind, &**object))
    }
}

/// Keeps what a sweep reads: of every object on the server something stays in memory here.
fn strip(object: &mut DynamicObject) {
    object.data = Value::Null;
    object.metadata.managed_fields = None;
    object.metadata.labels = None;
    object.metadata.annotations = None;
}

fn is_going(object: &DynamicObject) -> bool {
    object.metadata.deletion_timestamp.is_some()
}

fn has(object: &DynamicObject, finalizer: &str) -> bool {
    object.finalizers().iter().any(|mine| mine == finalizer)
}

/// What is already gone needs nothing.
fn fine(result: kube::Result<()>) -> Result<(), Trouble> {
    match result {
        Err(error) if code(&error) == 404 => Ok(()),
        result => Ok(result?),
    }
}
