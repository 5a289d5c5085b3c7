//! `portolan proxy`: the multi-protocol data plane.

use crate::cli::Program;
use crate::outcome::{Exit, Failure};

/// Run the multi-protocol proxy, configured over l7mp's REST API
///
/// It holds no cluster credentials: the operator sends it what to do. This version has no proxy built in yet:
/// the command says so and exits 2.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(after_help = "\
Examples:
  portolan proxy")]
pub(crate) struct Args {}

pub(crate) fn run(args: Args, program: Program) -> Result<Exit, Failure> {
    let Args {} = args;
    Err(Failure::not_built_in("the proxy is", program))
}
