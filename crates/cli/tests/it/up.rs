use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use portolan_testkit::{Binaries, Program, Signal};

use crate::{Ran, portolan, program, until};

/// `portolan up` on a free port, and a kubectl for it.
pub(crate) struct Up {
    program: Program,
    folder: tempfile::TempDir,
}

impl Up {
    pub(crate) fn start(folder: tempfile::TempDir, more: &[&str]) -> anyhow::Result<Self> {
        Self::start_at("127.0.0.1:0", folder, more)
    }

    /// The same on a given address.
    pub(crate) fn start_at(listen: &str, folder: tempfile::TempDir, more: &[&str]) -> anyhow::Result<Self> {
        let kubeconfig = folder.path().join("kubeconfig");
        drop(std::fs::remove_file(&kubeconfig));
        let mut arguments = vec!["up", "--listen", listen, "--kubeconfig", "kubeconfig"];
        arguments.extend(more);
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        let portolan = Path::new(env!("CARGO_BIN_EXE_portolan"));
        let mut program = Program::start("portolan", portolan, &arguments, folder.path())?;
        let began = Instant::now();
        while !program.log()?.contains("Ctrl-C stops it") {
            anyhow::ensure!(program.ended()?.is_none(), "it ended: {}", program.log_tail());
            anyhow::ensure!(began.elapsed() < Duration::from_mins(3), "no welcome: {}", program.log_tail());
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Self { program, folder })
    }

    pub(crate) fn kubectl(&self, line: &str) -> anyhow::Result<String> {
        self.kubectl_with("kubeconfig", line)
    }

    /// kubectl with another kubeconfig of the folder.
    pub(crate) fn kubectl_with(&self, kubeconfig: &str, line: &str) -> anyhow::Result<String> {
        kubectl(self.folder.path(), kubeconfig, line)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The processes that it has started and that still run.
    pub(crate) fn children(&self) -> anyhow::Result<Vec<u32>> {
        let mut children = Vec::new();
        for task in std::fs::read_dir(format!("/proc/{}/task", self.program.id()))? {
            let listed = std::fs::read_to_string(task?.path().join("children")).unwrap_or_default();
            children.extend(listed.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
        }
        Ok(children)
    }

    /// Stops it without ending it: connections stay, and nothing is answered. False lets it go on.
    pub(crate) fn freeze(&self, freeze: bool) -> anyhow::Result<()> {
        self.program.signal(if freeze { Signal::STOP } else { Signal::CONT })
    }

    pub(crate) fn kill(mut self) -> anyhow::Result<()> {
        self.program.signal(Signal::KILL)?;
        self.program.wait()?;
        Ok(())
    }

    pub(crate) fn stop(mut self) -> anyhow::Result<tempfile::TempDir> {
        self.program.signal(Signal::INT)?;
        let ended = self.program.wait().context("waiting for portolan failed")?;
        anyhow::ensure!(ended.success(), "it ended with {ended}: {}", self.program.log_tail());
        Ok(self.folder)
    }
}

fn kubectl(folder: &Path, kubeconfig: &str, line: &str) -> anyhow::Result<String> {
    let mut command = program(&Binaries::locate()?.program("kubectl"));
    command.env("HOME", folder).env("KUBECONFIG", folder.join(kubeconfig));
    let Output { status, stdout, stderr } = command.args(line.split_whitespace()).output()?;
    let said = String::from_utf8_lossy(&stdout).into_owned();
    anyhow::ensure!(status.success(), "kubectl {line}: {said}{}", String::from_utf8_lossy(&stderr));
    Ok(said)
}

#[test]
fn up_serves_kubectl_and_ctrl_c_stops_it() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &[])?;
    let listed = up.kubectl("get crds,nodes,ns -o name")?;
    for name in ["node/node-1", "node/node-2", "node/node-3", "namespace/default", "namespace/kube-system"] {
        assert!(listed.lines().any(|line| line == name), "{name} is missing:\n{listed}");
    }
    assert!(up.kubectl("get nodes")?.contains("Ready"), "the nodes are ready");
    assert!(up.kubectl("--context portolan-token get nodes")?.contains("Ready"), "a bearer token will do");
    let wrong = up.kubectl("--context portolan-token --token wrong get nodes").unwrap_err();
    assert!(wrong.to_string().contains("Unauthorized") || wrong.to_string().contains("logged in"), "{wrong}");
    up.stop()?;
    Ok(())
}

