//! Which kinds the server has: those that can be listed, watched and deleted, in the preferred version.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::DynamicObject;
use kube::discovery::{ApiResource, Discovery, Scope, verbs};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::time::Instant;

/// One kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Served {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) plural: String,
    pub(super) namespaced: bool,
}

impl Served {
    pub(super) fn resource(&self) -> ApiResource {
        let dot = if self.group.is_empty() { "" } else { "/" };
        ApiResource {
            group: self.group.clone(),
            version: self.version.clone(),
            api_version: format!("{}{dot}{}", self.group, self.version),
            kind: self.kind.clone(),
            plural: self.plural.clone(),
        }
    }

    /// An interface to its objects: in a namespace, if it has them and one is given.
    pub(super) fn api(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        if self.namespaced && !namespace.is_empty() {
            Api::namespaced_with(client.clone(), namespace, &self.resource())
        } else {
            Api::all_with(client.clone(), &self.resource())
        }
    }
}

/// The kinds at present.
pub(super) async fn kinds(client: &Client) -> kube::Result<BTreeSet<Served>> {
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    let mut kinds = BTreeSet::new();
    for group in discovery.groups_alphabetical() {
        for (resource, capabilities) in group.recommended_resources() {
            let can = |verb| capabilities.supports_operation(verb);
            if !(can(verbs::LIST) && can(verbs::WATCH) && can(verbs::DELETE)) {
                continue;
            }
            kinds.insert(Served {
                group: resource.group,
                version: resource.version,
                kind: resource.kind,
                plural: resource.plural,
                namespaced: capabilities.scope == Scope::Namespaced,
            });
        }
    }
    Ok(kinds)
}

/// How long discovery may lag behind a definition that a watch has shown: it is asked again after this time.
const LAG: Duration = Duration::from_secs(1);
/// How often discovery is asked without any change, as the garbage collector of Kubernetes does.
const PERIOD: Duration = Duration::from_secs(30);

struct Changes {
    client: Client,
    /// One item per change of a CustomResourceDefinition.
    definitions: BoxStream<'static, ()>,
    known: Option<BTreeSet<Served>>,
    /// When discovery is asked next if no definition changes.
    next: Instant,
}

/// The kinds, first immediately, then whenever they have changed.
///
/// A watch shows a definition before discovery follows, so one answer after each event is not enough: a kind that is
/// served no longer would be watched in vain, and with it every deletion that waits for dependents.
pub(super) fn changes(client: Client) -> impl Stream<Item = BTreeSet<Served>> + Send {
    let definition = ApiResource::erase::<CustomResourceDefinition>(&());
    let definitions: Api<DynamicObject> = Api::all_with(client.clone(), &definition);
    let definitions = watcher(definitions, watcher::Config::default()).default_backoff().map(drop).boxed();
    let changes = Changes { client, definitions, known: None, next: Instant::now() };
    stream::unfold(changes, |mut changes| async move {
        loop {
            tokio::select! {
                event = changes.definitions.next() => {
                    event?;
                    changes.next = Instant::now() + LAG;
                }
                () = tokio::time::sleep_until(changes.next) => changes.next = Instant::now() + PERIOD,
            }
            match kinds(&changes.client).await {
                Ok(kinds) if changes.known.as_ref() == Some(&kinds) => {}
                Ok(kinds) => {
                    changes.known = Some(kinds.clone());
                    return Some((kinds, changes));
                }
                Err(error) => {
                    tracing::debug!(%error, "discovery failed and is retried");
                    changes.next = Instant::now() + LAG;
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use http::{Request, Response};
    use http_body_util::{BodyExt, Full};
    use kube::api::{DeleteParams, PostParams};
    use serde_json::json;

    use super::*;
    use crate::ApiServer;
    use crate::rest;

    /// A client whose discovery of groups shows the state of its first request as long as `stale` is set.
    fn lagging(server: &ApiServer, stale: &Arc<AtomicBool>) -> Client {
        let (server, stale) = (server.clone(), Arc::clone(stale));
        let first = Arc::new(tokio::sync::OnceCell::new());
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (server, stale, first) = (server.clone(), Arc::clone(&stale), Arc::clone(&first));
            let answer: futures::future::BoxFuture<'static, Result<Response<rest::Body>, Infallible>> =
                Box::pin(async move {
                    let is_groups = request.uri().path() == "/apis";
                    let mut request = request.map(rest::boxed);
                    let token = format!("Bearer {}", server.token());
                    request.headers_mut().insert("authorization", token.parse().unwrap());
                    if !is_groups || !stale.load(Ordering::SeqCst) {
                        return Ok(server.answer(request, None).await);
                    }
                    let old = first.get_or_init(async || {
                        let (head, body) = server.answer(request, None).await.into_parts();
                        (head, body.collect().await.unwrap().to_bytes())
                    });
                    let (head, body) = old.await.clone();
                    Ok(Response::from_parts(head, rest::boxed(Full::new(body))))
                });
            answer
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_discovery_shows_late_is_found_and_one_that_it_drops_late_is_dropped() {
        let (server, stale) = (ApiServer::memory().await, Arc::new(AtomicBool::new(true)));
        let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
        let mut changes = std::pin::pin!(changes(lagging(&server, &stale)));
        let has_oars = |kinds: Option<BTreeSet<Served>>| kinds.unwrap().iter().any(|kind| kind.plural == "oars");
        assert!(!has_oars(changes.next().await));

        let schema = json!({ "openAPIV3Schema": { "type": "object" } });
        let definition = json!({
            "metadata": { "name": "oars.discover.test" },
            "spec": {
                "group": "discover.test", "scope": "Namespaced", "names": { "plural": "oars", "kind": "Oar" },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }],
            },
        });
        definitions.create(&PostParams::default(), &serde_json::from_value(definition).unwrap()).await.unwrap();
        let late = tokio::time::timeout(LAG / 2, changes.next()).await;
        assert!(late.is_err(), "discovery does not show the kind yet");
        stale.store(false, Ordering::SeqCst);
        assert!(has_oars(changes.next().await));

        definitions.delete("oars.discover.test", &DeleteParams::default()).await.unwrap();
        assert!(!has_oars(changes.next().await));
    }
}
