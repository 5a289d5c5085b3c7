//! Namespace termination: deletes the objects of a terminating namespace, pods first, then finalizes the namespace.

use std::collections::BTreeSet;

use futures::StreamExt;
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
    if empty(client, name).await? {
        finalize(client, namespace).await?;
        return Ok(true);
    }
    Ok(false)
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

/// Deletes everything in a namespace, pods first; true when nothing is left.
async fn empty(client: &Client, namespace: &str) -> kube::Result<bool> {
    let kinds = discover::kinds(client).await?;
    let (pods, others): (Vec<&Served>, Vec<&Served>) =
        kinds.iter().filter(|kind| kind.namespaced).partition(|kind| kind.group.is_empty() && kind.plural == "pods");
    for kinds in [pods, others] {
        let passes = kinds.into_iter().map(|kind| empty_of(client, kind, namespace));
        let mut passes = futures::stream::iter(passes).buffer_unordered(WIDTH);
        let mut is_empty = true;
        while let Some(pass) = passes.next().await {
            is_empty &= pass?;
        }
        if !is_empty {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Deletes the objects of a kind; true when none is left.
async fn empty_of(client: &Client, kind: &Served, namespace: &str) -> kube::Result<bool> {
    let api = kind.api(client, namespace);
    let found = match api.list(&ListParams::default()).await {
        // The kind was removed meanwhile.
        Err(error) if matches!(code(&error), 404 | 405) => return Ok(true),
        found => found?.items,
    };
    if found.iter().any(|object| object.metadata.deletion_timestamp.is_none()) {
        api.delete_collection(&DeleteParams::background(), &ListParams::default()).await?;
        return Ok(api.list(&ListParams::default().limit(1)).await?.items.is_empty());
    }
    Ok(found.is_empty())
}
