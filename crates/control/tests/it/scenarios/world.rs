//! The stage: an API server in this process, agents, an operator, and what can happen to them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::{Api, Client, ResourceExt};
use portolan_apiserver::ApiServer;
use portolan_control::egress;
use portolan_control::runtime::app::Process;
use portolan_simulator::agents;
use serde_json::{Map, Value, json};

use super::story::Step;
use crate::chaos::Chaos;
use crate::egress::harness::options;

/// Long enough for every delay there is: half a minute between retries, ten seconds until a node is trusted again.
const ROUGH: Duration = Duration::from_secs(30);
const CALM: Duration = Duration::from_secs(150);
const IDLE: Duration = Duration::from_mins(1);

/// Group, version and plural of a kind, and whether it is in namespaces.
const KINDS: [(&str, &str, &str, &str, bool); 10] = [
    ("Node", "", "v1", "nodes", false),
    ("Namespace", "", "v1", "namespaces", false),
    ("Pod", "", "v1", "pods", true),
    ("EgressGateway", EGRESS, "v1beta1", "egressgateways", false),
    ("EgressPolicy", EGRESS, "v1beta1", "egresspolicies", true),
    ("EgressClusterPolicy", EGRESS, "v1beta1", "egressclusterpolicies", false),
    ("EgressTunnel", EGRESS, "v1beta1", "egresstunnels", false),
    ("EgressClusterInfo", EGRESS, "v1beta1", "egressclusterinfos", false),
    ("EgressEndpointSlice", EGRESS, "v1beta1", "egressendpointslices", true),
    ("AddressClaim", "portolan.dev", "v1alpha1", "addressclaims", false),
];
const EGRESS: &str = "egressgateway.spidernet.io";

pub(super) struct World {
    pub(super) client: Client,
    way: Chaos,
    operator: Option<Process>,
    agents: Option<Process>,
    /// Where every address lived at `remember`.
    pub(super) remembered: BTreeMap<String, String>,
}

impl World {
    pub(super) async fn new(seed: Option<u64>) -> anyhow::Result<Self> {
        let client = ApiServer::memory().await.client();
        portolan_control::install::definitions(&client).await?;
        let agents = Process::start(client.clone(), options(), |ctx, _| agents::start(ctx))?;
        let way = Chaos::new(&client, seed);
        Ok(Self { client, way, operator: None, agents: Some(agents), remembered: BTreeMap::new() })
    }

    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        self.operator = Some(Process::start(self.way.client(), options(), |ctx, registry| {
            drop(egress::start(ctx, registry, egress::Options::default()));
        })?);
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
    pub(super) async fn put(&self, short: &Value) -> anyhow::Result<()> {
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

    /// Gives every node a tunnel that stands, unless it has one: a cluster that has run for a while.
    pub(super) async fn put_tunnels(&self) -> anyhow::Result<()> {
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

    async fn apply(&self, short: &Value) -> anyhow::Result<()> {
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
                api.delete(&name, &DeleteParams::default()).await.with_context(|| format!("deleting {what}"))?;
            }
            Step::Node { name, ready, labels } => self.node(name, *ready, labels.as_ref()).await?,
            Step::Tunnel { name, phase } => {
                let (api, name) = self.named(&format!("EgressTunnel {name}"))?;
                let patch = json!({ "status": { "phase": phase } });
                api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            }
        }
        Ok(())
    }

    async fn settle(&self) {
        tokio::time::sleep(ROUGH).await;
        self.way.calm(true);
        tokio::time::sleep(CALM).await;
        self.way.calm(false);
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
        self.way.calm(true);
        self.way.take_writes();
        tokio::time::sleep(IDLE).await;
        self.stop().await?;
        self.start()?;
        tokio::time::sleep(IDLE).await;
        self.way.calm(false);
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

fn resource(kind: &str) -> anyhow::Result<(ApiResource, bool)> {
    let found = KINDS.iter().find(|(name, ..)| *name == kind);
    let (_, group, version, plural, namespaced) =
        found.with_context(|| format!("kind `{kind}` is not known to scenarios"))?;
    Ok((ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural), *namespaced))
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

/// `node`, `ip`, `hostNetwork`, `command`.
fn spell_pod(fields: &mut Map<String, Value>) {
    let mut spec = json!({ "containers": [{ "name": "main", "image": "registry.k8s.io/pause:3.10" }] });
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
    let mut status = json!({ "phase": "Running" });
    if let Some(address) = fields.remove("ip") {
        status["podIPs"] = json!([{ "ip": address }]);
        status["podIP"] = address;
    }
    fields.insert("status".to_owned(), status);
}
