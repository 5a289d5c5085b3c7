//! Namespace termination: deletes the objects of a terminating namespace, pods first, then finalizes the namespace. What is
//! left, and whose finalizers hold it, is told by conditions.

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
use tokio_util::sync::CancellationToken;

use super::discover::{self, Served};
use super::reconcile::{Pace, code};

/// The finalizer in `spec.finalizers` that is ours to remove.
const FINALIZER: &str = "kubernetes";
/// Concurrent requests.
const WIDTH: usize = 8;

/// The namespace controller.
pub struct Namespaces;

impl Namespaces {
    /// Runs until `stop`.
    pub async fn run(self, client: Client, stop: CancellationToken) {
        stop.run_until_cancelled(Box::pin(terminate_all(client))).await;
    }
}

async fn terminate_all(client: Client) {
    let api: Api<Namespace> = Api::all(client.clone());
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff().applied_objects());
    let mut due: BTreeSet<String> = BTreeSet::new();
    let mut pace = Pace::default();
    loop {
        tokio::select! {
            biased;
            Some(event) = events.next() => match event {
                Ok(namespace) if namespace.metadata.deletion_timestamp.is_some() => {
                    due.insert(namespace.name_any());
                    pace.touch();
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "watching namespaces was interrupted"),
            },
            () = pace.due() => {
                let mut left = BTreeSet::new();
                for name in std::mem::take(&mut due) {
                    let done = terminate(&client, &name).await;
                    if !done.unwrap_or_else(|error| {
                        tracing::debug!(%error, name, "emptying a namespace failed and is tried again");
                        false
                    }) {
                        left.insert(name);
                    }
                }
                due = left;
                pace.worked(due.is_empty());
            }
        }
    }
}

/// One pass over a namespace; true when it is done.
async fn terminate(client: &Client, name: &str) -> kube::Result<bool> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<Namespace>(&()));
    let Some(mut namespace) = api.get_opt(name).await? else { return Ok(true) };
    let has_finalizers = namespace.data["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    if namespace.metadata.deletion_timestamp.is_none() || !has_finalizers {
        return Ok(true);
    }
    if namespace.data["status"]["phase"] != "Terminating" {
        namespace.data["status"]["phase"] = json!("Terminating");
        namespace = api.replace_status(name, &PostParams::default(), &namespace).await?;
    }
    let left = empty(client, name).await?;
    if left.counts.is_empty() {
        finalize(client, namespace).await?;
        return Ok(true);
    }
    let now = crate::object::time(Timestamp::now());
    let wanted = left.conditions(namespace.data["status"]["conditions"].as_array().map_or(&[], Vec::as_slice), &now);
    if namespace.data["status"]["conditions"] != json!(wanted) {
        namespace.data["status"]["conditions"] = json!(wanted);
        api.replace_status(name, &PostParams::default(), &namespace).await?;
    }
    Ok(false)
}

/// What a pass has left in a namespace.
#[derive(Default)]
struct Remaining {
    /// Objects by kind.
    counts: BTreeMap<String, usize>,
    /// Objects by finalizer.
    finalizers: BTreeMap<String, usize>,
}

