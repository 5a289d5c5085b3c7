//! `portolan status`: how a capability stands.

use portolan_control::answers;

use crate::answer::{self, FormatArgs};
use crate::cluster::ClusterArgs;
use crate::outcome::{Exit, Failure};
use crate::printer::Printer;

/// Show how a capability stands, or what the loss of a node would move
///
/// Exits 1 when something is not as it should be.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  portolan status egress
  portolan status egress --simulate-loss node-1
  portolan status egress -o wide")]
pub(crate) struct Args {
    /// Which capability: egress
    capability: String,

    /// Show what would move if this node were lost, and where to
    #[arg(long, value_name = "NODE", help_heading = "Simulation")]
    simulate_loss: Option<String>,

    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(crate) fn run(args: Args, printer: &Printer) -> Result<Exit, Failure> {
    let Args { capability, simulate_loss, format, cluster } = args;
    let ask = async { Ok(answers::status(&cluster.client().await?, &capability, simulate_loss.as_deref()).await) };
    answer::show(ask, &format, printer)
}
