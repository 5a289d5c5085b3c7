//! `portolan agent`: the data path of one node.

use crate::outcome::{Exit, Failure};
use crate::program::Program;

/// Run the data path of this node: egress rules, gateway tunnels, probes
///
/// One agent runs on each node and programs the kernel as the operator planned. While the API server is unreachable, it
/// keeps the last state. This version has no agent: the command prints an error and exits 2.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(after_help = "\
Examples:
  portolan agent")]
pub(crate) struct Args {}

pub(crate) fn run(args: Args, program: Program) -> Result<Exit, Failure> {
    let Args {} = args;
    Err(Failure::not_built_in("the node agent is", program))
}
