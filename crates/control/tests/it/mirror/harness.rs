//! What these tests share: a local cluster with an operator, and a remote one with nodes and Services.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Namespace, Node, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use portolan_api::mirror::{RemoteCluster, RemoteClusterStatus};
use portolan_control::mirror;
use portolan_control::runtime::app::Process;
use portolan_testkit::{ControlPlane, FaultProxy, Faults, TlsFront, install_definition};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use crate::egress::harness::options;
use crate::harness::{Backend, Server, eventually};

/// RemoteClusters and mirrors belong to the whole cluster: on the shared server there is one mirror at a time.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Two clusters, with a namespace of the same name in each.
pub(crate) struct World {
    pub(crate) local: Client,
    pub(crate) remote: Client,
    pub(crate) namespace: String,
    /// The namespace of the operator, with the Secrets of its remotes.
    pub(crate) home: String,
    pub(crate) remote_server: Server,
    local_server: Server,
    _alone: Option<MutexGuard<'static, ()>>,
}

/// The real control plane of [`World::pair`]'s remote.
pub(crate) fn remote_plane() -> parking_lot::MutexGuard<'static, ControlPlane> {
    static PLANE: OnceLock<parking_lot::Mutex<ControlPlane>> = OnceLock::new();
    let start = || parking_lot::Mutex::new(ControlPlane::start().expect("a control plane starts"));
    PLANE.get_or_init(start).lock()
}

/// The operator, behind a recorder of its writes.
pub(crate) struct Operator {
    pub(crate) process: Process,
    pub(crate) seen: FaultProxy,
    /// Only writes to namespaces whose name begins so count: on the shared server it also cleans up after other tests.
    pub(crate) namespace: String,
}

/// The remote, as seen through a fault proxy.
pub(crate) struct RemoteView {
    pub(crate) proxy: FaultProxy,
    pub(crate) front: TlsFront,
}

impl World {
    pub(crate) async fn new(backend: Backend) -> anyhow::Result<Self> {
        let alone = match backend {
            Backend::Real => Some(ALONE.lock().await),
            Backend::Embedded => None,
        };
        Self::of(Server::start(backend).await?, Server::start(Backend::Embedded).await?, alone).await
    }

    /// Both clusters are real. The remote is one for all such tests, and has no nodes.
    pub(crate) async fn pair() -> anyhow::Result<Self> {
        let alone = ALONE.lock().await;
        let remote = tokio::task::block_in_place(|| Server::of(&remote_plane()));
        let nodes = Api::<Node>::all(remote.client.clone());
        nodes.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        // Those of earlier tests have nodePorts that others want.
        for left in Api::<Service>::all(remote.client.clone()).list(&ListParams::default()).await? {
            let namespace = left.namespace().unwrap_or_default();
            if namespace != "default" {
                let services = Api::<Service>::namespaced(remote.client.clone(), &namespace);
                services.delete(&left.name_any(), &DeleteParams::default()).await?;
            }
        }
        Self::of(Server::start(Backend::Real).await?, remote, Some(alone)).await
    }

    /// Beside a remote of the caller's own.
    pub(crate) async fn with_remote(plane: &ControlPlane) -> anyhow::Result<Self> {
        Self::of(Server::start(Backend::Embedded).await?, Server::of(plane), None).await
    }

    async fn of(
        local_server: Server,
        remote_server: Server,
        alone: Option<MutexGuard<'static, ()>>,
    ) -> anyhow::Result<Self> {
        let (local, remote) = (local_server.client.clone(), remote_server.client.clone());
        let definitions = portolan_api::crds().into_iter();
        for definition in definitions.filter(|definition| definition.spec.names.kind == "RemoteCluster") {
            install_definition(local.clone(), definition).await?;
        }
        let remotes = Api::<RemoteCluster>::all(local.clone());
        for left in remotes.list(&ListParams::default()).await? {
            remotes.delete(&left.name_any(), &DeleteParams::default()).await?;
        }
        let home = local_server.namespace("operator").await?;
        let namespace = local_server.namespace("shop").await?;
        let world = Self { local, remote, namespace, home, remote_server, local_server, _alone: alone };
        world.remote_namespace(&world.namespace).await?;
        world.remote_namespace("kube-system").await?;
        Ok(world)
    }

    /// A namespace of the remote; it may be there.
    pub(crate) async fn remote_namespace(&self, name: &str) -> anyhow::Result<()> {
        make_namespace(&self.remote, name).await
    }

    pub(crate) fn options(&self) -> mirror::Options {
        mirror::Options {
            operator_namespace: self.home.clone(),
            allow_loopback: true,
            status_interval: Duration::from_millis(100),
            ..mirror::Options::default()
        }
    }

