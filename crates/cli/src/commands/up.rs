//! `portolan up`: everything in one process, no cluster needed.

use std::net::SocketAddr;
use std::path::PathBuf;

use portolan_apiserver::running::{Options, Running};

use crate::cli::Program;
use crate::outcome::{Exit, Failure};
use crate::printer::Printer;

/// Run everything in one process on an embedded Kubernetes API server
///
/// Real `kubectl` works against it, and no cluster is needed. It writes a kubeconfig, simulates a few Ready nodes and
/// runs until Ctrl-C. It is for one machine; on several, run the operator on Kubernetes itself. No capability is built
/// into this version yet, so what runs is the API server.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  portolan up
  portolan up --data-dir state --listen 127.0.0.1:6443
  portolan up --empty --kubeconfig /tmp/portolan.kubeconfig")]
pub(crate) struct Args {
    /// Keep objects and certificates here across restarts; without it everything is gone at the end
    #[arg(long, value_name = "DIR", env = "PORTOLAN_DATA_DIR", help_heading = "API server")]
    data_dir: Option<PathBuf>,

    /// Listen here; port 0 takes a free one
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:6443",
        env = "PORTOLAN_LISTEN",
        help_heading = "API server"
    )]
    listen: SocketAddr,

    /// Write the administrator's kubeconfig here
    #[arg(
        long,
        value_name = "FILE",
        default_value = "portolan.kubeconfig",
        env = "PORTOLAN_KUBECONFIG",
        help_heading = "API server"
    )]
    kubeconfig: PathBuf,

    /// Start without simulated nodes
    #[arg(long, help_heading = "API server")]
    empty: bool,
}

/// As many as show addresses moving from one to several others.
const NODES: usize = 3;

pub(crate) fn run(args: Args, program: Program, printer: &Printer) -> Result<Exit, Failure> {
    let Args { data_dir, listen, kubeconfig, empty } = args;
    let nodes = if empty { 0 } else { NODES };
    let options = Options { listen, data_dir: data_dir.clone(), kubeconfig: kubeconfig.clone(), nodes };
    let runtime = tokio::runtime::Runtime::new().map_err(|cause| failed(&cause.to_string(), program))?;
    runtime.block_on(async {
        let running = Running::start(options).await.map_err(|error| failed(&error.to_string(), program))?;
        printer.note(&welcome(running.url(), &kubeconfig.display().to_string(), nodes, data_dir.is_some()));
        tokio::signal::ctrl_c().await.map_err(|cause| failed(&cause.to_string(), program))?;
        printer.note("stopping");
        running.stop().await;
        Ok(Exit::Yes)
    })
}

fn welcome(url: &str, kubeconfig: &str, nodes: usize, kept: bool) -> String {
    let kept = if kept { "kept across restarts" } else { "in memory, gone at the end: keep them with --data-dir DIR" };
    format!(
        "the API server listens on {url}, with {nodes} simulated nodes; objects are {kept}\n\
         try it in another shell:\n\
         \n  kubectl --kubeconfig {kubeconfig} get crds,nodes,ns\n\
         \nCtrl-C stops it"
    )
}

fn failed(what: &str, program: Program) -> Failure {
    Failure::new(Exit::No, what, format!("see its flags: {} up --help", program.spoken()))
}
