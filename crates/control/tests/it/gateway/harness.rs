//! What these tests share: a provider's cluster, tenants on it, and operators.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use portolan_api::address_claim::AddressClaim;
use portolan_api::gateway::{
    Account, Egw, Endpoint, LoadBalancer, LoadBalancerStatus, NodeConfig, ServiceGroup, ServicePrefix,
};
use portolan_control::gateway;
use portolan_control::runtime::app::Process;
use portolan_core::gateway::unit::UnitId;
use portolan_drivers::envoy::MemoryProxies;
use portolan_testkit::{Exchange, FaultProxy, Faults};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::egress::harness::{self as cluster, options, wipe_kind};
use crate::harness::{Backend, eventually};

/// A cluster with the kinds of gateway and nothing of them there.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) cluster: cluster::World,
}

/// An operator with Envoys in memory, behind a recorder of its writes.
pub(crate) struct Operator {
    pub(crate) process: Process,
    pub(crate) seen: FaultProxy,
    pub(crate) proxies: MemoryProxies,
}

/// Two accounts, of which one attacks the other.
pub(crate) struct Tenants {
    pub(crate) victim: String,
    pub(crate) thief: String,
    /// The victim's load balancer.
    pub(crate) web: LoadBalancer,
}

impl Operator {
    /// Writes to the API server, besides events.
    pub(crate) fn writes(&self) -> Vec<Exchange> {
        let writes = self.seen.writes_but_leases();
        writes.into_iter().filter(|write| write.resource() != Some("events")).collect()
    }
}

impl World {
    pub(crate) async fn new(backend: Backend) -> anyhow::Result<Self> {
        let cluster = cluster::World::new(backend).await?;
        let client = cluster.client.clone();
        wipe_kind::<Endpoint>(&client).await?;
        wipe_kind::<LoadBalancer>(&client).await?;
        wipe_kind::<ServiceGroup>(&client).await?;
        wipe_kind::<ServicePrefix>(&client).await?;
        wipe_kind::<NodeConfig>(&client).await?;
        wipe_kind::<Account>(&client).await?;
        wipe_kind::<Egw>(&client).await?;
        Ok(Self { client, cluster })
    }

    /// One with a running operator and a pool.
    pub(crate) async fn operated(backend: Backend, pool: &str) -> anyhow::Result<(Self, Operator)> {
        let world = Self::new(backend).await?;
        let operator = world.operator().await?;
        world.pool(pool).await?;
        Ok((world, operator))
    }

    /// One with a running operator, a pool of eight addresses and an account.
    pub(crate) async fn served(backend: Backend) -> anyhow::Result<(Self, Operator, String)> {
        Self::served_from(backend, "192.0.2.8/29").await
    }

    /// The same with another pool.
    pub(crate) async fn served_from(backend: Backend, pool: &str) -> anyhow::Result<(Self, Operator, String)> {
        let (world, operator) = Self::operated(backend, pool).await?;
        let name = Self::name("acme");
        world.account(&name).await?;
        Ok((world, operator, name))
    }

    /// One with a running operator, and two accounts of which one has a load balancer `web` that is ready.
    pub(crate) async fn with_tenants(backend: Backend) -> anyhow::Result<(Self, Operator, Tenants)> {
        let (world, operator) = Self::operated(backend, "192.0.2.8/29").await?;
        let (victim, thief) = (Self::name("victim"), Self::name("thief"));
        world.account(&victim).await?;
        world.account(&thief).await?;
        world.load_balancer(&victim, "web").await?;
        let web = world.ready(&victim, "web").await?;
        Ok((world, operator, Tenants { victim, thief, web }))
    }

    pub(crate) fn of<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn claims(&self) -> Api<AddressClaim> {
        Api::all(self.client.clone())
    }

    /// Settings with short times.
    pub(crate) fn options(proxies: &MemoryProxies) -> gateway::Options {
        gateway::Options {
            address_quarantine: Duration::from_secs(2),
            key_quarantine: Duration::from_secs(2),
            ..gateway::Options::with(Arc::new(proxies.clone()))
        }
    }

    pub(crate) async fn operator(&self) -> anyhow::Result<Operator> {
        self.operator_with(Faults::default(), |options| options).await
    }

    pub(crate) async fn operator_with(
        &self,
        faults: Faults,
        change: impl FnOnce(gateway::Options) -> gateway::Options,
    ) -> anyhow::Result<Operator> {
        let seen = FaultProxy::start(self.client.clone(), faults).await?;
        let wake = Arc::new(Notify::new());
        let proxies = MemoryProxies::new({
            let wake = Arc::clone(&wake);
            move || wake.notify_one()
        });
        let gateway = change(Self::options(&proxies));
        let process = Process::start(seen.client(), options(), |ctx, registry| {
            drop(gateway::start(ctx, registry, wake, gateway));
        })?;
        Ok(Operator { process, seen, proxies })
    }

    /// Makes the provider's namespace, if it is missing.
    pub(crate) async fn provider(&self) -> anyhow::Result<()> {
        self.namespace("egw").await
    }

