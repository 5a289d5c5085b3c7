//! What the egress tests share: a cluster of their own, objects in few words, and operators to run on it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1::{Namespace, Node, ObjectReference};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use portolan_api::address_claim::AddressClaim;
use portolan_api::egress::{
    EgressClusterEndpointSlice, EgressClusterInfo, EgressClusterPolicy, EgressEndpointSlice, EgressGateway,
    EgressGatewayStatus, EgressPolicy, EgressPolicyStatus, EgressTunnel,
};
use portolan_control::egress;
use portolan_control::runtime::app::{Options, Process};
use portolan_control::runtime::endpoint::{Endpoint, Part};
use portolan_control::runtime::lease;
use portolan_control::runtime::metrics::CapabilityLabel;
use portolan_control::runtime::webhook;
use portolan_simulator::agents;
use portolan_testkit::{ControlPlane, FaultProxy, Faults, builders, install_definition};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use crate::harness::{Backend, Server, eventually};

/// Gateways, nodes and addresses belong to the whole cluster: a test has one of the shared servers to itself.
static FIRST: Mutex<()> = Mutex::const_new(());
static SECOND: Mutex<()> = Mutex::const_new(());

/// A cluster with the kinds installed and nothing of them there.
pub(crate) struct World {
    pub(crate) client: Client,
    /// A namespace of the test's own.
    pub(crate) namespace: String,
    server: Server,
    _alone: Option<MutexGuard<'static, ()>>,
}

impl World {
    pub(crate) async fn new(backend: Backend) -> anyhow::Result<Self> {
        let (server, alone) = match backend {
            Backend::Embedded => (Server::start(backend).await?, None),
            Backend::Real => tokio::select! {
                biased;
                alone = FIRST.lock() => (Server::of(ControlPlane::shared()), Some(alone)),
                alone = SECOND.lock() => (Server::of(ControlPlane::second_shared()), Some(alone)),
            },
        };
        let client = server.client.clone();
        for definition in portolan_api::crds() {
            install_definition(client.clone(), definition).await?;
        }
        wipe(&client).await?;
        let namespace = server.namespace("egress").await?;
        Ok(Self { client, namespace, server, _alone: alone })
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.server.kubeconfig
    }

    pub(crate) fn gateways(&self) -> Api<EgressGateway> {
        Api::all(self.client.clone())
    }

    pub(crate) fn policies(&self) -> Api<EgressPolicy> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn cluster_policies(&self) -> Api<EgressClusterPolicy> {
        Api::all(self.client.clone())
    }

    pub(crate) fn claims(&self) -> Api<AddressClaim> {
        Api::all(self.client.clone())
    }

