//! The `go` command.

use std::{path::Path, process::Command};

use anyhow::{Context as _, ensure};

/// Runs `go` in a folder with a module, and returns what it wrote.
pub(super) fn go(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("go")
        .args(arguments)
        .current_dir(folder)
        .env("CGO_ENABLED", "0")
        .output()
        .context("starting `go` failed: install Go 1.26 or later from https://go.dev/dl/")?;
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    ensure!(output.status.success(), "`go {}` failed ({}):\n{stderr}", arguments.join(" "), output.status);
    Ok(stdout)
}
