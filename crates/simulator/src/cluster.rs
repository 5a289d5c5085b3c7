//! An API server with simulated nodes: a cluster in one process, for `portolan up` and the tests.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use ipnet::Ipv4Net;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use portolan_apiserver::controllers::slim::Node;
use portolan_apiserver::running::{self, Running};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::kubelets::{Kubelets, Range};
use crate::scheduler::Scheduler;

/// Addresses of a simulated cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    pub nodes: Ipv4Net,
    pub pods: Ipv4Net,
}

impl Network {
    /// Clusters with different numbers, from 0 to 5, share no address.
    pub fn number(number: u8) -> Self {
        let net = |second| Ipv4Net::new_assert(Ipv4Addr::new(10, second, 0, 0), 16);
        Self { nodes: net(6 + number), pods: net(244 + number) }
    }
}

/// Options of a simulated cluster.
#[derive(Debug, Clone)]
pub struct Options {
    pub listen: SocketAddr,
    /// Keeps objects and certificates across restarts; without it everything is lost when the server stops.
    pub data_dir: Option<PathBuf>,
    /// The administrator's kubeconfig is written to this file.
    pub kubeconfig: PathBuf,
    /// How many nodes to simulate: Ready, with running pods.
    pub nodes: usize,
    pub network: Network,
    /// Pods whose containers all have this image are left to another kubelet.
    pub run_elsewhere: Option<String>,
}

/// Why the cluster did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Server(#[from] running::Error),
    #[error("starting a thread failed: {0}")]
    Thread(std::io::Error),
    #[error("creating the simulated nodes failed: {0}")]
    Nodes(Box<kube::Error>),
}

/// A running cluster; [`Cluster::stop`] shuts it down gracefully.
pub struct Cluster {
    server: Running,
    stop: CancellationToken,
    kubelets: JoinHandle<()>,
}

impl Cluster {
    /// Starts the API server, its controllers, the kubelets and the scheduler; ready when it returns.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let Options { listen, data_dir, kubeconfig, nodes, network, run_elsewhere } = options;
        let options = running::Options { listen, data_dir, kubeconfig, workloads: nodes > 0 };
        let server = Running::start(options).await?;
        create_nodes(&server.client(), nodes, network.nodes).await.map_err(|cause| Error::Nodes(Box::new(cause)))?;
        let pods = Range { first: address(network.pods, 1), count: 65_000 };
        let scheduler = (nodes > 0).then(|| Scheduler { except_image: run_elsewhere.clone() });
        let kubelets = Kubelets { nodes: None, simulate: (nodes > 0).then_some(pods), except_image: run_elsewhere };
        let stop = CancellationToken::new();
        let kubelets = start_kubelets(&server, kubelets, scheduler, stop.clone())?;
        Ok(Self { server, stop, kubelets })
    }

    /// A client in this process, with all rights.
    pub fn client(&self) -> Client {
        self.server.client()
    }

    /// Where the API server listens; the port is the one it got if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Where clients find the API server.
    pub fn url(&self) -> &str {
        self.server.url()
    }

    /// Stops the kubelets, then the API server; see [`Running::stop`].
    pub async fn stop(self) {
        self.stop.cancel();
        while !self.kubelets.is_finished() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.server.stop().await;
    }
}

/// The kubelets and the scheduler have a thread of their own, so that they never delay a request.
fn start_kubelets(
    server: &Running,
    kubelets: Kubelets,
    scheduler: Option<Scheduler>,
    stop: CancellationToken,
) -> Result<JoinHandle<()>, Error> {
    let server = server.server().clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Thread)?;
    let run = async move || {
        let schedule = async {
            if let Some(scheduler) = scheduler {
                scheduler.run(server.client(), stop.clone()).await;
            }
        };
        futures::join!(Box::pin(kubelets.run(server.client(), stop.clone())), Box::pin(schedule));
    };
    let run = move || runtime.block_on(run());
    std::thread::Builder::new().name("kubelets".to_owned()).spawn(run).map_err(Error::Thread)
}

/// Creates `node-1`, `node-2` and so on, Ready and with addresses; existing nodes are not changed.
async fn create_nodes(client: &Client, count: usize, network: Ipv4Net) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let manager = PatchParams::apply("portolan-up").force();
    for number in 1..=count {
        let name = format!("node-{number}");
        if nodes.get_opt(&name).await?.is_none() {
            let node = Patch::Apply(node(&name, node_address(network, number)));
            nodes.patch(&name, &manager, &node).await?;
            nodes.patch_status(&name, &manager, &node).await?;
        }
    }
    Ok(())
}

/// Addresses that end in 0 or 255 are left out.
fn node_address(network: Ipv4Net, number: usize) -> Ipv4Addr {
    let number = u32::from(u16::try_from(number).unwrap_or(u16::MAX));
    address(network, number / 250 * 256 + number % 250 + 1)
}

fn address(network: Ipv4Net, offset: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(network.network()).saturating_add(offset))
}

fn node(name: &str, address: Ipv4Addr) -> Value {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let labels =
        json!({ "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "portolan.dev/simulated": "true" });
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "Simulated", "message": "this node is simulated by portolan up",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    });
    let addresses = json!([
        { "type": "InternalIP", "address": address },
        { "type": "Hostname", "address": name },
    ]);
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels },
        "status": { "addresses": addresses, "conditions": [ready] },
    })
}
