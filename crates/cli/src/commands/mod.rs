//! The commands, one file each: arguments, help and wiring.

pub(crate) mod agent;
pub(crate) mod completions;
pub(crate) mod crds;
pub(crate) mod operator;
pub(crate) mod plan;
pub(crate) mod proxy;
pub(crate) mod reference;
pub(crate) mod send;
pub(crate) mod status;
pub(crate) mod up;
pub(crate) mod why;

use crate::cli::Program;
use crate::outcome::{Exit, Failure};
use crate::printer::Printer;

#[derive(Debug, clap::Subcommand)]
#[command(disable_help_subcommand = true)]
pub(crate) enum Command {
    Up(up::Args),
    Operator(operator::Args),
    Agent(agent::Args),
    Proxy(proxy::Args),
    Send(send::Args),
    Plan(plan::Args),
    Why(why::Args),
    Status(status::Args),
    Crds(crds::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Reference(reference::Args),
}

pub(crate) fn run(command: Command, program: Program, printer: &Printer) -> Result<Exit, Failure> {
    match command {
        Command::Up(args) => up::run(args, program, printer),
        Command::Operator(args) => operator::run(args, program),
        Command::Agent(args) => agent::run(args, program),
        Command::Proxy(args) => proxy::run(args),
        Command::Send(args) => send::run(args, printer),
        Command::Plan(args) => plan::run(args, printer),
        Command::Why(args) => why::run(args, printer),
        Command::Status(args) => status::run(args, printer),
        Command::Crds(args) => crds::run(args, printer),
        Command::Completions(args) => completions::run(args, program, printer),
        Command::Reference(args) => reference::run(args, printer),
    }
}
