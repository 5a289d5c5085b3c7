//! Namespace termination: what is in a deleted namespace goes first, pods before all; then the namespace.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::discover::{self, Served};
use super::{code, pause};

/// The finalizer in `spec.finalizers` that is ours to remove.
const FINALIZER: &str = "kubernetes";
/// Requests under way at a time.
const WIDTH: usize = 8;
/// The longest wait between two looks at a namespace that is not empty yet: doublings of 50 ms, so 1.6 s.
const MAX_ATTEMPT: u32 = 5;

/// The loop.
pub struct Namespaces;

impl Namespaces {
    /// Runs until told to stop.
    pub async fn run(self, client: Client, stop: CancellationToken) {
        stop.run_until_cancelled(terminate_all(client)).await;
    }
}

async fn terminate_all(client: Client) {
    let api: Api<Namespace> = Api::all(client.clone());
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff().applied_objects());
    // When to look at a namespace, and how often that was done.
    let mut due: BTreeMap<String, (Instant, u32)> = BTreeMap::new();
    loop {
        let first =
            due.iter().min_by_key(|(_, (at, _))| *at).map(|(name, (at, attempt))| (name.clone(), *at, *attempt));
        let at = first.as_ref().map_or_else(|| Instant::now() + pause(u32::MAX), |(_, at, _)| *at);
        tokio::select! {
            biased;
            Some(event) = events.next() => match event {
                Ok(namespace) if namespace.metadata.deletion_timestamp.is_some() => {
                    due.entry(namespace.name_any()).or_insert((Instant::now(), 0));
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "watching namespaces was interrupted"),
            },
            () = tokio::time::sleep_until(at) => {
                let Some((name, _, attempt)) = first else { continue };
                match terminate(&client, &name).await {
                    Ok(true) => drop(due.remove(&name)),
                    Ok(false) => drop(due.insert(name, (Instant::now() + pause(attempt.min(MAX_ATTEMPT)), attempt + 1))),
                    Err(error) => {
                        tracing::debug!(%error, name, "emptying a namespace failed and is tried again");
                        due.insert(name, (Instant::now() + pause(attempt), attempt + 1));
                    }
                }
            }
        }
    }
}

/// One pass over a namespace; true when it needs no more.
async fn terminate(client: &Client, name: &str) -> kube::Result<bool> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<Namespace>(&()));
    let Some(mut namespace) = api.get_opt(name).await? else { return Ok(true) };
    let has_finalizers = namespace.data["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    if namespace.metadata.deletion_timestamp.is_none() || !has_finalizers {
        return Ok(true);
    }
    if namespace.data["status"]["phase"] != "Terminating" {
        namespace.data["status"]["phase"] = json!("Terminating");
        namespace = replace_status(&api, &namespace).await?;
    }
    let remains = empty(client, name).await;
    if let Some(conditions) = conditions(&namespace.data["status"]["conditions"], &remains, Timestamp::now()) {
        namespace.data["status"]["conditions"] = conditions;
        namespace = replace_status(&api, &namespace).await?;
    }
    if !remains.is_empty() {
        return Ok(false);
    }
    finalize(client, namespace).await?;
    Ok(true)
}

async fn replace_status(api: &Api<DynamicObject>, namespace: &DynamicObject) -> kube::Result<DynamicObject> {
    api.replace_status(&namespace.name_any(), &PostParams::default(), namespace).await
}

/// Takes our finalizer from the namespace; with the last one it goes.
async fn finalize(client: &Client, mut namespace: DynamicObject) -> kube::Result<()> {
    if let Some(finalizers) = namespace.data["spec"]["finalizers"].as_array_mut() {
        finalizers.retain(|finalizer| finalizer != FINALIZER);
    }
    let path = format!("/api/v1/namespaces/{}/finalize", namespace.name_any());
    let body = serde_json::to_vec(&namespace).map_err(kube::Error::SerdeError)?;
    let request = http::Request::put(path).header("content-type", "application/json").body(body);
    let request = request.map_err(kube::Error::HttpError)?;
    match client.request::<Value>(request).await {
        Err(error) if code(&error) == 404 => Ok(()),
        result => result.map(drop),
    }
}

