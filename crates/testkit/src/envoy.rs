//! Where the Envoy of the tests is: `cargo xtask setup` installs it.

use std::path::PathBuf;

use anyhow::ensure;

use crate::binaries::cache_folder;

const REQUIREMENTS: &str = include_str!("envoy-requirements.txt");

/// The program; when it is not there, the error says which command installs it.
pub fn binary() -> anyhow::Result<PathBuf> {
    let home = cache_folder()?.join("envoy");
    let found = std::fs::read_to_string(home.join("requirements.txt")).unwrap_or_default();
    let program = home.join("packages/envoy/_bin/envoy");
    let is_there = found == REQUIREMENTS && program.is_file();
    ensure!(is_there, "Envoy is not there, or another version: run `cargo xtask setup`");
    Ok(program)
}
