//! The command line as a whole.

use std::ffi::OsString;
use std::path::Path;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};

use crate::commands::Command;
use crate::outcome::Exit;
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
pub(crate) struct Cli {
    /// Print data and errors only
    #[arg(short, long, global = true, help_heading = "Output", display_order = 900)]
    pub(crate) quiet: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The name this binary was called by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Portolan,
    /// `kubectl portolan` runs a binary named `kubectl-portolan`.
    KubectlPlugin,
}

impl Program {
    pub(crate) fn called(first: Option<&OsString>) -> Self {
        let name = first.and_then(|word| Path::new(word).file_stem());
        if name.is_some_and(|name| name == "kubectl-portolan") { Self::KubectlPlugin } else { Self::Portolan }
    }

    /// What the user types.
    pub(crate) const fn spoken(self) -> &'static str {
        match self {
            Self::Portolan => "portolan",
            Self::KubectlPlugin => "kubectl portolan",
        }
    }

    /// What the binary's file is called.
    pub(crate) const fn file(self) -> &'static str {
        match self {
            Self::Portolan => "portolan",
            Self::KubectlPlugin => "kubectl-portolan",
        }
    }
}

/// The definition of the command line, spoken as the program was called.
pub(crate) fn definition(program: Program) -> clap::Command {
    let command = Cli::command().version(version::TEXT.as_str()).bin_name(program.spoken());
    let help = format!("{}\n\n{}", after_help(&command), exit_codes());
    spoken(command.after_help(help), program)
}

pub(crate) fn parse(program: Program, words: &[OsString]) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&definition(program).try_get_matches_from(words)?)
}

/// The examples at the end of a command's help.
pub(crate) fn after_help(command: &clap::Command) -> String {
    command.get_after_help().map(ToString::to_string).unwrap_or_default()
}

fn spoken(command: clap::Command, program: Program) -> clap::Command {
    if program == Program::Portolan {
        return command;
    }
    let help = after_help(&command).replace("  portolan ", &format!("  {} ", program.spoken()));
    command.after_help(help).mut_subcommands(|command| spoken(command, program))
}

fn exit_codes() -> String {
    let lines = Exit::ALL.map(|exit| format!("  {}  {}", exit.code(), exit.meaning()));
    format!("Exit codes:\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_holds_together() {
        definition(Program::Portolan).debug_assert();
    }

    #[test]
    fn every_example_in_every_help_parses() {
        let command = definition(Program::Portolan);
        let mut all = vec![&command];
        all.extend(command.get_subcommands());
        for command in all {
            let help = after_help(command);
            let examples: Vec<&str> = help
                .lines()
                .filter_map(|line| line.strip_prefix("  "))
                .filter(|line| line.contains("portolan"))
                .collect();
            assert!(!examples.is_empty(), "`{}` has no example", command.get_name());
            for example in examples {
                // the shell keeps what follows a pipe or a redirection to itself
                let ours = example.split(['|', '>']).next().unwrap_or_default();
                let words: Vec<OsString> = ours.split_whitespace().map(OsString::from).collect();
                if let Err(error) = parse(Program::Portolan, &words) {
                    panic!("`{example}` does not parse: {error}");
                }
            }
        }
    }

    #[test]
    fn what_help_says_is_a_verb_phrase_without_a_period_and_flags_have_headings() {
        let mut command = definition(Program::Portolan);
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
        let called = |name: &str| Program::called(Some(&OsString::from(name)));
        assert_eq!(called("/usr/local/bin/kubectl-portolan"), Program::KubectlPlugin);
        assert_eq!(called("./portolan"), Program::Portolan);
        assert_eq!(Program::called(None), Program::Portolan);
        let mut command = definition(Program::KubectlPlugin);
        let help = command.render_long_help().to_string();
        assert!(help.contains("Usage: kubectl portolan "), "{help}");
        assert!(help.contains("\n  kubectl portolan up\n"), "{help}");
    }
}
