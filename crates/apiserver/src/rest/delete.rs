//! Deleting objects: at once, gracefully, or when their finalizers are done.

use std::time::Duration;

use http::{StatusCode, header};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::call::Call;
use super::options::{DeleteOptions, ListOptions, Propagation};
use super::pipeline::{commit, has_no_spec_finalizers, modified};
use super::response::Reply;
use super::webhooks::{Review, Stage};
use super::{negotiate, read};
use crate::admission::Operation;
use crate::crd;
use crate::kinds::Kind;
use crate::object::{get_meta, has_finalizers, is_deleting, meta, set_meta, time};
use crate::state::ServerState;
use crate::status::{About, Failure};
use crate::store::Expect;

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";
const TRIES: usize = 10;

/// `DELETE` of one object.
pub(super) async fn delete(call: &Call<'_>, bytes: &[u8]) -> Result<Reply, Failure> {
    let (object, kept) = delete_one(call, &call.name, &options(call, bytes)?).await?;
    // Most kinds answer with a Status once they are gone, some with the object as it was.
    let shows = kept || shows_what_is_gone(call.kind());
    let object = if shows { object } else { success(call, &object) };
    Ok(Reply::Object { code: StatusCode::OK, object })
}

fn shows_what_is_gone(kind: &Kind) -> bool {
    const CORE: [&str; 7] = [
        "Pod",
        "Service",
        "ServiceAccount",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "PodTemplate",
        "ResourceQuota",
    ];
    !kind.custom && (kind.group == "storage.k8s.io" || (kind.group.is_empty() && CORE.contains(&kind.kind.as_str())))
}

/// `DELETE` of a collection: each object that the selectors match.
pub(super) async fn delete_collection(call: &Call<'_>, bytes: &[u8]) -> Result<Reply, Failure> {
    let options = options(call, bytes)?;
    let listed = read::list(call, &ListOptions::parse(&call.query, call.kind())?)?;
    if let Reply::List { items, .. } = &listed {
        for item in items {
            match delete_one(call, &item.key.name, &options).await {
                // It may have been deleted meanwhile.
                Err(failure) if failure.code != StatusCode::NOT_FOUND => return Err(failure),
                Ok(_) | Err(_) => {}
            }
        }
    }
    // The response shows them as they were.
    Ok(listed)
}

fn options(call: &Call<'_>, bytes: &[u8]) -> Result<DeleteOptions, Failure> {
    let form = negotiate::content(call.header(header::CONTENT_TYPE)).unwrap_or(negotiate::Form::Json);
    DeleteOptions::parse(&call.query, form, bytes)
}

/// Deletes an object, or marks it as being deleted if finalizers or a grace period keep it: then the second is true.
async fn delete_one(call: &Call<'_>, name: &str, options: &DeleteOptions) -> Result<(Value, bool), Failure> {
    let (about, dry_run, operation) = (About { name, ..call.about() }, options.dry_run, Operation::Delete);
    if call.is_core("Namespace") && matches!(name, "default" | "kube-system" | "kube-public") {
        return Err(Failure::forbidden(about, "this namespace may not be deleted"));
    }
    for _ in 0..TRIES {
        let entry = call.server.store.get(&call.key(name)).ok_or_else(|| Failure::not_found(about))?;
        let old = ServerState::decode(call.kind(), &entry)?;
        check_preconditions(call, options, &old)?;
        let review = Review { call, dry_run, manager: "", operation, name, old: Some(&old) };
        for stage in [Stage::Mutate, Stage::Validate] {
            review.send(&mut Value::Null, stage).await?;
        }
        let mut new = old.clone();
        let kept = mark(call, &mut new, options);
        if dry_run || (kept && new == old) {
            return Ok((new, kept));
        }
        if let Some(entry) = commit(call, name, Expect::Revision(entry.revision), new, !kept).await? {
            return Ok((ServerState::decode(call.kind(), &entry)?, kept));
        }
    }
    Err(modified(about))
}

