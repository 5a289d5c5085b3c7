//! The stage: an API server in this process, an operator with one capability, agents, proxies, and what can happen to
//! them.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Context as _;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use portolan_apiserver::ApiServer;
use portolan_control::CAPABILITIES;
use portolan_control::agent::simulated;
use portolan_control::runtime::app::Process;
use portolan_control::runtime::capability::{Capability, Platform, find};
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use super::proxies::{Faults, MemoryProxy, steady_clock};
use super::story::Step;
use crate::chaos::Chaos;
use crate::egress::harness::options;
use crate::mesh::harness::API;

/// How long a stage is given, in the story's time.
struct Pace {
    /// With faults.
    rough: Duration,
    /// Without, until everything has converged.
    calm: Duration,
    /// In which nothing may be written.
    idle: Duration,
}

/// Longer than every delay there is: half a minute between retries, ten seconds until a node is trusted again.
const PACE: Pace =
    Pace { rough: Duration::from_secs(30), calm: Duration::from_secs(150), idle: Duration::from_mins(1) };

/// With proxies: 15 seconds between retries, ten until something refused is tried again. Their packets take real time.
const PACE_WITH_PROXIES: Pace =
    Pace { rough: Duration::from_secs(20), calm: Duration::from_mins(1), idle: Duration::from_secs(30) };

pub(super) struct World {
    pub(super) client: Client,
    capability: &'static Capability,
    way: Chaos,
    operator: Option<Process>,
    agents: Option<Process>,
    /// The pods with proxies: where each is, how often it was started, and the proxy while it runs.
    proxies: BTreeMap<String, PodProxy>,
    proxy_faults: Faults,
    clock: JoinSet<()>,
    /// Where every address lived at `remember`.
    pub(super) remembered: BTreeMap<String, String>,
}

struct PodProxy {
    address: Ipv4Addr,
    run: u32,
    running: Option<MemoryProxy>,
}

