//! Usage errors in the form of all errors: what and why, a blank line, a hint.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::outcome::{Exit, Failure};
use crate::printer::Printer;
use crate::program::Program;

/// Prints help and version if they were asked for; everything else is an error.
pub(crate) fn explain(
    error: &clap::Error,
    words: &[OsString],
    definition: &clap::Command,
    program: Program,
    printer: &Printer,
) -> Result<Exit, Failure> {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        printer.help(&error.render())?;
        return Ok(Exit::Yes);
    }
    let help = format!("{} --help", command(words, definition, program));
    let hint = match suggestion(error) {
        Some(suggestion) => format!("did you mean {suggestion}? See {help}"),
        None => format!("see its usage: {help}"),
    };
    Err(Failure::new(Exit::Usage, what(error), hint))
}

fn what(error: &clap::Error) -> String {
    let get = |kind| error.get(kind).and_then(text);
    let (argument, value) = (get(ContextKind::InvalidArg), get(ContextKind::InvalidValue));
    #[expect(clippy::wildcard_enum_match_arm, reason = "clap adds kinds; those without a message here use clap's")]
    let ours = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            Some("no command given".to_owned())
        }
        ErrorKind::InvalidSubcommand => {
            get(ContextKind::InvalidSubcommand).map(|word| format!("`{word}` is not a command"))
        }
        ErrorKind::UnknownArgument => argument.map(|word| format!("`{word}` is not an argument of this command")),
        ErrorKind::MissingRequiredArgument => argument.map(|word| format!("`{word}` is missing")),
        ErrorKind::InvalidValue => match (argument, value.filter(|value| !value.is_empty())) {
            (Some(argument), Some(value)) => {
                let valid = get(ContextKind::ValidValue).map(|valid| format!(": use {valid}")).unwrap_or_default();
                Some(format!("`{value}` is not a value of `{argument}`{valid}"))
            }
            (Some(argument), None) => Some(format!("`{argument}` needs a value")),
            (None, _) => None,
        },
        _ => None,
    };
    ours.unwrap_or_else(|| first_line(error))
}

fn suggestion(error: &clap::Error) -> Option<String> {
    let kinds = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    let close = kinds.iter().find_map(|kind| error.get(*kind).and_then(text))?;
    Some(format!("`{close}`"))
}

/// The program, with the command if one was given.
fn command(words: &[OsString], definition: &clap::Command, program: Program) -> String {
    let named = words.iter().skip(1).find_map(|word| definition.find_subcommand(word));
    let named = named.map(|command| format!(" {}", command.get_name())).unwrap_or_default();
    format!("{}{named}", program.command())
}

#[expect(clippy::wildcard_enum_match_arm, reason = "only values that are text have one")]
fn text(value: &ContextValue) -> Option<String> {
    match value {
        ContextValue::String(word) => Some(word.clone()),
        ContextValue::Strings(words) => Some(words.join(", ")),
        ContextValue::StyledStr(text) => Some(text.to_string()),
        ContextValue::StyledStrs(texts) => texts.first().map(ToString::to_string),
        _ => None,
    }
}

fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}
