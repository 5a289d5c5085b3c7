//! What commands and their help have in common.

use clap::{Arg, Command};

/// The examples, and what else follows the flags.
pub(crate) fn after_help(command: &Command) -> String {
    command.get_after_help().map(ToString::to_string).unwrap_or_default()
}

/// Changes one argument. Unlike `Command::mut_arg` it keeps the order of arguments, which is that of positions.
pub(crate) fn change_arg(command: Command, id: &str, change: impl Fn(Arg) -> Arg) -> Command {
    command.mut_args(|arg| if arg.get_id() == id { change(arg) } else { arg })
}
