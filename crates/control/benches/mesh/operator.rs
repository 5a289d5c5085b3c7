//! The mesh's operator as a process of its own.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use portolan_control::mesh;
use portolan_control::runtime::app::{Options, Process};
use portolan_testkit::{Program, ReservedAddress};

/// This program is the operator when it is started with this word.
pub(crate) const ROLE: &str = "--operator";

/// Runs until it is killed.
pub(crate) fn play(kubeconfig: &str, admin: &str) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let read = Kubeconfig::read_from(kubeconfig)?;
        let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        let options = Options {
            election: None,
            admin_listen: admin.parse()?,
            drain: Duration::from_secs(5),
            instance: "bench".to_owned(),
        };
        let mesh = mesh::Options::default();
        let process = Process::start(Client::try_from(config)?, options, |ctx, registry| {
            drop(mesh::start(ctx, registry, mesh));
        })?;
        let failed = process.ctx().tasks.failed().await;
        anyhow::bail!("task {failed} failed")
    })
}

/// The operator while it runs.
pub(crate) struct Operator {
    program: Program,
    admin: ReservedAddress,
    _folder: tempfile::TempDir,
}

impl Operator {
    /// `program` is this one or another build of it.
    pub(crate) fn start(program: &Path, kubeconfig: &Path) -> anyhow::Result<Self> {
        let admin = ReservedAddress::new()?;
        let folder = tempfile::tempdir()?;
        let words = [ROLE.to_owned(), kubeconfig.display().to_string(), admin.address().to_string()];
        let program = Program::start("operator", program, &words, folder.path())?;
        Ok(Self { program, admin, _folder: folder })
    }

    pub(crate) fn id(&self) -> u32 {
        self.program.id()
    }

    /// Waits until something holds of its metrics.
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        let limit = Instant::now() + Duration::from_mins(3);
        while !self.metrics().is_ok_and(|text| holds(&text)) {
            ensure!(Instant::now() < limit, "the operator never {what}: {}", self.program.log_tail());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Calls that changed something on a proxy.
    pub(crate) fn calls(&self) -> anyhow::Result<f64> {
        Ok(sum(&self.metrics()?, "portolan_mesh_calls_total{"))
    }

    /// Writes to the API server.
    pub(crate) fn writes(&self) -> anyhow::Result<f64> {
        Ok(sum(&self.metrics()?, "portolan_runtime_writes_total{"))
    }

    fn metrics(&self) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect(self.admin.address())?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }
}

/// All values of a metric with labels.
pub(crate) fn sum(text: &str, name: &str) -> f64 {
    let lines = text.lines().filter(|line| line.starts_with(name));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// CPU time of a process so far, in seconds.
pub(crate) fn cpu_seconds(process: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().context("a stat line")?.split_whitespace().collect();
    Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) / 100.0)
}

/// Bytes of a process in memory.
pub(crate) fn resident(process: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("a resident size")?;
    let kib: f64 = line.split_whitespace().nth(1).context("a number")?.parse()?;
    Ok(kib * 1024.0)
}
