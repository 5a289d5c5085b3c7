//! `portolan why`: a decision, step by step.

use portolan_control::answers;

use crate::answer::{self, FormatArgs};
use crate::cluster::ClusterArgs;
use crate::outcome::{Exit, Failure};
use crate::printer::Printer;

/// Explain a decision step by step: why an address, a policy, a pod or a way is as it is
///
/// The same pure plan that the operator acts on is made from the cluster as it stands. Exits 1 when what is asked
/// about has no way out, or is not in force.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  portolan why eip 10.6.1.60
  portolan why policy shop/web
  portolan why vsvc gateway-vsvc
  portolan why pod shop/web-0 203.0.113.7 -o json")]
pub(crate) struct Args {
    /// What it is: eip, policy or pod; vsvc, route, target or rule
    kind: String,

    /// Its name: an address, NAMESPACE/NAME, or a NAME alone for a cluster policy and in namespace default
    name: String,

    /// For a pod: where it sends to
    destination: Option<String>,

    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(crate) fn run(args: Args, printer: &Printer) -> Result<Exit, Failure> {
    let Args { kind, name, destination, format, cluster } = args;
    let ask = async { Ok(answers::why(&cluster.client().await?, &kind, &name, destination.as_deref()).await) };
    answer::show(ask, &format, printer)
}