    pub(crate) async fn operator(&self) -> anyhow::Result<Operator> {
        self.operator_with(self.options()).await
    }

    pub(crate) async fn operator_with(&self, mirror: mirror::Options) -> anyhow::Result<Operator> {
        let seen = FaultProxy::start(self.local.clone(), Faults::default()).await?;
        let process =
            Process::start(seen.client(), options(), |ctx, registry| drop(mirror::start(ctx, registry, mirror)))?;
        Ok(Operator { process, seen, namespace: self.namespace.clone() })
    }

    /// Has the RemoteCluster `east` see the remote through a fault proxy.
    pub(crate) async fn remote_view(&self) -> anyhow::Result<RemoteView> {
        let proxy = FaultProxy::start(self.remote.clone(), Faults::default()).await?;
        let front = proxy.with_tls().await?;
        self.secret("east", "kubeconfig", &front.kubeconfig("any").to_string()).await?;
        Ok(RemoteView { proxy, front })
    }

    /// A Secret with credentials of the remote.
    pub(crate) async fn credentials(&self, name: &str) -> anyhow::Result<()> {
        let kubeconfig = std::fs::read_to_string(&self.remote_server.kubeconfig)?;
        self.secret(name, "kubeconfig", &kubeconfig).await
    }

    /// The other way round: a RemoteCluster of the remote that is the local cluster, with its Secret in this namespace.
    pub(crate) async fn other_way(&self, name: &str, home: &str, fields: Value) -> anyhow::Result<()> {
        let kubeconfig = std::fs::read_to_string(&self.local_server.kubeconfig)?;
        let secret = json!({ "metadata": { "name": name }, "stringData": { "kubeconfig": kubeconfig } });
        let secrets: Api<Secret> = Api::namespaced(self.remote.clone(), home);
        secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
        let object = json!({ "apiVersion": "portolan.dev/v1alpha1", "kind": "RemoteCluster",
            "metadata": { "name": name }, "spec": remote_spec(name, fields) });
        let remotes = Api::<RemoteCluster>::all(self.remote.clone());
        remotes.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    }

