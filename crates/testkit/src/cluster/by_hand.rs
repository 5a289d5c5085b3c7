//! A cluster for a developer: it runs in the background, and its folder says how to reach it.
//!
//! The folder holds `pid`, `log`, and, once the cluster is ready, `kubeconfig` and `nodes`: one line for each host, with its
//! name, the id of its first process and the socket of its containerd.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::{Cluster, Host, Options, TEST_APP, host};
use crate::Binaries;

/// How long a cluster may take to end.
const LIMIT: Duration = Duration::from_mins(1);

/// Starts a cluster in the background, waits until it is ready, and says what to do with it.
pub fn up(folder: &Path) -> anyhow::Result<()> {
    if let Some(pid) = running(folder) {
        say(&format!("the cluster is up already (process {})", pid.as_raw_nonzero()))?;
        return what_to_try(folder);
    }
    remove(folder)?;
    fs::create_dir_all(folder)?;
    let log = File::create(folder.join("log"))?;
    let mut cluster = Command::new(std::env::current_exe()?);
    cluster.args(["cluster", "run"]).arg(folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    // Ctrl-C in this terminal is not for the cluster.
    let mut cluster = cluster.process_group(0).spawn().context("starting the cluster's process failed")?;
    fs::write(folder.join("pid"), cluster.id().to_string())?;
    while !nodes_file(folder).is_file() {
        if let Some(status) = cluster.try_wait()? {
            bail!("the cluster did not start ({status}):\n{}", fs::read_to_string(folder.join("log"))?);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    what_to_try(folder)
}

/// The process in the background: starts the cluster and ends it upon SIGTERM.
pub fn run(folder: &Path) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _guard = runtime.enter();
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let cluster = Cluster::start(Options::default())?;
    fs::copy(cluster.kubeconfig_path(), folder.join("kubeconfig"))?;
    let line = |name: &str, host: &Host, socket: &str| format!("{name} {} {socket}\n", host.first_process());
    let nodes = cluster.nodes().map(|(plan, host)| line(&plan.name, host, &cluster.socket(plan).display().to_string()));
    let lines: Vec<String> = nodes.chain([line("outside", cluster.outside(), "-")]).collect();
    // Renamed, because whoever waits for it reads it at once.
    let aside = folder.join("nodes.new");
    fs::write(&aside, lines.concat())?;
    fs::rename(aside, nodes_file(folder))?;
    runtime.block_on(terminate.recv());
    Ok(())
}

/// Gives an image to every node.
pub fn load(folder: &Path, archive: &Path) -> anyhow::Result<()> {
    ensure!(archive.is_file(), "{} is not there: `cargo xtask image` writes one", archive.display());
    let archive = std::path::absolute(archive)?.display().to_string();
    for Line { name, pid, socket } in lines(folder)?.into_iter().filter(|line| line.socket != "-") {
        let mut import = Command::new("nsenter");
        import.args(host::enter(pid)).args(["ctr", "--address", &socket, "--namespace", "k8s.io"]);
        let output = import.args(["images", "import", &archive]).output()?;
        ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        say(&format!("{name}: loaded"))?;
    }
    Ok(())
}

/// Shows nodes and pods.
pub fn status(folder: &Path) -> anyhow::Result<()> {
    let Some(pid) = running(folder) else { bail!("no cluster is up: `cargo xtask cluster up` starts one") };
    say(&format!("process {}, log in {}", pid.as_raw_nonzero(), folder.join("log").display()))?;
    for Line { name, pid, .. } in lines(folder)? {
        say(&format!("{name}: nsenter {} COMMAND", host::enter(pid).join(" ")))?;
    }
    let mut kubectl = Binaries::locate()?.kubectl(&std::path::absolute(folder.join("kubeconfig"))?);
    let shown = kubectl.args(["get", "nodes,pods", "--all-namespaces", "--output=wide"]).status()?;
    ensure!(shown.success(), "the API server does not answer: look into {}", folder.join("log").display());
    Ok(())
}

/// Ends the cluster.
pub fn down(folder: &Path) -> anyhow::Result<()> {
    if let Some(pid) = running(folder) {
        kill_process(pid, Signal::TERM).context("ending the cluster failed")?;
        let deadline = Instant::now() + LIMIT;
        while running(folder).is_some() {
            ensure!(Instant::now() < deadline, "process {} does not end", pid.as_raw_nonzero());
            std::thread::sleep(Duration::from_millis(50));
        }
        say("the cluster is down")?;
    } else {
        say("no cluster is up")?;
    }
    remove(folder)
}

fn what_to_try(folder: &Path) -> anyhow::Result<()> {
    let config = std::path::absolute(folder.join("kubeconfig"))?;
    let kubectl = Binaries::locate()?.program("kubectl");
    say(&format!(
        "\
export KUBECONFIG={}
alias kubectl={}
kubectl get nodes
kubectl run echo --image={TEST_APP} -- echo --http 8080
cargo xtask image && cargo xtask cluster load target/image/portolan-*.oci.tar
helm install portolan deploy/chart --namespace portolan --create-namespace
cargo xtask cluster status    # also shows how to enter a node's network
cargo xtask cluster down",
        config.display(),
        kubectl.display()
    ))
}

/// The process of the cluster, if it is there and ours: ids are used again.
fn running(folder: &Path) -> Option<Pid> {
    let id: i32 = fs::read_to_string(folder.join("pid")).ok()?.trim().parse().ok()?;
    let pid = Pid::from_raw(id)?;
    let line = fs::read(format!("/proc/{id}/cmdline")).ok()?;
    let is_cluster = line.windows(13).any(|words| words == b"\0cluster\0run\0");
    (is_cluster && test_kill_process(pid).is_ok()).then_some(pid)
}

struct Line {
    name: String,
    pid: u32,
    socket: String,
}

fn lines(folder: &Path) -> anyhow::Result<Vec<Line>> {
    let text =
        fs::read_to_string(nodes_file(folder)).context("no cluster is up: `cargo xtask cluster up` starts one")?;
    let line = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        let (name, pid, socket) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
        Some(Line { name, pid, socket })
    };
    text.lines().map(|one| line(one).with_context(|| format!("`{one}` is no line of nodes"))).collect()
}

fn nodes_file(folder: &Path) -> PathBuf {
    folder.join("nodes")
}

fn remove(folder: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn say(text: &str) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout(), "{text}")?)
}
