//! The text at the end of a command's help.

/// The examples, and what else follows the flags.
pub(crate) fn after_help(command: &clap::Command) -> String {
    command.get_after_help().map(ToString::to_string).unwrap_or_default()
}
