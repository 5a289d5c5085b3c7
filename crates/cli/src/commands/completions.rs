//! `portolan completions`: completion scripts for shells.

use clap_complete::Shell;

use crate::outcome::{Exit, Failure};
use crate::printer::Printer;
use crate::program::Program;

/// Print the completion script for a shell
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(after_help = "\
Examples:
  portolan completions bash > /etc/bash_completion.d/portolan
  portolan completions zsh > ~/.zfunc/_portolan
  portolan completions fish > ~/.config/fish/completions/portolan.fish")]
pub(crate) struct Args {
    /// The shell to print for
    shell: Shell,
}

pub(crate) fn run(
    args: Args,
    mut definition: clap::Command,
    program: Program,
    printer: &Printer,
) -> Result<Exit, Failure> {
    let Args { shell } = args;
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut definition, program.file(), &mut text);
    printer.data(&String::from_utf8_lossy(&text))?;
    Ok(Exit::Yes)
}