    pub(crate) async fn secret(&self, name: &str, key: &str, value: &str) -> anyhow::Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.local.clone(), &self.home);
        let secret = Secret {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            string_data: Some(BTreeMap::from([(key.to_owned(), value.to_owned())])),
            ..Secret::default()
        };
        let params = PatchParams::apply("test").force();
        let mut body = serde_json::to_value(secret)?;
        body["apiVersion"] = "v1".into();
        body["kind"] = "Secret".into();
        secrets.patch(name, &params, &Patch::Apply(body)).await?;
        Ok(())
    }

    /// A RemoteCluster `east` with working credentials, and these fields in its spec.
    pub(crate) async fn east(&self, spec: Value) -> anyhow::Result<()> {
        self.credentials("east").await?;
        self.remote_cluster("east", spec).await
    }

    /// A RemoteCluster whose credentials are in a Secret of the same name.
    pub(crate) async fn remote_cluster(&self, name: &str, fields: Value) -> anyhow::Result<()> {
        let object = json!({ "apiVersion": "portolan.dev/v1alpha1", "kind": "RemoteCluster",
            "metadata": { "name": name }, "spec": remote_spec(name, fields) });
        let params = PatchParams::apply("test").force();
        self.remotes().patch(name, &params, &Patch::Apply(object)).await?;
        Ok(())
    }

    pub(crate) fn remotes(&self) -> Api<RemoteCluster> {
        Api::all(self.local.clone())
    }

    pub(crate) async fn remote_status(&self, name: &str) -> anyhow::Result<RemoteClusterStatus> {
        Ok(self.remotes().get(name).await?.status.unwrap_or_default())
    }

    /// Waits until a condition of a RemoteCluster has this status and reason.
    pub(crate) async fn condition(&self, name: &str, kind: &str, status: &str, reason: &str) -> anyhow::Result<String> {
        let mut message = String::new();
        eventually(&format!("{name} is {kind}={status} {reason}"), async || {
            let conditions = self.remote_status(name).await?.conditions;
            let found = conditions.into_iter().find(|one| one.type_ == kind);
            let Some(found) = found.filter(|one| one.status == status && one.reason == reason) else {
                return Ok(false);
            };
            message = found.message;
            Ok(true)
        })
        .await
        .with_context(|| format!("{name} should be {kind}={status} {reason}"))?;
        Ok(message)
    }

    /// Waits until a RemoteCluster is ready.
    pub(crate) async fn ready(&self, name: &str) -> anyhow::Result<()> {
        self.condition(name, "Ready", "True", "Ready").await.map(drop)
    }

    /// A node of the remote that is ready, with this address.
    pub(crate) async fn node(&self, name: &str, address: &str) -> anyhow::Result<()> {
        self.node_with(name, json!({}), status(true, &[address])).await
    }

    pub(crate) async fn node_with(&self, name: &str, extra: Value, status: Value) -> anyhow::Result<()> {
        let nodes = Api::<Node>::all(self.remote.clone());
        let mut node = json!({ "metadata": { "name": name } });
        merge(&mut node, extra);
        if nodes.get_opt(name).await?.is_none() {
            nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        }
        let patch = Patch::Merge(json!({ "status": status }));
        nodes.patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// A Service of the remote of type NodePort, with this port and nodePort.
    pub(crate) async fn source(&self, name: &str, node_port: u16) -> anyhow::Result<()> {
        let ports = json!([{ "port": 80, "nodePort": node_port }]);
        self.source_with(name, json!({ "type": "NodePort", "ports": ports })).await
    }

    pub(crate) async fn source_with(&self, name: &str, spec: Value) -> anyhow::Result<()> {
        let source = json!({ "metadata": { "name": name }, "spec": spec });
        self.sources().create(&PostParams::default(), &serde_json::from_value(source)?).await?;
        Ok(())
    }

    /// Services of the remote.
    pub(crate) fn sources(&self) -> Api<Service> {
        Api::namespaced(self.remote.clone(), &self.namespace)
    }

    /// Services of the local cluster.
    pub(crate) fn services(&self) -> Api<Service> {
        Api::namespaced(self.local.clone(), &self.namespace)
    }

    /// Creates a local Service.
    pub(crate) async fn local_service(&self, service: Value) -> anyhow::Result<Service> {
        Ok(self.services().create(&PostParams::default(), &serde_json::from_value(service)?).await?)
    }

    /// Waits for the mirror of a source.
    pub(crate) async fn mirror(&self, name: &str) -> anyhow::Result<Service> {
        let mut found = None;
        eventually(&format!("{name} is mirrored"), async || {
            found = self.services().get_opt(name).await?.filter(is_mirror);
            Ok(found.is_some())
        })
        .await?;
        found.context("it was there")
    }

    /// Waits until there is no Service of this name.
    pub(crate) async fn gone(&self, name: &str) -> anyhow::Result<()> {
        let what = format!("{name} is gone");
        eventually(&what, async || Ok(self.services().get_opt(name).await?.is_none())).await
    }

    /// Our EndpointSlices of a Service.
    pub(crate) async fn slices(&self, service: &str) -> anyhow::Result<Vec<EndpointSlice>> {
        let slices = Api::<EndpointSlice>::namespaced(self.local.clone(), &self.namespace);
        let selector =
            format!("kubernetes.io/service-name={service},endpointslice.kubernetes.io/managed-by=mirror.portolan.dev");
        Ok(slices.list(&ListParams::default().labels(&selector)).await?.items)
    }

    /// The endpoints of a Service: `ADDRESS:PORT/PROTOCOL`, with `!` before those that are not ready.
    pub(crate) async fn endpoints(&self, service: &str) -> anyhow::Result<Vec<String>> {
        let mut all = Vec::new();
        for slice in self.slices(service).await? {
            for endpoint in slice.endpoints.iter().flatten() {
                let is_ready = endpoint.conditions.as_ref().is_none_or(|it| it.ready.unwrap_or(true));
                let mark = if is_ready { "" } else { "!" };
                for port in slice.ports.iter().flatten() {
                    let (number, protocol) = (port.port.unwrap_or_default(), port.protocol.as_deref().unwrap_or("TCP"));
                    all.push(format!("{mark}{}:{number}/{protocol}", endpoint.addresses.join("+")));
                }
            }
        }
        all.sort();
        Ok(all)
    }

    /// Waits until a Service has exactly these endpoints.
    pub(crate) async fn endpoints_are(&self, service: &str, want: &[&str]) -> anyhow::Result<()> {
        let mut last = Vec::new();
        let what = format!("{service} has the endpoints {want:?}");
        let waited = eventually(&what, async || {
            last = self.endpoints(service).await?;
            Ok(last == want)
        })
        .await;
        waited.with_context(|| format!("{service} has {last:?}"))
    }

    /// Waits for an event with this reason; gives its note.
    pub(crate) async fn event(&self, reason: &str, about: &str) -> anyhow::Result<String> {
        let events = Api::<Event>::all(self.local.clone());
        let mut note = String::new();
        eventually(&format!("there is an event {reason} about {about}"), async || {
            let all = events.list(&ListParams::default()).await?;
            let found = all.items.into_iter().find(|event| self.is_about(event, reason, about));
            note = found.as_ref().and_then(|event| event.note.clone()).unwrap_or_default();
            Ok(found.is_some())
        })
        .await?;
        Ok(note)
    }

    /// How often there is an event with this reason about an object of this name.
    pub(crate) async fn events(&self, reason: &str, about: &str) -> anyhow::Result<usize> {
        let all = Api::<Event>::all(self.local.clone()).list(&ListParams::default()).await?;
        Ok(all.items.iter().filter(|event| self.is_about(event, reason, about)).count())
    }

    /// Whether an event has this reason, and is about an object of this name in our namespace or in none.
    fn is_about(&self, event: &Event, reason: &str, about: &str) -> bool {
        let regarding = event.regarding.as_ref().filter(|object| object.name.as_deref() == Some(about));
        let namespace = regarding.map(|object| object.namespace.as_deref().unwrap_or_default());
        namespace.is_some_and(|namespace| namespace.is_empty() || namespace == self.namespace)
            && event.reason.as_deref() == Some(reason)
    }

    /// The local namespaces that were made for remotes.
    pub(crate) async fn made_namespaces(&self) -> anyhow::Result<Vec<String>> {
        let made = ListParams::default().labels("mirror.portolan.dev/created");
        let found = Api::<Namespace>::all(self.local.clone()).list(&made).await?;
        Ok(found.items.iter().map(ResourceExt::name_any).collect())
    }

    /// Waits until the operator has dealt with everything that happened in the remote so far.
    pub(crate) async fn caught_up(&self) -> anyhow::Result<()> {
        let name = format!("marker-{}", fastrand::u32(..));
        let ports = json!([{ "port": 80 }]);
        self.source_with(&name, json!({ "type": "NodePort", "ports": ports })).await?;
        self.mirror(&name).await?;
        self.sources().delete(&name, &DeleteParams::default()).await?;
        self.gone(&name).await
    }
}