impl World {
    /// A stage for one capability, by its name.
    pub(super) async fn new(capability: &str, seed: Option<u64>) -> anyhow::Result<Self> {
        let capability = find(CAPABILITIES, capability).context("the folder is named after a capability")?;
        let client = ApiServer::memory().await.client();
        portolan_control::install::definitions(&client).await?;
        let agents = Process::start(client.clone(), options(), |ctx, _| simulated::start(ctx))?;
        let way = Chaos::new(&client, seed);
        Ok(Self {
            client,
            capability,
            way,
            operator: None,
            agents: Some(agents),
            proxies: BTreeMap::new(),
            proxy_faults: Faults::new(seed),
            clock: JoinSet::new(),
            remembered: BTreeMap::new(),
        })
    }

    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        let starter = (self.capability.configure)(&self.capability.defaults(), &Platform::default())?;
        let mut started = Ok(None);
        self.operator = Some(Process::start(self.way.client(), options(), |ctx, registry| {
            started = portolan_control::start(vec![starter], None, ctx, registry);
        })?);
        started?;
        Ok(())
    }

    async fn stop(&mut self) -> anyhow::Result<()> {
        match self.operator.take() {
            Some(operator) => Ok(operator.stop().await?),
            None => Ok(()),
        }
    }

    pub(super) async fn end(mut self) -> anyhow::Result<()> {
        self.stop().await?;
        match self.agents.take() {
            Some(agents) => Ok(agents.stop().await?),
            None => Ok(()),
        }
    }

    /// Creates an object in short form, with its status; its namespace when it is missing.
    pub(super) async fn put(&mut self, short: &Value) -> anyhow::Result<()> {
        let short = &self.with_proxy(short).await?;
        let Object { api, name, body } = self.object(short).await?;
        let failed = || format!("creating {name}");
        api.create(&PostParams::default(), &serde_json::from_value(body.clone())?).await.with_context(failed)?;
        if let Some(status) = body.get("status") {
            api.patch_status(&name, &PatchParams::default(), &Patch::Merge(json!({ "status": status })))
                .await
                .with_context(failed)?;
        }
        Ok(())
    }

    /// Starts the proxy of a pod that has one, and gives the pod its address.
    async fn with_proxy(&mut self, short: &Value) -> anyhow::Result<Value> {
        let mut short = short.clone();
        if short["kind"] == "Pod" && short["proxy"] == json!(true) {
            let name = short["name"].as_str().unwrap_or_default().to_owned();
            if self.proxies.is_empty() {
                self.clock.spawn(async { match steady_clock().await {} });
            }
            if !self.proxies.contains_key(&name) {
                let address = MemoryProxy::address();
                let running = Some(MemoryProxy::start(address, 0, self.proxy_faults.clone()).await?);
                self.proxies.insert(name.clone(), PodProxy { address, run: 0, running });
            }
            short["ip"] = json!(self.proxies[&name].address);
        }
        Ok(short)
    }

    /// What the proxy of a pod holds, while it runs.
    pub(super) fn proxy_config(&self, pod: &str) -> anyhow::Result<Option<Value>> {
        let running = self.proxies.get(pod).and_then(|proxy| proxy.running.as_ref());
        running.map(MemoryProxy::config).transpose()
    }

    /// Stops the proxy of a pod, starts it again, or lets it refuse ports.
    async fn change_proxy(&mut self, pod: &str, up: Option<bool>, refuses: Option<&[u16]>) -> anyhow::Result<()> {
        let proxy = self.proxies.get_mut(pod).with_context(|| format!("pod {pod} has no proxy"))?;
        if up == Some(false) {
            proxy.running = None;
        }
        if up == Some(true) {
            proxy.run += 1;
            proxy.running = Some(MemoryProxy::start(proxy.address, proxy.run, self.proxy_faults.clone()).await?);
        }
        if let (Some(ports), Some(running)) = (refuses, &proxy.running) {
            running.refuse(ports);
        }
        Ok(())
    }

    /// Lists the pods of every Service in an EndpointSlice, as kube-controller-manager does.
    pub(super) async fn put_slices(&self) -> anyhow::Result<()> {
        let pods = self.all("Pod").await?;
        for service in self.all("Service").await? {
            let (name, namespace) = (service.name_any(), service.namespace().unwrap_or_default());
            let selector = service.data["spec"]["selector"].as_object().cloned().unwrap_or_default();
            let is_selected = |pod: &&DynamicObject| {
                pod.namespace().as_deref() == Some(&namespace)
                    && pod.metadata.deletion_timestamp.is_none()
                    && selector.iter().all(|(key, value)| pod.labels().get(key).map(String::as_str) == value.as_str())
            };
            let endpoint = |pod: &DynamicObject| {
                let target = json!({ "kind": "Pod", "namespace": &namespace, "name": pod.name_any() });
                let address = pod.data["status"]["podIP"].clone();
                json!({ "addresses": [address], "conditions": { "ready": true }, "targetRef": target })
            };
            let endpoints: Vec<Value> = pods.iter().filter(is_selected).map(endpoint).collect();
            let ports: Vec<Value> = service.data["spec"]["ports"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|port| json!({ "name": "", "protocol": port["protocol"], "port": port["port"] }))
                .collect();
            let slice = json!({
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": { "name": format!("{name}-1"), "labels": { "kubernetes.io/service-name": name } },
                "addressType": "IPv4",
                "endpoints": endpoints,
                "ports": ports,
            });
            let (api, slice_name) = self.named(&format!("EndpointSlice {namespace}/{name}-1"))?;
            let params = PatchParams::apply("endpoints").force();
            api.patch(&slice_name, &params, &Patch::Apply(slice)).await?;
        }
        Ok(())
    }

    /// Gives every node a tunnel that stands, unless it has one: a cluster that has run for a while.
    pub(super) async fn put_tunnels(&mut self) -> anyhow::Result<()> {
        for (number, node) in self.all("Node").await?.iter().enumerate() {
            let name = node.name_any();
            if self.find(&format!("EgressTunnel {name}")).await?.is_none() {
                let ready = node.data["status"]["conditions"][0]["status"] == "True";
                let phase = if ready { "Ready" } else { "NodeNotReady" };
                let status = json!({ "mark": format!("0x{:08x}", 0x2600_0001 + number), "phase": phase });
                self.put(&json!({ "kind": "EgressTunnel", "name": name, "status": status })).await?;
            }
        }
        Ok(())
    }

    async fn apply(&mut self, short: &Value) -> anyhow::Result<()> {
        let short = &self.with_proxy(short).await?;
        let Object { api, name, body } = self.object(short).await?;
        let params = PatchParams::apply("scenario").force();
        let mut main = body.clone();
        main.as_object_mut().map(|main| main.remove("status"));
        api.patch(&name, &params, &Patch::Apply(main)).await?;
        if let Some(status) = body.get("status") {
            api.patch_status(&name, &PatchParams::default(), &Patch::Merge(json!({ "status": status }))).await?;
        }
        Ok(())
    }

    pub(super) async fn take(&mut self, step: &Step) -> anyhow::Result<()> {
        match step {
            Step::Settle => self.settle().await,
            Step::Restart => {
                self.stop().await?;
                self.start()?;
            }
            Step::Stop => self.stop().await?,
            Step::StopAgents => {
                if let Some(agents) = self.agents.take() {
                    agents.stop().await?;
                }
            }
            Step::Remember => self.remembered = self.ledger().await?,
            Step::Wait(seconds) => tokio::time::sleep(Duration::from_secs(*seconds)).await,
            Step::Apply(object) => self.apply(object).await.with_context(|| format!("applying {object}"))?,
            Step::Refused { apply, says } => match self.apply(apply).await {
                Ok(()) => anyhow::bail!("the API server took {apply}"),
                Err(cause) => {
                    anyhow::ensure!(format!("{cause:#}").contains(says), "it was refused otherwise: {cause:#}");
                }
            },
            Step::Delete(what) => {
                let (api, name) = self.named(what)?;
                let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
                api.delete(&name, &now).await.with_context(|| format!("deleting {what}"))?;
                if let Some(pod) = what.strip_prefix("Pod ") {
                    self.proxies.remove(pod);
                }
            }
            Step::Node { name, ready, labels } => self.node(name, *ready, labels.as_ref()).await?,
            Step::Tunnel { name, phase } => {
                let (api, name) = self.named(&format!("EgressTunnel {name}"))?;
                let patch = json!({ "status": { "phase": phase } });
                api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            }
            Step::Proxy { pod, up, refuses } => self.change_proxy(pod, *up, refuses.as_deref()).await?,
        }
        self.put_slices().await
    }

    async fn settle(&self) {
        tokio::time::sleep(self.pace().rough).await;
        self.calm(true);
        tokio::time::sleep(self.pace().calm).await;
        self.calm(false);
    }

    fn pace(&self) -> &'static Pace {
        if self.proxies.is_empty() { &PACE } else { &PACE_WITH_PROXIES }
    }

    /// Whether faults pause.
    fn calm(&self, calm: bool) {
        self.way.calm(calm);
        self.proxy_faults.calm(calm);
    }

    async fn node(&self, name: &str, ready: Option<bool>, labels: Option<&Value>) -> anyhow::Result<()> {
        let (api, name) = self.named(&format!("Node {name}"))?;
        if let Some(labels) = labels {
            let patch = json!({ "metadata": { "labels": labels } });
            api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        if let Some(ready) = ready {
            let patch = json!({ "status": node_status(ready, &[]) });
            api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
        }
        Ok(())
    }

    /// How many writes follow when nothing happens, and when another operator starts.
    pub(super) async fn idle_writes(&mut self) -> anyhow::Result<u64> {
        self.calm(true);
        self.way.take_writes();
        tokio::time::sleep(self.pace().idle).await;
        self.stop().await?;
        self.start()?;
        tokio::time::sleep(self.pace().idle).await;
        self.calm(false);
        Ok(u64::try_from(self.way.take_writes().len())?)
    }

    /// Every address with a claim, and its node.
    pub(super) async fn ledger(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let node = |claim: &DynamicObject| claim.data["spec"]["egress"]["node"].as_str().unwrap_or("none").to_owned();
        Ok(self.all("AddressClaim").await?.iter().map(|claim| (claim.name_any(), node(claim))).collect())
    }

    pub(super) async fn all(&self, kind: &str) -> anyhow::Result<Vec<DynamicObject>> {
        let (resource, _) = resource(kind)?;
        Ok(Api::<DynamicObject>::all_with(self.client.clone(), &resource).list(&ListParams::default()).await?.items)
    }

    /// `KIND NAME` or `KIND NAMESPACE/NAME`.
    pub(super) async fn find(&self, what: &str) -> anyhow::Result<Option<DynamicObject>> {
        let (api, name) = self.named(what)?;
        Ok(api.get_opt(&name).await?)
    }

    fn named(&self, what: &str) -> anyhow::Result<(Api<DynamicObject>, String)> {
        let (kind, name) = what.split_once(' ').with_context(|| format!("`{what}`: write KIND NAME"))?;
        let (resource, namespaced) = resource(kind)?;
        Ok(match name.split_once('/').filter(|_| namespaced) {
            Some((namespace, name)) => {
                (Api::namespaced_with(self.client.clone(), namespace, &resource), name.to_owned())
            }
            None => (Api::all_with(self.client.clone(), &resource), name.to_owned()),
        })
    }

    /// An object in full for its short form.
    async fn object(&self, short: &Value) -> anyhow::Result<Object> {
        let mut fields = short.as_object().with_context(|| format!("{short} is not an object"))?.clone();
        let kind = text(&mut fields, "kind")?;
        let full = text(&mut fields, "name")?;
        let (resource, namespaced) = resource(&kind)?;
        let mut metadata = Map::new();
        for field in ["labels", "annotations", "finalizers"] {
            metadata.extend(fields.remove(field).map(|value| (field.to_owned(), value)));
        }
        let (api, name) = self.named(&format!("{kind} {full}"))?;
        metadata.insert("name".to_owned(), json!(name));
        if namespaced {
            let namespace = full
                .split_once('/')
                .map(|(namespace, _)| namespace)
                .with_context(|| format!("{kind} {full}: write NAMESPACE/NAME"))?;
            metadata.insert("namespace".to_owned(), json!(namespace));
            self.ensure_namespace(namespace).await?;
        }
        match kind.as_str() {
            "Node" => spell_node(&mut fields),
            "Pod" => spell_pod(&mut fields),
            _ => {}
        }
        let mut body = json!({ "apiVersion": resource.api_version, "kind": kind, "metadata": metadata });
        for field in ["spec", "status"] {
            if let Some(value) = fields.remove(field) {
                body[field] = value;
            }
        }
        anyhow::ensure!(fields.is_empty(), "{kind} {full} has fields that are not known: {fields:?}");
        Ok(Object { api, name, body })
    }

    async fn ensure_namespace(&self, name: &str) -> anyhow::Result<()> {
        let (api, name) = self.named(&format!("Namespace {name}"))?;
        if api.get_opt(&name).await?.is_none() {
            let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        }
        Ok(())
    }
}

