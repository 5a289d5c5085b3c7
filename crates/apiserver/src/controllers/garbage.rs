//! Garbage collection by owner references, for every kind of the server.
//!
//! Watches keep a cache of every object's metadata. When an object with owners changes, or one is deleted or begins
//! to be deleted, the cache is swept for candidates. Before anything is deleted the object is read again, and the
//! deletion has its uid and version as preconditions. A stale cache costs a request, never an object.

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
use super::reconcile::{Pace, code};

/// The finalizer of an object that waits until its dependents are deleted.
const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object that waits until it is removed from its dependents' owner references.
const ORPHAN: &str = "orphan";

/// The garbage collector.
pub struct Garbage;

impl Garbage {
    /// Runs until `stop`.
    pub async fn run(self, client: Client, stop: CancellationToken) {
        stop.run_until_cancelled(Box::pin(collect(client))).await;
    }
}

async fn collect(client: Client) {
    let mut kinds = std::pin::pin!(discover::changes(client.clone()));
    // One item per change that needs a sweep.
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

/// Why an object must be examined again.
#[derive(Debug, thiserror::Error)]
enum CollectError {
    #[error(transparent)]
    Server(#[from] kube::Error),
    #[error("not every kind has been listed, or the kind of an owner is unknown, or the cache is stale")]
    StaleCache,
}

struct Collector {
    client: Client,
    watched: BTreeMap<Served, (Store<DynamicObject>, CancellationToken)>,
}

/// Objects that are being deleted or have owners, by uid, and the dependents of each owner.
#[derive(Default)]
struct View<'a> {
    objects: BTreeMap<String, (&'a Served, Arc<DynamicObject>)>,
    dependents: BTreeMap<String, BTreeSet<String>>,
    /// Every kind has been listed.
    complete: bool,
}

impl Collector {
    /// Watches new kinds, and stops watching those that are no longer served.
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
                        Ok(Event::Apply(object)) => is_deleting(&object) || !object.owner_references().is_empty(),
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
            for object in found.filter(|object| is_deleting(object) || !object.owner_references().is_empty()) {
                let uid = object.uid().unwrap_or_default();
                for owner in object.owner_references() {
                    view.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
                }
                view.objects.insert(uid, (kind, object));
            }
        }
        view
    }

    /// Examines every object that has owners or waits for its dependents; false if one must be examined again.
    async fn sweep(&self) -> bool {
        let view = self.view();
        let mut clean = true;
        for (uid, (kind, object)) in &view.objects {
            let outcome = if is_deleting(object) {
                self.finish_deletion(&view, uid, kind, object).await
            } else {
                self.check_owners(&view, uid, kind, object).await
            };
            if let Err(error) = outcome {
                tracing::debug!(%error, uid, kind = kind.kind, "collecting garbage failed and is retried");
                clean = false;
            }
        }
        clean
    }

    /// Removes the finalizer of an object that waits for its dependents, once they are deleted or orphaned.
    async fn finish_deletion(
        &self,
        view: &View<'_>,
        uid: &str,
        kind: &Served,
        object: &DynamicObject,
    ) -> Result<(), CollectError> {
        let finalizer = match [ORPHAN, FOREGROUND].into_iter().find(|finalizer| has(object, finalizer)) {
            None => return Ok(()),
            // Dependents are known only when every kind has been listed.
            Some(_) if !view.complete => return Err(CollectError::StaleCache),
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

    /// Deletes an object without existing owners, or removes the references to owners that are gone or wait for it.
    async fn check_owners(
        &self,
        view: &View<'_>,
        uid: &str,
        kind: &Served,
        object: &DynamicObject,
    ) -> Result<(), CollectError> {
        let (mut solid, mut waiting) = (BTreeSet::new(), false);
        for owner in object.owner_references() {
            match self.owner(object, owner).await? {
                Some(found) if is_deleting(&found) && has(&found, FOREGROUND) => waiting = true,
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
            return Err(CollectError::StaleCache);
        }
        // An owner that waits for this object waits for its dependents, too.
        let foreground = waiting && view.dependents.contains_key(uid);
        let is_blocking = |owner: &OwnerReference| owner.block_owner_deletion == Some(true);
        let ends = |(_, dependent): (&Served, &DynamicObject)| is_deleting(dependent) && has(dependent, FOREGROUND);
        if foreground && latest.owner_references().iter().any(is_blocking) && view.dependents(uid).any(ends) {
            // Its owner waits for it, and a dependent that ends may wait for that owner: a circle, which is opened here.
            let open = |owner: &OwnerReference| OwnerReference { block_owner_deletion: Some(false), ..owner.clone() };
            let references: Vec<OwnerReference> = latest.owner_references().iter().map(open).collect();
            self.patch(kind, &latest, json!({ "ownerReferences": references })).await?;
            return Err(CollectError::StaleCache);
        }
        let params = DeleteParams {
            propagation_policy: foreground.then_some(PropagationPolicy::Foreground),
            preconditions: Some(Preconditions { resource_version: latest.resource_version(), uid: latest.uid() }),
            ..DeleteParams::default()
        };
        let api = kind.api(&self.client, &latest.namespace().unwrap_or_default());
        ignore_not_found(api.delete(&latest.name_any(), &params).await.map(drop))
    }

    /// The owner that a reference names, if it exists; read from the server if it is not in the cache.
    async fn owner(
        &self,
        object: &DynamicObject,
        owner: &OwnerReference,
    ) -> Result<Option<Arc<DynamicObject>>, CollectError> {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let mut kinds = self.watched.iter();
        let found = kinds.find(|(kind, _)| kind.group == group && kind.kind == owner.kind);
        let (kind, (store, _)) = found.ok_or(CollectError::StaleCache)?;
        let namespace = object.namespace().filter(|_| kind.namespaced);
        let mut name = ObjectRef::new_with(&owner.name, kind.resource());
        name.namespace.clone_from(&namespace);
        if let Some(found) = store.get(&name).filter(|found| found.uid().as_ref() == Some(&owner.uid)) {
            return Ok(Some(found));
        }
        // A cluster-scoped object cannot have a namespaced owner: such an owner counts as existing.
        if kind.namespaced && namespace.is_none() {
            return Ok(Some(Arc::new(object.clone())));
        }
        let found = kind.api(&self.client, &namespace.unwrap_or_default()).get_opt(&owner.name).await?;
        Ok(found.filter(|found| found.uid().as_ref() == Some(&owner.uid)).map(Arc::new))
    }

    async fn latest(&self, kind: &Served, object: &DynamicObject) -> Result<Option<DynamicObject>, CollectError> {
        let api = kind.api(&self.client, &object.namespace().unwrap_or_default());
        Ok(api.get_opt(&object.name_any()).await?.filter(|found| found.uid() == object.uid()))
    }

    async fn keep_owners(
        &self,
        kind: &Served,
        object: &DynamicObject,
        stays: impl Fn(&OwnerReference) -> bool,
    ) -> Result<(), CollectError> {
        let Some(latest) = self.latest(kind, object).await? else { return Ok(()) };
        let kept: Vec<&OwnerReference> = latest.owner_references().iter().filter(|owner| stays(owner)).collect();
        let kept = if kept.is_empty() { json!(null) } else { json!(kept) };
        self.patch(kind, &latest, json!({ "ownerReferences": kept })).await
    }

    async fn patch(&self, kind: &Served, latest: &DynamicObject, mut metadata: Value) -> Result<(), CollectError> {
        metadata["uid"] = json!(latest.uid());
        metadata["resourceVersion"] = json!(latest.resource_version());
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let api = kind.api(&self.client, &latest.namespace().unwrap_or_default());
        ignore_not_found(api.patch(&latest.name_any(), &PatchParams::default(), &patch).await.map(drop))
    }
}

impl View<'_> {
    /// The objects that name `uid` as owner.
    fn dependents(&self, uid: &str) -> impl Iterator<Item = (&Served, &DynamicObject)> {
        let uids = self.dependents.get(uid).into_iter().flatten();
        uids.filter_map(|uid| self.objects.get(uid)).map(|(kind, object)| (*kind, &**object))
    }
}

/// Drops what a sweep does not read: every object of the server is in this cache.
fn strip(object: &mut DynamicObject) {
    object.data = Value::Null;
    object.metadata.managed_fields = None;
    object.metadata.labels = None;
    object.metadata.annotations = None;
}

fn is_deleting(object: &DynamicObject) -> bool {
    object.metadata.deletion_timestamp.is_some()
}

fn has(object: &DynamicObject, finalizer: &str) -> bool {
    object.finalizers().iter().any(|mine| mine == finalizer)
}

/// An object that is already deleted is no error.
fn ignore_not_found(result: kube::Result<()>) -> Result<(), CollectError> {
    match result {
        Err(error) if code(&error) == 404 => Ok(()),
        result => Ok(result?),
    }
}