/// What a pass over a namespace left.
#[derive(Debug, Default, PartialEq, Eq)]
struct Remains {
    discovery: Option<String>,
    failures: BTreeSet<String>,
    /// Counts by `resource.group`; pods alone are waited for without being mentioned, as Kubernetes has it.
    objects: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
    pods: usize,
}

impl Remains {
    fn is_empty(&self) -> bool {
        self.discovery.is_none() && self.failures.is_empty() && self.objects.is_empty() && self.pods == 0
    }

    fn add(&mut self, kind: &Served, outcome: kube::Result<Vec<DynamicObject>>, namespace: &str) {
        let objects = match outcome {
            Ok(objects) if objects.is_empty() => return,
            Ok(objects) => objects,
            Err(error) => {
                self.failures.insert(error.to_string());
                return;
            }
        };
        self.objects.insert(format!("{}.{}", kind.plural, kind.group), objects.len());
        for finalizer in objects.iter().flat_map(ResourceExt::finalizers) {
            *self.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
        if objects.iter().all(|object| object.finalizers().is_empty()) {
            let gvr = format!("{}/{}, Resource={}", kind.group, kind.version, kind.plural);
            self.failures.insert(format!("unexpected items still remain in namespace: {namespace} for gvr: {gvr}"));
        }
    }
}

/// Deletes everything in a namespace, pods first.
async fn empty(client: &Client, namespace: &str) -> Remains {
    let mut remains = Remains::default();
    let kinds = match discover::kinds(client).await {
        Ok(kinds) => kinds,
        Err(error) => {
            remains.discovery = Some(error.to_string());
            return remains;
        }
    };
    let is_pod = |kind: &&Served| kind.group.is_empty() && kind.plural == "pods";
    if let Some(pods) = kinds.iter().find(is_pod) {
        match empty_of(client, pods, namespace).await {
            Ok(left) => remains.pods = left.len(),
            Err(error) => drop(remains.failures.insert(error.to_string())),
        }
        if !remains.is_empty() {
            return remains;
        }
    }
    let others: Vec<&Served> = kinds.iter().filter(|kind| kind.namespaced && !is_pod(kind)).collect();
    let passes = others.into_iter().map(|kind| async move { (kind, empty_of(client, kind, namespace).await) });
    let mut passes = futures::stream::iter(passes).buffer_unordered(WIDTH);
    while let Some((kind, outcome)) = passes.next().await {
        remains.add(kind, outcome, namespace);
    }
    remains
}

/// Deletes the objects of a kind; gives back those that are still there.
async fn empty_of(client: &Client, kind: &Served, namespace: &str) -> kube::Result<Vec<DynamicObject>> {
    let api = kind.api(client, namespace);
    let found = match api.list(&ListParams::default()).await {
        // The kind went meanwhile.
        Err(error) if matches!(code(&error), 404 | 405) => return Ok(Vec::new()),
        found => found?.items,
    };
    if found.iter().all(|object| object.metadata.deletion_timestamp.is_some()) {
        return Ok(found);
    }
    if kind.collections {
        api.delete_collection(&DeleteParams::background(), &ListParams::default()).await?;
    } else {
        for object in found.iter().filter(|object| object.metadata.deletion_timestamp.is_none()) {
            match api.delete(&object.name_any(), &DeleteParams::background()).await {
                Err(error) if code(&error) == 404 => {}
                deleted => drop(deleted?),
            }
        }
    }
    Ok(api.list(&ListParams::default()).await?.items)
}

/// The conditions with what is known now; none if nothing changes.
fn conditions(before: &Value, remains: &Remains, now: Timestamp) -> Option<Value> {
    let list = |map: &BTreeMap<String, usize>, word: &str| {
        let items: Vec<String> =
            map.iter().map(|(name, count)| format!("{name} {word} {count} resource instances")).collect();
        items.join(", ")
    };
    let failures: Vec<&str> = remains.failures.iter().map(String::as_str).collect();
    let of = |bad: bool, yes: (&'static str, String), no: (&'static str, &str)| {
        if bad { ("True", yes.0, yes.1) } else { ("False", no.0, no.1.to_owned()) }
    };
    let wanted = [
        (
            "NamespaceDeletionDiscoveryFailure",
            of(
                remains.discovery.is_some(),
                ("DiscoveryFailed", remains.discovery.clone().unwrap_or_default()),
                ("ResourcesDiscovered", "All resources successfully discovered"),
            ),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            of(
                false,
                ("GroupVersionParsingFailed", String::new()),
                ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
            ),
        ),
        (
            "NamespaceDeletionContentFailure",
            of(
                !failures.is_empty(),
                (
                    "ContentDeletionFailed",
                    format!(
                        "Failed to delete all resource types, {} remaining: {}",
                        failures.len(),
                        failures.join(", ")
                    ),
                ),
                ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
            ),
        ),
        (
            "NamespaceContentRemaining",
            of(
                !remains.objects.is_empty(),
                ("SomeResourcesRemain", format!("Some resources are remaining: {}", list(&remains.objects, "has"))),
                ("ContentRemoved", "All content successfully removed"),
            ),
        ),
        (
            "NamespaceFinalizersRemaining",
            of(
                !remains.finalizers.is_empty(),
                (
                    "SomeFinalizersRemain",
                    format!(
                        "Some content in the namespace has finalizers remaining: {}",
                        list(&remains.finalizers, "in")
                    ),
                ),
                ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
            ),
        ),
    ];
    let mut after = before.as_array().cloned().unwrap_or_default();
    for (type_, (status, reason, message)) in wanted {
        let position = after.iter().position(|condition| condition["type"] == type_);
        let same = position.and_then(|at| after.get(at)).filter(|condition| condition["status"] == status);
        let time = same.map_or_else(
            || json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
            |condition| condition["lastTransitionTime"].clone(),
        );
        let condition = json!({
            "type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": time,
        });
        match position.and_then(|at| after.get_mut(at)) {
            Some(old) => *old = condition,
            None => after.push(condition),
        }
    }
    let after = Value::Array(after);
    (after != *before).then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_speak_as_the_real_controller_and_change_only_with_cause() {
        let remains = Remains {
            objects: BTreeMap::from([("boxes.g".to_owned(), 2), ("configmaps.".to_owned(), 1)]),
            finalizers: BTreeMap::from([("g/hold".to_owned(), 3)]),
            ..Remains::default()
        };

        let first = conditions(&Value::Null, &remains, Timestamp::UNIX_EPOCH).unwrap();

        let said: Vec<(&str, &str)> = first
            .as_array()
            .unwrap()
            .iter()
            .map(|c| (c["reason"].as_str().unwrap(), c["message"].as_str().unwrap()))
            .collect();
        assert_eq!(
            said[3],
            (
                "SomeResourcesRemain",
                "Some resources are remaining: boxes.g has 2 resource instances, configmaps. has 1 resource instances"
            )
        );
        assert_eq!(
            said[4],
            (
                "SomeFinalizersRemain",
                "Some content in the namespace has finalizers remaining: g/hold in 3 resource instances"
            )
        );
        assert_eq!(conditions(&first, &remains, Timestamp::now()), None, "no write without a change");
        let last = conditions(&first, &Remains::default(), Timestamp::now()).unwrap();
        assert_eq!(last[0]["lastTransitionTime"], "1970-01-01T00:00:00Z", "what stayed keeps its time");
        assert_ne!(last[4]["lastTransitionTime"], "1970-01-01T00:00:00Z");
    }
}
