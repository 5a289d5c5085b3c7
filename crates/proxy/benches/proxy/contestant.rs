//! Programs that take part, each a process of its own: ours, the floors, nginx and Envoy.

use crate::place;
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running program; it ends with this value, and with this process however that ends.
pub(crate) struct Contestant {
    child: Child,
    /// Programs of this file take orders and answer each with a line.
    orders: Option<(ChildStdin, BufReader<ChildStdout>)>,
}

impl Contestant {
    /// Starts this program in a role and waits until it is ready.
    pub(crate) fn role(words: &[&str], processors: &[usize]) -> anyhow::Result<Self> {
        Self::role_of(&std::env::current_exe()?, words, processors)
    }

    fn role_of(program: &Path, words: &[&str], processors: &[usize]) -> anyhow::Result<Self> {
        let mut command = dying_with_us(program);
        command.arg("--role").args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = place::spawn(&mut command, processors)?;
        let orders = child.stdin.take().zip(child.stdout.take().map(BufReader::new));
        let mut contestant = Self { child, orders };
        contestant.answer().with_context(|| format!("`{}` did not start", words.join(" ")))?;
        Ok(contestant)
    }

    /// Our data plane with this configuration.
    pub(crate) fn ours(workers: usize, config: &Value) -> anyhow::Result<Self> {
        Self::role(&["ours", &workers.to_string(), &config.to_string()], processors_of(workers))
    }

    /// The data plane of another build of this program.
    pub(crate) fn other_build(program: &Path, workers: usize, config: &Value) -> anyhow::Result<Self> {
        Self::role_of(program, &["ours", &workers.to_string(), &config.to_string()], processors_of(workers))
    }

    /// The floor, from a port to a sink.
    pub(crate) fn bare(variant: &str, workers: usize, port: u16, sink: u16) -> anyhow::Result<Self> {
        let [count, port, sink] = [workers.to_string(), port.to_string(), sink.to_string()];
        Self::role(&["bare", variant, &count, &port, &sink], processors_of(workers))
    }

    /// Starts a peer; its files lie in `folder`.
    fn peer(command: &mut Command, folder: &Path) -> anyhow::Result<Self> {
        let log = fs::File::create(folder.join("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(Self { child: place::spawn(command, place::THEIRS)?, orders: None })
    }

    pub(crate) fn nginx(config: &str) -> anyhow::Result<Self> {
        let (home, folder) = (peer_home("nginx", "usr/sbin/nginx")?, scratch("nginx")?);
        let modules = home.join("usr/lib/nginx/modules/ngx_stream_module.so");
        let folder_name = folder.display();
        let text = format!(
            "load_module {};\ndaemon off;\nmaster_process off;\nuser root;\nworker_processes 1;\npid \
             {folder_name}/pid;\nerror_log {folder_name}/error.log;\nevents {{ worker_connections 16384; \
             }}\n{config}",
            modules.display()
        );
        fs::write(folder.join("nginx.conf"), text)?;
        let mut command = dying_with_us(&home.join("usr/sbin/nginx"));
        command.args(["-e", "error.log", "-c", "nginx.conf", "-p"]).arg(&folder);
        Self::peer(&mut command, &folder)
    }

    pub(crate) fn envoy(listeners: &[Value], clusters: &[Value]) -> anyhow::Result<Self> {
        let (home, folder) = (peer_home("envoy", "envoy/_bin/envoy")?, scratch("envoy")?);
        let config = json!({ "static_resources": { "listeners": listeners, "clusters": clusters } });
        fs::write(folder.join("envoy.json"), config.to_string())?;
        let mut command = dying_with_us(&home.join("envoy/_bin/envoy"));
        command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "error", "-c"]);
        Self::peer(command.arg(folder.join("envoy.json")), &folder)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives an order and waits for what is answered.
    pub(crate) fn order(&mut self, order: &str) -> anyhow::Result<String> {
        let (orders, _) = self.orders.as_mut().context("only our own programs take orders")?;
        writeln!(orders, "{order}")?;
        self.answer()
    }

    fn answer(&mut self) -> anyhow::Result<String> {
        let (_, answers) = self.orders.as_mut().context("only our own programs answer")?;
        let mut line = String::new();
        ensure!(answers.read_line(&mut line)? > 0, "the program has ended");
        Ok(line.trim().to_owned())
    }

    /// Resident memory in bytes.
    pub(crate) fn resident(&self) -> anyhow::Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/statm", self.pid()))?;
        let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
        Ok(pages.context("/proc/PID/statm is not as expected")? * 4096)
    }
}

impl Drop for Contestant {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

const fn processors_of(workers: usize) -> &'static [usize] {
    if workers == 1 { place::THEIRS } else { place::ALL }
}

fn dying_with_us(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

fn peer_home(name: &str, program: &str) -> anyhow::Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache"))).context("HOME is not set")?;
    let home = cache.join("portolan/peers").join(name);
    ensure!(home.join(program).is_file(), "{name} is not there: run `cargo xtask bench proxy`");
    Ok(home)
}

/// A folder for a peer's files, used again by the next run.
fn scratch(name: &str) -> anyhow::Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("portolan-bench-{name}"));
    fs::create_dir_all(&folder)?;
    Ok(folder)
}
