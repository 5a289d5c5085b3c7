//! What these tests share: a namespace with an office, tickets in it, and replicas of the tickets capability.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Output;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt};
use portolan_control::runtime::app::{Options, Process};
use portolan_control::runtime::lease;
use portolan_control::runtime::metrics::CapabilityLabel;
use portolan_simulator::cluster::{self, Cluster};
use portolan_testkit::ticket::{Office, OfficeSpec, Ticket, TicketSpec};
use portolan_testkit::{Binaries, ControlPlane, FaultProxy, Faults, install};

use tempfile::TempDir;

use crate::tickets;

/// Long for a loaded machine; nothing here waits for it unless something is broken.
const PATIENCE: Duration = Duration::from_mins(3);

/// Which API server a test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    /// kube-apiserver and etcd, shared by all tests of this binary.
    Real,
    /// Ours, one for each test.
    Embedded,
}

/// Makes each of these tests two: one per API server.
///
/// Tests start in the order of their names. With the server last in it, those that wait for a shared server take turns
/// with those that do not.
macro_rules! on_both_servers {
    ($($name:ident),* $(,)?) => {
        $(
            mod $name {
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn on_the_embedded_server() -> anyhow::Result<()> {
                    super::$name($crate::harness::Backend::Embedded).await
                }

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn on_the_real_server() -> anyhow::Result<()> {
                    super::$name($crate::harness::Backend::Real).await
                }
            }
        )*
    };
}
pub(crate) use on_both_servers;

/// An API server, and how to reach it.
pub(crate) struct Server {
    pub(crate) client: Client,
    pub(crate) kubeconfig: PathBuf,
    _embedded: Option<(Cluster, TempDir)>,
}

impl Server {
    /// The shared one, or one of ours, which ends with this value.
    pub(crate) async fn start(backend: Backend) -> anyhow::Result<Self> {
        match backend {
            Backend::Real => Ok(Self::of(ControlPlane::shared())),
            Backend::Embedded => {
                let folder = tempfile::tempdir()?;
                let kubeconfig = folder.path().join("kubeconfig");
                let listen = SocketAddr::from(([127, 0, 0, 1], 0));
                let options = cluster::Options {
                    listen,
                    data_dir: None,
                    kubeconfig: kubeconfig.clone(),
                    nodes: 0,
                    network: cluster::Network::number(0),
                    run_elsewhere: Some("portolan".to_owned()),
                };
                let running = Cluster::start(options).await?;
                Ok(Self { client: running.client(), kubeconfig, _embedded: Some((running, folder)) })
            }
        }
    }

    /// A control plane that others use too.
    pub(crate) fn of(plane: &ControlPlane) -> Self {
        Self { client: plane.client(), kubeconfig: plane.kubeconfig_path().to_owned(), _embedded: None }
    }

    /// Makes a namespace whose name begins so.
    pub(crate) async fn namespace(&self, prefix: &str) -> anyhow::Result<String> {
        let metadata = ObjectMeta { generate_name: Some(format!("{prefix}-")), ..ObjectMeta::default() };
        let namespaces = Api::<Namespace>::all(self.client.clone());
        let made = namespaces.create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() }).await?;
        Ok(made.name_any())
    }
}

/// A namespace of its own on an API server.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    server: Server,
}

impl World {
    /// A namespace with an office that gives out numbers up to `last`.
    pub(crate) async fn new(backend: Backend, prefix: &str, last: u64) -> anyhow::Result<Self> {
        let server = Server::start(backend).await?;
        let client = server.client.clone();
        install::<Ticket>(client.clone()).await?;
        install::<Office>(client.clone()).await?;
        let world = Self { client, namespace: server.namespace(prefix).await?, server };
        world.offices().create(&PostParams::default(), &Office::new("office", OfficeSpec { last })).await?;
        Ok(world)
    }

    /// Runs kubectl in the namespace.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        let mut command = Binaries::locate()?.kubectl(&self.server.kubeconfig);
        command.args(["--namespace", &self.namespace]).args(arguments).output().context("starting kubectl failed")
    }

    pub(crate) fn tickets(&self) -> Api<Ticket> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn offices(&self) -> Api<Office> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn add_ticket(&self, name: &str) -> anyhow::Result<()> {
        self.tickets().create(&PostParams::default(), &ticket(name, None)).await?;
        Ok(())
    }

    /// Waits until every ticket holds the number that the office recorded for it, and checks that none is held twice.
    pub(crate) async fn converged(&self, tickets: usize) -> anyhow::Result<()> {
        eventually("every ticket holds a number", async || {
            let office = self.offices().get("office").await?;
            let taken = office.status.map(|status| status.taken).unwrap_or_default();
            let mut numbers: Vec<u64> = taken.values().copied().collect();
            numbers.sort_unstable();
            numbers.dedup();
            anyhow::ensure!(numbers.len() == taken.len(), "a number is held twice: {taken:?}");
            let seen = self.tickets().list(&ListParams::default()).await?;
            let agreed = seen.items.iter().all(|ticket| {
                let number = ticket.status.as_ref().and_then(|status| status.number);
                number.is_some() && number == taken.get(ticket.metadata.name.as_deref().unwrap_or_default()).copied()
            });
            Ok(agreed && seen.items.len() == tickets && taken.len() == tickets)
        })
        .await
    }
}

pub(crate) fn ticket(name: &str, desk: Option<&str>) -> Ticket {
    let spec = TicketSpec { text: format!("for {name}"), desk: desk.map(Into::into) };
    Ticket { metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() }, spec, status: None }
}

/// The tickets capability in this process, seeing the API server through a fault proxy.
pub(crate) struct Replica {
    pub(crate) process: Process,
}

impl Replica {
    /// Starts one that leads without an election.
    pub(crate) fn start(proxy: &FaultProxy, world: &World) -> anyhow::Result<Self> {
        Self::start_with(proxy, world, None)
    }

    pub(crate) fn start_with(
        proxy: &FaultProxy,
        world: &World,
        election: Option<lease::Options>,
    ) -> anyhow::Result<Self> {
        let options = Options {
            election,
            admin_listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            drain: Duration::from_secs(10),
            instance: "test".into(),
        };
        let namespace = world.namespace.clone();
        let process = Process::start(proxy.client(), options, |ctx, _| tickets::start(ctx, namespace))?;
        Ok(Self { process })
    }

    /// Turns that went well so far.
    pub(crate) fn turns(&self) -> u64 {
        let label = CapabilityLabel { capability: "tickets" };
        self.process.ctx().metrics.reconciles.get_or_create(&label).get()
    }
}

pub(crate) async fn proxy(world: &World, faults: Faults) -> anyhow::Result<FaultProxy> {
    FaultProxy::start(world.client.clone(), faults).await
}

/// Waits until a check holds; an error of the check ends the wait at once.
pub(crate) async fn eventually(what: &str, mut check: impl AsyncFnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let waiting = async {
        loop {
            let began = Instant::now();
            if check().await? {
                break;
            }
            // A check that costs much is made less often, or it would take the time of what it waits for.
            let pause = (began.elapsed() * 4).clamp(Duration::from_millis(20), Duration::from_secs(2));
            tokio::time::sleep(pause).await;
        }
        anyhow::Ok(())
    };
    match tokio::time::timeout(PATIENCE, waiting).await {
        Ok(ended) => ended,
        Err(_) => anyhow::bail!("waited {PATIENCE:?} in vain until {what}"),
    }
}
