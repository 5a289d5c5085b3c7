//! Deleting objects: at once, gracefully, or when their finalizers are done.

use std::time::Duration;

use http::{StatusCode, header};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::answer::{Call, Said};
use super::options::{DeleteOptions, Propagation, WriteOptions};
use super::write::{Facts, modified, nothing_else_keeps, refusal};
use super::{negotiate, read};
use crate::admission::Operation;
use crate::crd;
use crate::object::{get_meta, has_finalizers, is_deleting, meta, set_meta, time};
use crate::server::Inner;
use crate::status::{About, Failure};
use crate::store::{Change, Expect, Refused};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";
const TRIES: usize = 10;

/// `DELETE` of one object.
pub(super) async fn delete(call: &Call<'_>, bytes: &[u8]) -> Result<Said, Failure> {
    let options = options(call, bytes)?;
    let deleted = delete_one(call, &call.name, &options).await?;
    let code = match (&deleted, options.orphan_dependents) {
        (Deleted::Kept(_), Some(false)) => StatusCode::ACCEPTED,
        _ => StatusCode::OK,
    };
    let object = match deleted {
        Deleted::Gone(object) if answers_with_status(call) => success(call, &object),
        Deleted::Gone(object) | Deleted::Kept(object) => object,
    };
    Ok(Said::Object { code, object, warnings: Vec::new() })
}

/// `DELETE` of a collection: each object that the selectors want.
pub(super) async fn delete_collection(call: &Call<'_>, bytes: &[u8]) -> Result<Said, Failure> {
    let options = options(call, bytes)?;
    let listed = read::list(call, &read::options(call, false)?)?;
    if let Said::List { items, .. } = &listed {
        for item in items {
            match delete_one(call, meta(item, "name"), &options).await {
                // Perhaps someone else was faster.
                Err(failure) if failure.code != StatusCode::NOT_FOUND => return Err(failure),
                Ok(_) | Err(_) => {}
            }
        }
    }
    // The answer shows them as they were.
    Ok(listed)
}

/// What a deletion comes to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It goes at once.
    Goes,
    /// It is marked, and goes at once.
    GoesMarked,
    /// It is marked; something keeps it.
    Stays,
}

enum Deleted {
    Gone(Value),
    /// It goes when its finalizers or its grace are over.
    Kept(Value),
}

fn options(call: &Call<'_>, bytes: &[u8]) -> Result<DeleteOptions, Failure> {
    let form = negotiate::content(call.header(header::CONTENT_TYPE)).unwrap_or(negotiate::Form::Json);
    DeleteOptions::parse(&call.query, form, bytes)
}

async fn delete_one(call: &Call<'_>, name: &str, options: &DeleteOptions) -> Result<Deleted, Failure> {
    let about = About { group: &call.kind().group, resource: &call.kind().plural, name };
    let immortal = matches!(name, "default" | "kube-system" | "kube-public");
    if immortal && call.kind().group.is_empty() && call.kind().kind == "Namespace" {
        return Err(Failure::forbidden(about, "this namespace may not be deleted"));
    }
    let writing = WriteOptions { dry_run: options.dry_run, ..WriteOptions::default() };
    for _ in 0..TRIES {
        let key = read::key(call, name);
        let entry = call.server.store.get(&key).ok_or_else(|| Failure::not_found(about))?;
        let old = Inner::decode(call.kind(), &entry)?;
        check_preconditions(call, options, &old)?;
        let hooks = call.server.hooks();
        if !hooks.is_empty() {
            let facts = Facts::of(call, &writing, Operation::Delete);
            let (mut none, mut warnings) = (Value::Null, Vec::new());
            let attributes = facts.attributes(call, Operation::Delete, name, Some(&old));
            hooks.mutate(&attributes, &mut none, &mut warnings).await?;
            hooks.validate(&attributes, &none, &mut warnings).await?;
        }
        let mut new = old.clone();
        let fate = marked(call, &mut new, options);
        if fate == Fate::Stays && new == old {
            return Ok(Deleted::Kept(old));
        }
        let last = if fate == Fate::Goes { old } else { new };
        if options.dry_run {
            return Ok(if fate == Fate::Stays { Deleted::Kept(last) } else { Deleted::Gone(last) });
        }
        let mut revision = entry.revision;
        if fate == Fate::GoesMarked {
            let (kind, marked) = (call.served.clone(), last.clone());
            let set = move |revision| Change::Set(Inner::encode(&kind.kind, marked, revision));
            match call.server.store.commit(key.clone(), Expect::Revision(revision), set).await {
                Ok(written) => revision = written.revision,
                Err(Refused::Changed(_)) => continue,
                Err(refused) => return Err(refusal(about, &refused)),
            }
        }
        let kind = call.served.clone();
        let change = move |revision| {
            let bytes = Inner::encode(&kind.kind, last, revision);
            if fate == Fate::Stays { Change::Set(bytes) } else { Change::Delete(bytes) }
        };
        match call.server.store.commit(key, Expect::Revision(revision), change).await {
            Ok(written) => {
                call.server.wrote(call.kind()).await;
                let object = Inner::decode(call.kind(), &written)?;
                return Ok(if fate == Fate::Stays { Deleted::Kept(object) } else { Deleted::Gone(object) });
            }
            Err(Refused::Changed(_)) => {}
            Err(refused) => return Err(refusal(about, &refused)),
        }
    }
    Err(modified(about))
}