impl Operator {
    /// Writes to Services, EndpointSlices and Endpoints so far.
    pub(crate) fn writes(&self) -> usize {
        self.writes_of("")
    }

    /// Those whose name contains this.
    pub(crate) fn writes_of(&self, name: &str) -> usize {
        let namespace = format!("/namespaces/{}", self.namespace);
        let is_object = |resource: Option<&str>| matches!(resource, Some("services" | "endpointslices" | "endpoints"));
        let writes = self.seen.writes_but_leases();
        let ours = writes.iter().filter(|write| is_object(write.resource()) && write.path.contains(&namespace));
        ours.filter(|write| write.path.rsplit('/').next().is_some_and(|last| last.contains(name))).count()
    }

    /// The sum of a metric over all labels that contain these words.
    pub(crate) async fn metric(&self, name: &str, words: &[&str]) -> anyhow::Result<f64> {
        let text = crate::chart::metrics(self.process.admin_at()).await?;
        let lines = text.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' '])) && words.iter().all(|word| line.contains(word))
        });
        Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.process.stop().await?;
        Ok(())
    }
}

fn remote_spec(name: &str, fields: Value) -> Value {
    let mut spec = json!({
        "credentials": { "kubeconfigSecret": { "name": name } },
        "addresses": { "allowedCIDRs": ["10.0.0.0/8", "fd00::/8"] },
    });
    merge(&mut spec, fields);
    spec
}

pub(crate) async fn make_namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let made = Api::<Namespace>::all(client.clone())
        .create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() })
        .await;
    match made {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        made => made.map(drop).map_err(Into::into),
    }
}

/// The status of a node with these InternalIPs.
pub(crate) fn status(ready: bool, addresses: &[&str]) -> Value {
    let addresses: Vec<Value> =
        addresses.iter().map(|address| json!({ "type": "InternalIP", "address": address })).collect();
    let ready = if ready { "True" } else { "False" };
    json!({ "conditions": [{ "type": "Ready", "status": ready }], "addresses": addresses })
}

pub(crate) fn is_mirror(service: &Service) -> bool {
    service.labels().get("tfw.io/barrelman").is_some_and(|value| value == "managed-resource")
}

/// Puts the fields of `from` into `into`, depth by depth.
pub(crate) fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// Fails unless a check holds for a while.
pub(crate) async fn stays(what: &str, check: impl AsyncFn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    for _ in 0..10 {
        ensure!(check().await?, "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
