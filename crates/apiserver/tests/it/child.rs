//! The embedded API server as a process of its own, for tests that kill it and benchmarks that weigh it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use portolan_testkit::{Program, program};

/// How long a start may take before it counts as failed.
const LIMIT: Duration = Duration::from_mins(2);

/// A running server; it ends when dropped, and its folder with it.
pub(crate) struct Child {
    /// Dropped before the folder that it writes to.
    program: Program,
    folder: tempfile::TempDir,
    started: Instant,
}

impl Child {
    /// Starts a server with its data in `data`, or in memory, and does not wait for it.
    pub(crate) fn launch(data: Option<&Path>) -> anyhow::Result<Self> {
        Self::launch_program(executable()?, data)
    }

    /// The same with another build of the server.
    pub(crate) fn launch_program(path: &Path, data: Option<&Path>) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let data = data.map_or_else(|| "-".to_owned(), |data| data.display().to_string());
        let arguments = ["127.0.0.1:0".to_owned(), data, folder.path().join("kubeconfig").display().to_string()];
        let started = Instant::now();
        let program = Program::start("apiserver", path, &arguments, folder.path())?;
        Ok(Self { program, folder, started })
    }

    /// Starts a server and waits until it is ready; gives how long that took, too.
    pub(crate) fn start(data: Option<&Path>) -> anyhow::Result<(Self, Duration)> {
        let mut child = Self::launch(data)?;
        let took = child.ready()?;
        Ok((child, took))
    }

    /// Waits for the kubeconfig, which appears whole once the server serves.
    pub(crate) fn ready(&mut self) -> anyhow::Result<Duration> {
        while !self.kubeconfig().exists() {
            if let Some(status) = self.program.ended()? {
                bail!("the server ended ({status}):\n{}", self.program.log_tail());
            }
            ensure!(self.started.elapsed() < LIMIT, "not ready within {LIMIT:?}:\n{}", self.program.log_tail());
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(self.started.elapsed())
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    pub(crate) fn program(&mut self) -> &mut Program {
        &mut self.program
    }
}

/// A client for whom a kubeconfig file is for; it retries nothing by itself.
pub(crate) async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let read = Kubeconfig::read_from(kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))?;
    let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// A figure of a process in bytes, such as `VmRSS`, what it holds in memory, or `VmHWM`, the most it ever held.
pub(crate) fn memory(process: u32, figure: &str) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(figure)?.strip_prefix(':'));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")).with_context(|| format!("no {figure}"))?;
    Ok(kibibytes.trim().parse::<u64>()? * 1024)
}

/// The server's program, built by whoever asks first.
fn executable() -> anyhow::Result<&'static Path> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let build = || program::example("portolan-apiserver", "serve").map_err(|error| format!("{error:#}"));
    BUILT.get_or_init(build).as_deref().map_err(|error| anyhow!("{error}"))
}
