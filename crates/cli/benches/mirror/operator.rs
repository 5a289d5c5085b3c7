//! The operator as users run it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use portolan_testkit::{Program, ReservedAddress, Signal};

pub(crate) struct Operator {
    program: Program,
    admin: ReservedAddress,
    started: Instant,
    _folder: tempfile::TempDir,
}

impl Operator {
    pub(crate) fn start(kubeconfig: &Path, flags: &[&str]) -> anyhow::Result<Self> {
        let admin = ReservedAddress::new()?;
        let folder = tempfile::tempdir()?;
        let (kubeconfig, listen) = (kubeconfig.display().to_string(), admin.address().to_string());
        let arguments = ["operator", "--capabilities=mirror", "--kubeconfig", &kubeconfig, "--admin-listen", &listen];
        let rates = ["--write-qps=500", "--nec-workers=16", "--sc-workers=16", "--allow-loopback-remotes"];
        let words = arguments.iter().chain(&rates).chain(flags).map(|word| (*word).to_owned());
        let started = Instant::now();
        let portolan = Path::new(env!("CARGO_BIN_EXE_portolan"));
        let program = Program::start("portolan", portolan, &words.collect::<Vec<_>>(), folder.path())?;
        Ok(Self { program, admin, started, _folder: folder })
    }

    /// Ends it in good order, so that the next one need not wait for its Lease.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        self.program.signal(Signal::TERM)?;
        self.program.wait()?;
        Ok(())
    }

    /// Waits until something holds of its metrics; gives the time since its start.
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&Metrics) -> bool) -> anyhow::Result<Duration> {
        let limit = Instant::now() + Duration::from_mins(10);
        while !self.metrics().is_ok_and(|metrics| holds(&metrics)) {
            ensure!(Instant::now() < limit, "the operator never {what}: {}", self.program.log_tail());
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(self.started.elapsed())
    }

    /// Waits until it has written nothing for so long; gives what it has written until then.
    pub(crate) fn at_rest(&self, quiet: Duration) -> anyhow::Result<Metrics> {
        let (mut last, mut since) = (self.metrics()?, Instant::now());
        while since.elapsed() < quiet {
            std::thread::sleep(Duration::from_millis(200));
            let now = self.metrics()?;
            if now.writes() > last.writes() {
                since = Instant::now();
            }
            last = now;
        }
        Ok(last)
    }

    pub(crate) fn metrics(&self) -> anyhow::Result<Metrics> {
        let mut stream = TcpStream::connect(self.admin.address())?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(Metrics(text))
    }

    pub(crate) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.program.id()))?;
        let fields: Vec<&str> = stat.rsplit(')').next().context("a stat line")?.split_whitespace().collect();
        Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) / 100.0)
    }

    /// Bytes in memory, and the most there ever were.
    pub(crate) fn resident(&self) -> anyhow::Result<(f64, f64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.program.id()))?;
        let bytes = |name: &str| -> anyhow::Result<f64> {
            let line = status.lines().find(|line| line.starts_with(name)).context("a size")?;
            Ok(line.split_whitespace().nth(1).context("a number")?.parse::<f64>()? * 1024.0)
        };
        Ok((bytes("VmRSS:")?, bytes("VmHWM:")?))
    }
}

/// What the operator says of itself.
pub(crate) struct Metrics(String);

impl Metrics {
    /// The sum of a metric over all labels that contain these words.
    pub(crate) fn sum(&self, name: &str, words: &[&str]) -> f64 {
        let lines = self.0.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' '])) && words.iter().all(|word| line.contains(word))
        });
        // a sum of nothing is -0.0
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() + 0.0
    }

    /// Writes to the API server but for status, Leases and events, whatever became of them.
    pub(crate) fn writes(&self) -> f64 {
        ["Service", "EndpointSlice", "Namespace"].iter().map(|kind| self.writes_of(kind)).sum()
    }

    pub(crate) fn writes_of(&self, kind: &str) -> f64 {
        self.sum("portolan_runtime_writes_total", &[&format!("kind=\"{kind}\"")])
    }

    /// All writes, status too.
    pub(crate) fn all_writes(&self) -> f64 {
        self.sum("portolan_runtime_writes_total", &[])
    }
}
