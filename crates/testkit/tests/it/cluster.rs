//! A whole cluster, as `cargo xtask cluster` runs it.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use portolan_testkit::cluster::{Cluster, Options, TEST_APP};

/// How long a killed cluster may take to vanish on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

fn testkit(action: &str, folder: &Path) -> anyhow::Result<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_portolan-testkit")).args(["cluster", action]).arg(folder).output()?;
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    ensure!(output.status.success(), "`cluster {action}`: {stderr}{stdout}");
    Ok(stdout)
}

#[test]
fn a_cluster_has_three_ready_nodes_and_leaves_nothing_when_it_is_killed() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    testkit("up", folder.path())?;
    let again = testkit("up", folder.path())?;
    ensure!(again.contains("up already"), "{again}");
    let status = testkit("status", folder.path())?;
    ensure!(status.matches(" Ready ").count() == 3, "{status}");

    let pid = fs::read_to_string(folder.path().join("pid"))?;
    let hosts = fs::read_to_string(folder.path().join("nodes"))?;
    let words = hosts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let (mut first_processes, mut data) = (Vec::new(), None);
    for host in words {
        first_processes.push(host.get(1).context("the id of its first process")?.to_string());
        data = data.or_else(|| Path::new(host.get(2)?).ancestors().nth(2).map(Path::to_owned));
    }
    let data = data.context("a node's socket lies in the cluster's folder")?;
    ensure!(data.is_dir() && !groups(&pid)?.is_empty());

    ensure!(Command::new("kill").args(["-9", &pid]).status()?.success());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let alive: Vec<_> = first_processes.iter().filter(|id| Path::new("/proc").join(id).exists()).collect();
        let groups = groups(&pid)?;
        if alive.is_empty() && groups.is_empty() && !data.exists() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "left: {alive:?}, {groups:?}, {} {}", data.display(), data.exists());
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_cluster_that_masquerades_shows_nodes_instead_of_pods() -> anyhow::Result<()> {
    let cluster = Cluster::start(Options { nodes: 1, masquerade: true, ..Options::default() })?;
    let mut echo = cluster.outside().command(cluster.test_app()).args(["echo", "--tcp", "7000"]).spawn()?;
    let server = format!("{}:7000", cluster.outside_address());
    let run = |words: &str| -> anyhow::Result<String> {
        let output = cluster.kubectl().args(words.split_whitespace()).output()?;
        ensure!(output.status.success(), "`kubectl {words}`: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    };
    run(&format!("run probe --image={TEST_APP} --restart=Never -- send tcp {server} 1 10"))?;
    run("wait pod/probe --for=jsonpath={.status.phase}=Succeeded --timeout=2m")?;
    let seen: serde_json::Value = serde_json::from_str(&run("logs probe")?)?;
    echo.kill()?;
    echo.wait()?;
    let (node, _) = cluster.nodes().next().context("its node")?;
    ensure!(seen["answered"] == 1, "{seen}");
    ensure!(
        seen["peers"].to_string().contains(&node.addresses[0].to_string()),
        "{seen} does not name {}",
        node.addresses[0]
    );
    Ok(())
}

/// The control groups of a cluster, in all hierarchies.
fn groups(pid: &str) -> anyhow::Result<Vec<String>> {
    let output =
        Command::new("find").args(["/sys/fs/cgroup", "-name", &format!("portolan-cluster-{pid}-*")]).output()?;
    Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
}
