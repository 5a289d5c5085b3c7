//! A provider's cluster: its accounts, and what they have.

use std::fmt::Debug;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt as _};
use portolan_api::address_claim::AddressClaim;
use portolan_api::gateway::{Account, Endpoint, LoadBalancer, NodeConfig, ServiceGroup, ServicePrefix};
use portolan_control::install;
use portolan_simulator::cluster::{self, Cluster};
use portolan_testkit::ControlPlane;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Requests of ours that are under way at a time.
const AT_ONCE: usize = 32;
/// Hash of the password `secret`, cheap to verify.
const HASH: &str = "$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";
/// `bob:secret`, as Basic has it.
pub(crate) const LOGIN: &str = "Basic Ym9iOnNlY3JldA==";

/// A cluster with the kinds of gateway.
pub(crate) struct Site {
    pub(crate) client: Client,
    pub(crate) kubeconfig: PathBuf,
    server: Server,
}

enum Server {
    Real(Box<ControlPlane>),
    Embedded { cluster: Cluster, _folder: TempDir },
}

impl Site {
    /// kube-apiserver and etcd.
    pub(crate) async fn real() -> anyhow::Result<Self> {
        let plane = ControlPlane::start()?;
        let (client, kubeconfig) = (plane.client(), plane.kubeconfig_path().to_owned());
        Self::made(client, kubeconfig, Server::Real(Box::new(plane))).await
    }

