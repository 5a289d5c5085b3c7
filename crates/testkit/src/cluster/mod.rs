//! A real Kubernetes cluster on this machine: a control plane, nodes with kubelet, containerd, runc, CNI and kube-proxy,
//! and a host outside of it. Needs root.
//!
//! Every host is a set of namespaces of its own ([`host`]), so nothing of the machine's own network is touched and
//! nothing outlives the test. The API server is reached through a port on loopback ([`forward`]). Clusters with different
//! [`NetworkPlan`]s can be connected.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::json;

use self::{cgroups::ClusterId, control_plane::ControlPlaneFiles, forward::Forward, node::NodeFiles};
use crate::{
    Binaries,
    control_plane::{certificates::Certificates, folder::DataFolder},
    kubeconfig::kubeconfig,
    program,
};

pub mod by_hand;
mod cgroups;
mod connect;
mod control_plane;
mod forward;
pub mod host;
mod images;
mod janitor;
mod node;
mod plan;

pub use host::Host;
pub use images::TEST_APP;
pub use plan::{NetworkPlan, NodePlan};

/// How long a start may take on a busy machine.
const LIMIT: Duration = Duration::from_mins(3);

/// What a cluster is made of.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Number of nodes, at most 100.
    pub nodes: u8,
    /// Whether nodes hide the addresses of their pods from the rest of the network.
    pub masquerade: bool,
    /// Its addresses and ranges.
    pub network: NetworkPlan,
}

impl Default for Options {
    fn default() -> Self {
        Self { nodes: 3, masquerade: false, network: NetworkPlan::default() }
    }
}

/// A running cluster; it ends when dropped.
pub struct Cluster {
    id: ClusterId,
    network: NetworkPlan,
    nodes: Vec<(NodePlan, Option<Host>)>,
    outside: Host,
    control_plane: Host,
    _forward: Forward,
    config: Config,
    kubeconfig: PathBuf,
    binaries: Binaries,
    certificates: Certificates,
    test_app: PathBuf,
    ready_after: Duration,
    folder: DataFolder,
}

impl Cluster {
    /// Starts a cluster and waits until its nodes are ready. Blocks, from any thread, with or without a runtime.
    pub fn start(options: Options) -> anyhow::Result<Self> {
        Self::launch(options).context("starting a cluster failed")
    }

    fn launch(options: Options) -> anyhow::Result<Self> {
        let started = Instant::now();
        let (id, network) = (ClusterId::next(), options.network);
        cgroups::sweep(id)?;
        let binaries = Binaries::locate()?.of_cluster()?;
        let test_app = test_app()?;
        let folder = DataFolder::new()?;
        janitor::start(folder.path())?;
        let certificates = Certificates::new(&self::control_plane::names(network))?;

        let mut control_plane = Host::start("control-plane", &test_app, folder.path())?;
        let [v4, v6] = network.control_plane().map(plan::with_length);
        control_plane.ip(&[
            "link add hub type bridge",
            &format!("address add {v4} dev hub"),
            &format!("address add {v6} dev hub nodad"),
            "link set hub up",
        ])?;
        // It is the router of the network: the host outside has no other way to pods.
        forward_packets(&control_plane)?;
        let forward = Forward::start(
            control_plane.first_process(),
            SocketAddr::from(([127, 0, 0, 1], self::control_plane::API_PORT)),
        )?;
        let files = ControlPlaneFiles { binaries: &binaries, folder: &folder, certificates: &certificates, network };
        files.start_etcd(&mut control_plane)?;
        files.start_api_server(&mut control_plane)?;
        let server = format!("https://127.0.0.1:{}", forward.port());
        let config = certificates.admin_config(&server, &folder)?;
        let admin = kubeconfig(&server, Some(&certificates.ca), Some(&certificates.admin));
        let kubeconfig = folder.write("kubeconfig", &admin.to_string())?.into();

        let outside = Host::start("outside", &test_app, folder.path())?;
        join(&control_plane, &outside, network.outside(), network)?;
        let mut cluster = Self {
            id,
            network,
            nodes: network.nodes(options.nodes, options.masquerade).into_iter().map(|plan| (plan, None)).collect(),
            outside,
            control_plane,
            _forward: forward,
            config,
            kubeconfig,
            binaries,
            certificates,
            test_app,
            ready_after: Duration::ZERO,
            folder,
        };
        cluster.until("the API server is ready", async |client| {
            client.request_text(http::Request::get("/readyz").body(Vec::new())?).await?;
            Ok(true)
        })?;
        let files = ControlPlaneFiles {
            binaries: &cluster.binaries,
            folder: &cluster.folder,
            certificates: &cluster.certificates,
            network,
        };
        files.start_controller_manager(&mut cluster.control_plane)?;
        files.start_scheduler(&mut cluster.control_plane)?;
        for number in 0..cluster.nodes.len() {
            cluster.start_node(number)?;
        }
        let nodes = cluster.nodes.len();
        cluster.until("all nodes are ready", async |client| Ok(ready_nodes(client).await? == nodes))?;
        cluster.until("the default service account is there", async |client| {
            Ok(Api::<ServiceAccount>::default_namespaced(client).get_opt("default").await?.is_some())
        })?;
        cluster.ready_after = started.elapsed();
        Ok(cluster)
    }

