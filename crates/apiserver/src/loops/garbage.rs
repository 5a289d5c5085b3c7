//! Garbage collection by owner references, for every kind of the server.
//!
//! The graph only says whom to look at. Before anything is deleted the server is asked again, and the deletion
//! carries uid and version as preconditions: a stale view costs a request, never an object.

mod graph;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::DynamicObject;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::graph::{FOREGROUND, Graph, Node, ORPHAN, Owner, Standing};
use super::discover::{self, Served};
use super::{code, pause};

/// Objects that are looked at together.
const BATCH: usize = 16;

/// The loop.
pub struct Garbage;

type Watched = (Arc<Served>, Result<watcher::Event<DynamicObject>, watcher::Error>);

/// Why an object must be looked at again.
enum Trouble {
    Server(kube::Error),
    /// Not every kind has been listed, or a kind is unknown.
    Unsure,
}

impl From<kube::Error> for Trouble {
    fn from(error: kube::Error) -> Self {
        Self::Server(error)
    }
}

impl Garbage {
    /// Runs until told to stop.
    pub async fn run(self, client: Client, stop: CancellationToken) {
        let kinds = discover::changes(client.clone());
        stop.run_until_cancelled(collect(client, kinds)).await;
    }
}

async fn collect(client: Client, kinds: impl futures::Stream<Item = BTreeSet<Served>>) {
    let mut kinds = std::pin::pin!(kinds);
    // Apart from the state: streams cannot be shared, and the state is while many objects are looked at.
    let mut watches = SelectAll::new();
    let mut state = State {
        client,
        graph: Graph::default(),
        kinds: BTreeMap::new(),
        listing: BTreeMap::new(),
        due: BTreeSet::new(),
        attempts: BTreeMap::new(),
    };
    loop {
        let next =
            state.due.first().map_or(Duration::from_hours(1), |(at, _)| at.saturating_duration_since(Instant::now()));
        // Events first: the fewer objects are looked at with an old view the better.
        tokio::select! {
            biased;
            Some(kinds) = kinds.next() => state.follow(kinds, &mut watches),
            Some((kind, event)) = watches.next(), if !watches.is_empty() => state.take_in(&kind, event),
            () = tokio::time::sleep(next) => state.work().await,
        }
    }
}

struct State {
    client: Client,
    graph: Graph,
    kinds: BTreeMap<Arc<Served>, CancellationToken>,
    /// Kinds whose list is not complete, with what was seen of it.
    listing: BTreeMap<Arc<Served>, BTreeSet<String>>,
    /// Whom to look at, and when.
    due: BTreeSet<(Instant, String)>,
    attempts: BTreeMap<String, u32>,
}

impl State {
    /// Watches what came, and forgets what went.
    fn follow(&mut self, served: BTreeSet<Served>, watches: &mut SelectAll<BoxStream<'static, Watched>>) {
        let wanted = |kind: &Served| kind.kind != "Event" || !matches!(kind.group.as_str(), "" | "events.k8s.io");
        let gone: Vec<Arc<Served>> = self.kinds.keys().filter(|kind| !served.contains(&***kind)).cloned().collect();
        for kind in gone {
            if let Some(stop) = self.kinds.remove(&kind) {
                stop.cancel();
            }
            self.listing.remove(&kind);
            self.forget(&kind, &BTreeSet::new());
        }
        for kind in served.into_iter().filter(wanted) {
            if self.kinds.contains_key(&kind) {
                continue;
            }
            let kind = Arc::new(kind);
            let stop = CancellationToken::new();
            let label = Arc::clone(&kind);
            let events = watcher(kind.api(&self.client, ""), watcher::Config::default()).default_backoff();
            let events = events.map(move |event| (Arc::clone(&label), event));
            watches.push(events.take_until(stop.clone().cancelled_owned()).boxed());
            self.listing.insert(Arc::clone(&kind), BTreeSet::new());
            self.kinds.insert(kind, stop);
        }
    }

