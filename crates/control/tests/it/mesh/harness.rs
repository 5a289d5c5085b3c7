//! What these tests share: a namespace with the kinds of the mesh, pods whose proxies run, and the operator.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use portolan_api::mesh::{MeshStatus, Target, VirtualService};
use portolan_control::install;
use portolan_control::mesh;
use portolan_control::runtime::app::{Options, Process};
use portolan_drivers::l7mp::{CallError, Credentials, ProxyClient};
use portolan_testkit::program::{Program, binary};
use portolan_testkit::{FaultProxy, Faults, install_definition};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::egress::harness::options;
use crate::harness::{Backend, Server, eventually};

/// The address of the node of pods on its network.
pub(crate) const NODE: &str = "10.9.0.7";

/// Where the API of every proxy listens.
pub(crate) const API: u16 = 1234;

/// A namespace of its own.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    folder: TempDir,
    proxies: BTreeMap<String, Program>,
    server: Server,
}

/// The operator, behind a recorder of its writes.
pub(crate) struct Operator {
    pub(crate) process: Process,
    pub(crate) seen: FaultProxy,
}

impl World {
    pub(crate) async fn new(backend: Backend) -> anyhow::Result<Self> {
        let server = Server::start(backend).await?;
        let client = server.client.clone();
        for definition in portolan_api::crds() {
            install_definition(client.clone(), definition).await?;
        }
        let namespace = server.namespace("mesh").await?;
        let folder = tempfile::tempdir()?;
        Ok(Self { client, namespace, folder, proxies: BTreeMap::new(), server })
    }

    pub(crate) async fn operator(&self) -> anyhow::Result<Operator> {
        self.operator_with(self.options()).await
    }

    /// For the namespace alone: others may be at work beside it.
    pub(crate) fn options(&self) -> mesh::Options {
        mesh::Options { namespace: self.namespace.clone(), ..mesh::Options::default() }
    }

    pub(crate) async fn operator_with(&self, mesh: mesh::Options) -> anyhow::Result<Operator> {
        self.replica(options(), mesh).await
    }

    /// One of several operators.
    pub(crate) async fn replica(&self, options: Options, mesh: mesh::Options) -> anyhow::Result<Operator> {
        let seen = FaultProxy::start(self.client.clone(), Faults::default()).await?;
        let process = Process::start(seen.client(), options, |ctx, registry| drop(mesh::start(ctx, registry, mesh)))?;
        Ok(Operator { process, seen })
    }

    /// Applies objects, in YAML, to the namespace.
    pub(crate) async fn apply(&self, text: &str) -> anyhow::Result<()> {
        let mut objects: Vec<DynamicObject> = serde_saphyr::from_multiple(text)?;
        for object in &mut objects {
            object.metadata.namespace = Some(self.namespace.clone());
        }
        Ok(install::objects(&self.client, objects).await?)
    }

    /// A pod whose containers run as told by these flags; without any it is only an address.
    pub(crate) async fn pod(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        flags: &[&str],
    ) -> anyhow::Result<Ipv4Addr> {
        let address = fresh_address();
        self.declare(name, labels, flags.contains(&"--api")).await?;
        if !flags.is_empty() {
            self.start(name, address, flags)?;
        }
        self.shows(name, address, 0).await?;
        Ok(address)
    }

    /// A pod that is marked as a proxy, at an address that the test itself answers for.
    pub(crate) async fn stand_in(&self, name: &str, labels: &[(&str, &str)], at: Ipv4Addr) -> anyhow::Result<()> {
        self.declare(name, labels, true).await?;
        self.shows(name, at, 0).await
    }

    async fn declare(&self, name: &str, labels: &[(&str, &str)], is_proxy: bool) -> anyhow::Result<()> {
        let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
        let container = if is_proxy {
            json!({ "name": "l7mp", "image": "portolan", "ports": [{ "name": "l7mp-api", "containerPort": API }] })
        } else {
            json!({ "name": "app", "image": "app" })
        };
        let pod = json!({
            "metadata": { "name": name, "labels": labels },
            "spec": { "containers": [container], "automountServiceAccountToken": false },
        });
        let pods: Api<Pod> = self.api();
        pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        Ok(())
    }

