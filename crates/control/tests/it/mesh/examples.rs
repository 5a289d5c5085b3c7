//! The two examples of the mesh document, as `examples/` has them, with the document's own addresses: every container is
//! a process, packets are real.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use portolan_api::mesh::{Target, VirtualService};
use portolan_control::mesh;
use portolan_control::runtime::app::Process;
use portolan_core::mesh::{Balancer, LbPolicy, Path, PickContext, WeightedEndpoint};
use portolan_drivers::l7mp::{Credentials, ProxyClient};
use portolan_simulator::pods;
use serde_json::{Value, json};

use super::harness::{API, World, built};
use super::lab;
use crate::egress::harness::options;
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(a_gateway_a_transcoder_and_a_naked_worker, users_meet_at_a_worker);

const MODULE: &str = "mesh::examples";
const SOON: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(10);

const ONE: [&str; 2] = [
    include_str!("../../../../../examples/mesh-1/pods.yaml"),
    include_str!("../../../../../examples/mesh-1/mesh.yaml"),
];
const TWO: [&str; 2] = [
    include_str!("../../../../../examples/mesh-2/pods.yaml"),
    include_str!("../../../../../examples/mesh-2/mesh.yaml"),
];

/// A namespace in which pods run, and the operator.
struct Cluster {
    world: World,
    process: Process,
    _folder: tempfile::TempDir,
}

impl Cluster {
    async fn start(backend: Backend) -> anyhow::Result<Self> {
        let world = World::new(backend).await?;
        let node = json!({ "metadata": { "name": "node-1" } });
        Api::<Node>::all(world.client.clone()).create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        let folder = tempfile::Builder::new().prefix("pods-").tempdir()?;
        let pods = pods::Options {
            image: "portolan".to_owned(),
            program: built()?,
            command: Vec::new(),
            range: "10.77.0.0/16".parse()?,
            folder: folder.path().to_owned(),
            namespace: world.namespace.clone(),
        };
        let mesh = mesh::Options { namespace: world.namespace.clone(), ..mesh::Options::default() };
        let process = Process::start(world.client.clone(), options(), |ctx, registry| {
            drop(mesh::start(ctx, registry, mesh));
            pods::start(ctx, pods);
        })?;
        Ok(Self { world, process, _folder: folder })
    }

    /// Applies an example. Neither server has a scheduler, so pods are made from the templates of their workloads.
    async fn apply(&self, text: &str) -> anyhow::Result<()> {
        for object in serde_saphyr::from_multiple::<DynamicObject>(text)? {
            let kind = object.types.as_ref().map(|types| types.kind.as_str()).unwrap_or_default();
            if !matches!(kind, "Deployment" | "DaemonSet") {
                self.world.apply(&serde_saphyr::to_string(&object)?).await?;
                continue;
            }
            for number in 0..object.data["spec"]["replicas"].as_u64().unwrap_or(1) {
                let name = object.metadata.name.as_deref().unwrap_or_default();
                self.pod(&format!("{name}-{number}"), &object.data["spec"]["template"]).await?;
            }
        }
        Ok(())
    }

    async fn pod(&self, name: &str, template: &Value) -> anyhow::Result<()> {
        let mut pod = template.clone();
        pod["metadata"]["name"] = json!(name);
        pod["spec"]["nodeName"] = json!("node-1");
        pod["spec"]["nodeSelector"] = Value::Null;
        self.world.api::<Pod>().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        Ok(())
    }

    /// Waits until every container of every pod serves.
    async fn ready(&self) -> anyhow::Result<()> {
        eventually("every pod is ready", async || {
            let pods = self.world.api::<Pod>().list(&ListParams::default()).await?.items;
            let is_ready = |pod: &Pod| {
                let conditions =
                    pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
                conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True")
            };
            Ok(pods.iter().all(is_ready))
        })
        .await
    }

    async fn address(&self, pod: &str) -> anyhow::Result<Ipv4Addr> {
        let status = self.world.api::<Pod>().get(pod).await?.status.unwrap_or_default();
        status.pod_ip.as_deref().unwrap_or_default().parse().map_err(|_| anyhow::anyhow!("{pod} has no address"))
    }