    fn take_in(&mut self, kind: &Arc<Served>, event: Result<watcher::Event<DynamicObject>, watcher::Error>) {
        let look = match event {
            Ok(watcher::Event::Init) => {
                self.listing.insert(Arc::clone(kind), BTreeSet::new());
                return;
            }
            Ok(watcher::Event::InitDone) => {
                let seen = self.listing.remove(kind).unwrap_or_default();
                return self.forget(kind, &seen);
            }
            Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                let Some((uid, node)) = Node::read(kind, object) else { return };
                if let Some(seen) = self.listing.get_mut(kind) {
                    seen.insert(uid.clone());
                }
                self.graph.apply(&uid, node)
            }
            Ok(watcher::Event::Delete(object)) => {
                let uid = object.uid().unwrap_or_default();
                self.graph.remove(&uid)
            }
            Err(error) => return tracing::debug!(%error, kind = kind.kind, "watching for garbage was interrupted"),
        };
        self.look(look);
    }

    /// Drops the objects of a kind that are not among `seen`.
    fn forget(&mut self, kind: &Served, seen: &BTreeSet<String>) {
        for uid in self.graph.missing(kind, seen) {
            let look = self.graph.remove(&uid);
            self.look(look);
        }
    }

    fn look(&mut self, uids: BTreeSet<String>) {
        let now = Instant::now();
        self.due.extend(uids.into_iter().map(|uid| (now, uid)));
    }

    /// Looks at those whose time has come.
    async fn work(&mut self) {
        let now = Instant::now();
        let mut batch = BTreeSet::new();
        while batch.len() < BATCH && self.due.first().is_some_and(|(at, _)| *at <= now) {
            batch.extend(self.due.pop_first().map(|(_, uid)| uid));
        }
        let outcomes = futures::future::join_all(batch.iter().map(|uid| self.inspect(uid))).await;
        for (uid, outcome) in batch.into_iter().zip(outcomes) {
            let Err(trouble) = outcome else {
                self.attempts.remove(&uid);
                continue;
            };
            if let Trouble::Server(error) = &trouble {
                tracing::debug!(%error, uid, "collecting garbage failed and is tried again");
            }
            let attempt = self.attempts.entry(uid.clone()).or_default();
            *attempt += 1;
            self.due.insert((Instant::now() + pause(*attempt), uid));
        }
    }

    async fn inspect(&self, uid: &str) -> Result<(), Trouble> {
        let Some(node) = self.graph.node(uid) else { return Ok(()) };
        if node.deleting && node.orphan {
            return self.orphan(uid, node).await;
        }
        if node.waits() {
            return self.release(uid, node).await;
        }
        if node.deleting || node.owners.is_empty() {
            return Ok(());
        }
        self.weigh(uid, node).await
    }

    /// Deletes an object without owners, or takes the owners from it that are gone or wait for it.
    async fn weigh(&self, uid: &str, node: &Node) -> Result<(), Trouble> {
        let (mut solid, mut waiting, mut lost) = (0, BTreeSet::new(), BTreeSet::new());
        for owner in &node.owners {
            match self.standing(node, owner).await? {
                Some(Standing::Solid) => solid += 1,
                Some(Standing::Waiting) => drop(waiting.insert(owner.uid.as_str())),
                Some(Standing::Unseen) => drop(lost.insert(owner.uid.as_str())),
                // A cluster-wide object cannot have an owner in a namespace: leave it alone.
                None => return Ok(()),
            }
        }
        if lost.is_empty() && waiting.is_empty() {
            return Ok(());
        }
        let Some(latest) = self.latest(uid, node).await? else { return Ok(()) };
        // Its owners changed meanwhile: the event puts it up again.
        if latest.owner_references().len() != node.owners.len() {
            return Err(Trouble::Unsure);
        }
        if solid > 0 {
            let gone = |reference: &OwnerReference| lost.contains(&*reference.uid) || waiting.contains(&*reference.uid);
            return self.drop_owners(node, &latest, gone).await;
        }
        let finalizers = latest.finalizers();
        let has = |finalizer: &str| finalizers.iter().any(|mine| mine == finalizer);
        let policy = if !waiting.is_empty() && self.graph.dependents(uid).next().is_some() {
            // A ring of objects that wait for one another would wait for ever.
            if self.graph.dependents(uid).any(|(_, dependent)| dependent.waits()) {
                self.unblock(node, &latest).await?;
                return self.delete(node, &latest, PropagationPolicy::Foreground, false).await;
            }
            PropagationPolicy::Foreground
        } else if has(ORPHAN) {
            PropagationPolicy::Orphan
        } else if has(FOREGROUND) {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        };
        self.delete(node, &latest, policy, true).await
    }

    /// What an owner is; asks the server about one that was not seen. None for an impossible reference.
    async fn standing(&self, node: &Node, owner: &Owner) -> Result<Option<Standing>, Trouble> {
        let known = self.graph.standing(node, owner);
        if known != Standing::Unseen {
            return Ok(Some(known));
        }
        let mut kinds = self.kinds.keys();
        let kind = kinds.find(|kind| kind.group == owner.group && kind.kind == owner.kind).ok_or(Trouble::Unsure)?;
        if kind.namespaced && node.namespace.is_empty() {
            return Ok(None);
        }
        let found = kind.api(&self.client, &node.namespace).get_opt(&owner.name).await?;
        Ok(Some(match found {
            Some(found) if found.uid().as_ref() == Some(&owner.uid) => {
                let waits =
                    found.metadata.deletion_timestamp.is_some() && found.finalizers().iter().any(|f| f == FOREGROUND);
                if waits { Standing::Waiting } else { Standing::Solid }
            }
            Some(_) | None => Standing::Unseen,
        }))
    }

    /// Lets an object go that waited for its dependents, once none blocks it.
    async fn release(&self, uid: &str, node: &Node) -> Result<(), Trouble> {
        self.sure()?;
        if self.graph.is_blocked(uid) {
            return Ok(());
        }
        self.drop_finalizer(uid, node, FOREGROUND).await
    }

    /// Makes the dependents forget their owner, then lets it go.
    async fn orphan(&self, uid: &str, node: &Node) -> Result<(), Trouble> {
        self.sure()?;
        for (dependent_uid, dependent) in self.graph.dependents(uid) {
            if let Some(latest) = self.latest(dependent_uid, dependent).await? {
                self.drop_owners(dependent, &latest, |reference| reference.uid == uid).await?;
            }
        }
        self.drop_finalizer(uid, node, ORPHAN).await
    }

    /// Who depends on whom is known only when everything has been listed.
    fn sure(&self) -> Result<(), Trouble> {
        if self.listing.is_empty() { Ok(()) } else { Err(Trouble::Unsure) }
    }

    async fn latest(&self, uid: &str, node: &Node) -> Result<Option<DynamicObject>, Trouble> {
        let found = node.kind.api(&self.client, &node.namespace).get_opt(&node.name).await?;
        Ok(found.filter(|found| found.uid().as_deref() == Some(uid)))
    }

    async fn drop_owners(
        &self,
        node: &Node,
        latest: &DynamicObject,
        gone: impl Fn(&OwnerReference) -> bool,
    ) -> Result<(), Trouble> {
        let kept: Vec<&OwnerReference> =
            latest.owner_references().iter().filter(|reference| !gone(reference)).collect();
        if kept.len() == latest.owner_references().len() {
            return Ok(());
        }
        let kept = if kept.is_empty() { json!(null) } else { json!(kept) };
        self.patch(node, latest, json!({ "ownerReferences": kept })).await
    }

    async fn unblock(&self, node: &Node, latest: &DynamicObject) -> Result<(), Trouble> {
        let mut references = latest.owner_references().to_vec();
        for reference in &mut references {
            reference.block_owner_deletion = Some(false);
        }
        self.patch(node, latest, json!({ "ownerReferences": references })).await
    }

    async fn drop_finalizer(&self, uid: &str, node: &Node, finalizer: &str) -> Result<(), Trouble> {
        let Some(latest) = self.latest(uid, node).await? else { return Ok(()) };
        let kept: Vec<&String> = latest.finalizers().iter().filter(|mine| *mine != finalizer).collect();
        if kept.len() == latest.finalizers().len() {
            return Ok(());
        }
        self.patch(node, &latest, json!({ "finalizers": kept })).await
    }

    async fn patch(&self, node: &Node, latest: &DynamicObject, mut metadata: serde_json::Value) -> Result<(), Trouble> {
        metadata["uid"] = json!(latest.uid());
        metadata["resourceVersion"] = json!(latest.resource_version());
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let api = node.kind.api(&self.client, &node.namespace);
        fine(api.patch(&node.name, &PatchParams::default(), &patch).await.map(drop))
    }

    async fn delete(
        &self,
        node: &Node,
        latest: &DynamicObject,
        policy: PropagationPolicy,
        unchanged: bool,
    ) -> Result<(), Trouble> {
        let resource_version = latest.resource_version().filter(|_| unchanged);
        let preconditions = Some(Preconditions { resource_version, uid: latest.uid() });
        let params = DeleteParams { propagation_policy: Some(policy), preconditions, ..DeleteParams::default() };
        let api = node.kind.api(&self.client, &node.namespace);
        fine(api.delete(&node.name, &params).await.map(drop))
    }
}

/// What is already gone needs nothing.
fn fine(result: kube::Result<()>) -> Result<(), Trouble> {
    match result {
        Err(error) if code(&error) == 404 => Ok(()),
        result => Ok(result?),
    }
}
