//! Envoys as Deployments: their objects on an API server. No kubelet is here; where an Envoy is needed, the test starts
//! the real one with the files of its Secret, and writes its pod as a kubelet would.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use portolan_api::gateway::{LoadBalancer, ServiceGroup, ServicePrefix};
use portolan_control::gateway::{self, DeploymentOptions, DeploymentProxies};
use portolan_control::runtime::app::Process;
use portolan_control::runtime::authority::Schedule;
use portolan_control::{CAPABILITIES, query};
use portolan_testkit::{Exchange, FaultProxy, Faults, Program};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::harness::{World, at_rest};
use crate::egress::harness::options;
use crate::harness::{Backend, eventually, on_both_servers};
use crate::mesh::harness::fresh_address;

on_both_servers!(
    a_load_balancer_is_ready_when_nodes_send_packets_to_its_pod,
    a_real_envoy_with_the_files_of_its_secret_serves,
    a_running_envoy_follows_the_rotation_of_the_authority,
    deletion_leaves_nothing,
    image_and_port_change_roll_out,
    network_attachment_follows_prefix,
    restart_writes_nothing,
);

/// An operator whose Envoys are Deployments in a namespace of this test.
struct Operator {
    process: Process,
    seen: FaultProxy,
}

struct Lab {
    world: World,
    namespace: String,
    account: String,
    xds: SocketAddr,
}

impl Lab {
    /// A pool, and a namespace for the operator.
    async fn new(backend: Backend) -> anyhow::Result<Self> {
        let world = World::new(backend).await?;
        let (namespace, account) = (World::name("portolan"), World::name("acme"));
        world.namespace(&namespace).await?;
        world.pool("192.0.2.8/29").await?;
        Ok(Self { world, namespace, account, xds: SocketAddr::new(fresh_address().into(), 18000) })
    }

    async fn operator(&self) -> anyhow::Result<Operator> {
        self.operator_with(Schedule::default()).await
    }

    async fn operator_with(&self, schedule: Schedule) -> anyhow::Result<Operator> {
        self.operator_of(schedule, false).await
    }

    async fn operator_of(&self, schedule: Schedule, multus: bool) -> anyhow::Result<Operator> {
        let seen = FaultProxy::start(self.world.client.clone(), Faults::default()).await?;
        let wake = Arc::new(Notify::new());
        let proxies = DeploymentProxies::new(Arc::clone(&wake));
        let drain = Duration::from_secs(1);
        let deployments = DeploymentOptions {
            namespace: self.namespace.clone(),
            image: "envoy:default".to_owned(),
            xds_server: (self.xds.ip().to_string(), self.xds.port()),
            xds_listen: self.xds,
            multus,
            drain,
            schedule,
        };
        let gateway = gateway::Options {
            drain,
            images: vec!["envoy:*".to_owned()],
            allow: ["127.0.0.0/8".parse()?].into_iter().collect(),
            ..gateway::Options::with(Arc::new(proxies.clone()))
        };
        let mut started = Ok(self.xds);
        let process = Process::start(seen.client(), options(), |ctx, registry| {
            drop(gateway::start(ctx, registry, wake, gateway));
            started = gateway::start_deployments(ctx, proxies, deployments);
        })?;
        started.context("the xDS server has its address")?;
        Ok(Operator { process, seen })
    }

    fn tenant(&self) -> String {
        format!("egw-{}", self.account)
    }

    /// An account with a load balancer on this port.
    async fn load_balancer(&self, port: u16) -> anyhow::Result<()> {
        self.world.account(&self.account).await?;
        let ports = json!({ "public-ports": [{ "port": port, "targetPort": 8080 }] });
        self.world.load_balancer_with(&self.account, "lb", ports).await
    }

    async fn objects(&self) -> anyhow::Result<(Vec<Secret>, Vec<Deployment>, Vec<Service>)> {
        let of_units = ListParams::default().labels("portolan.dev/gateway-unit");
        Ok((
            self.world.of::<Secret>(&self.namespace).list(&of_units).await?.items,
            self.world.of::<Deployment>(&self.namespace).list(&of_units).await?.items,
            self.world.of::<Service>(&self.namespace).list(&of_units).await?.items,
        ))
    }