/// Marks the object as being deleted, and returns whether finalizers or a grace period keep it.
fn mark(call: &Call<'_>, object: &mut Value, options: &DeleteOptions) -> bool {
    let kind = call.kind();
    if kind.kind == "CustomResourceDefinition" && !kind.custom && !is_deleting(object) {
        crd::terminate(object, &time(call.now));
        return true;
    }
    propagate(object, options);
    let held = has_finalizers(object) || !has_no_spec_finalizers(object);
    if is_deleting(object) {
        return held | shorten(call, object, options);
    }
    let (is_pod, is_namespace) = (call.is_core("Pod"), call.is_core("Namespace"));
    let grace = if is_pod { pod_grace(object, options) } else { 0 };
    let kept = held || grace > 0;
    if kept || is_pod {
        set_meta(object, "deletionTimestamp", time(call.now + Duration::from_secs(grace)));
        // A namespace has no grace period.
        if !is_namespace {
            set_meta(object, "deletionGracePeriodSeconds", grace);
        }
        if let Some(generation) = object["metadata"]["generation"].as_i64() {
            set_meta(object, "generation", generation + 1);
        }
    }
    if is_namespace {
        object["status"]["phase"] = "Terminating".into();
    }
    kept
}

/// Shortens the grace period of a pod if that is requested. Returns whether any is left.
fn shorten(call: &Call<'_>, pod: &mut Value, options: &DeleteOptions) -> bool {
    let before = get_meta(pod, "deletionGracePeriodSeconds").as_u64().unwrap_or(0);
    let asked = options.grace_period_seconds.map(|asked| u64::try_from(asked).unwrap_or(1));
    let Some(asked) = asked.filter(|asked| *asked < before) else { return before > 0 };
    let ends: Timestamp = meta(pod, "deletionTimestamp").parse().unwrap_or(call.now);
    set_meta(pod, "deletionTimestamp", time(ends - Duration::from_secs(before - asked)));
    set_meta(pod, "deletionGracePeriodSeconds", asked);
    asked > 0
}

/// Sets the finalizer that tells the garbage collector what to do with dependents.
fn propagate(object: &mut Value, options: &DeleteOptions) {
    let Some(propagation) = options.propagation else { return };
    let mut finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    finalizers.retain(|finalizer| finalizer != FOREGROUND && finalizer != ORPHAN);
    match propagation {
        Propagation::Foreground => finalizers.push(FOREGROUND.into()),
        Propagation::Orphan => finalizers.push(ORPHAN.into()),
        Propagation::Background => {}
    }
    set_meta(object, "finalizers", if finalizers.is_empty() { Value::Null } else { Value::Array(finalizers) });
}

/// The grace period of a pod: none if it is on no node or has ended.
fn pod_grace(pod: &Value, options: &DeleteOptions) -> u64 {
    let over = matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
    if over || pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty() {
        return 0;
    }
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64();
    let asked = options.grace_period_seconds.or(own).unwrap_or(30);
    u64::try_from(asked).unwrap_or(1)
}

fn check_preconditions(call: &Call<'_>, options: &DeleteOptions, object: &Value) -> Result<(), Failure> {
    let wanted = &options.preconditions;
    for (asked, field) in [(&wanted.uid, "uid"), (&wanted.resource_version, "resourceVersion")] {
        let have = meta(object, field);
        if let Some(asked) = asked.as_deref().filter(|asked| *asked != have) {
            let why = format!("Precondition failed: {field} in precondition: {asked}, {field} in object meta: {have}");
            // The kind, not the plural: Kubernetes names it so here.
            let about = About { group: &call.kind().group, resource: &call.kind().kind, name: meta(object, "name") };
            return Err(Failure::conflict(about, &why));
        }
    }
    Ok(())
}

fn success(call: &Call<'_>, object: &Value) -> Value {
    let kind = call.kind();
    let mut details = json!({ "name": meta(object, "name"), "kind": kind.plural, "uid": meta(object, "uid") });
    if !kind.group.is_empty() {
        details["group"] = kind.group.clone().into();
    }
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}