    /// How long it took from nothing to ready nodes.
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// A kubeconfig file with an administrator's rights; it holds its certificates and can be copied.
    pub fn kubeconfig_path(&self) -> &Path {
        &self.kubeconfig
    }

    /// A client with an administrator's rights; call it within a tokio runtime, and once in each.
    pub fn client(&self) -> Client {
        Client::try_from(self.config.clone()).expect("the configuration worked when the cluster started")
    }

    /// kubectl with an administrator's rights.
    pub fn kubectl(&self) -> Command {
        self.binaries.kubectl(&self.kubeconfig)
    }

    /// The nodes that run, with their place in the network.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodePlan, &Host)> {
        self.nodes.iter().filter_map(|(plan, host)| Some((plan, host.as_ref()?)))
    }

    /// The host that is no node.
    pub fn outside(&self) -> &Host {
        &self.outside
    }

    /// Its IPv4 address in the network of the nodes.
    pub fn outside_address(&self) -> IpAddr {
        self.network.outside()[0]
    }

    /// Its addresses and ranges.
    pub fn network(&self) -> NetworkPlan {
        self.network
    }

    /// The URL of the API server for nodes and pods, also for those of a cluster that is connected to this one.
    pub fn server(&self) -> String {
        control_plane::server(self.network)
    }

    /// Connects two clusters: hosts and pods of each reach hosts and pods of the other.
    pub fn connect(&self, other: &Self) -> anyhow::Result<()> {
        connect::routers((&self.control_plane, self.network), (&other.control_plane, other.network))
    }

    /// Gives every node an image from an OCI archive.
    pub fn load_image(&self, archive: &Path) -> anyhow::Result<()> {
        self.nodes().try_for_each(|(plan, host)| self.load_image_on(plan, host, archive))
    }

    /// Ends a node as a power cut does.
    pub fn stop_node(&mut self, name: &str) -> anyhow::Result<()> {
        let (_, host) = self.nodes.iter_mut().find(|(plan, _)| plan.name == name).context("there is no such node")?;
        drop(host.take().context("it is stopped already")?);
        Ok(())
    }

    /// Starts a node that was stopped; its disk is as it was.
    pub fn restart_node(&mut self, name: &str) -> anyhow::Result<()> {
        let stopped = self.nodes.iter().position(|(plan, host)| plan.name == name && host.is_none());
        self.start_node(stopped.context("there is no such node, or it runs")?)
    }

    /// The test app, for hosts; pods have it as [`TEST_APP`].
    pub fn test_app(&self) -> &Path {
        &self.test_app
    }

    /// Where the API server records what pods ask for, a JSON event a line.
    pub fn audit_log(&self) -> PathBuf {
        self.folder.path().join(control_plane::AUDIT_LOG)
    }

    /// Where the containerd of a node listens, on that node.
    fn socket(&self, plan: &NodePlan) -> PathBuf {
        self.folder.path().join(&plan.name).join("containerd.sock")
    }

    fn start_node(&mut self, number: usize) -> anyhow::Result<()> {
        let plan = self.nodes[number].0.clone();
        let folder = self.folder.path().join(&plan.name);
        fs::create_dir_all(&folder)?;
        let mut host = Host::start(&plan.name, &self.test_app, &folder)?;
        join(&self.control_plane, &host, plan.addresses, self.network)?;
        for (other, _) in self.nodes.iter().filter(|(other, _)| other.name != plan.name) {
            host.ip(&other.routes().each_ref().map(String::as_str))?;
        }
        self.control_plane.ip(&plan.routes().each_ref().map(String::as_str))?;
        forward_packets(&host)?;

        self.register(&plan)?;
        let (binaries, certificates) = (&self.binaries, &self.certificates);
        let (network, cluster) = (self.network, self.id);
        let files = NodeFiles { plan: &plan, network, cluster, folder: folder.clone(), binaries, certificates };
        files.start_containerd(&mut host)?;
        for (number, archive) in images::archives(&self.test_app)?.into_iter().enumerate() {
            let file = folder.join(format!("image-{number}.tar"));
            fs::write(&file, archive)?;
            self.load_image_on(&plan, &host, &file)?;
        }
        files.start_kubelet(&mut host)?;
        files.start_kube_proxy(&mut host)?;
        self.nodes[number].1 = Some(host);
        Ok(())
    }

    /// Makes the Node with its pod range; its kubelet then takes it over.
    fn register(&mut self, plan: &NodePlan) -> anyhow::Result<()> {
        let node: Node = serde_json::from_value(json!({
            "metadata": { "name": plan.name },
            "spec": { "podCIDR": plan.pod_ranges[0], "podCIDRs": plan.pod_ranges },
        }))?;
        self.until(&format!("{} is registered", plan.name), async |client| {
            match Api::<Node>::all(client).create(&PostParams::default(), &node).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(true),
                made => Ok(made.map(|_| true)?),
            }
        })
    }

    fn load_image_on(&self, plan: &NodePlan, host: &Host, archive: &Path) -> anyhow::Result<()> {
        let (socket, archive) = (self.socket(plan).display().to_string(), archive.display().to_string());
        let deadline = Instant::now() + LIMIT;
        // containerd takes a moment to listen.
        loop {
            match host.run(&["ctr", "--address", &socket, "--namespace", "k8s.io", "images", "import", &archive]) {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Waits until a check holds; errors of the check are reported only if it never does.
    fn until(&mut self, what: &str, check: impl AsyncFn(Client) -> anyhow::Result<bool> + Sync) -> anyhow::Result<()> {
        let deadline = Instant::now() + LIMIT;
        // A thread of its own, because the caller's may belong to a runtime, and runtimes do not nest.
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(async {
                    let client = self.client();
                    loop {
                        let seen = check(client.clone()).await;
                        if matches!(seen, Ok(true)) {
                            return Ok(());
                        }
                        if let Some(ended) = self.hosts().find_map(Host::ended) {
                            bail!("{ended}");
                        }
                        ensure!(Instant::now() < deadline, "waited {LIMIT:?} in vain until {what}: {seen:?}");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                })
            });
            waiting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn hosts(&mut self) -> impl Iterator<Item = &mut Host> {
        let nodes = self.nodes.iter_mut().filter_map(|(_, host)| host.as_mut());
        nodes.chain([&mut self.control_plane, &mut self.outside])
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.clear();
        if let Err(error) = cgroups::sweep(self.id) {
            tracing::warn!("control groups of the cluster are left: {error}");
        }
    }
}

/// The program of the test app: beside this one, or built now.
fn test_app() -> anyhow::Result<PathBuf> {
    let beside = std::env::current_exe()?.with_file_name("portolan-testapp");
    if beside.is_file() { Ok(beside) } else { program::binary("portolan-testkit", "portolan-testapp") }
}

/// Gives a host its addresses on the network of all hosts.
fn join(hub: &Host, host: &Host, addresses: [IpAddr; 2], network: NetworkPlan) -> anyhow::Result<()> {
    let (process, port) = (host.first_process(), host.name());
    hub.ip(&[
        &format!("link add {port} type veth peer name eth0 netns {process}"),
        &format!("link set {port} master hub up"),
    ])?;
    let ([v4, v6], [router4, router6]) = (addresses.map(plan::with_length), network.control_plane());
    host.ip(&[
        &format!("address add {v4} dev eth0"),
        &format!("address add {v6} dev eth0 nodad"),
        "link set eth0 up",
        &format!("route add default via {router4}"),
        &format!("route add default via {router6}"),
    ])
}

fn forward_packets(host: &Host) -> anyhow::Result<()> {
    let settings = ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"];
    settings.iter().try_for_each(|setting| host.run(&["sh", "-c", &format!("echo 1 > /proc/sys/{setting}")]).map(drop))
}

async fn ready_nodes(client: Client) -> anyhow::Result<usize> {
    let nodes = Api::<Node>::all(client).list(&ListParams::default()).await?;
    let is_ready = |node: &Node| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    Ok(nodes.items.iter().filter(|node| is_ready(node) && !node.name_any().is_empty()).count())
}
