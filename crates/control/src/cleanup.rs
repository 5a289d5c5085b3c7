//! Removes what an operator that is gone has left on a cluster: what its capabilities' kinds say they leave, the
//! webhook's Secret and the Lease. Objects of users stay as they are, without finalizers that nobody would remove.
//!
//! It takes the operator's Lease first: an operator that still writes would make everything again.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions};
use kube::{Client, ResourceExt as _};
use prometheus_client::registry::Registry;
use serde_json::json;

use crate::runtime::authority::delete_authority;
use crate::runtime::capability::{Capability, Kind, Leftover};
use crate::runtime::fence::fenced;
use crate::runtime::lease::{self, Elector, Leadership};
use crate::runtime::metrics::Metrics;
use crate::runtime::tasks::Tasks;
use crate::runtime::webhook;

/// Which operator is gone.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its Lease.
    pub lease: lease::Options,
    /// The webhook's Secret, in the Lease's namespace.
    pub webhook_secret: String,
    /// How long to wait for the Lease.
    pub patience: Duration,
}

impl Options {
    /// An operator whose Lease is in this namespace, installed without options of its own.
    pub fn of_operator(namespace: &str, identity: &str) -> Self {
        let lease = lease::Options::of_operator(namespace, identity);
        // an operator that ends takes up to 30 s, and its Lease lasts for 15 s after that
        Self { lease, webhook_secret: "portolan-webhook".to_owned(), patience: Duration::from_mins(1) }
    }
}

/// What was found of a kind and, unless this was a rehearsal, removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    pub kind: &'static str,
    pub objects: usize,
    /// Only the finalizer goes.
    pub stays: bool,
}

/// Why not everything is removed. What was removed is gone; the rest can be tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the election cannot run: {0}")]
    Election(#[from] crate::runtime::Error),
    #[error("replica `{holder}` still holds Lease {lease}: an operator is running")]
    OperatorRuns { holder: String, lease: String },
    #[error("Lease {lease} could not be taken within {} s", after.as_secs())]
    NoLease { lease: String, after: Duration },
    #[error("listing {kind} failed: {cause}")]
    List { kind: &'static str, cause: Box<kube::Error> },
    #[error("{left} objects of kind {kind} are left; for one of them: {cause}")]
    Remove { kind: &'static str, left: usize, cause: Box<kube::Error> },
    #[error("deleting Secret `{name}` failed: {cause}")]
    Secret { name: String, cause: Box<kube::Error> },
    #[error("deleting Lease {lease} failed: {cause}")]
    Lease { lease: String, cause: Box<kube::Error> },
}

/// What the capabilities of an operator in this namespace have left, without removing anything.
pub async fn find(table: &[&Capability], client: &Client, namespace: &str) -> Result<Vec<Found>, Error> {
    let mut found = Vec::new();
    for (kind, leftover) in leftovers(table) {
        let objects = list(client, kind, leftover, namespace).await?.len();
        found.push(Found::new(kind, leftover, objects));
    }
    Ok(found)
}

/// Removes everything that the operator has left, the Lease last. Each kind is told of when it is done.
pub async fn run(
    table: &[&Capability],
    client: &Client,
    options: &Options,
    mut tell: impl FnMut(Found),
) -> Result<(), Error> {
    let Options { lease, webhook_secret, patience } = options;
    let (leadership, metrics) = (Leadership::none(), Metrics::register(&mut Registry::default()));
    let elector = Elector::new(client, lease.clone(), leadership.clone(), metrics.clone())?;
    let (tasks, fenced) = (Tasks::new(), fenced(client.clone(), leadership.clone(), metrics));
    tasks.spawn("lease", elector.run(tasks.stop()));
    let removed = async {
        if tokio::time::timeout(*patience, leadership.acquired()).await.is_err() {
            return Err(not_taken(client, options).await);
        }
        for (kind, leftover) in leftovers(table) {
            let objects = remove(&fenced, kind, leftover, &lease.namespace).await?;
            tell(Found::new(kind, leftover, objects));
        }
        let secret = delete_authority(&fenced, &lease.namespace, webhook_secret, webhook::PURPOSE).await;
        secret.map_err(|cause| Error::Secret { name: webhook_secret.clone(), cause: Box::new(cause) })
    };
    let removed = removed.await;
    tasks.drain(lease.renew_deadline).await;
    if removed.is_err() {
        // an operator that is installed again need not wait
        drop(lease::release(client, lease, &leadership).await);
        return removed;
    }
    let leases: Api<Lease> = Api::namespaced(client.clone(), &lease.namespace);
    let deleted = gone(leases.delete(&lease.name, &DeleteParams::default()).await.map(drop));
    deleted.map_err(|cause| Error::Lease { lease: shown(lease), cause: Box::new(cause) })
}

impl Found {
    fn new(kind: &Kind, leftover: Leftover, objects: usize) -> Self {
        Self { kind: kind.kind, objects, stays: matches!(leftover, Leftover::Finalizer(..)) }
    }
}

fn leftovers<'a>(table: &'a [&Capability]) -> impl Iterator<Item = (&'a Kind, Leftover)> {
    let kinds = table.iter().flat_map(|capability| capability.kinds);
    kinds.filter_map(|kind| Some((kind, kind.leftover?)))
}

fn shown(lease::Options { namespace, name, .. }: &lease::Options) -> String {
    format!("`{namespace}/{name}`")
}

async fn not_taken(client: &Client, Options { lease, patience, .. }: &Options) -> Error {
    let leases: Api<Lease> = Api::namespaced(client.clone(), &lease.namespace);
    let seen = leases.get_opt(&lease.name).await.ok().flatten();
    match seen.and_then(|seen| seen.spec?.holder_identity).filter(|holder| !holder.is_empty()) {
        Some(holder) => Error::OperatorRuns { holder, lease: shown(lease) },
        None => Error::NoLease { lease: shown(lease), after: *patience },
    }
}

/// The objects of a kind of which something is left by an operator in this namespace.
async fn list(client: &Client, kind: &Kind, leftover: Leftover, namespace: &str) -> Result<Vec<DynamicObject>, Error> {
    let api: Api<DynamicObject> = if kind.own_namespace {
        Api::namespaced_with(client.clone(), namespace, &kind.resource())
    } else {
        Api::all_with(client.clone(), &kind.resource())
    };
    let (mut found, mut page) = (Vec::new(), ListParams::default().limit(500));
    loop {
        let listed = match api.list(&page).await {
            Ok(listed) => listed,
            // the definition is not installed
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(found),
            // the list took too long to page through
            Err(kube::Error::Api(status)) if status.code == 410 => {
                (found, page) = (Vec::new(), ListParams::default().limit(500));
                continue;
            }
            Err(cause) => return Err(Error::List { kind: kind.kind, cause: Box::new(cause) }),
        };
        found.extend(listed.items.into_iter().filter(|object| is_left(object, leftover)));
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(found),
        }
    }
}