    /// The objects of the only unit, once they are all there and its Service shows the public address.
    async fn unit(&self) -> anyhow::Result<(Secret, Deployment, Service)> {
        eventually("the unit has its objects", async || {
            let (secrets, deployments, services) = self.objects().await?;
            let [service] = &services[..] else { return Ok(false) };
            let address = self.world.get(&self.account, "lb").await?.spec.public_address;
            Ok(secrets.len() == 1 && deployments.len() == 1 && shown(service) == [address])
        })
        .await?;
        let (mut secrets, mut deployments, mut services) = self.objects().await?;
        let all = secrets.pop().zip(deployments.pop()).zip(services.pop());
        let ((secret, deployment), service) = all.context("they were there")?;
        Ok((secret, deployment, service))
    }

    /// The pod of the only unit on a node, as the kubelet reports it.
    async fn pod(&self, is_ready: bool) -> anyhow::Result<()> {
        const NODE: &str = "envoys";
        let pods = self.world.of::<Pod>(&self.namespace);
        if pods.get_opt("envoy").await?.is_none() {
            self.world.cluster.node(NODE).await?;
            let (_, deployment, _) = self.unit().await?;
            let template = deployment.spec.context("a Deployment has a spec")?.template;
            let mut spec = template.spec.context("and its pods have one")?;
            spec.node_name = Some(NODE.to_owned());
            let mut metadata = template.metadata.unwrap_or_default();
            metadata.name = Some("envoy".to_owned());
            let pod = Pod { metadata, spec: Some(spec), status: None };
            // not before its namespace has a ServiceAccount
            eventually("the pod is there", async || {
                Ok(pods.create(&PostParams::default(), &pod).await.is_ok() || pods.get_opt("envoy").await?.is_some())
            })
            .await?;
        }
        let ready = if is_ready { "True" } else { "False" };
        let status = json!({ "status": {
            "phase": "Running", "podIP": "10.244.9.9", "podIPs": [{ "ip": "10.244.9.9" }],
            "conditions": [{ "type": "Ready", "status": ready }],
        } });
        pods.patch_status("envoy", &PatchParams::default(), &Patch::Strategic(status)).await?;
        Ok(())
    }

    async fn nothing_is_left(&self) -> anyhow::Result<()> {
        eventually("no object is left", async || {
            let (secrets, deployments, services) = self.objects().await?;
            Ok(secrets.is_empty() && deployments.is_empty() && services.is_empty())
        })
        .await
    }
}

fn shown(service: &Service) -> Vec<String> {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.iter().flat_map(|one| one.ingress.iter().flatten()).filter_map(|one| one.ip.clone()).collect()
}

fn image(deployment: &Deployment) -> Option<String> {
    deployment.spec.as_ref()?.template.spec.as_ref()?.containers.first()?.image.clone()
}

fn ports(service: &Service) -> Vec<i32> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref());
    ports.into_iter().flatten().map(|port| port.port).collect()
}

/// Writes that belong to nobody's election or events.
fn writes(operator: &Operator) -> Vec<Exchange> {
    let writes = operator.seen.writes_but_leases();
    writes.into_iter().filter(|write| write.resource() != Some("events")).collect()
}

