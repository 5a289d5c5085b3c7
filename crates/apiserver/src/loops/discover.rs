//! Which kinds the server has: those that can be listed, watched and deleted, in the preferred version.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::DynamicObject;
use kube::discovery::{ApiResource, Discovery, Scope, verbs};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};

/// After a change of CustomResourceDefinitions discovery is asked this often: it may lag behind them.
const BURST: u32 = 12;
const BURST_PAUSE: Duration = Duration::from_millis(200);
/// At rest.
const REST_PAUSE: Duration = Duration::from_mins(1);

/// One kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Served {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) plural: String,
    pub(super) namespaced: bool,
    /// Whether all of a namespace can be deleted in one request.
    pub(super) collections: bool,
}

impl Served {
    /// An interface to its objects: in a namespace, if it has them and one is given.
    pub(super) fn api(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        let dot = if self.group.is_empty() { "" } else { "/" };
        let resource = ApiResource {
            group: self.group.clone(),
            version: self.version.clone(),
            api_version: format!("{}{dot}{}", self.group, self.version),
            kind: self.kind.clone(),
            plural: self.plural.clone(),
        };
        if self.namespaced && !namespace.is_empty() {
            Api::namespaced_with(client.clone(), namespace, &resource)
        } else {
            Api::all_with(client.clone(), &resource)
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
                collections: can(verbs::DELETE_COLLECTION),
            });
        }
    }
    Ok(kinds)
}

/// The kinds, whenever they change; first at once.
pub(super) fn changes(client: Client) -> impl Stream<Item = BTreeSet<Served>> + Send {
    let definition = ApiResource::erase::<CustomResourceDefinition>(&());
    let definitions: Api<DynamicObject> = Api::all_with(client.clone(), &definition);
    let definitions = watcher(definitions, watcher::Config::default()).default_backoff().map(drop);
    let state = State { client, definitions: definitions.boxed(), known: BTreeSet::new(), burst: BURST };
    futures::stream::unfold(state, |mut state| async {
        let kinds = state.next().await;
        Some((kinds, state))
    })
}

struct State {
    client: Client,
    definitions: BoxStream<'static, ()>,
    known: BTreeSet<Served>,
    /// Questions left in this burst.
    burst: u32,
}

impl State {
    async fn next(&mut self) -> BTreeSet<Served> {
        loop {
            match kinds(&self.client).await {
                Ok(kinds) if kinds != self.known => {
                    self.known.clone_from(&kinds);
                    return kinds;
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "discovery failed"),
            }
            self.burst = self.burst.saturating_sub(1);
            let pause = if self.burst > 0 || self.known.is_empty() { BURST_PAUSE } else { REST_PAUSE };
            let mut definitions = Pin::new(&mut self.definitions);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                Some(()) = definitions.next() => self.burst = BURST,
            }
        }
    }
}
