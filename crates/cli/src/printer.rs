//! The one owner of stdout and stderr.
//!
//! Data goes to stdout as it is, everything else to stderr; colour only where a terminal shows it and
//! `NO_COLOR` is not set.

use std::io::{self, Write};
use std::process::ExitCode;

use anstream::AutoStream;
use clap::builder::StyledStr;
use clap::builder::styling::{AnsiColor, Style};

use crate::outcome::{Exit, Failure};

const ERROR: Style = AnsiColor::Red.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default().bold();

/// Both outputs, and what may be shown on them.
pub(crate) struct Printer {
    out: io::Stdout,
    err: io::Stderr,
    quiet: bool,
}

impl Printer {
    pub(crate) fn new() -> Self {
        Self { out: io::stdout(), err: io::stderr(), quiet: false }
    }

    /// Suppresses notes.
    pub(crate) const fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
    }

    /// Writes the data that was asked for.
    pub(crate) fn data(&self, text: &str) -> Result<(), Failure> {
        written(&mut self.out.lock(), text)
    }

    /// Writes help, with its emphasis on a terminal.
    pub(crate) fn help(&self, text: &StyledStr) -> Result<(), Failure> {
        written(&mut AutoStream::auto(self.out.lock()), &text.ansi().to_string())
    }

    /// Writes a note for people.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            drop(writeln!(self.err.lock(), "{text}"));
        }
    }

    /// Asks for agreement; anything but `y` or `yes` is none.
    pub(crate) fn agreed(&self, question: &str) -> Result<bool, Failure> {
        written(&mut self.err.lock(), question)?;
        let mut answer = String::new();
        let read = io::stdin().read_line(&mut answer);
        let is_yes = matches!(answer.trim().to_lowercase().as_str(), "y" | "yes");
        Ok(read.is_ok() && is_yes)
    }

    /// Prints the error, if there is one, and turns the outcome into the exit code.
    pub(crate) fn end(self, outcome: Result<Exit, Failure>) -> ExitCode {
        let exit = match outcome {
            Ok(exit) => exit,
            Err(Failure::BrokenPipe) => Exit::Yes,
            Err(Failure::Error { exit, what, hint }) => {
                let text = format!("{ERROR}error:{ERROR:#} {what}\n\n{HINT}hint:{HINT:#} {hint}");
                drop(writeln!(AutoStream::auto(self.err.lock()), "{text}"));
                exit
            }
        };
        ExitCode::from(exit.code())
    }
}

fn written(out: &mut impl Write, text: &str) -> Result<(), Failure> {
    let Err(cause) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) else { return Ok(()) };
    if cause.kind() == io::ErrorKind::BrokenPipe {
        return Err(Failure::BrokenPipe);
    }
    let what = format!("writing the output failed: {cause}");
    Err(Failure::new(Exit::No, what, "check for free disk space: df -h ."))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Broken(io::ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_went_away_is_success_and_a_full_disk_is_not() {
        assert_eq!(written(&mut Broken(io::ErrorKind::BrokenPipe), "text"), Err(Failure::BrokenPipe));
        let Err(Failure::Error { exit, .. }) = written(&mut Broken(io::ErrorKind::StorageFull), "text") else {
            panic!("a full disk is an error");
        };
        assert_eq!(exit, Exit::No);
    }
}
