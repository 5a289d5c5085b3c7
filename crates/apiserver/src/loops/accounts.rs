//! What every namespace has from the start: the ServiceAccount `default` and the ConfigMap `kube-root-ca.crt`.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::mirror::Mirror;
use super::{code, pause};

const ACCOUNT: &str = "default";
const ROOT: &str = "kube-root-ca.crt";
const ROOT_KEY: &str = "ca.crt";
const ROOT_NOTE: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
    endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
    distributions of Kubernetes clusters.";

/// The loop.
pub struct Accounts {
    /// The API server's authority, in PEM.
    pub authority: String,
}

/// What is there.
#[derive(Default)]
struct Seen {
    /// Whether they are on their way out.
    namespaces: Mirror<bool>,
    accounts: Mirror<()>,
    /// The authority they hold.
    roots: Mirror<String>,
}

impl Accounts {
    /// Runs until told to stop.
    pub async fn run(self, client: Client, stop: CancellationToken) {
        stop.run_until_cancelled(Box::pin(self.provide(client))).await;
    }

    async fn provide(&self, client: Client) {
        let named = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
        let namespaces = watcher(Api::<Namespace>::all(client.clone()), watcher::Config::default()).default_backoff();
        let accounts = watcher(Api::<ServiceAccount>::all(client.clone()), named(ACCOUNT)).default_backoff();
        let roots = watcher(Api::<ConfigMap>::all(client.clone()), named(ROOT)).default_backoff();
        let (mut namespaces, mut accounts, mut roots) =
            (std::pin::pin!(namespaces), std::pin::pin!(accounts), std::pin::pin!(roots));
        let mut seen = Seen::default();
        let mut due = BTreeSet::new();
        let mut failures = 0;
        loop {
            let retry = tokio::time::sleep(pause(failures));
            let changed = tokio::select! {
                Some(event) = namespaces.next() => seen.namespaces.take_in(event, |namespace: Namespace| {
                    namespace.metadata.deletion_timestamp.is_some()
                }),
                Some(event) = accounts.next() => seen.accounts.take_in(event, |_: ServiceAccount| ()),
                Some(event) = roots.next() => seen.roots.take_in(event, authority_of),
                () = retry, if failures > 0 => BTreeSet::new(),
            };
            // A namespace is its own name; the others are in one.
            due.extend(
                changed.into_iter().map(|(namespace, name)| if namespace.is_empty() { name } else { namespace }),
            );
            if seen.namespaces.is_synced() && seen.accounts.is_synced() && seen.roots.is_synced() {
                failures = if self.mend(&client, &seen, &mut due).await { 0 } else { failures + 1 };
            }
        }
    }

    /// Makes what is missing; false if something could not be made, and is due still.
    async fn mend(&self, client: &Client, seen: &Seen, due: &mut BTreeSet<String>) -> bool {
        let mut left = BTreeSet::new();
        for namespace in std::mem::take(due) {
            if seen.namespaces.items().get(&(String::new(), namespace.clone())) != Some(&false) {
                continue;
            }
            let account = self.mend_account(client, seen, &namespace).await;
            if !account || !self.mend_root(client, seen, &namespace).await {
                left.insert(namespace);
            }
        }
        *due = left;
        due.is_empty()
    }

    async fn mend_account(&self, client: &Client, seen: &Seen, namespace: &str) -> bool {
        if seen.accounts.items().contains_key(&(namespace.to_owned(), ACCOUNT.to_owned())) {
            return true;
        }
        let account = ServiceAccount { metadata: meta(ACCOUNT), ..ServiceAccount::default() };
        let api: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
        made(api.create(&PostParams::default(), &account).await.map(drop))
    }

    async fn mend_root(&self, client: &Client, seen: &Seen, namespace: &str) -> bool {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let written = match seen.roots.items().get(&(namespace.to_owned(), ROOT.to_owned())) {
            Some(authority) if *authority == self.authority => return true,
            Some(_) => {
                let patch = Patch::Merge(json!({ "data": { ROOT_KEY: self.authority } }));
                api.patch(ROOT, &PatchParams::default(), &patch).await
            }
            None => api.create(&PostParams::default(), &self.root()).await,
        };
        made(written.map(drop))
    }

    fn root(&self) -> ConfigMap {
        let mut metadata = meta(ROOT);
        metadata.annotations = Some(BTreeMap::from([("kubernetes.io/description".to_owned(), ROOT_NOTE.to_owned())]));
        let data = BTreeMap::from([(ROOT_KEY.to_owned(), self.authority.clone())]);
        ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }
    }
}

fn authority_of(map: ConfigMap) -> String {
    map.data.and_then(|mut data| data.remove(ROOT_KEY)).unwrap_or_default()
}

fn meta(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

/// Whether all is well: made, there already, or its namespace is on its way out.
fn made(result: kube::Result<()>) -> bool {
    match result {
        Ok(()) => true,
        Err(error) if matches!(code(&error), 403 | 404 | 409) => true,
        Err(error) => {
            tracing::debug!(%error, "furnishing a namespace failed and is tried again");
            false
        }
    }
}