    /// A pod on its node's network that is marked as a proxy; nothing runs in it.
    pub(crate) async fn host_pod(&self, name: &str, app: &str) -> anyhow::Result<()> {
        let container = json!({
            "name": "l7mp", "image": "portolan", "ports": [{ "name": "l7mp-api", "containerPort": API, "hostPort": API }]
        });
        let pod = json!({
            "metadata": { "name": name, "labels": { "app": app } },
            "spec": { "hostNetwork": true, "containers": [container], "automountServiceAccountToken": false },
        });
        self.api::<Pod>().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        self.shows(name, fresh_address(), 0).await?;
        let node = Patch::Merge(json!({ "status": { "hostIP": NODE, "hostIPs": [{ "ip": NODE }] } }));
        self.api::<Pod>().patch_status(name, &PatchParams::default(), &node).await?;
        Ok(())
    }

    /// Another namespace, beside the own one.
    pub(crate) async fn other_namespace(&self) -> anyhow::Result<String> {
        self.server.namespace("other").await
    }

    /// The address under which pods reach the API server, where a cluster has one.
    pub(crate) async fn api_server(&self) -> anyhow::Result<Option<String>> {
        let services: Api<Service> = Api::namespaced(self.client.clone(), "default");
        let found = services.get_opt("kubernetes").await?;
        Ok(found.and_then(|service| service.spec?.cluster_ip))
    }

    /// Reasons of events about an object, in order.
    pub(crate) async fn events(&self, kind: &str, name: &str) -> anyhow::Result<Vec<String>> {
        let events = self.api::<Event>().list(&ListParams::default()).await?;
        let is_about = |event: &Event| {
            let regarding = event.regarding.clone().unwrap_or_default();
            regarding.kind.as_deref() == Some(kind) && regarding.name.as_deref() == Some(name)
        };
        let mut reasons: Vec<String> =
            events.items.into_iter().filter(is_about).filter_map(|event| event.reason).collect();
        reasons.sort();
        Ok(reasons)
    }

    /// Waits until there is an event with this reason about an object.
    pub(crate) async fn told(&self, kind: &str, name: &str, reason: &str) -> anyhow::Result<()> {
        eventually(&format!("{reason} is told on {kind} {name}"), async || {
            Ok(self.events(kind, name).await?.iter().any(|one| one == reason))
        })
        .await
    }

    /// Starts the process of a pod.
    pub(crate) fn start(&mut self, pod: &str, address: Ipv4Addr, flags: &[&str]) -> anyhow::Result<()> {
        let program = run_proxy(pod, address, flags, self.folder.path())?;
        self.proxies.insert(pod.to_owned(), program);
        Ok(())
    }

    /// Kills the process of a pod.
    pub(crate) fn kill(&mut self, pod: &str) {
        self.proxies.remove(pod);
    }

