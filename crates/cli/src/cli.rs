//! The command line as a whole: every command, and how each is run.

use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser};
use portolan_control::runtime::capability::{Capability, names};

use crate::commands::{
    agent, cleanup, completions, crds, doctor, manifests, operator, plan, proxy, reference, send, status, up, why,
};
use crate::help::after_help;
use crate::outcome::{Exit, Failure};
use crate::printer::Printer;
use crate::program::Program;
use crate::version;

/// Run the network edge of Kubernetes clusters: every way in, out, across and through
#[derive(Debug, Parser)]
#[command(
    name = "portolan",
    max_term_width = 100,
    after_help = "\
Examples:
  portolan up
  portolan operator --capabilities egress
  portolan crds | kubectl apply --server-side -f -"
)]
struct Cli {
    /// Print data and errors only
    #[arg(short, long, global = true, help_heading = "Output", display_order = 900)]
    quiet: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
#[command(disable_help_subcommand = true)]
enum Command {
    Up(up::Args),
    Operator(operator::Args),
    Agent(agent::Args),
    Proxy(proxy::Args),
    Send(send::Args),
    Plan(plan::Args),
    Why(why::Args),
    Status(status::Args),
    Doctor(doctor::Args),
    Crds(crds::Args),
    Cleanup(cleanup::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Manifests(manifests::Args),
    #[command(hide = true)]
    Reference(reference::Args),
}

/// The definition of the command line for a table of capabilities, with examples as the program was started.
pub(crate) fn definition(program: Program, table: &[&Capability]) -> clap::Command {
    let command =
        Cli::command().version(version::TEXT.as_str()).bin_name(program.command()).mut_subcommands(|command| {
            match command.get_name() {
                "operator" => operator::with_capabilities(command, table),
                "cleanup" => operator::with_names(command, table, &names(table)),
                "why" => why::with_capabilities(command, table),
                "status" => status::with_capabilities(command, table),
                "doctor" => doctor::with_capabilities(command, table),
                _ => command,
            }
        });
    let help = format!("{}\n\n{}", after_help(&command), exit_codes());
    with_examples_of(command.after_help(help), program)
}

/// Runs the command that was parsed.
pub(crate) fn run(
    matches: &ArgMatches,
    definition: clap::Command,
    table: &[&Capability],
    program: Program,
    printer: &mut Printer,
) -> Result<Exit, Failure> {
    let parsed = Cli::from_arg_matches(matches).map_err(|error| {
        let hint = format!("see its usage: {} --help", program.command());
        Failure::new(Exit::Usage, error.to_string(), hint)
    });
    let Cli { quiet, command } = parsed?;
    printer.set_quiet(quiet);
    let printer = &*printer;
    match command {
        Command::Up(args) => up::run(args, table, program, printer),
        Command::Operator(args) => {
            let flags = matches.subcommand_matches("operator").cloned().unwrap_or_default();
            operator::run(args, &flags, table, program)
        }
        Command::Agent(args) => agent::run(args, program),
        Command::Proxy(args) => proxy::run(args),
        Command::Send(args) => send::run(args, printer),
        Command::Plan(args) => plan::run(args, table, printer),
        Command::Why(args) => why::run(args, table, printer),
        Command::Status(args) => status::run(args, table, printer),
        Command::Doctor(args) => doctor::run(args, table, printer),
        Command::Crds(args) => crds::run(args, printer),
        Command::Cleanup(args) => cleanup::run(args, table, printer),
        Command::Completions(args) => completions::run(args, definition, program, printer),
        Command::Manifests(args) => manifests::run(args, table, printer),
        Command::Reference(args) => reference::run(args, definition, printer),
    }
}

fn with_examples_of(command: clap::Command, program: Program) -> clap::Command {
    if program == Program::Portolan {
        return command;
    }
    let help = after_help(&command).replace("  portolan ", &format!("  {} ", program.command()));
    command.after_help(help).mut_subcommands(|command| with_examples_of(command, program))
}

fn exit_codes() -> String {
    let lines = Exit::ALL.map(|exit| format!("  {}  {}", exit.code(), exit.meaning()));
    format!("Exit codes:\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use portolan_control::CAPABILITIES;

    use super::*;

    #[test]
    fn the_definition_holds_together() {
        definition(Program::Portolan, CAPABILITIES).debug_assert();
    }

    #[test]
    fn every_example_in_every_help_parses() {
        let command = definition(Program::Portolan, CAPABILITIES);
        let mut all = vec![&command];
        all.extend(command.get_subcommands());
        for each in all {
            let help = after_help(each);
            let examples: Vec<&str> = help
                .lines()
                .filter_map(|line| line.strip_prefix("  "))
                .filter(|line| line.contains("portolan"))
                .collect();
            assert!(!examples.is_empty(), "`{}` has no example", each.get_name());
            for example in examples {
                // the shell keeps what follows a pipe or a redirection to itself
                let ours = example.split(['|', '>']).next().unwrap_or_default();
                let words: Vec<OsString> = ours.split_whitespace().map(OsString::from).collect();
                if let Err(error) = command.clone().try_get_matches_from(&words) {
                    panic!("`{example}` does not parse: {error}");
                }
            }
        }
    }

    #[test]
    fn what_help_says_is_a_verb_phrase_without_a_period_and_flags_have_headings() {
        let mut command = definition(Program::Portolan, CAPABILITIES);
        command.build();
        for command in std::iter::once(&command).chain(command.get_subcommands()) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(!about.is_empty() && !about.ends_with('.'), "{}: `{about}`", command.get_name());
            for arg in command.get_arguments().filter(|arg| !arg.is_positional()) {
                let built_in = matches!(arg.get_id().as_str(), "help" | "version");
                assert!(built_in || arg.get_help_heading().is_some(), "{}: {arg}", command.get_name());
            }
        }
    }

    #[test]
    fn the_binary_named_as_a_plugin_speaks_as_one() {
        let called = |name: &str| Program::from_word(Some(&OsString::from(name)));
        assert_eq!(called("/usr/local/bin/kubectl-portolan"), Program::KubectlPlugin);
        assert_eq!(called("./portolan"), Program::Portolan);
        assert_eq!(Program::from_word(None), Program::Portolan);
        let mut command = definition(Program::KubectlPlugin, CAPABILITIES);
        let help = command.render_long_help().to_string();
        assert!(help.contains("Usage: kubectl portolan "), "{help}");
        assert!(help.contains("\n  kubectl portolan up\n"), "{help}");
    }
}
