//! The command line of `portolan`: commands only, no logic.
//!
//! A command is a file in [`commands`]: its arguments, its help, and a `run` that takes the arguments apart and wires.
//! Output goes through the [`printer`]; how a command ended is an [`outcome`]. [`cli`] is on top: it knows every
//! command, and no command knows it.
//!
//! ```text
//!   cli --> commands --> cluster, output --> printer --> outcome --> program
//! ```

mod aws;
mod barrelman;
mod cli;
mod cluster;
mod commands;
mod help;
mod logs;
mod outcome;
mod output;
mod printer;
mod program;
mod programs;
mod run_folder;
mod usage;
mod version;

use std::process::ExitCode;

use portolan_control::runtime::capability::Capability;

use printer::Printer;
use program::Program;

/// Runs the command that the process was started with, for the capabilities of a table.
pub fn main(table: &[&Capability]) -> ExitCode {
    let (words, warnings) = barrelman::translated(std::env::args_os().collect());
    let program = Program::from_word(words.first());
    let mut printer = Printer::new();
    for warning in warnings {
        printer.note(&warning);
    }
    let definition = cli::definition(program, table);
    let outcome = match definition.clone().try_get_matches_from(&words) {
        Ok(matches) => cli::run(&matches, definition, table, program, &mut printer),
        Err(error) => usage::explain(&error, &words, &definition, program, &printer),
    };
    printer.end(outcome)
}
