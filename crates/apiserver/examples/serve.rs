//! The embedded API server as a program of its own, for tests that kill it and benchmarks that weigh it:
//! `serve LISTEN DATA_DIR|- KUBECONFIG_OUT`. The kubeconfig is written when it is ready.

use anyhow::Context as _;
use portolan_apiserver::running::{Options, Running};

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, data_dir, kubeconfig] =
        arguments.try_into().ok().context("usage: serve LISTEN DATA_DIR|- KUBECONFIG_OUT")?;
    let options = Options {
        listen: listen.parse()?,
        data_dir: (data_dir != "-").then(|| data_dir.into()),
        kubeconfig: kubeconfig.into(),
        workloads: false,
    };
    let _running = Running::start(options).await?;
    std::future::pending().await
}