    /// What the proxy of a pod holds of a kind.
    async fn held(&self, pod: &str, kind: &str) -> anyhow::Result<Vec<Value>> {
        let credentials = Credentials { token: Some("change-me".into()), ..Credentials::default() };
        let proxy = ProxyClient::new(SocketAddr::from((self.address(pod).await?, API)), credentials);
        let held = proxy.get(&format!("/api/v1/{kind}?recursive=true")).await?;
        Ok(held.as_array().cloned().unwrap_or_default())
    }

    async fn names(&self, pod: &str, kind: &str) -> anyhow::Result<Vec<String>> {
        let suffix = format!(".{}", self.world.namespace);
        let name = |one: &Value| one["name"].as_str().unwrap_or_default().replacen(&suffix, "", 1);
        let mut names: Vec<String> = self.held(pod, kind).await?.iter().map(name).collect();
        names.sort();
        Ok(names)
    }

    /// Live sessions of a pod's listener.
    async fn sessions(&self, pod: &str, listener: &str) -> anyhow::Result<usize> {
        let of = |one: &&Value| {
            let metadata = one.to_string();
            metadata.contains(&format!("\"{listener}.")) && one["status"] != "FINALIZED"
        };
        Ok(self.held(pod, "sessions").await?.iter().filter(of).count())
    }

    async fn programmed(&self, names: &[&str]) -> anyhow::Result<()> {
        for name in names {
            self.world.until(name, "Programmed", "True", "Programmed").await?;
        }
        Ok(())
    }
}

/// A client at an address and a port of the document.
fn client(at: [u8; 4], port: u16, to: Ipv4Addr, to_port: u16) -> anyhow::Result<UdpSocket> {
    let socket = UdpSocket::bind(SocketAddr::from((at, port)))?;
    socket.connect((to, to_port))?;
    Ok(socket)
}

fn hear(socket: &UdpSocket, within: Duration) -> anyhow::Result<Option<String>> {
    socket.set_read_timeout(Some(within))?;
    let mut buffer = [0; 2048];
    Ok(socket.recv(&mut buffer).ok().map(|length| String::from_utf8_lossy(&buffer[..length]).into_owned()))
}

fn ask(socket: &UdpSocket, text: &str, within: Duration) -> anyhow::Result<Option<String>> {
    socket.send(text.as_bytes())?;
    hear(socket, within)
}