    /// The kubelet's word on a pod.
    pub(crate) async fn shows(&self, pod: &str, address: Ipv4Addr, restarts: u32) -> anyhow::Result<()> {
        let status = json!({ "status": {
            "phase": "Running",
            "podIP": address, "podIPs": [{ "ip": address }],
            "conditions": [{ "type": "Ready", "status": "True" }],
            "containerStatuses": [{
                "name": "l7mp", "image": "portolan", "imageID": "", "ready": true, "restartCount": restarts,
                "containerID": format!("process://{restarts}"),
            }],
        } });
        self.api::<Pod>().patch_status(pod, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    /// Takes a pod away, and its process.
    pub(crate) async fn remove(&mut self, pod: &str) -> anyhow::Result<()> {
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.api::<Pod>().delete(pod, &now).await?;
        self.kill(pod);
        Ok(())
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// What a proxy holds of a kind.
    pub(crate) async fn held(&self, address: Ipv4Addr, kind: &str) -> anyhow::Result<Value> {
        Ok(held_by(&api_of(address), kind).await?)
    }

    /// How many changes a proxy of ours has taken since it started.
    pub(crate) async fn generation(&self, address: Ipv4Addr) -> anyhow::Result<u64> {
        let admin = self.held(address, "admin").await?;
        admin["portolan"]["generation"].as_u64().context("a proxy of ours counts its changes")
    }

    /// Waits until a condition of a VirtualService has this status and reason.
    pub(crate) async fn until(&self, name: &str, condition: &str, status: &str, reason: &str) -> anyhow::Result<()> {
        let what = format!("VirtualService {name} is {condition}={status} {reason}");
        eventually(&what, async || {
            let seen = self.api::<VirtualService>().get(name).await?;
            Ok(has(seen.status.as_ref(), condition, status, reason))
        })
        .await
    }

    pub(crate) async fn targets(&self) -> anyhow::Result<Vec<String>> {
        let list = self.api::<Target>().list(&ListParams::default()).await?;
        Ok(list.items.into_iter().filter_map(|one| one.metadata.name).collect())
    }
}

/// The proxy's program.
pub(crate) fn built() -> anyhow::Result<PathBuf> {
    static PROXY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = PROXY.get_or_init(|| binary("portolan-proxy", "portolan-proxy").map_err(|error| format!("{error:#}")));
    built.clone().map_err(|error| anyhow::anyhow!("{error}"))
}

/// Runs the process of a pod on its address.
pub(crate) fn run_proxy(pod: &str, address: Ipv4Addr, flags: &[&str], folder: &Path) -> anyhow::Result<Program> {
    let own = ["--address".to_owned(), address.to_string(), "--workers".to_owned(), "1".to_owned()];
    let flags = flags.iter().map(|flag| flag.replace("ADDRESS", &address.to_string()));
    let arguments: Vec<String> = own.into_iter().chain(flags).collect();
    Program::start(pod, &built()?, &arguments, folder)
}

/// The API of the proxy at an address.
pub(crate) fn api_of(address: Ipv4Addr) -> ProxyClient {
    ProxyClient::new(SocketAddr::from((address, API)), Credentials::default())
}

pub(crate) async fn held_by(proxy: &ProxyClient, kind: &str) -> Result<Value, CallError> {
    proxy.get(&format!("/api/v1/{kind}?recursive=true")).await
}

/// The middle one: a hiccup of the machine does not move it.
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

pub(crate) fn has(status: Option<&MeshStatus>, condition: &str, state: &str, reason: &str) -> bool {
    let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions
        .iter()
        .any(|one| (one.type_.as_str(), one.status.as_str(), one.reason.as_str()) == (condition, state, reason))
}

/// Flags of a proxy that is programmed from outside.
pub(crate) const SIDECAR: &[&str] = &["--api", "ADDRESS:1234", "--insecure-api"];

/// An app that sends back what it gets, on a UDP port.
pub(crate) const ECHO: &[&str] = &[
    "--inline",
    "{listeners: [{name: e, spec: {protocol: UDP, port: 9999}, rules: [{action: {route: {destination: {spec: {protocol: Echo}}}}}]}]}",
];

/// A loopback address that nobody here has.
pub(crate) fn fresh_address() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // other test programs may run beside this one
    let own = std::process::id() % 100;
    Ipv4Addr::from(0x7f00_0000 | (100 + own) << 16 | number)
}

/// A client that waits for answers.
pub(crate) struct Caller {
    socket: UdpSocket,
}

impl Caller {
    pub(crate) fn new(to: Ipv4Addr, port: u16) -> anyhow::Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect((to, port))?;
        Ok(Self { socket })
    }

    /// Sends, and gives what came back within this time.
    pub(crate) fn call(&self, text: &str, within: Duration) -> anyhow::Result<Option<String>> {
        self.socket.set_read_timeout(Some(within))?;
        if self.socket.send(text.as_bytes()).is_err() {
            return Ok(None);
        }
        let mut buffer = [0; 2048];
        match self.socket.recv(&mut buffer) {
            Ok(length) => Ok(Some(std::str::from_utf8(&buffer[..length])?.to_owned())),
            Err(_) => Ok(None),
        }
    }
}
