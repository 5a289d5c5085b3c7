//! `portolan agent`: the data path of one node.

use crate::cli::Program;
use crate::outcome::{Exit, Failure};

/// Run the data path of this node: egress rules, gateway tunnels, probes
///
/// One agent runs on each node and keeps the kernel's tables as the operator planned them; it goes on with what
/// it has while the API server is away. This version has no agent built in yet: the command says so and exits 2.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(after_help = "\
Examples:
  portolan agent")]
pub(crate) struct Args {}

pub(crate) fn run(args: Args, program: Program) -> Result<Exit, Failure> {
    let Args {} = args;
    Err(Failure::not_built_in("the node agent is", program))
}