fn is_left(object: &DynamicObject, leftover: Leftover) -> bool {
    match leftover {
        Leftover::Objects(is_ours) => is_ours(object),
        Leftover::Finalizer(finalizer, is_done_with) => {
            object.finalizers().iter().any(|own| own == finalizer) && is_done_with(object)
        }
    }
}

/// Requests under way at once.
const AT_ONCE: usize = 16;

/// Removes what is left of a kind, and says how much. What fails stops nothing else.
async fn remove(client: &Client, kind: &Kind, leftover: Leftover, namespace: &str) -> Result<usize, Error> {
    let found = list(client, kind, leftover, namespace).await?;
    let all = found.len();
    let removals = stream::iter(found).map(|object| remove_one(client, kind, leftover, object));
    let removed: Vec<Result<(), kube::Error>> = removals.buffer_unordered(AT_ONCE).collect().await;
    let mut failures = removed.into_iter().filter_map(Result::err);
    match failures.next() {
        Some(cause) => Err(Error::Remove { kind: kind.kind, left: 1 + failures.count(), cause: Box::new(cause) }),
        None => Ok(all),
    }
}

async fn remove_one(
    client: &Client,
    kind: &Kind,
    leftover: Leftover,
    mut object: DynamicObject,
) -> Result<(), kube::Error> {
    let resource = kind.resource();
    let api: Api<DynamicObject> = match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let name = object.name_any();
    loop {
        match gone(remove_as_seen(&api, leftover, &object).await) {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            other => return other,
        }
        match api.get_opt(&name).await? {
            Some(changed) if is_left(&changed, leftover) => object = changed,
            // a user took it, or it is gone
            Some(_) | None => return Ok(()),
        }
    }
}

/// A conflict if the object has changed since.
async fn remove_as_seen(
    api: &Api<DynamicObject>,
    leftover: Leftover,
    object: &DynamicObject,
) -> Result<(), kube::Error> {
    let keep: Vec<&String> = match leftover {
        Leftover::Objects(_) => Vec::new(),
        Leftover::Finalizer(finalizer, _) => object.finalizers().iter().filter(|own| *own != finalizer).collect(),
    };
    let (name, metadata) = (object.name_any(), &object.metadata);
    let mut version = metadata.resource_version.clone();
    if !object.finalizers().is_empty() {
        let patch = json!({ "metadata": { "finalizers": keep, "resourceVersion": version } });
        let patched = api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        version = patched.metadata.resource_version;
    }
    if matches!(leftover, Leftover::Finalizer(..)) || metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let as_seen = Preconditions { resource_version: version, uid: metadata.uid.clone() };
    api.delete(&name, &DeleteParams::default().preconditions(as_seen)).await.map(drop)
}

/// What is gone already need not be removed.
fn gone(result: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other,
    }
}