async fn image_and_port_change_roll_out(backend: Backend) -> anyhow::Result<()> {
    let lab = Lab::new(backend).await?;
    let operator = lab.operator().await?;
    lab.load_balancer(8888).await?;
    let (_, deployment, service) = lab.unit().await?;
    ensure!(image(&deployment).as_deref() == Some("envoy:default") && ports(&service) == [8888]);
    lab.world.shows(&lab.account, "lb", "Programmed", "EnvoyStarting").await?;

    let change =
        Patch::Merge(json!({ "spec": { "public-ports": [{ "port": 80 }, { "port": 53, "protocol": "UDP" }] } }));
    lab.world.of::<LoadBalancer>(&lab.tenant()).patch("lb", &PatchParams::default(), &change).await?;
    eventually("the Service has the other ports", async || {
        let mut found = ports(&lab.unit().await?.2);
        found.sort_unstable();
        Ok(found == [53, 80])
    })
    .await?;
    let after = lab.unit().await?.1;
    ensure!(after.metadata.generation == deployment.metadata.generation, "the pod goes on: {after:#?}");

    let groups = lab.world.of::<ServiceGroup>(&lab.tenant());
    let own = |image: &str| Patch::Merge(json!({ "spec": { "envoy-image": image } }));
    groups.patch("sample", &PatchParams::default(), &own("envoy:own")).await?;
    eventually("the Deployment has the other image", async || {
        Ok(image(&lab.unit().await?.1).as_deref() == Some("envoy:own"))
    })
    .await?;
    let planned = async || -> anyhow::Result<String> {
        let another = json!({
            "apiVersion": "egw.acnodal.io/v1", "kind": "LoadBalancer",
            "metadata": { "namespace": lab.tenant(), "name": "another" },
            "spec": { "service-group": "sample", "public-ports": [{ "port": 80 }] },
        });
        Ok(serde_json::to_string(&query::plan(CAPABILITIES, &lab.world.client, vec![another]).await?.rows)?)
    };
    ensure!(planned().await?.contains("gets a key"), "{}", planned().await?);
    groups.patch("sample", &PatchParams::default(), &own("evil:latest")).await?;
    eventually("an image that is not allowed is refused", async || {
        let status = groups.get("sample").await?.status.unwrap_or_default();
        Ok(status.conditions.iter().any(|one| one.reason == "ImageNotAllowed"))
    })
    .await?;
    ensure!(!planned().await?.contains("gets a key"), "{}", planned().await?);
    eventually("the load balancer of before goes on with the default", async || {
        Ok(image(&lab.unit().await?.1).as_deref() == Some("envoy:default"))
    })
    .await?;

    // what somebody changes by hand is put back
    let by_hand = Patch::Merge(json!({ "spec": { "replicas": 3 } }));
    let name = after.metadata.name.context("it has a name")?;
    lab.world.of::<Deployment>(&lab.namespace).patch(&name, &PatchParams::default(), &by_hand).await?;
    eventually("it has one replica", async || Ok(lab.unit().await?.1.spec.and_then(|spec| spec.replicas) == Some(1)))
        .await?;
    operator.process.stop().await?;
    Ok(())
}

/// What Multus installs.
pub(crate) fn multus() -> serde_json::Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "network-attachment-definitions.k8s.cni.cncf.io" },
        "spec": {
            "group": "k8s.cni.cncf.io", "scope": "Namespaced",
            "names": {
                "plural": "network-attachment-definitions", "singular": "network-attachment-definition",
                "kind": "NetworkAttachmentDefinition", "shortNames": ["net-attach-def"],
            },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object",
                "properties": { "spec": { "type": "object", "properties": { "config": { "type": "string" } } } },
            } } }],
        },
    })
}

/// The network of the pool: its CNI plugins.
async fn network(lab: &Lab, name: &str) -> anyhow::Result<Option<serde_json::Value>> {
    let kind = ApiResource {
        group: "k8s.cni.cncf.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "k8s.cni.cncf.io/v1".to_owned(),
        kind: "NetworkAttachmentDefinition".to_owned(),
        plural: "network-attachment-definitions".to_owned(),
    };
    let networks: Api<DynamicObject> = Api::namespaced_with(lab.world.client.clone(), "egw", &kind);
    let Some(found) = networks.get_opt(name).await? else { return Ok(None) };
    let config: serde_json::Value =
        serde_json::from_str(found.data["spec"]["config"].as_str().context("it has a config")?)?;
    ensure!(config["name"] == name && config["plugins"][0]["capabilities"]["ips"] == true, "{config}");
    Ok(Some(config["plugins"].clone()))
}