struct Object {
    api: Api<DynamicObject>,
    name: String,
    body: Value,
}

/// Any kind that a capability uses.
fn resource(kind: &str) -> anyhow::Result<(ApiResource, bool)> {
    let mut kinds = CAPABILITIES.iter().flat_map(|capability| capability.kinds);
    let found = kinds.find(|one| one.kind == kind).with_context(|| format!("no capability uses kind `{kind}`"))?;
    Ok((found.resource(), found.namespaced))
}

fn text(fields: &mut Map<String, Value>, name: &str) -> anyhow::Result<String> {
    let value = fields.remove(name).with_context(|| format!("`{name}` is missing in {fields:?}"))?;
    Ok(value.as_str().with_context(|| format!("`{name}` is not text"))?.to_owned())
}

/// `ready` (default true), `addresses`, `podCIDRs`.
fn spell_node(fields: &mut Map<String, Value>) {
    let ready = fields.remove("ready").is_none_or(|ready| ready != json!(false));
    let addresses: Vec<String> =
        fields.remove("addresses").and_then(|list| serde_json::from_value(list).ok()).unwrap_or_default();
    fields.insert("status".to_owned(), node_status(ready, &addresses));
    if let Some(ranges) = fields.remove("podCIDRs") {
        let first = ranges.get(0).cloned().unwrap_or_default();
        fields.insert("spec".to_owned(), json!({ "podCIDR": first, "podCIDRs": ranges }));
    }
}

