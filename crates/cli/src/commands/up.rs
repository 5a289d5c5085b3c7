//! `portolan up`: everything in one process, no cluster needed.

use crate::cli::Program;
use crate::outcome::{Exit, Failure};

/// Run everything in one process on an embedded Kubernetes API server
///
/// Real `kubectl` works against it, and no cluster is needed. This version has no embedded API server built in
/// yet: the command says so and exits 2.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(after_help = "\
Examples:
  portolan up")]
pub(crate) struct Args {}

pub(crate) fn run(args: Args, program: Program) -> Result<Exit, Failure> {
    let Args {} = args;
    Err(Failure::not_built_in("the embedded API server that `up` runs on is", program))
}
