//! Helm, for the tests of the chart: found, or built once from the Go module in `helm/`.
//!
//! It is kept beside the Kubernetes binaries, in `$XDG_CACHE_HOME/portolan/helm/VERSION-HASH/helm`, where HASH changes
//! with the module.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::PathBuf,
    process::Command,
};

use anyhow::{Context, ensure};

use crate::binaries::{cache_folder, hash};

const GO_MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/helm");
const GO_MOD: &str = include_str!("../helm/go.mod");
const GO_SUM: &str = include_str!("../helm/go.sum");
const PACKAGE: &str = "helm.sh/helm/v3/cmd/helm";

/// Helm, to be given arguments; when it is not there, the error says which command makes it.
pub fn command() -> anyhow::Result<Command> {
    let program = program()?;
    ensure!(program.is_file(), "Helm is not there: run `cargo xtask setup`");
    Ok(Command::new(program))
}

/// Finds Helm or builds it, which takes some minutes once; two builds never run at a time.
pub fn build() -> anyhow::Result<PathBuf> {
    let program = program()?;
    let folder = program.parent().context("the program lies in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("making {} failed", folder.display()))?;
    let lock = File::create(folder.join("lock"))?;
    lock.lock().context("waiting for another build failed")?;
    if program.is_file() {
        return Ok(program);
    }
    writeln!(io::stderr(), "building Helm {}, which happens once", version()).ok();
    // Made aside, then renamed: a build that was interrupted leaves nothing under the final name.
    let aside = program.with_extension("building");
    let status = Command::new("go")
        .args(["build", "-trimpath", "-ldflags", "-s -w", "-o"])
        .arg(&aside)
        .arg(PACKAGE)
        .current_dir(GO_MODULE)
        .env("CGO_ENABLED", "0")
        .status()
        .context("starting `go` failed, and Helm is built with it: install Go 1.26 or later from https://go.dev/dl/")?;
    ensure!(status.success(), "`go build` in {GO_MODULE} failed ({status})");
    fs::rename(&aside, &program)?;
    Ok(program)
}

fn program() -> anyhow::Result<PathBuf> {
    let module = hash([GO_MOD, GO_SUM]);
    Ok(cache_folder()?.join("helm").join(format!("{}-{module:08x}", version())).join("helm"))
}

/// The version that the Go module asks for, like `v3.22.0`.
fn version() -> &'static str {
    let line = GO_MOD.lines().find_map(|line| line.trim().strip_prefix("helm.sh/helm/v3 "));
    line.and_then(|line| line.split_whitespace().next()).expect("go.mod requires helm.sh/helm/v3")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_go_mod() {
        assert!(version().starts_with("v3."), "{}", version());
    }
}