async fn network_attachment_follows_prefix(backend: Backend) -> anyhow::Result<()> {
    let lab = Lab::new(backend).await?;
    let prefixes = lab.world.of::<ServicePrefix>("egw");
    let operator = lab.operator_of(Schedule::default(), true).await?;
    lab.load_balancer(8888).await?;
    if backend == Backend::Embedded {
        lab.world.shows(&lab.account, "lb", "Programmed", "EnvoyMissing").await?;
    }
    portolan_testkit::install_definition(lab.world.client.clone(), serde_json::from_value(multus())?).await?;
    let pool = prefixes.list(&ListParams::default()).await?.items.pop().context("there is a pool")?.name_any();
    eventually("the pool has its network", async || Ok(network(&lab, &pool).await?.is_some())).await?;
    let plugins = network(&lab, &pool).await?.unwrap_or_default();
    ensure!(plugins[0]["bridge"] == "multus0" && plugins[0]["ipam"]["routes"].is_null(), "{plugins}");

    let attached = async || -> anyhow::Result<String> {
        let (_, deployment, _) = lab.unit().await?;
        let spec = deployment.spec.context("a Deployment has a spec")?;
        ensure!(spec.strategy.and_then(|strategy| strategy.type_).as_deref() == Some("Recreate"));
        let annotations = spec.template.metadata.and_then(|metadata| metadata.annotations).unwrap_or_default();
        Ok(annotations.get("k8s.v1.cni.cncf.io/networks").cloned().unwrap_or_default())
    };
    let first = attached().await?;
    let address = lab.world.get(&lab.account, "lb").await?.spec.public_address;
    let asked = json!([{ "name": pool, "namespace": "egw", "ips": [format!("{address}/24")] }]);
    ensure!(serde_json::from_str::<serde_json::Value>(&first)? == asked, "{first}");

    let change = Patch::Merge(json!({ "spec": { "multus-bridge": "public", "gateway": "192.0.2.1" } }));
    prefixes.patch(&pool, &PatchParams::default(), &change).await?;
    eventually("the network follows", async || {
        let plugins = network(&lab, &pool).await?.unwrap_or_default();
        let half = |range: &str| json!({ "dst": range, "gw": "192.0.2.1" });
        let routes = json!([half("0.0.0.0/1"), half("128.0.0.0/1")]);
        let own_router = plugins[0]["ipam"]["routes"] == routes && plugins[1]["type"] == "sbr";
        Ok(plugins[0]["bridge"] == "public" && own_router)
    })
    .await?;
    let before = attached().await?;
    at_rest(|| writes(&operator).len()).await?;

    // pods that run keep what they have
    lab.world.delete::<ServicePrefix>("egw", &pool).await?;
    eventually("the network goes with its prefix", async || Ok(network(&lab, &pool).await?.is_none())).await?;
    at_rest(|| writes(&operator).len()).await?;
    ensure!(attached().await? == before);
    operator.process.stop().await?;
    Ok(())
}

async fn restart_writes_nothing(backend: Backend) -> anyhow::Result<()> {
    let lab = Lab::new(backend).await?;
    let operator = lab.operator().await?;
    lab.load_balancer(8888).await?;
    let before = lab.unit().await?;
    lab.world.shows(&lab.account, "lb", "Programmed", "EnvoyStarting").await?;
    at_rest(|| writes(&operator).len()).await?;
    operator.process.stop().await?;

    let operator = lab.operator().await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let writes = writes(&operator);
    ensure!(writes.is_empty(), "{writes:#?}");
    ensure!(lab.unit().await? == before);
    operator.process.stop().await?;
    Ok(())
}