    pub(crate) fn tunnels(&self) -> Api<EgressTunnel> {
        Api::all(self.client.clone())
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub(crate) fn namespaced<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A ready gateway node: label `egress=true`.
    pub(crate) async fn node(&self, name: &str) -> anyhow::Result<()> {
        let number = name.bytes().map(u32::from).sum::<u32>() % 250;
        let node = builders::node(name).label("egress", "true").address(&format!("172.20.0.{number}")).build();
        builders::create(&self.nodes(), &node).await?;
        Ok(())
    }

    /// Sets whether a node says it is ready.
    pub(crate) async fn set_ready(&self, node: &str, ready: bool) -> anyhow::Result<()> {
        let status = if ready { "True" } else { "False" };
        let patch = json!({ "status": { "conditions": [{ "type": "Ready", "status": status }] } });
        self.nodes().patch_status(node, &PatchParams::default(), &Patch::Strategic(patch)).await?;
        Ok(())
    }

    /// Sets or removes a label of a node.
    pub(crate) async fn label_node(&self, node: &str, label: &str, value: Option<&str>) -> anyhow::Result<()> {
        let patch = json!({ "metadata": { "labels": { label: value } } });
        self.nodes().patch(node, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Writes the phase of a node's tunnel, as its agent would.
    pub(crate) async fn set_phase(&self, node: &str, phase: &str) -> anyhow::Result<()> {
        let numbered = async || Ok(self.tunnels().get_opt(node).await?.is_some_and(|tunnel| tunnel.status.is_some()));
        eventually("the tunnel has its number", numbered).await?;
        let patch = Patch::Merge(json!({ "status": { "phase": phase } }));
        self.tunnels().patch_status(node, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub(crate) async fn label_namespace(&self, label: &str, value: &str) -> anyhow::Result<()> {
        let patch = json!({ "metadata": { "labels": { label: value } } });
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.patch(&self.namespace, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Another namespace, and the policies in it.
    pub(crate) async fn other_namespace(&self) -> anyhow::Result<(String, Api<EgressPolicy>)> {
        let name = self.server.namespace("egress").await?;
        Ok((name.clone(), Api::namespaced(self.client.clone(), &name)))
    }

    /// A pod on a node, with an address.
    pub(crate) async fn pod(&self, namespace: &str, name: &str, label: &str, ip: &str) -> anyhow::Result<()> {
        let pod = builders::pod(namespace, name).label("app", label).on("n1").ip(ip).build();
        builders::create(&Api::namespaced(self.client.clone(), namespace), &pod).await?;
        Ok(())
    }

    /// A policy for every pod labelled `app=NAME` in the cluster.
    pub(crate) async fn cluster_policy(&self, name: &str, spec: Value) -> anyhow::Result<()> {
        let object = json!({ "metadata": { "name": name }, "spec": spec });
        self.cluster_policies().create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    }

    pub(crate) async fn change_gateway(&self, name: &str, spec: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.gateways().patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub(crate) async fn gateway_status(&self, name: &str) -> anyhow::Result<EgressGatewayStatus> {
        Ok(self.gateways().get(name).await?.status.unwrap_or_default())
    }

    /// Waits until a gateway's status is as wanted.
    pub(crate) async fn gateway_shows(
        &self,
        name: &str,
        what: &str,
        shown: impl Fn(&EgressGatewayStatus) -> bool,
    ) -> anyhow::Result<()> {
        let what = format!("gateway {name} shows {what}");
        if let Err(problem) = eventually(&what, async || Ok(shown(&self.gateway_status(name).await?))).await {
            anyhow::bail!("{problem}; it shows {:?}", self.gateway_status(name).await?);
        }
        Ok(())
    }

    /// Waits until a gateway is gone.
    pub(crate) async fn gateway_goes(&self, name: &str) -> anyhow::Result<()> {
        eventually("the gateway is gone", async || Ok(self.gateways().get_opt(name).await?.is_none())).await
    }

    /// Waits until no address lives on a node.
    pub(crate) async fn emptied(&self, node: &str) -> anyhow::Result<()> {
        eventually(&format!("nothing lives on {node}"), async || {
            Ok(self.ledger().await?.values().all(|holder| holder != node && !holder.is_empty()))
        })
        .await
    }

    /// A gateway on nodes labelled `egress=true` with these IPv4 items.
    pub(crate) async fn gateway(&self, name: &str, ipv4: &[&str]) -> anyhow::Result<EgressGateway> {
        let spec = json!({ "ippools": { "ipv4": ipv4 }, "nodeSelector": selector() });
        self.gateway_like(name, spec).await
    }

    pub(crate) async fn gateway_like(&self, name: &str, spec: Value) -> anyhow::Result<EgressGateway> {
        let object = json!({ "metadata": { "name": name }, "spec": spec });
        Ok(self.gateways().create(&PostParams::default(), &serde_json::from_value(object)?).await?)
    }

    /// A policy for pods labelled `app=NAME`.
    pub(crate) async fn policy(&self, name: &str, gateway: &str, egress_ip: Value) -> anyhow::Result<EgressPolicy> {
        let spec = json!({ "egressGatewayName": gateway, "egressIP": egress_ip, "appliedTo": app(name) });
        self.policy_like(name, spec).await
    }

    pub(crate) async fn policy_like(&self, name: &str, spec: Value) -> anyhow::Result<EgressPolicy> {
        let object = json!({ "metadata": { "name": name }, "spec": spec });
        Ok(self.policies().create(&PostParams::default(), &serde_json::from_value(object)?).await?)
    }

    pub(crate) async fn status(&self, policy: &str) -> anyhow::Result<EgressPolicyStatus> {
        Ok(self.policies().get(policy).await?.status.unwrap_or_default())
    }

    /// Waits until a policy is ready; gives its IPv4 address (empty for the node's own) and its node.
    pub(crate) async fn granted(&self, policy: &str) -> anyhow::Result<(String, String)> {
        eventually(&format!("policy {policy} is ready"), async || Ok(is_ready(&self.status(policy).await?))).await?;
        let status = self.status(policy).await?;
        Ok((status.eip.and_then(|eip| eip.ipv4).unwrap_or_default(), status.node.unwrap_or_default()))
    }

    /// Waits until a condition of a policy is False for this reason; gives its message.
    pub(crate) async fn refused(&self, policy: &str, kind: &str, reason: &str) -> anyhow::Result<String> {
        let what = format!("policy {policy} has {kind}=False {reason}");
        refused(&what, kind, reason, async || Ok(self.status(policy).await?.conditions)).await
    }

    /// The same for a gateway.
    pub(crate) async fn gateway_refused(&self, gateway: &str, kind: &str, reason: &str) -> anyhow::Result<String> {
        let what = format!("gateway {gateway} has {kind}=False {reason}");
        refused(&what, kind, reason, async || Ok(self.gateway_status(gateway).await?.conditions)).await
    }

    /// Every address with a claim, and its node.
    pub(crate) async fn ledger(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let claims = self.claims().list(&ListParams::default()).await?;
        let node = |claim: &AddressClaim| claim.spec.egress.as_ref().and_then(|record| record.node.clone());
        Ok(claims.iter().map(|claim| (claim.name_any(), node(claim).unwrap_or_default())).collect())
    }

    /// Every claim by its name: what tells it from a later one of that name, and the slot of its address.
    pub(crate) async fn claim_identities(&self) -> anyhow::Result<BTreeMap<String, (Option<String>, u16)>> {
        let claims = self.claims().list(&ListParams::default()).await?;
        let slot = |claim: &AddressClaim| claim.spec.egress.as_ref().map(|record| record.slot).unwrap_or_default();
        Ok(claims.iter().map(|claim| (claim.name_any(), (claim.uid(), slot(claim)))).collect())
    }

    /// The reasons of events about an object, or about those of a namespace.
    pub(crate) async fn event_reasons(&self, about: impl Fn(&ObjectReference) -> bool) -> anyhow::Result<Vec<String>> {
        let events = Api::<Event>::all(self.client.clone()).list(&ListParams::default()).await?;
        let about = events.into_iter().filter(|event| event.regarding.as_ref().is_some_and(&about));
        Ok(about.filter_map(|event| event.reason).collect())
    }

    /// Waits until exactly these addresses have a claim.
    pub(crate) async fn claimed(&self, addresses: &[&str]) -> anyhow::Result<()> {
        let wanted: BTreeSet<&str> = addresses.iter().copied().collect();
        eventually(&format!("the ledger holds {wanted:?}"), async || {
            Ok(self.ledger().await?.keys().map(String::as_str).collect::<BTreeSet<_>>() == wanted)
        })
        .await
    }
}

/// Waits until a condition is False for this reason; gives its message.
async fn refused(
    what: &str,
    kind: &str,
    reason: &str,
    conditions: impl AsyncFn() -> anyhow::Result<Vec<Condition>>,
) -> anyhow::Result<String> {
    let mut said = String::new();
    eventually(what, async || {
        let fits = |condition: &Condition| {
            (condition.type_.as_str(), condition.status.as_str(), condition.reason.as_str()) == (kind, "False", reason)
        };
        let found = conditions().await?.into_iter().find(fits);
        Ok(found.map(|condition| said = condition.message).is_some())
    })
    .await?;
    Ok(said)
}

/// Takes away everything that egress looks at, whatever holds it.
pub(crate) async fn wipe(client: &Client) -> anyhow::Result<()> {
    wipe_named::<ValidatingWebhookConfiguration>(client).await?;
    wipe_named::<MutatingWebhookConfiguration>(client).await?;
    wipe_kind::<EgressPolicy>(client).await?;
    wipe_kind::<EgressClusterPolicy>(client).await?;
    wipe_kind::<EgressGateway>(client).await?;
    wipe_kind::<AddressClaim>(client).await?;
    wipe_kind::<EgressTunnel>(client).await?;
    wipe_kind::<EgressEndpointSlice>(client).await?;
    wipe_kind::<EgressClusterEndpointSlice>(client).await?;
    wipe_kind::<EgressClusterInfo>(client).await?;
    wipe_kind::<Node>(client).await
}

pub(crate) async fn wipe_kind<K>(client: &Client) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Serialize,
{
    for object in Api::<K>::all(client.clone()).list(&ListParams::default()).await? {
        let endpoint = Endpoint::<K>::new(client, object.namespace().as_deref().unwrap_or_default());
        if object.meta().finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty()) {
            let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            gone_is_fine(endpoint.patch(Part::Object, &object.name_any(), &PatchParams::default(), &patch).await)?;
        }
        gone_is_fine(endpoint.delete(&object.name_any(), &DeleteParams::default()).await)?;
    }
    Ok(())
}

/// A test that failed may have left its webhooks behind, and they are no longer served.
async fn wipe_named<K>(client: &Client) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    gone_is_fine(Api::<K>::all(client.clone()).delete(egress::webhooks::NAME, &DeleteParams::default()).await)
}

pub(crate) fn gone_is_fine<T>(answer: Result<T, kube::Error>) -> anyhow::Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        answer => answer.map(drop).map_err(Into::into),
    }
}

pub(crate) fn is_ready(status: &EgressPolicyStatus) -> bool {
    status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub(crate) fn selector() -> Value {
    json!({ "selector": { "matchLabels": { "egress": "true" } } })
}

/// Selects pods labelled `app=NAME`.
pub(crate) fn app(name: &str) -> Value {
    json!({ "podSelector": { "matchLabels": { "app": name } } })
}

/// An operator with egress in this process, seeing the API server through a fault proxy.
pub(crate) struct Operator {
    pub(crate) process: Process,
}

impl Operator {
    /// Starts one that leads without an election.
    pub(crate) fn start(proxy: &FaultProxy) -> anyhow::Result<Self> {
        Self::start_with(proxy, egress_options())
    }

    pub(crate) fn start_with(proxy: &FaultProxy, egress: egress::Options) -> anyhow::Result<Self> {
        let process = Process::start(proxy.client(), options(), |ctx, registry| {
            egress::start(ctx, registry, egress);
        })?;
        Ok(Self { process })
    }

    /// Starts one that takes part in an election.
    pub(crate) fn elected(proxy: &FaultProxy, election: lease::Options) -> anyhow::Result<Self> {
        let options = Options { election: Some(election), ..options() };
        let process = Process::start(proxy.client(), options, |ctx, registry| {
            egress::start(ctx, registry, egress_options());
        })?;
        Ok(Self { process })
    }

    /// Turns that went well so far.
    pub(crate) fn turns(&self) -> u64 {
        let label = CapabilityLabel { capability: "egress" };
        self.process.ctx().metrics.reconciles.get_or_create(&label).get()
    }

    /// It has planned, and nothing of that is still to be written.
    pub(crate) async fn is_idle(&self) -> anyhow::Result<bool> {
        let metrics = crate::chart::metrics(self.process.admin_at()).await?;
        let mut queues = metrics.lines().filter(|line| line.starts_with("portolan_runtime_writes_pending{")).peekable();
        Ok(queues.peek().is_some() && queues.all(|queue| queue.ends_with(" 0")))
    }

    /// A task that ended by itself has panicked.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        if let Some(task) = self.process.broken().now_or_never() {
            anyhow::bail!("task `{task}` broke");
        }
        Ok(self.process.stop().await?)
    }
}

/// The agents of all nodes, simulated, on a connection without faults.
pub(crate) fn agents(world: &World) -> anyhow::Result<Process> {
    Ok(Process::start(world.client.clone(), options(), |ctx, _| agents::start(ctx))?)
}

/// A world with one operator and no agents: tunnels and claims say what the test writes into them.
pub(crate) async fn without_agents(backend: Backend) -> anyhow::Result<(World, FaultProxy, Operator)> {
    let world = World::new(backend).await?;
    let proxy = FaultProxy::start(world.client.clone(), Faults::default()).await?;
    let operator = Operator::start(&proxy)?;
    Ok((world, proxy, operator))
}

/// A world with agents and one operator behind a proxy without faults.
pub(crate) async fn running(backend: Backend) -> anyhow::Result<(World, FaultProxy, Operator, Process)> {
    let world = World::new(backend).await?;
    let agents = agents(&world)?;
    let proxy = FaultProxy::start(world.client.clone(), Faults::default()).await?;
    let operator = Operator::start(&proxy)?;
    Ok((world, proxy, operator, agents))
}

/// As usual, save that what was never seen in use goes soon, and that nobody waits long: tests have no time.
pub(crate) fn egress_options() -> egress::Options {
    let (soon, moment) = (Duration::from_millis(100), Duration::from_secs(3));
    egress::Options { keep_unseen: soon, await_holder: moment, ..egress::Options::default() }
}

pub(crate) fn options() -> Options {
    Options {
        election: None,
        admin_listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        drain: Duration::from_secs(10),
        instance: "test".into(),
    }
}

/// An operator with its webhook, which the API server calls, and the agents.
pub(crate) struct Hooks {
    process: Process,
    agents: Process,
    cache: egress::Cache,
    client: Client,
}

impl Hooks {
    pub(crate) async fn start(world: &World) -> anyhow::Result<Self> {
        let mut started = None;
        let process = Process::start(world.client.clone(), options(), |ctx, registry| {
            let cache = egress::start(ctx, registry, egress::Options::default());
            let config = webhook::Config {
                listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                names: vec!["127.0.0.1".to_owned()],
                client_ca: None,
                secret_namespace: world.namespace.clone(),
                secret_name: "webhook".to_owned(),
                validating: vec![egress::webhooks::NAME.to_owned()],
                mutating: vec![egress::webhooks::NAME.to_owned()],
                schedule: webhook::Schedule::default(),
                linger: Duration::ZERO,
            };
            let handlers = egress::webhooks::handlers(webhook::Webhooks::new(), &cache, egress::Options::default());
            let host = webhook::Host { tasks: &ctx.tasks, readiness: &ctx.readiness, registry };
            started = Some((cache, webhook::run(&ctx.unfenced, config, handlers, host)));
        })?;
        let (cache, handle) = started.expect("the process was started");
        let address = handle?.address();
        let (validating, mutating) = egress::webhooks::configurations(|path| WebhookClientConfig {
            url: Some(format!("https://{address}{path}")),
            ..WebhookClientConfig::default()
        });
        let client = world.client.clone();
        Api::all(client.clone()).create(&PostParams::default(), &validating).await?;
        Api::all(client.clone()).create(&PostParams::default(), &mutating).await?;
        let hooks = Self { process, agents: agents(world)?, cache, client };
        eventually("the API server asks the webhook", async || {
            let probe = json!({ "metadata": { "name": "probe" }, "spec": {
                "ippools": { "ipv4": ["nonsense"] }, "nodeSelector": selector()
            } });
            let api: Api<EgressGateway> = Api::all(hooks.client.clone());
            match api.create(&PostParams::default(), &serde_json::from_value(probe)?).await {
                Err(kube::Error::Api(status)) => Ok(status.message.contains("nonsense")),
                Err(other) => Err(other.into()),
                Ok(_) => {
                    api.patch(
                        "probe",
                        &PatchParams::default(),
                        &Patch::Merge(json!({ "metadata": { "finalizers": null } })),
                    )
                    .await?;
                    api.delete("probe", &DeleteParams::default()).await?;
                    Ok(false)
                }
            }
        })
        .await?;
        Ok(hooks)
    }

    /// Waits until the webhook's own view has a gateway.
    pub(crate) async fn sees_gateway(&self, name: &str) -> anyhow::Result<()> {
        let seen = || self.cache.gateways.all().keys().any(|key| key.name == name);
        eventually("the webhook sees the gateway", async || Ok(seen())).await
    }

    /// Waits until the webhook's own view has so many cluster policies.
    pub(crate) async fn sees_policies(&self, count: usize) -> anyhow::Result<()> {
        eventually("the webhook sees the policies", async || Ok(self.cache.cluster_policies.all().len() == count)).await
    }

    /// Takes the configurations away, so that the next test meets none.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        let Self { process, agents, cache: _, client } = self;
        let name = egress::webhooks::NAME;
        Api::<ValidatingWebhookConfiguration>::all(client.clone()).delete(name, &DeleteParams::default()).await?;
        Api::<MutatingWebhookConfiguration>::all(client).delete(name, &DeleteParams::default()).await?;
        process.stop().await?;
        Ok(agents.stop().await?)
    }
}
