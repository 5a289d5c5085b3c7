//! `portolan`, the one binary: commands only, no logic.
//!
//! A command is a file in [`commands`]: its arguments, its help, and a `run` that takes the arguments apart and
//! wires. What a command has to say goes through the [`printer`]; how it ended is an [`outcome`].

mod answer;
mod cli;
mod cluster;
mod commands;
mod logs;
mod outcome;
mod printer;
mod usage;
mod version;

use std::process::ExitCode;

use cli::{Cli, Program};
use printer::Printer;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    let program = Program::called(words.first());
    let mut printer = Printer::new();
    let outcome = match cli::parse(program, &words) {
        Ok(Cli { quiet, command }) => {
            printer.set_quiet(quiet);
            commands::run(command, program, &printer)
        }
        Err(error) => usage::explain(&error, &words, program, &printer),
    };
    printer.end(outcome)
}