/// Marks the object as being deleted where that is due, and says what becomes of it.
fn marked(call: &Call<'_>, object: &mut Value, options: &DeleteOptions) -> Fate {
    let kind = call.kind();
    if kind.kind == "CustomResourceDefinition" && !kind.custom && !is_deleting(object) {
        crd::terminate(object, &time(call.now));
        return Fate::Stays;
    }
    let is = |name: &str| kind.group.is_empty() && kind.kind == name;
    let mut grace = 0;
    if is("Pod") {
        match mark_pod(call, object, options) {
            Some(left) => grace = left,
            None => return Fate::Stays,
        }
    }
    propagate(object, options);
    let kept = has_finalizers(object) || !nothing_else_keeps(object) || grace > 0;
    if kept && !is_deleting(object) {
        set_meta(object, "deletionTimestamp", time(call.now));
        // A namespace has no grace of its own.
        if !is("Namespace") {
            set_meta(object, "deletionGracePeriodSeconds", 0);
        }
        if let Some(generation) = object["metadata"]["generation"].as_i64() {
            set_meta(object, "generation", generation + 1);
        }
        if is("Namespace") {
            object["status"]["phase"] = "Terminating".into();
        }
    }
    match (kept, is("Pod")) {
        (true, _) => Fate::Stays,
        (false, true) => Fate::GoesMarked,
        (false, false) => Fate::Goes,
    }
}

/// What is to become of dependents is a finalizer for the garbage collector.
fn propagate(object: &mut Value, options: &DeleteOptions) {
    let propagation = options.propagation.or(match options.orphan_dependents {
        Some(true) => Some(Propagation::Orphan),
        Some(false) => Some(Propagation::Background),
        None => None,
    });
    let Some(propagation) = propagation else { return };
    let mut finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    finalizers.retain(|finalizer| finalizer != FOREGROUND && finalizer != ORPHAN);
    match propagation {
        Propagation::Foreground => finalizers.push(FOREGROUND.into()),
        Propagation::Orphan => finalizers.push(ORPHAN.into()),
        Propagation::Background => {}
    }
    set_meta(object, "finalizers", if finalizers.is_empty() { Value::Null } else { Value::Array(finalizers) });
}

/// Gives a pod its time to end, or less of it than before. Says how much is left; none when nothing changes.
fn mark_pod(call: &Call<'_>, pod: &mut Value, options: &DeleteOptions) -> Option<u64> {
    if !is_deleting(pod) {
        let grace = pod_grace(pod, options);
        set_meta(pod, "deletionTimestamp", time(call.now + Duration::from_secs(grace)));
        set_meta(pod, "deletionGracePeriodSeconds", grace);
        if let Some(generation) = pod["metadata"]["generation"].as_i64() {
            set_meta(pod, "generation", generation + 1);
        }
        return Some(grace);
    }
    let before = get_meta(pod, "deletionGracePeriodSeconds").as_u64().unwrap_or(0);
    if before == 0 {
        return Some(0);
    }
    let asked = u64::try_from(options.grace_period_seconds?).unwrap_or(1);
    if asked >= before {
        return None;
    }
    let ends: Timestamp = meta(pod, "deletionTimestamp").parse().unwrap_or(call.now);
    set_meta(pod, "deletionTimestamp", time(ends - Duration::from_secs(before - asked)));
    set_meta(pod, "deletionGracePeriodSeconds", asked);
    Some(asked)
}

/// A pod that no node runs, or that is over, needs no time to end.
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
    for (what, asked, field, perhaps) in [
        ("UID", &wanted.uid, "uid", "deleted and then recreated"),
        ("ResourceVersion", &wanted.resource_version, "resourceVersion", "modified"),
    ] {
        let have = meta(object, field);
        if let Some(asked) = asked.as_deref().filter(|asked| *asked != have) {
            let why = format!(
                "the {what} in the precondition ({asked}) does not match the {what} in record ({have}). The object might \
                 have been {perhaps}"
            );
            // The kind, not the plural: Kubernetes names it so here.
            let about = About { group: &call.kind().group, resource: &call.kind().kind, name: meta(object, "name") };
            return Err(Failure::conflict(about, &why));
        }
    }
    Ok(())
}

/// Most kinds answer a deletion with a Status, some with the object as it was.
fn answers_with_status(call: &Call<'_>) -> bool {
    let kind = call.kind();
    kind.custom || !(kind.group.is_empty() && matches!(kind.kind.as_str(), "Pod" | "Service" | "ServiceAccount"))
}

fn success(call: &Call<'_>, object: &Value) -> Value {
    let kind = call.kind();
    let mut details = json!({ "name": meta(object, "name"), "kind": kind.plural, "uid": meta(object, "uid") });
    if !kind.group.is_empty() {
        details["group"] = kind.group.clone().into();
    }
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}