#[test]
fn what_was_made_is_there_after_a_restart_with_a_data_dir() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &["--data-dir", "data", "--empty"])?;
    let map = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kept"},"data":{"key":"value"}}"#;
    let file = up.folder.path().join("map.json");
    std::fs::write(&file, map)?;
    up.kubectl(&format!("apply -f {}", file.display()))?;
    assert!(!up.kubectl("get nodes -o name")?.contains("node"), "empty means no nodes");
    let up = Up::start(up.stop()?, &["--data-dir", "data", "--empty"])?;
    assert_eq!(up.kubectl("get configmap kept -o jsonpath={.data.key}")?, "value");
    up.stop()?;
    Ok(())
}

#[test]
fn examples_that_were_edited_or_deleted_do_not_come_back() -> anyhow::Result<()> {
    let kept = ["--data-dir", "data"];
    let up = Up::start(tempfile::tempdir()?, &kept)?;
    up.kubectl("delete egp web")?;
    up.kubectl("label node node-1 egress- own=label")?;
    let up = Up::start(up.stop()?, &kept)?;
    assert_eq!(up.kubectl("get egp -o jsonpath={.items[*].metadata.name}")?, "payments");
    let labels = up.kubectl("get node node-1 -o jsonpath={.metadata.labels}")?;
    assert!(labels.contains("\"own\":\"label\"") && !labels.contains("\"egress\""), "{labels}");
    up.stop()?;
    Ok(())
}

#[test]
fn a_kubeconfig_of_something_else_is_not_written_over() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("config");
    let foreign = "apiVersion: v1\nkind: Config\nclusters: [{name: production, cluster: {server: https://10.0.0.1}}]\n";
    std::fs::write(&path, foreign)?;
    let Ran { exit, stderr, .. } = portolan(&format!("up --listen 127.0.0.1:0 --kubeconfig {}", path.display()));
    assert_eq!(exit, Some(1), "{stderr}");
    assert!(stderr.contains("config is not a kubeconfig of this program"), "{stderr}");
    assert_eq!(std::fs::read_to_string(&path)?, foreign);
    Ok(())
}

#[test]
fn the_welcome_says_where_the_kubeconfig_is_and_names_only_what_is_there() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &["--empty"])?;
    let welcome = up.program.log()?;
    let path = up.folder.path().canonicalize()?.join("kubeconfig");
    assert!(welcome.contains(&format!("export KUBECONFIG={}", path.display())), "{welcome}");
    assert!(!welcome.contains("node-1") && !welcome.contains("why policy"), "{welcome}");
    up.stop()?;
    Ok(())
}

#[test]
fn what_happens_is_shown_in_a_line_each_but_not_with_quiet() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &["--data-dir", "data"])?;
    let line = "EgressPolicy default/web: leaves with 10.6.1.55 through node node-";
    until("the grant is shown", || Ok(up.program.log()?.contains(line)))?;
    let node = up.kubectl("get egp web -o jsonpath={.status.node}")?;
    up.kubectl(&format!("label node {node} portolan.dev/egress-drain=true"))?;
    let moved = format!("EgressGateway eg1: 10.6.1.55 goes from {node} to ");
    until("the move is shown", || Ok(up.program.log()?.contains(&moved)))?;

    // a later run shows what happens then, and with -q nothing
    let folder = up.stop()?;
    let arguments = ["-q", "up", "--listen", "127.0.0.1:0", "--kubeconfig", "quiet", "--data-dir", "data"];
    let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
    let portolan = Path::new(env!("CARGO_BIN_EXE_portolan"));
    let mut program = Program::start("portolan", portolan, &arguments, folder.path())?;
    let ask = |line: &str| kubectl(folder.path(), "quiet", line);
    until("its API server answers", || Ok(ask("get nodes").is_ok()))?;
    ask(&format!("label node {node} portolan.dev/egress-drain-"))?;
    ask("delete egp payments")?;
    until("the address is released", || Ok(ask("get addr 10.6.1.60 --ignore-not-found -o name")?.is_empty()))?;
    program.signal(Signal::INT)?;
    assert!(program.wait()?.success());
    let shown = program.log()?;
    assert!(!shown.lines().any(|line| line.starts_with("Egress")), "{shown}");
    Ok(())
}
