//! Every file of `examples/egress` is applied with the real kubectl, on both API servers, and does what its first lines
//! say: a comment that is a `kubectl wait` is run. What the proxy is given is run by its own tests.

use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::Context as _;
use portolan_testkit::Binaries;

use crate::egress::harness::{World, running};
use crate::harness::{Backend, on_both_servers};

on_both_servers! {
    every_example_applies_and_becomes_what_it_says,
}

/// The examples that are for the operator.
const CAPABILITY: &str = "egress";

async fn every_example_applies_and_becomes_what_it_says(backend: Backend) -> anyhow::Result<()> {
    let files = files()?;
    anyhow::ensure!(!files.is_empty(), "there is no example");
    for file in files {
        // One after the other, each on a cluster of its own: examples use the same names.
        let (world, _proxy, operator, agents) = running(backend).await?;
        for node in ["node1", "node2", "node3"] {
            world.node(node).await?;
        }
        follow(&world, &file).await.with_context(|| format!("{}", file.display()))?;
        operator.stop().await?;
        agents.stop().await?;
    }
    Ok(())
}

async fn follow(world: &World, file: &Path) -> anyhow::Result<()> {
    let path = file.to_str().context("the path is text")?.to_owned();
    kubectl(world, vec!["apply".to_owned(), "--server-side".to_owned(), "-f".to_owned(), path]).await?;
    let text = std::fs::read_to_string(file)?;
    let waits: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# kubectl ")).collect();
    anyhow::ensure!(!waits.is_empty(), "no comment says what to wait for: `# kubectl wait --for=condition=Ready ...`");
    for wait in waits {
        let words = wait.split_whitespace().map(str::to_owned).chain(["--timeout=120s".to_owned()]);
        kubectl(world, words.collect()).await.with_context(|| format!("kubectl {wait}"))?;
    }
    Ok(())
}

/// On a thread of its own: the operator runs on this one's runtime.
async fn kubectl(world: &World, words: Vec<String>) -> anyhow::Result<Output> {
    let mut command = Binaries::locate()?.kubectl(world.kubeconfig());
    let output =
        tokio::task::spawn_blocking(move || command.args(words).output()).await?.context("starting kubectl failed")?;
    anyhow::ensure!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output)
}

fn files() -> anyhow::Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(CAPABILITY);
    let files = std::fs::read_dir(folder)?.map(|file| Ok(file?.path().canonicalize()?));
    let mut files = files.collect::<anyhow::Result<Vec<PathBuf>>>()?;
    files.sort();
    Ok(files)
}
