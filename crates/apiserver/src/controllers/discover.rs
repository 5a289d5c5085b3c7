//! Which kinds the server has: those that can be listed, watched and deleted, in the preferred version.

use std::collections::BTreeSet;

use futures::{Stream, StreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::DynamicObject;
use kube::discovery::{ApiResource, Discovery, Scope, verbs};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};

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

/// The kinds, first at once, then after every change of a CustomResourceDefinition.
pub(super) fn changes(client: Client) -> impl Stream<Item = BTreeSet<Served>> + Send {
    let definition = ApiResource::erase::<CustomResourceDefinition>(&());
    let definitions: Api<DynamicObject> = Api::all_with(client.clone(), &definition);
    let events = watcher(definitions, watcher::Config::default()).default_backoff().map(drop);
    events.filter_map(move |()| {
        let client = client.clone();
        async move { kinds(&client).await.inspect_err(|error| tracing::debug!(%error, "discovery failed")).ok() }
    })
}