impl Remaining {
    fn add(&mut self, kind: &Served, objects: &[DynamicObject]) {
        if objects.is_empty() {
            return;
        }
        let dot = if kind.group.is_empty() { "" } else { "." };
        *self.counts.entry(format!("{}{dot}{}", kind.plural, kind.group)).or_default() += objects.len();
        for finalizer in objects.iter().flat_map(ResourceExt::finalizers) {
            *self.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
    }

    /// The conditions that Kubernetes has of a terminating namespace; a transition time moves only with its status.
    fn conditions(&self, before: &[Value], now: &str) -> Vec<Value> {
        let list = |counts: &BTreeMap<String, usize>, what: &str| -> String {
            counts.iter().map(|(name, count)| format!("{name} {what} {count}")).collect::<Vec<_>>().join(", ")
        };
        let (content, finalizers) = (list(&self.counts, "has"), list(&self.finalizers, "in"));
        let remaining = |is_left: bool, reasons: [&'static str; 2], messages: [String; 2]| {
            let [left, none] = reasons;
            let [told, nothing] = messages;
            if is_left { ("True", left, told) } else { ("False", none, nothing) }
        };
        let of_content = remaining(
            !self.counts.is_empty(),
            ["SomeResourcesRemain", "ContentRemoved"],
            [format!("objects remain: {content}"), "no object remains".to_owned()],
        );
        let of_finalizers = remaining(
            !self.finalizers.is_empty(),
            ["SomeFinalizersRemain", "ContentHasNoFinalizers"],
            [format!("finalizers hold objects: {finalizers}"), "no finalizer holds an object".to_owned()],
        );
        let none = |reason: &'static str, message: &str| ("False", reason, message.to_owned());
        let all = [
            ("NamespaceDeletionDiscoveryFailure", none("ResourcesDiscovered", "all kinds were found")),
            ("NamespaceDeletionGroupVersionParsingFailure", none("ParsedGroupVersions", "all versions were read")),
            ("NamespaceDeletionContentFailure", none("ContentDeleted", "every object was asked to go")),
            ("NamespaceContentRemaining", of_content),
            ("NamespaceFinalizersRemaining", of_finalizers),
        ];
        let condition = |(type_, (status, reason, message)): (&str, (&str, &str, String))| {
            let same = before.iter().find(|seen| seen["type"] == type_ && seen["status"] == status);
            let since = same.map_or_else(|| now.into(), |seen| seen["lastTransitionTime"].clone());
            json!({
                "type": type_, "status": status, "lastTransitionTime": since, "reason": reason, "message": message,
            })
        };
        all.map(condition).into()
    }
}

/// Removes our finalizer from the namespace; removing the last one deletes it.
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

/// Deletes everything in a namespace, pods first, and returns what is left.
async fn empty(client: &Client, namespace: &str) -> kube::Result<Remaining> {
    let kinds = discover::kinds(client).await?;
    let (pods, others): (Vec<&Served>, Vec<&Served>) =
        kinds.iter().filter(|kind| kind.namespaced).partition(|kind| kind.group.is_empty() && kind.plural == "pods");
    let mut remaining = Remaining::default();
    for kinds in [pods, others] {
        let passes = kinds.into_iter().map(async |kind| (kind, empty_of(client, kind, namespace).await));
        let mut passes = futures::stream::iter(passes).buffer_unordered(WIDTH);
        while let Some((kind, left)) = passes.next().await {
            remaining.add(kind, &left?);
        }
        if !remaining.counts.is_empty() {
            break;
        }
    }
    Ok(remaining)
}

/// Deletes the objects of a kind, and returns those that are left.
async fn empty_of(client: &Client, kind: &Served, namespace: &str) -> kube::Result<Vec<DynamicObject>> {
    let api = kind.api(client, namespace);
    let found = match api.list(&ListParams::default()).await {
        // The kind was removed meanwhile.
        Err(error) if matches!(code(&error), 404 | 405) => return Ok(Vec::new()),
        found => found?.items,
    };
    if found.iter().any(|object| object.metadata.deletion_timestamp.is_none()) {
        api.delete_collection(&DeleteParams::background(), &ListParams::default()).await?;
        return Ok(api.list(&ListParams::default()).await?.items);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_tell_what_is_left_and_who_holds_it() {
        let kind = Served {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            plural: "pods".to_owned(),
            namespaced: true,
        };
        let mut pod = DynamicObject::new("one", &kind.resource());
        pod.metadata.finalizers = Some(vec!["stories.test/hold".to_owned()]);
        let mut left = Remaining::default();
        left.add(&kind, &[pod]);
        let first = left.conditions(&[], "2026-01-01T00:00:00Z");
        let by_type = |type_: &str| first.iter().find(|condition| condition["type"] == type_).unwrap();
        assert_eq!(by_type("NamespaceContentRemaining")["message"], "objects remain: pods has 1");
        assert_eq!(by_type("NamespaceFinalizersRemaining")["status"], "True");
        assert_eq!(by_type("NamespaceDeletionContentFailure")["status"], "False");
        assert_eq!(left.conditions(&first, "2026-01-01T00:00:09Z"), first);
    }
}
