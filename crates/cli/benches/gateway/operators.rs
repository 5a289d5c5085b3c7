//! Operators that nobody elects: processes of this very program, which can be killed. Their Envoys exist in memory only.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use portolan_control::gateway;
use portolan_control::runtime::app::{Options, Process};
use portolan_drivers::envoy::MemoryProxies;
use portolan_testkit::{FaultProxy, Faults, Program, Signal};
use tempfile::TempDir;
use tokio::sync::Notify;

/// The first argument of such a process.
pub(crate) const ROLE: &str = "unelected-operator";

/// One of them; killed when dropped.
pub(crate) struct Unelected {
    program: Program,
    _folder: TempDir,
}

impl Unelected {
    /// Starts one. With a seed there are faults between it and the API server.
    pub(crate) fn start(kubeconfig: &Path, admin: SocketAddr, seed: Option<u64>) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let seed = seed.map_or_else(String::new, |seed| seed.to_string());
        let arguments = [ROLE.to_owned(), kubeconfig.display().to_string(), admin.to_string(), seed];
        let program = Program::start("operator", &std::env::current_exe()?, &arguments, folder.path())?;
        Ok(Self { program, _folder: folder })
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) -> anyhow::Result<()> {
        self.program.signal(Signal::KILL)?;
        self.program.wait()?;
        Ok(())
    }

    /// Fails with its log if it has ended by itself.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        let ended = self.program.ended()?;
        anyhow::ensure!(ended.is_none(), "an operator ended: {ended:?}: {}", self.program.log_tail());
        Ok(())
    }
}

/// A free port of loopback for each that does not need to be found.
pub(crate) fn any_port() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

/// What such a process does.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let [kubeconfig, admin, seed] = arguments else { anyhow::bail!("a kubeconfig, an address and a seed") };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.default_retry = false;
        let client = Client::try_from(config)?;
        let proxy = match seed.parse() {
            Ok(seed) => Some(FaultProxy::start(client.clone(), faults(seed)).await?),
            Err(_) => None,
        };
        let client = proxy.as_ref().map_or(client, FaultProxy::client);
        let wake = Arc::new(Notify::new());
        let on_change = Arc::clone(&wake);
        let proxies = MemoryProxies::new(move || on_change.notify_one());
        let short = Duration::from_secs(2);
        let gateway = gateway::Options { address_quarantine: short, ..gateway::Options::with(Arc::new(proxies)) };
        let options = Options {
            election: None,
            admin_listen: admin.parse().context("an address")?,
            drain: Duration::from_secs(1),
            instance: "bench".to_owned(),
        };
        let process =
            Process::start(client, options, |ctx, registry| drop(gateway::start(ctx, registry, wake, gateway)))?;
        process.run().await?;
        Ok(())
    })
}

/// One write in ten is a conflict; answers are lost, and the server fails.
fn faults(seed: u64) -> Faults {
    Faults { seed, conflict: 0.1, drop_after: 0.05, server_error: 0.05, ..Faults::default() }
}
