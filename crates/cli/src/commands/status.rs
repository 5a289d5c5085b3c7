//! `portolan status`: the state of capabilities.

use portolan_control::query;
use portolan_control::runtime::capability::{Capability, names};

use crate::cluster::ClusterArgs;
use crate::help::change_arg;
use crate::outcome::{Exit, Failure};
use crate::output::{self, FormatArgs};
use crate::printer::Printer;

/// Show the state of all capabilities or of one, or simulate the loss of a node
///
/// Exits 1 if something is not ready or not programmed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  portolan status
  portolan status mesh
  portolan status egress --simulate-loss node-1
  portolan status egress -o wide")]
pub(crate) struct Args {
    /// The capability; all by default
    capability: Option<String>,

    /// Show what would move if this node were lost, and where to
    #[arg(long, value_name = "NODE", help_heading = "Simulation")]
    simulate_loss: Option<String>,

    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Lists the capabilities.
pub(crate) fn with_capabilities(command: clap::Command, table: &[&Capability]) -> clap::Command {
    let help = format!("The capability: {}; all by default", query::list_of(&names(table), "or"));
    change_arg(command, "capability", |arg| arg.help(help.clone()))
}

pub(crate) fn run(args: Args, table: &[&Capability], printer: &Printer) -> Result<Exit, Failure> {
    let Args { capability, simulate_loss, format, cluster } = args;
    let sections = output::ask(async {
        let client = cluster.client().await?;
        Ok(match simulate_loss {
            Some(node) => query::node_loss(table, &client, capability.as_deref(), &node).await,
            None => query::status(table, &client, capability.as_deref()).await,
        })
    })?;
    output::show_all(&sections, &format, printer)
}