async fn a_gateway_a_transcoder_and_a_naked_worker(backend: Backend) -> anyhow::Result<()> {
    if !lab::is_inside(MODULE, "a_gateway_a_transcoder_and_a_naked_worker", backend).await? {
        return Ok(());
    }
    let cluster = Cluster::start(backend).await?;
    let [pods, mesh] = ONE;
    // the transcoder also listens where pieces stay apart
    cluster.apply(&pods.replacen("listeners: [", &format!("listeners: [{APART}, "), 1)).await?;
    cluster.apply(&mesh.replace("value: 127.0.0.1", "value: 10.0.0.1")).await?;
    cluster.programmed(&["gateway-vsvc", "transcoder-vsvc"]).await?;
    let gateway = cluster.address("gateway-0").await?;
    generated(&cluster).await?;
    programmed(&cluster).await?;

    let allowed = client([10, 0, 0, 1], 9000, gateway, 9001)?;
    assert_eq!(ask(&allowed, "hello", LONG)?.as_deref(), Some("hello"), "through both and back");
    for (address, port) in [([10, 0, 0, 1], 8999), ([10, 0, 0, 1], 9100), ([10, 0, 0, 2], 9000)] {
        let refused = client(address, port, gateway, 9001)?;
        assert_eq!(ask(&refused, "hello", SOON)?, None, "{address:?}:{port}");
    }
    assert_eq!(cluster.sessions("gateway-0", "gateway-vsvc").await?, 1, "silence leaves no session");

    let pieces = client([10, 0, 0, 1], 9010, gateway, 9001)?;
    assert_eq!(three(&pieces)?.concat(), "123", "a stream keeps their order, and joins them as it likes");
    let apart = json!({ "unixdomainsocket": { "filename": "/var/run/sock/apart.sock", "type": "seqpacket" } });
    let patch = json!({ "spec": { "rules": [{ "action": { "route": { "destination": apart } } }] } });
    let services = cluster.world.api::<VirtualService>();
    services.patch("transcoder-vsvc", &PatchParams::default(), &Patch::Merge(patch)).await?;
    eventually("the transcoder leads there", async || {
        let clusters = cluster.held("transcoder-0", "clusters").await?;
        Ok(clusters.iter().any(|one| one["endpoints"][0]["spec"]["address"] == "/var/run/sock/apart.sock"))
    })
    .await?;
    let pieces = client([10, 0, 0, 1], 9011, gateway, 9001)?;
    assert_eq!(three(&pieces)?, ["1", "2", "3"]);

    // another worker comes, and the session on the first goes on
    let template = cluster.world.api::<Pod>().get("worker-0").await?;
    let template = json!({ "metadata": { "labels": template.metadata.labels }, "spec": template.spec });
    cluster.pod("worker-1", &template).await?;
    eventually("both workers are endpoints", async || {
        let clusters = cluster.held("gateway-0", "clusters").await?;
        let worker =
            clusters.iter().find(|one| one["name"].as_str().is_some_and(|name| name.starts_with("worker-svc")));
        Ok(worker.and_then(|one| one["endpoints"].as_array()).is_some_and(|endpoints| endpoints.len() == 2))
    })
    .await?;
    assert_eq!(ask(&allowed, "still", LONG)?.as_deref(), Some("still"));
    assert_eq!(cluster.sessions("gateway-0", "gateway-vsvc").await?, 3, "and so do the others");

    // the transcoder's sidecar dies, is started again, and is told everything again
    let kill = cluster.world.api::<Pod>().get("transcoder-0").await?;
    let id = process_id(&kill, "l7mp").ok_or_else(|| anyhow::anyhow!("the sidecar runs"))?;
    rustix::process::kill_process(id, rustix::process::Signal::KILL)?;
    let again = client([10, 0, 0, 1], 9001, gateway, 9001)?;
    eventually("packets pass again", async || Ok(ask(&again, "again", SOON)?.as_deref() == Some("again"))).await?;
    eventually("the restart is counted", async || {
        let pod = cluster.world.api::<Pod>().get("transcoder-0").await?;
        Ok(restarts(&pod, "l7mp") == Some(1))
    })
    .await?;
    cluster.process.stop().await?;
    Ok(())
}

/// An app of the transcoder.
const APART: &str = "{name: apart, spec: {protocol: UnixDomainSocket, filename: /var/run/sock/apart.sock, type: seqpacket}, \
                     rules: [{action: {route: {destination: {spec: {protocol: Echo}}}}}]}";

/// Sends three datagrams, and gives what comes back of them.
fn three(client: &UdpSocket) -> anyhow::Result<Vec<String>> {
    for piece in ["1", "2", "3"] {
        client.send(piece.as_bytes())?;
    }
    let mut heard: Vec<String> = Vec::new();
    while heard.iter().map(String::len).sum::<usize>() < 3 {
        heard.push(hear(client, LONG)?.ok_or_else(|| anyhow::anyhow!("only {heard:?} came back"))?);
    }
    Ok(heard)
}

/// What names made necessary, exactly.
async fn generated(cluster: &Cluster) -> anyhow::Result<()> {
    let all = async || anyhow::Ok(cluster.world.api::<VirtualService>().list(&ListParams::default()).await?.items);
    let targets = async || anyhow::Ok(cluster.world.api::<Target>().list(&ListParams::default()).await?.items);
    eventually("everything is generated", async || Ok(all().await?.len() >= 3 && targets().await?.len() >= 2)).await?;
    let services = all().await?;
    let specs =
        |name: &str| services.iter().find(|one| one.metadata.name.as_deref() == Some(name)).map(|one| json!(one.spec));
    let names: Vec<_> = services.iter().filter_map(|one| one.metadata.name.as_deref()).collect();
    assert_eq!(names, ["gateway-vsvc", "transcoder-vsvc", "worker-svc"]);
    let worker =
        json!({ "selector": { "matchService": "worker-svc" }, "listener": { "protocol": "UDP", "port": 9999 } });
    assert_eq!(specs("worker-svc"), Some(worker));
    let targets: Vec<_> =
        targets().await?.iter().map(|one| (one.metadata.name.clone().unwrap_or_default(), json!(one.spec))).collect();
    let spec = |protocol: &str, port: u16, callee: Value| {
        json!({
            "selector": { "matchService": "gateway-svc" },
            "cluster": { "spec": { "protocol": protocol, "port": port }, "endpoints": [{ "selector": callee }] },
        })
    };
    let wanted = [
        ("transcoder-vsvc".to_owned(), spec("WebSocket", 8888, json!({ "matchLabels": { "app": "transcoder" } }))),
        ("worker-svc".to_owned(), spec("UDP", 9999, json!({ "matchService": "worker-svc" }))),
    ];
    assert_eq!(targets, wanted);
    Ok(())
}

