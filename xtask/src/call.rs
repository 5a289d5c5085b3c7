//! Starting other programs: shown as typed, from the root of the workspace, without the variables that cargo
//! set for this program.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Failure;

/// One program to run, with its words.
pub(crate) struct Call {
    words: Vec<String>,
}

impl Call {
    pub(crate) fn new<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Self {
        Self { words: words.into_iter().map(Into::into).collect() }
    }

    /// Splits a line of plain words: no quotes, no expansion.
    pub(crate) fn line(line: &str) -> Self {
        Self::new(line.split_whitespace())
    }

    pub(crate) fn and<W: Into<String>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.words.extend(words.into_iter().map(Into::into));
        self
    }

    /// The command as a person would type it.
    pub(crate) fn shown(&self) -> String {
        self.words.join(" ")
    }

    /// Runs to the end with this program's own output; a bad exit is a failure.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match self.command().status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(self.failed(&status.to_string())),
            Err(cause) => Err(self.failed(&cause.to_string())),
        }
    }

    /// Runs to the end and gives back what it wrote on stdout; `None` when it failed or is not there.
    pub(crate) fn answer(&self) -> Option<String> {
        let output = self.command().stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs to the end and gives back what it wrote on stdout, its complaints going to ours.
    pub(crate) fn capture(&self) -> Result<String, Failure> {
        let output = self.command().stderr(Stdio::inherit()).output();
        let output = output.map_err(|cause| self.failed(&cause.to_string()))?;
        if !output.status.success() {
            return Err(self.failed(&output.status.to_string()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs to the end, passing every line of its stdout on to `out` and to `each`; says whether it succeeded.
    pub(crate) fn watch(&self, out: &mut impl Write, mut each: impl FnMut(&str)) -> Result<bool, Failure> {
        let broken = |cause: std::io::Error| self.failed(&cause.to_string());
        let mut child = self.command().stdout(Stdio::piped()).spawn().map_err(broken)?;
        let stdout = child.stdout.take().expect("stdout was asked to be a pipe");
        for line in BufReader::new(stdout).split(b'\n') {
            let line = String::from_utf8_lossy(&line.map_err(broken)?).into_owned();
            writeln!(out, "{line}").map_err(broken)?;
            each(&line);
        }
        Ok(child.wait().map_err(broken)?.success())
    }

    fn failed(&self, how: &str) -> Failure {
        Failure::new(format!("`{}` failed: {how}", self.shown()), format!("repeat it: {}", self.shown()))
    }

    fn command(&self) -> Command {
        let (program, arguments) = self.words.split_first().expect("a call names its program");
        let program = if program == "cargo" { cargo() } else { OsString::from(program) };
        let mut command = Command::new(program);
        command.args(arguments).current_dir(root()).stdin(Stdio::null());
        // cargo describes this package to us in the environment; build scripts that watch these variables
        // (ring's does) would run again whenever cargo is started from here and by hand in turn
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let ours = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"];
            if ours.iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        command
    }
}

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("xtask lies in the workspace").to_owned()
}

/// A duration as a person reads it.
pub(crate) fn spell(duration: Duration) -> String {
    let tenths = duration.as_millis() / 100;
    match duration.as_secs() {
        0..60 => format!("{}.{} s", tenths / 10, tenths % 10),
        seconds => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_spelled_in_seconds_or_minutes() {
        assert_eq!(spell(Duration::from_millis(1_260)), "1.2 s");
        assert_eq!(spell(Duration::from_millis(59_999)), "59.9 s");
        assert_eq!(spell(Duration::from_secs(425)), "7 min 05 s");
    }

    #[test]
    fn a_failed_call_names_the_command_to_repeat() {
        let failure = Call::line("false --really").run().expect_err("false fails");
        assert!(failure.what.starts_with("`false --really` failed"), "{}", failure.what);
        assert_eq!(failure.hint, "repeat it: false --really");
    }

    #[test]
    fn every_line_of_a_watched_call_is_seen() {
        let (mut out, mut seen) = (Vec::new(), Vec::new());
        let good = Call::new(["printf", "one\\ntwo\\n"]).watch(&mut out, |line| seen.push(line.to_owned()));
        assert_eq!(good, Ok(true));
        assert_eq!(seen, ["one", "two"]);
        assert_eq!(out, b"one\ntwo\n");
        assert_eq!(Call::line("false").watch(&mut out, |_| ()), Ok(false));
    }
}
