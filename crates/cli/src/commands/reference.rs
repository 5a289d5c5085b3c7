//! `portolan reference`: the reference of the command line, from its own definition; `cargo xtask docs` commits it.

use std::fs;
use std::path::PathBuf;

use clap::Arg;

use crate::help::after_help;
use crate::outcome::{Exit, Failure};
use crate::printer::Printer;

/// Print the reference of the command line as Markdown
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  portolan reference
  portolan reference --output docs/reference/cli.md")]
pub(crate) struct Args {
    /// Write to this file instead of stdout
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: Args, definition: clap::Command, printer: &Printer) -> Result<Exit, Failure> {
    let Args { output } = args;
    let text = markdown(definition);
    match output {
        None => printer.data(&text)?,
        Some(file) => fs::write(&file, text).map_err(|cause| {
            let what = format!("writing `{}` failed: {cause}", file.display());
            Failure::new(Exit::No, what, "print it instead: portolan reference")
        })?,
    }
    Ok(Exit::Yes)
}

fn markdown(mut command: clap::Command) -> String {
    command.build();
    let mut blocks = vec!["<!-- Written by `cargo xtask docs`: changes made here are lost. -->".to_owned()];
    blocks.extend(section(&command, 1));
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        blocks.extend(section(command, 2));
    }
    blocks.join("\n\n") + "\n"
}

/// The blocks that describe one command.
fn section(command: &clap::Command, level: usize) -> Vec<String> {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let mut blocks = vec![format!("{} `{name}`", "#".repeat(level)), about, format!("```text\n{usage}\n```")];

    let commands = command.get_subcommands().filter(|command| !command.is_hide_set()).map(|command| {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        format!("| `{}` | {} |", command.get_name(), cell(&about))
    });
    blocks.extend(table("| command | what it does |\n|---|---|", commands));
    // a global flag is described once, with the program
    let described = |arg: &&Arg| !arg.is_hide_set() && (level == 1 || !arg.is_global_set()) && arg.get_id() != "help";
    let arguments = command.get_arguments().filter(described).map(row);
    let head = "| argument | environment | default | what it does |\n|---|---|---|---|";
    blocks.extend(table(head, arguments));

    for (title, lines) in after_help(command).split("\n\n").filter_map(|block| block.split_once(":\n")) {
        blocks.extend([format!("{title}:"), format!("```text\n{}\n```", unindent(lines))]);
    }
    blocks
}

fn table(head: &str, rows: impl Iterator<Item = String>) -> Option<String> {
    let rows: Vec<String> = rows.collect();
    (!rows.is_empty()).then(|| format!("{head}\n{}", rows.join("\n")))
}

fn row(arg: &Arg) -> String {
    let code = |word: &str| if word.is_empty() { String::new() } else { format!("`{}`", cell(word)) };
    let environment = arg.get_env().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut about = vec![arg.get_help().map(ToString::to_string).unwrap_or_default()];
    let mut default = String::new();
    if arg.get_action().takes_values() {
        let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        default = defaults.join(",");
        for value in arg.get_possible_values().iter().filter(|value| !value.is_hide_set()) {
            let meaning = value.get_help().map(|help| format!(": {help}")).unwrap_or_default();
            about.push(format!("`{}`{meaning}", value.get_name()));
        }
    }
    let about = cell(&about.join("<br>"));
    format!("| {} | {} | {} | {about} |", code(&spelled(arg)), code(&environment), code(&default))
}

fn spelled(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
    format!("{short}{arg}")
}

fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

fn unindent(lines: &str) -> String {
    lines.lines().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect::<Vec<_>>().join("\n")
}