/// What the proxies hold.
async fn programmed(cluster: &Cluster) -> anyhow::Result<()> {
    let target = |name: &str| format!("{name}.target.cluster.local");
    assert_eq!(cluster.names("gateway-0", "clusters").await?, [target("transcoder-vsvc"), target("worker-svc")]);
    assert_eq!(cluster.names("gateway-0", "listeners").await?, ["gateway-vsvc.virtualservice.cluster.local"]);
    assert_eq!(cluster.names("transcoder-0", "listeners").await?, ["transcoder-vsvc.virtualservice.cluster.local"]);
    let clusters = cluster.held("transcoder-0", "clusters").await?;
    let [only] = &clusters[..] else { anyhow::bail!("one cluster: {clusters:?}") };
    assert_eq!(only["spec"]["protocol"], "UnixDomainSocket");
    assert_eq!(only["endpoints"][0]["spec"]["address"], "/var/run/sock/uds-echo.sock");
    Ok(())
}

fn status<'a>(pod: &'a Pod, container: &str) -> Option<&'a k8s_openapi::api::core::v1::ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.iter().find(|status| status.name == container)
}

fn restarts(pod: &Pod, container: &str) -> Option<i32> {
    status(pod, container).map(|status| status.restart_count)
}

fn process_id(pod: &Pod, container: &str) -> Option<rustix::process::Pid> {
    let id = status(pod, container)?.container_id.as_deref()?.strip_prefix("process://")?.parse().ok()?;
    rustix::process::Pid::from_raw(id)
}

