//! The cluster with the chart installed, shared by the tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use portolan_testkit::cluster::{Cluster, Host};
use portolan_testkit::helm;
use portolan_testkit::image::Image;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(5);
const PORTOLAN: &str = env!("CARGO_BIN_EXE_portolan");

/// A cluster on which the chart was installed.
pub(crate) struct Installation {
    pub(crate) cluster: Cluster,
}

impl Installation {
    /// For a test that others may run beside.
    pub(crate) fn shared() -> anyhow::Result<RwLockReadGuard<'static, Self>> {
        Ok(Self::only()?.read())
    }

    /// For a test that takes away what others need. It leaves the installation as it was.
    pub(crate) fn alone() -> anyhow::Result<RwLockWriteGuard<'static, Self>> {
        Ok(Self::only()?.write())
    }

    /// The only one; whoever comes first makes it.
    fn only() -> anyhow::Result<&'static RwLock<Self>> {
        static ONLY: OnceLock<Result<RwLock<Installation>, String>> = OnceLock::new();
        let only = ONLY.get_or_init(|| Self::make().map(RwLock::new).map_err(|error| format!("{error:#}")));
        only.as_ref().map_err(|error| anyhow::anyhow!("installing on a cluster failed: {error}"))
    }

    fn make() -> anyhow::Result<Self> {
        let installation = Self { cluster: Cluster::start(portolan_testkit::cluster::Options::default())? };
        let folder = tempfile::tempdir()?;
        installation.cluster.load_image(&image(folder.path())?)?;
        installation.install("install", &["--create-namespace"])?;
        Ok(installation)
    }

    /// Installs or upgrades the release.
    pub(crate) fn install(&self, command: &str, more: &[&str]) -> anyhow::Result<()> {
        let chart = workspace("deploy/chart");
        let words = [command, "portolan", &chart, "--namespace=portolan", "--wait", "--timeout=5m"];
        if let Err(error) = self.helm(&[&words[..], more].concat()) {
            let shown = self.kubectl("get pods,events --all-namespaces --output=wide")?;
            let logs = self.kubectl("logs --namespace portolan deployment/portolan-operator --tail=30");
            anyhow::bail!("{error:#}\n{shown}\n{logs:?}");
        }
        Ok(())
    }

    /// Runs kubectl with these words; a bad exit is an error with what it wrote.
    pub(crate) fn kubectl(&self, line: &str) -> anyhow::Result<String> {
        kubectl(&self.cluster, line)
    }

    /// The same, on a file with this content.
    pub(crate) fn kubectl_on(&self, line: &str, content: &str) -> anyhow::Result<String> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), content)?;
        self.kubectl(&format!("{line} --filename={}", file.path().display()))
    }

    pub(crate) fn helm(&self, words: &[&str]) -> anyhow::Result<String> {
        let mut helm = helm::command()?;
        let config = self.cluster.kubeconfig_path();
        helm.env("KUBECONFIG", config).env("KUBECACHEDIR", config.with_extension("cache")).args(words);
        succeeded(&format!("helm {}", words.join(" ")), &mut helm)
    }

    /// The host of a node.
    pub(crate) fn node(&self, name: &str) -> anyhow::Result<&Host> {
        let found = self.cluster.nodes().find(|(plan, _)| plan.name == name);
        found.map(|(_, host)| host).with_context(|| format!("there is no node {name}"))
    }

    /// A namespace for one test.
    pub(crate) fn namespace(&self, name: &str) -> anyhow::Result<()> {
        self.kubectl(&format!("create namespace {name}")).map(drop)
    }

    /// The pod that leads, once one does.
    pub(crate) fn leader(&self) -> anyhow::Result<String> {
        let mut leader = String::new();
        until("a replica leads", || {
            let holder = self
                .kubectl("get lease --namespace portolan portolan-operator --output=jsonpath={.spec.holderIdentity}")?;
            // the pod's name and a process id
            holder.rsplit_once('-').context("nobody leads")?.0.clone_into(&mut leader);
            Ok(())
        })?;
        Ok(leader)
    }

    /// The chart's Deployment is as it should be.
    pub(crate) fn rolled_out(&self) -> anyhow::Result<()> {
        self.kubectl("rollout status --namespace portolan deployment/portolan-operator --timeout=5m").map(drop)
    }

    /// Waits until these objects of a namespace, such as `vsvc/a`, are programmed.
    pub(crate) fn programmed(&self, namespace: &str, objects: &str) -> anyhow::Result<()> {
        let line = format!("wait --namespace {namespace} --for=condition=Programmed --timeout=5m {objects}");
        if let Err(error) = self.kubectl(&line) {
            let shown = self.kubectl(&format!("get pods,events,vsvc,tr --namespace {namespace} --output=wide"))?;
            anyhow::bail!("{error:#}\n{shown}");
        }
        Ok(())
    }
}

/// Runs kubectl with these words; a bad exit is an error with what it wrote.
pub(crate) fn kubectl(cluster: &Cluster, line: &str) -> anyhow::Result<String> {
    succeeded(line, cluster.kubectl().args(line.split_whitespace()))
}

/// Runs `portolan` on a host.
pub(crate) fn portolan_on(host: &Host, line: &str) -> anyhow::Result<Output> {
    Ok(portolan_command(host, line).output()?)
}

pub(crate) fn portolan_command(host: &Host, line: &str) -> Command {
    let mut portolan = host.command(PORTOLAN);
    portolan.args(line.split_whitespace());
    portolan
}

/// Repeats a check until it holds; what it said last is shown if it never does.
pub(crate) fn until(what: &str, mut check: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match check() {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > deadline => {
                return Err(error.context(format!("waited in vain until {what}")));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

/// A path of the checkout.
pub(crate) fn workspace(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path).display().to_string()
}

/// The image of the program under test, as `cargo xtask image` makes it of a release build.
fn image(folder: &Path) -> anyhow::Result<PathBuf> {
    let name = format!("docker.io/library/portolan:{}", env!("CARGO_PKG_VERSION"));
    let archive = folder.join("image.tar");
    std::fs::write(&archive, Image::of_program(&name, Path::new(PORTOLAN))?.archive()?)?;
    Ok(archive)
}

fn succeeded(what: &str, command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("starting `{what}` failed"))?;
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    ensure!(output.status.success(), "`{what}` failed ({}): {stderr}{stdout}", output.status);
    Ok(stdout)
}
