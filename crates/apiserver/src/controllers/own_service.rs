//! Service `default/kubernetes`, by which clients in a cluster find the server, with its Endpoints and `EndpointSlice`.

use std::net::SocketAddr;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::reconcile::{Pace, watch};
use crate::kinds::cluster_ip;

const NAMESPACE: &str = "default";
const NAME: &str = "kubernetes";
const PORT: &str = "https";
const MANAGER: &str = "kube-apiserver";

/// The controller of the server's own Service.
pub struct OwnService {
    /// Where the server listens.
    pub address: SocketAddr,
}

impl OwnService {
    /// Runs until `stop`.
    pub async fn run(self, client: Client, stop: CancellationToken) {
        stop.run_until_cancelled(Box::pin(self.follow(client))).await;
    }

    async fn follow(self, client: Client) {
        let named = || watcher::Config::default().fields(&format!("metadata.name={NAME}"));
        let (_, services) = watch::<Service>(&client, named());
        let (_, endpoints) = watch::<Endpoints>(&client, named());
        let (_, slices) = watch::<EndpointSlice>(&client, named());
        let mut touched = futures::stream::select_all([services, endpoints, slices]);
        let mut pace = Pace::default();
        loop {
            tokio::select! {
                biased;
                Some(_) = touched.next() => pace.touch(),
                () = pace.due() => {
                    let applied = self.apply_all(&client).await;
                    if let Err(error) = &applied {
                        tracing::debug!(%error, "writing the server's own Service failed and is retried");
                    }
                    pace.worked(applied.is_ok());
                }
            }
        }
    }

    /// Applies the three objects; the server writes nothing that is as it should be.
    async fn apply_all(&self, client: &Client) -> kube::Result<()> {
        let (ip, port) = (self.address.ip(), self.address.port());
        apply::<Service>(
            client,
            json!({
                "metadata": { "labels": { "component": "apiserver", "provider": "kubernetes" } },
                "spec": {
                    "clusterIP": cluster_ip::OF_SERVER,
                    "ports": [{ "name": PORT, "port": 443, "protocol": "TCP", "targetPort": port }],
                },
            }),
        )
        .await?;
        apply::<Endpoints>(
            client,
            json!({
                "metadata": { "labels": { "endpointslice.kubernetes.io/skip-mirror": "true" } },
                "subsets": [{
                    "addresses": [{ "ip": ip }],
                    "ports": [{ "name": PORT, "port": port, "protocol": "TCP" }],
                }],
            }),
        )
        .await?;
        apply::<EndpointSlice>(
            client,
            json!({
                "metadata": { "labels": { "kubernetes.io/service-name": NAME } },
                "addressType": if ip.is_ipv4() { "IPv4" } else { "IPv6" },
                "endpoints": [{ "addresses": [ip], "conditions": { "ready": true } }],
                "ports": [{ "name": PORT, "port": port, "protocol": "TCP" }],
            }),
        )
        .await
    }
}

async fn apply<K>(client: &Client, mut object: Value) -> kube::Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
{
    object["apiVersion"] = K::api_version(&()).into();
    object["kind"] = K::kind(&()).into();
    let api: Api<K> = Api::namespaced(client.clone(), NAMESPACE);
    api.patch(NAME, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&object)).await.map(drop)
}