fn node_status(ready: bool, addresses: &[String]) -> Value {
    let mut status = json!({ "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] });
    if !addresses.is_empty() {
        status["addresses"] =
            addresses.iter().map(|address| json!({ "type": "InternalIP", "address": address })).collect();
    }
    status
}

/// `node`, `ip`, `hostNetwork`, `command`, `proxy`.
fn spell_pod(fields: &mut Map<String, Value>) {
    let mut spec = json!({ "containers": [{ "name": "main", "image": "registry.k8s.io/pause:3.10" }] });
    if fields.remove("proxy") == Some(json!(true)) {
        let api = json!([{ "name": "l7mp-api", "containerPort": API }]);
        spec["containers"] = json!([{ "name": "l7mp", "image": "portolan", "ports": api }]);
    }
    if let Some(command) = fields.remove("command") {
        spec["containers"][0]["command"] = command;
    }
    if let Some(node) = fields.remove("node") {
        spec["nodeName"] = node;
    }
    if let Some(host) = fields.remove("hostNetwork") {
        spec["hostNetwork"] = host;
    }
    fields.insert("spec".to_owned(), spec);
    let mut status = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
    if let Some(address) = fields.remove("ip") {
        status["podIPs"] = json!([{ "ip": address }]);
        status["podIP"] = address;
    }
    fields.insert("status".to_owned(), status);
}
