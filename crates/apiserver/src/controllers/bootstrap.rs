//! What every namespace has: ServiceAccount `default`, and ConfigMap `kube-root-ca.crt` with the certificate that clients
//! trust the server by. Pods and charts of others count on them.

use std::collections::BTreeMap;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::reconcile::{Pace, code, is_listed, watch};

const ACCOUNT: &str = "default";
const CERTIFICATE: &str = "kube-root-ca.crt";
const KEY: &str = "ca.crt";
const MANAGER: &str = "root-ca-certificate-publisher";

/// The controller of what every namespace has.
pub struct Bootstrap {
    /// The certificate of the server's authority, in PEM.
    pub certificate: String,
}

impl Bootstrap {
    /// Runs until `stop`.
    pub async fn run(self, client: Client, stop: CancellationToken) {
        stop.run_until_cancelled(Box::pin(follow(client, self.certificate))).await;
    }
}

async fn follow(client: Client, certificate: String) {
    let named = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
    let (namespaces, namespace_events) = watch::<Namespace>(&client, watcher::Config::default());
    let (accounts, account_events) = watch::<ServiceAccount>(&client, named(ACCOUNT));
    let (certificates, certificate_events) = watch::<ConfigMap>(&client, named(CERTIFICATE));
    let mut touched = futures::stream::select_all([namespace_events, account_events, certificate_events]);
    let world = World { client, certificate, namespaces, accounts, certificates };
    let mut pace = Pace::default();
    loop {
        tokio::select! {
            biased;
            Some(_) = touched.next() => pace.touch(),
            () = pace.due(), if world.is_ready() => {
                let repaired = world.repair().await;
                if let Err(error) = &repaired {
                    tracing::debug!(%error, "writing what every namespace has failed and is retried");
                }
                pace.worked(repaired.is_ok());
            }
        }
    }
}

struct World {
    client: Client,
    certificate: String,
    namespaces: Store<Namespace>,
    accounts: Store<ServiceAccount>,
    certificates: Store<ConfigMap>,
}

impl World {
    fn is_ready(&self) -> bool {
        is_listed(&self.namespaces) && is_listed(&self.accounts) && is_listed(&self.certificates)
    }

    async fn repair(&self) -> kube::Result<()> {
        let namespaces = self.namespaces.state();
        for namespace in namespaces.iter().filter(|namespace| namespace.metadata.deletion_timestamp.is_none()) {
            let namespace = namespace.name_any();
            if self.accounts.get(&ObjectRef::new(ACCOUNT).within(&namespace)).is_none() {
                let account = serde_json::from_value(json!({ "metadata": { "name": ACCOUNT } }));
                let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &namespace);
                let account = account.map_err(kube::Error::SerdeError)?;
                allow(api.create(&PostParams::default(), &account).await)?;
            }
            let data = BTreeMap::from([(KEY.to_owned(), self.certificate.clone())]);
            let stored = self.certificates.get(&ObjectRef::new(CERTIFICATE).within(&namespace));
            if stored.is_none_or(|stored| stored.data.as_ref() != Some(&data)) {
                let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": data });
                let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &namespace);
                let params = PatchParams::apply(MANAGER).force();
                allow(api.patch(CERTIFICATE, &params, &Patch::Apply(&map)).await)?;
            }
        }
        Ok(())
    }
}

/// Ignores that something is there already, and that a namespace is ending.
fn allow<T>(answer: kube::Result<T>) -> kube::Result<()> {
    match answer {
        Err(error) if !matches!(code(&error), 403 | 404 | 409) => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}