    pub(crate) async fn namespace(&self, name: &str) -> anyhow::Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let object = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
        match namespaces.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            made => Ok(made.map(drop)?),
        }
    }

    pub(crate) async fn create<K>(&self, namespace: &str, name: &str, spec: Value) -> anyhow::Result<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Serialize
            + std::fmt::Debug,
    {
        let object = json!({
            "apiVersion": K::api_version(&()), "kind": K::kind(&()),
            "metadata": { "name": name, "namespace": namespace }, "spec": spec,
        });
        let made = self.of::<K>(namespace).create(&PostParams::default(), &serde_json::from_value(object)?).await;
        made.with_context(|| format!("creating {} {namespace}/{name} failed", K::kind(&())))
    }

    /// A prefix `default` with this pool of 192.0.2.0/24.
    pub(crate) async fn pool(&self, pool: &str) -> anyhow::Result<()> {
        self.provider().await?;
        self.create::<ServicePrefix>("egw", "default", json!({ "subnet": "192.0.2.0/24", "pool": pool })).await?;
        Ok(())
    }

    /// An account with a group `sample`; the operator must be running, as it makes the namespace.
    pub(crate) async fn account(&self, name: &str) -> anyhow::Result<()> {
        self.provider().await?;
        self.create::<Account>("egw", name, json!({})).await?;
        self.group(name, "sample", "egw/default").await
    }

    pub(crate) async fn group(&self, account: &str, name: &str, prefix: &str) -> anyhow::Result<()> {
        let namespace = format!("egw-{account}");
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        eventually("the namespace of the account is there", async || {
            Ok(namespaces.get_opt(&namespace).await?.is_some())
        })
        .await?;
        let spec = json!({ "service-prefix": prefix, "auth-creds": "fredfredfredfred" });
        self.create::<ServiceGroup>(&namespace, name, spec).await?;
        Ok(())
    }

    /// A load balancer of group `sample` with port 8888.
    pub(crate) async fn load_balancer(&self, account: &str, name: &str) -> anyhow::Result<()> {
        self.load_balancer_with(account, name, json!({})).await
    }

    pub(crate) async fn load_balancer_with(&self, account: &str, name: &str, change: Value) -> anyhow::Result<()> {
        let mut spec = json!({
            "service-group": "sample",
            "public-ports": [{ "port": 8888, "protocol": "TCP", "targetPort": 8080 }],
        });
        json_patch::merge(&mut spec, &change);
        self.create::<LoadBalancer>(&format!("egw-{account}"), name, spec).await?;
        Ok(())
    }

    /// An endpoint on a client's node.
    pub(crate) async fn endpoint(
        &self,
        account: &str,
        name: &str,
        load_balancer: &str,
        [address, node]: [&str; 2],
    ) -> anyhow::Result<()> {
        let spec = json!({
            "load-balancer": load_balancer, "address": address, "node-address": node,
            "port": { "port": 8080, "protocol": "TCP" },
        });
        self.create::<Endpoint>(&format!("egw-{account}"), name, spec).await?;
        Ok(())
    }

    pub(crate) async fn get(&self, account: &str, name: &str) -> anyhow::Result<LoadBalancer> {
        Ok(self.of::<LoadBalancer>(&format!("egw-{account}")).get(name).await?)
    }

    /// Waits until a load balancer is ready; gives it.
    pub(crate) async fn ready(&self, account: &str, name: &str) -> anyhow::Result<LoadBalancer> {
        self.shows(account, name, "Ready", "Ready").await
    }

    /// Waits until a condition of a load balancer has a reason; gives it.
    pub(crate) async fn shows(
        &self,
        account: &str,
        name: &str,
        kind: &str,
        reason: &str,
    ) -> anyhow::Result<LoadBalancer> {
        let what = format!("load balancer {account}/{name} shows {kind} {reason}");
        let waited = eventually(&what, async || {
            let object = self.get(account, name).await?;
            let current = object.metadata.generation;
            let is_current =
                condition(object.status.as_ref(), kind).is_some_and(|(_, generation)| generation == current);
            Ok(is_current && condition(object.status.as_ref(), kind).is_some_and(|(found, _)| found == reason))
        })
        .await;
        let object = self.get(account, name).await?;
        waited.with_context(|| format!("{object:#?}"))?;
        Ok(object)
    }

    /// Waits until an object is gone.
    pub(crate) async fn gone<K>(&self, namespace: &str, name: &str) -> anyhow::Result<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let objects = self.of::<K>(namespace);
        let what = format!("{} {namespace}/{name} is gone", K::kind(&()));
        let waited = eventually(&what, async || Ok(objects.get_opt(name).await?.is_none())).await;
        if waited.is_err() {
            return waited.with_context(|| what);
        }
        Ok(())
    }

    pub(crate) async fn delete<K>(&self, namespace: &str, name: &str) -> anyhow::Result<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        self.of::<K>(namespace).delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until no address is claimed.
    pub(crate) async fn nothing_is_claimed(&self) -> anyhow::Result<()> {
        eventually("no address is claimed", async || {
            Ok(self.claims().list(&ListParams::default()).await?.items.is_empty())
        })
        .await
    }

    /// A name that no other test uses.
    pub(crate) fn name(prefix: &str) -> String {
        format!("{prefix}-{:06x}", fastrand::u32(..0x0100_0000))
    }
}

/// Waits until nothing is written for two seconds; `writes` says how many writes there were.
pub(crate) async fn at_rest(writes: impl Fn() -> usize) -> anyhow::Result<()> {
    let mut seen = (writes(), Instant::now());
    eventually("nothing more is written", async || {
        let now = writes();
        if now != seen.0 {
            seen = (now, Instant::now());
        }
        Ok(seen.1.elapsed() >= Duration::from_secs(2))
    })
    .await
}

/// The unit of a load balancer that shares nothing.
pub(crate) fn unit(account: &str, name: &str) -> UnitId {
    UnitId { namespace: format!("egw-{account}").into(), name: name.into() }
}

fn condition<'a>(status: Option<&'a LoadBalancerStatus>, kind: &str) -> Option<(&'a str, Option<i64>)> {
    let condition = status?.conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((&condition.reason, condition.observed_generation))
}