    /// The embedded API server, in this process.
    pub(crate) async fn embedded() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        let options = cluster::Options {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            data_dir: None,
            kubeconfig: kubeconfig.clone(),
            nodes: 0,
            network: cluster::Network::number(0),
            run_elsewhere: None,
        };
        let cluster = Cluster::start(options).await?;
        Self::made(cluster.client(), kubeconfig, Server::Embedded { cluster, _folder: folder }).await
    }

    async fn made(client: Client, kubeconfig: PathBuf, server: Server) -> anyhow::Result<Self> {
        install::definitions(&client).await?;
        let site = Self { client, kubeconfig, server };
        for namespace in ["portolan", "egw"] {
            site.namespace(namespace).await?;
        }
        Ok(site)
    }

    pub(crate) async fn stop(self) {
        match self.server {
            Server::Real(plane) => drop(plane),
            Server::Embedded { cluster, .. } => cluster.stop().await,
        }
    }

    /// The process ids of the API server and its store, if they are not this process.
    pub(crate) fn processes(&self) -> Vec<u32> {
        match &self.server {
            Server::Real(plane) => plane.process_ids(),
            Server::Embedded { .. } => Vec::new(),
        }
    }

    pub(crate) fn of<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Addresses, a place for tunnels to end, and accounts that may have as much as there is.
    pub(crate) async fn provider(&self, subnet: &str, accounts: usize) -> anyhow::Result<()> {
        self.create::<ServicePrefix>("egw", "default", json!({ "subnet": subnet, "pool": subnet })).await?;
        let base = json!({ "base": { "gue-endpoint": { "egw-address": "198.51.100.1" } } });
        self.create::<NodeConfig>("egw", "default", base).await?;
        for number in 0..accounts {
            let name = account(number);
            let limits = json!({ "load-balancers": 65_535, "addresses": 65_535 });
            self.create::<Account>("egw", &name, json!({ "limits": limits })).await?;
            let namespace = format!("egw-{name}");
            self.namespace(&namespace).await?;
            let group = json!({ "service-prefix": "egw/default", "auth-creds": "fredfredfredfred" });
            self.create::<ServiceGroup>(&namespace, "sample", group).await?;
            let users =
                json!({ "metadata": { "name": "api-users" }, "stringData": { "auth": format!("bob:{HASH}\n") } });
            self.of::<Secret>(&namespace).create(&PostParams::default(), &serde_json::from_value(users)?).await?;
        }
        Ok(())
    }

    /// Load balancers of these numbers, spread over the accounts.
    pub(crate) async fn load_balancers(&self, names: impl Iterator<Item = Name>) -> anyhow::Result<()> {
        let all = names.map(|Name { namespace, name }| async move {
            let port = json!({ "port": 80, "protocol": "TCP", "targetPort": 8080 });
            let spec = json!({ "service-group": "sample", "public-ports": [port] });
            self.create::<LoadBalancer>(&namespace, &name, spec).await
        });
        stream::iter(all).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Endpoints of a load balancer, on a few nodes.
    pub(crate) async fn endpoints(&self, of: impl Iterator<Item = (Name, usize)>, each: usize) -> anyhow::Result<()> {
        let all = of.flat_map(|(name, number)| (0..each).map(move |index| (name.clone(), number * each + index)));
        let all = all.map(|(name, place)| async move { self.endpoint(&name, place).await.map(drop) });
        stream::iter(all).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// An endpoint at a place of its own; gives its name and address.
    pub(crate) async fn endpoint(&self, of: &Name, place: usize) -> anyhow::Result<(String, SocketAddr)> {
        let pod = Ipv4Addr::from_bits(Ipv4Addr::new(10, 128, 0, 1).to_bits() + u32::try_from(place)?);
        let node = Ipv4Addr::new(10, 0, 0, u8::try_from(place % 3 + 1)?);
        let spec = json!({
            "load-balancer": of.name, "address": pod, "node-address": node,
            "port": { "port": 8080, "protocol": "TCP" },
        });
        let name = format!("{}-{place}", of.name);
        self.create::<Endpoint>(&of.namespace, &name, spec).await?;
        Ok((name, SocketAddr::from((pod, 8080))))
    }

    /// Deletes all load balancers; their endpoints go with them.
    pub(crate) async fn delete_load_balancers(&self) -> anyhow::Result<()> {
        let found = self.all_load_balancers().await?;
        let all = found.into_iter().map(|object| async move {
            let namespace = object.namespace().context("it has one")?;
            let deleted =
                self.of::<LoadBalancer>(&namespace).delete(&object.name_any(), &DeleteParams::default()).await;
            match deleted {
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                deleted => Ok(deleted.map(drop)?),
            }
        });
        stream::iter(all).buffer_unordered(AT_ONCE).try_collect::<()>().await
    }

    pub(crate) async fn all_load_balancers(&self) -> anyhow::Result<Vec<LoadBalancer>> {
        Ok(Api::<LoadBalancer>::all(self.client.clone()).list(&ListParams::default()).await?.items)
    }

    pub(crate) async fn all_endpoints(&self) -> anyhow::Result<Vec<Endpoint>> {
        Ok(Api::<Endpoint>::all(self.client.clone()).list(&ListParams::default()).await?.items)
    }

    pub(crate) async fn all_claims(&self) -> anyhow::Result<Vec<AddressClaim>> {
        Ok(Api::<AddressClaim>::all(self.client.clone()).list(&ListParams::default()).await?.items)
    }

    async fn namespace(&self, name: &str) -> anyhow::Result<()> {
        let object = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
        Api::<Namespace>::all(self.client.clone()).create(&PostParams::default(), &object).await?;
        Ok(())
    }

    async fn create<K>(&self, namespace: &str, name: &str, spec: Value) -> anyhow::Result<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Serialize + Debug,
    {
        let object = json!({
            "apiVersion": K::api_version(&()), "kind": K::kind(&()),
            "metadata": { "name": name, "namespace": namespace }, "spec": spec,
        });
        let made = self.of::<K>(namespace).create(&PostParams::default(), &serde_json::from_value(object)?).await;
        made.map(drop).with_context(|| format!("creating {} {namespace}/{name} failed", K::kind(&())))
    }
}

/// A load balancer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Names of load balancers, spread over so many accounts.
pub(crate) fn names(count: usize, accounts: usize) -> impl Iterator<Item = Name> {
    (0..count).map(move |number| Name {
        namespace: format!("egw-{}", account(number % accounts)),
        name: format!("lb{number}"),
    })
}

pub(crate) fn account(number: usize) -> String {
    format!("a{number}")
}
