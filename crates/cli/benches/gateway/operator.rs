//! The operator as users run it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use portolan_testkit::{Program, ReservedAddress, Signal};
use tempfile::TempDir;

use crate::http::{self, Answer};

pub(crate) struct Operator {
    program: Program,
    admin: ReservedAddress,
    pub(crate) rest: ReservedAddress,
    _folder: TempDir,
}

impl Operator {
    /// Starts it with this Envoy, without limits that are there to protect it from its users, and waits until it is
    /// ready.
    pub(crate) fn start(kubeconfig: &Path, envoy: &Path) -> anyhow::Result<Self> {
        let (admin, rest) = (ReservedAddress::new()?, ReservedAddress::new()?);
        let folder = tempfile::tempdir()?;
        let flags = [
            ("kubeconfig", kubeconfig.display().to_string()),
            ("admin-listen", admin.address().to_string()),
            ("gateway-envoy-binary", envoy.display().to_string()),
            ("gateway-rest-plain-listen", rest.address().to_string()),
            ("gateway-rest-rate", "1000000".to_owned()),
            ("gateway-rest-watches", "10000".to_owned()),
            ("gateway-drain", "0s".to_owned()),
            ("gateway-address-quarantine", "1s".to_owned()),
            ("gateway-direct-allow", "127.0.0.0/8".to_owned()),
        ];
        let flags = flags.into_iter().map(|(name, value)| format!("--{name}={value}"));
        let words = ["operator", "--capabilities=gateway"].map(str::to_owned).into_iter().chain(flags);
        let portolan = Path::new(env!("CARGO_BIN_EXE_portolan"));
        let program = Program::start("portolan", portolan, &words.collect::<Vec<_>>(), folder.path())?;
        let operator = Self { program, admin, rest, _folder: folder };
        operator.until("is ready", || operator.is_ready())?;
        Ok(operator)
    }

    fn is_ready(&self) -> bool {
        let ready = |address, path| http::get(address, path).is_ok_and(|answer| answer.code < 500);
        ready(self.admin.address(), "/readyz") && ready(self.rest.address(), "/api/egw/accounts/none")
    }

    /// Ends it in good order.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        self.program.signal(Signal::TERM)?;
        self.program.wait()?;
        Ok(())
    }

    pub(crate) fn id(&self) -> u32 {
        self.program.id()
    }

    pub(crate) fn get(&self, path: &str) -> anyhow::Result<Answer> {
        http::get(self.rest.address(), path)
    }

    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> anyhow::Result<Answer> {
        http::send(self.rest.address(), method, path, body)
    }

    /// Waits until something holds.
    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut() -> bool) -> anyhow::Result<()> {
        let limit = Instant::now() + Duration::from_mins(5);
        while !holds() {
            ensure!(Instant::now() < limit, "the operator never {what}: {}", self.program.log_tail());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Waits until it has written nothing for so long.
    pub(crate) fn at_rest(&self, quiet: Duration) -> anyhow::Result<()> {
        let (mut last, mut since) = (http::writes(self.admin.address())?, Instant::now());
        self.until("came to rest", || {
            let now = http::writes(self.admin.address()).unwrap_or(f64::NAN);
            if now.total_cmp(&last).is_ne() {
                (last, since) = (now, Instant::now());
            }
            since.elapsed() >= quiet
        })
    }

    /// MiB in memory.
    pub(crate) fn resident(&self) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.program.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("a size")?;
        Ok(line.split_whitespace().nth(1).context("a number")?.parse::<f64>()? / 1024.0)
    }
}