async fn users_meet_at_a_worker(backend: Backend) -> anyhow::Result<()> {
    if !lab::is_inside(MODULE, "users_meet_at_a_worker", backend).await? {
        return Ok(());
    }
    let cluster = Cluster::start(backend).await?;
    let [pods, mesh] = TWO;
    cluster.apply(pods).await?;
    cluster.ready().await?;
    let mesh = mesh.replace("{address: 127.0.0.1, port: 8001}", "{address: 192.168.0.1, port: 8001}");
    cluster.apply(&mesh.replace("{address: 127.0.0.1, port: 8002}", "{address: 192.168.0.2, port: 8002}")).await?;
    cluster.programmed(&["gateway-user-a-vsvc", "gateway-user-b-vsvc", "worker-vsvc"]).await?;
    let gateway = cluster.address("gateway-0").await?;
    let a = client([192, 168, 0, 1], 8001, gateway, 8001)?;
    let b = client([192, 168, 0, 2], 8002, gateway, 8002)?;
    meet(&a, &b).await?;
    eventually("the gateway knows every worker", async || {
        let clusters = cluster.held("gateway-0", "clusters").await?;
        let knows_all = |one: &Value| one["endpoints"].as_array().is_some_and(|all| all.len() == WORKERS.len());
        Ok(clusters.iter().any(knows_all))
    })
    .await?;

    // more calls go to the workers that the ring has for them, and both ends of each meet
    for call in 2..=CALLS {
        for (user, base) in [("a", 9000), ("b", 9500)] {
            let port = base + call;
            let address = if user == "a" { "192.168.0.1" } else { "192.168.0.2" };
            cluster
                .world
                .apply(&format!(
                    "{{apiVersion: l7mp.io/v1, kind: VirtualService, metadata: {{name: call-{call}-{user}}}, spec: {{\
                     selector: {{serviceName: gateway-svc}}, listener: {{protocol: UDP, port: {port}, \
                     connect: {{address: {address}, port: {port}}}}}, rules: [{{action: {{rewrite: \
                     [{{path: /labels/session_id, value: '{call}'}}], route: gateway-route}}}}]}}}}"
                ))
                .await?;
        }
    }
    for call in 2..=CALLS {
        let a = client([192, 168, 0, 1], 9000 + call, gateway, 9000 + call)?;
        let b = client([192, 168, 0, 2], 9500 + call, gateway, 9500 + call)?;
        meet(&a, &b).await?;
    }
    let mut wanted: BTreeMap<&str, BTreeMap<String, usize>> = BTreeMap::new();
    let ring = ring(&cluster).await?;
    for call in 1..=CALLS {
        wanted.entry(picked(&ring, call)).or_default().insert(call.to_string(), 2);
    }
    assert_eq!(wanted.len(), 3, "every worker has some");
    for worker in WORKERS {
        assert_eq!(Some(&calls(&cluster, worker).await?), wanted.get(worker), "{worker}");
    }

    // the worker of the first call dies with its pod, and both ends meet again at another
    let worker = picked(&ring, 1);
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    cluster.world.api::<Pod>().delete(worker, &now).await?;
    let began = std::time::Instant::now();
    meet(&a, &b).await?;
    assert!(began.elapsed() < Duration::from_secs(8), "within 3 retries of 2 s: {:?}", began.elapsed());

    // user A goes: its session ends at the gateway and at the worker, and user B's does not
    cluster.world.api::<VirtualService>().delete("gateway-user-a-vsvc", &DeleteParams::default()).await?;
    eventually("user A's session is gone", async || {
        Ok(cluster.sessions("gateway-0", "gateway-user-a-vsvc").await? == 0)
    })
    .await?;
    assert_eq!(cluster.sessions("gateway-0", "gateway-user-b-vsvc").await?, 1);
    let mut left = 0;
    eventually("it is gone at the worker", async || {
        left = 0;
        for other in WORKERS.into_iter().filter(|other| *other != worker) {
            left += calls(&cluster, other).await?.get("1").copied().unwrap_or_default();
        }
        Ok(left < 2)
    })
    .await?;
    assert_eq!(left, 1, "user B's session is there");
    cluster.process.stop().await?;
    Ok(())
}

/// What each says, the other hears.
async fn meet(a: &UdpSocket, b: &UdpSocket) -> anyhow::Result<()> {
    for (from, to) in [(a, b), (b, a)] {
        let mut number = 0;
        eventually("what one says the other hears", async || {
            number += 1;
            let text = format!("hello {number}");
            if from.send(text.as_bytes()).is_err() {
                return Ok(false);
            }
            while let Some(heard) = hear(to, SOON)? {
                if heard == text {
                    return Ok(true);
                }
            }
            Ok(false)
        })
        .await?;
    }
    Ok(())
}

const CALLS: u16 = 50;
const WORKERS: [&str; 3] = ["worker-0", "worker-1", "worker-2"];

/// Sessions at a worker, by call.
async fn calls(cluster: &Cluster, worker: &str) -> anyhow::Result<BTreeMap<String, usize>> {
    let mut calls = BTreeMap::new();
    for session in cluster.held(worker, "sessions").await? {
        let call = session["metadata"]["labels"]["session_id"].as_str().unwrap_or_default().to_owned();
        *calls.entry(call).or_default() += 1;
    }
    Ok(calls)
}

/// The ring of the workers.
async fn ring(cluster: &Cluster) -> anyhow::Result<Balancer> {
    let mut members = Vec::new();
    for worker in WORKERS {
        members.push(WeightedEndpoint { address: cluster.address(worker).await?.to_string(), weight: 1.0 });
    }
    Ok(Balancer::new(LbPolicy::HashRing(Some(Path::new("/labels/session_id"))), members))
}

fn picked(ring: &Balancer, call: u16) -> &'static str {
    let metadata = json!({ "labels": { "session_id": call.to_string() } });
    let ask = PickContext { metadata: &metadata, client: None, random: 0, sequence: 0, sessions: &|_| 0 };
    ring.pick(&ask).map_or("nowhere", |at| WORKERS[at])
}