async fn deletion_leaves_nothing(backend: Backend) -> anyhow::Result<()> {
    let lab = Lab::new(backend).await?;
    let operator = lab.operator().await?;
    lab.load_balancer(8888).await?;
    lab.unit().await?;
    lab.world.delete::<LoadBalancer>(&lab.tenant(), "lb").await?;
    lab.world.gone::<LoadBalancer>(&lab.tenant(), "lb").await?;
    let (secrets, deployments, services) = lab.objects().await?;
    ensure!(secrets.is_empty() && deployments.is_empty() && services.is_empty(), "it went before them");

    // one that goes while no operator runs
    lab.world.load_balancer(&lab.account, "lb").await?;
    lab.unit().await?;
    operator.process.stop().await?;
    let balancers = lab.world.of::<LoadBalancer>(&lab.tenant());
    let by_force = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    balancers.patch("lb", &PatchParams::default(), &by_force).await?;
    lab.world.delete::<LoadBalancer>(&lab.tenant(), "lb").await?;
    let operator = lab.operator().await?;
    lab.nothing_is_left().await?;
    operator.process.stop().await?;
    Ok(())
}

async fn a_load_balancer_is_ready_when_nodes_send_packets_to_its_pod(backend: Backend) -> anyhow::Result<()> {
    let lab = Lab::new(backend).await?;
    let operator = lab.operator().await?;
    lab.load_balancer(fastrand::u16(20_000..30_000)).await?;
    let (secret, ..) = lab.unit().await?;
    lab.pod(false).await?;
    let folder = tempfile::tempdir()?;
    let envoy = start(&secret, folder.path(), &lab.tenant(), "lb")?;
    let shown = lab.world.shows(&lab.account, "lb", "Programmed", "EnvoyNotReady").await;
    shown.with_context(|| envoy.log_tail())?;
    lab.world.shows(&lab.account, "lb", "Ready", "EnvoyNotReady").await?;

    lab.pod(true).await?;
    lab.world.ready(&lab.account, "lb").await?;
    at_rest(|| writes(&operator).len()).await?;
    lab.pod(false).await?;
    lab.world.shows(&lab.account, "lb", "Ready", "EnvoyNotReady").await?;
    lab.pod(true).await?;
    lab.world.ready(&lab.account, "lb").await?;
    operator.process.stop().await?;
    Ok(())
}

async fn a_real_envoy_with_the_files_of_its_secret_serves(backend: Backend) -> anyhow::Result<()> {
    let lab = Lab::new(backend).await?;
    let operator = lab.operator().await?;
    let public = fastrand::u16(20_000..30_000);
    lab.load_balancer(public).await?;
    let server = TcpListener::bind((fresh_address(), 8080)).await?;
    let address = server.local_addr()?.ip().to_string();
    lab.world.endpoint(&lab.account, "e", "lb", [&address, "10.0.0.1"]).await?;
    let (secret, ..) = lab.unit().await?;
    lab.world.shows(&lab.account, "lb", "Programmed", "EnvoyStarting").await?;

    lab.pod(true).await?;
    let folder = tempfile::tempdir()?;
    let envoy = start(&secret, folder.path(), &lab.tenant(), "lb")?;
    lab.world.ready(&lab.account, "lb").await.with_context(|| envoy.log_tail())?;
    let answers = async || -> anyhow::Result<Infallible> {
        loop {
            let (mut connection, _) = server.accept().await?;
            connection.write_all(b"here").await?;
        }
    };
    let asks = eventually("the server behind it answers", async || {
        // it may accept a listener a moment before it listens
        let Ok(mut connection) = TcpStream::connect((Ipv4Addr::LOCALHOST, public)).await else { return Ok(false) };
        let mut words = [0; 4];
        Ok(connection.read_exact(&mut words).await.is_ok() && &words == b"here")
    });
    tokio::select! {
        ended = answers() => match ended? {},
        asked = asks => asked?,
    }

    // an operator that takes over changes nothing: Envoy finds it, and has all that it is given
    operator.process.stop().await?;
    let operator = lab.operator().await?;
    lab.world.ready(&lab.account, "lb").await.with_context(|| envoy.log_tail())?;
    drop(envoy);

    let folder = tempfile::tempdir()?;
    let impostor = start(&secret, folder.path(), &lab.tenant(), "other")?;
    let shown = lab.world.shows(&lab.account, "lb", "Programmed", "NodeMismatch").await;
    shown.with_context(|| impostor.log_tail())?;
    operator.process.stop().await?;
    Ok(())
}

async fn a_running_envoy_follows_the_rotation_of_the_authority(backend: Backend) -> anyhow::Result<()> {
    let lab = Lab::new(backend).await?;
    let schedule = Schedule {
        authority: Duration::from_secs(30),
        settle: Duration::from_secs(1),
        retire: Duration::from_secs(5),
        poll: Duration::from_millis(200),
        ..Schedule::default()
    };
    let operator = lab.operator_with(schedule).await?;
    lab.load_balancer(fastrand::u16(20_000..30_000)).await?;
    let (first, ..) = lab.unit().await?;
    lab.pod(true).await?;
    let folder = tempfile::tempdir()?;
    let envoy = start(&first, folder.path(), &lab.tenant(), "lb")?;
    lab.world.ready(&lab.account, "lb").await.with_context(|| envoy.log_tail())?;

    // a pod's files follow its Secret
    let text = |secret: &Secret, name: &str| secret.data.as_ref().map(|data| data[name].0.clone()).unwrap_or_default();
    let first_authority = String::from_utf8(text(&first, "ca.crt"))?;
    eventually("the first authority is trusted no more", async || {
        let (secret, ..) = lab.unit().await?;
        write_files(&secret, folder.path(), &lab.tenant(), "lb")?;
        let trusted = String::from_utf8(text(&secret, "ca.crt"))?;
        Ok(!trusted.contains(first_authority.trim()) && text(&secret, "tls.crt") != text(&first, "tls.crt"))
    })
    .await?;
    operator.process.stop().await?;

    // Envoy must connect anew, and to a server that the first authority has not signed
    let operator = lab.operator().await?;
    let change = Patch::Merge(json!({ "spec": { "public-ports": [{ "port": fastrand::u16(20_000..30_000) }] } }));
    lab.world.of::<LoadBalancer>(&lab.tenant()).patch("lb", &PatchParams::default(), &change).await?;
    lab.world.ready(&lab.account, "lb").await.with_context(|| envoy.log_tail())?;
    operator.process.stop().await?;
    Ok(())
}

/// Starts Envoy with the files of a Secret, as this node.
fn start(secret: &Secret, folder: &Path, namespace: &str, node: &str) -> anyhow::Result<Program> {
    write_files(secret, folder, namespace, node)?;
    let arguments = ["-c", "bootstrap.json", "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"];
    Program::start("envoy", &portolan_testkit::envoy::binary()?, &arguments.map(str::to_owned), folder)
}

/// Writes the files of a Secret as a kubelet does: all of them change at the same moment, as a link in the folder does.
fn write_files(secret: &Secret, folder: &Path, namespace: &str, node: &str) -> anyhow::Result<()> {
    let here = folder.display().to_string();
    let version = secret.metadata.resource_version.clone().context("it is stored")?;
    let written = folder.join(format!("..{version}"));
    if written.exists() {
        return Ok(());
    }
    std::fs::create_dir(&written)?;
    for (name, content) in secret.data.iter().flatten() {
        let text = String::from_utf8(content.0.clone())?;
        let text = text.replace("/etc/portolan", &here).replace("/run/envoy", &here);
        // other tests have Envoys on this machine, too
        let text = text.replace("\"port_value\":18001", &format!("\"port_value\":{}", fastrand::u16(30_000..32_000)));
        let text = text.replace(&format!("\"id\":\"{namespace}/lb\""), &format!("\"id\":\"{namespace}/{node}\""));
        std::fs::write(written.join(name), text)?;
        let shown = folder.join(name);
        if !shown.is_symlink() {
            symlink(Path::new("..data").join(name), shown)?;
        }
    }
    let next = folder.join("..data_tmp");
    symlink(&written, &next)?;
    Ok(std::fs::rename(next, folder.join("..data"))?)
}
