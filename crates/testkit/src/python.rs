//! Python with the published client of Kubernetes and kopf: `cargo xtask setup` installs the packages.

use std::path::PathBuf;

use anyhow::ensure;

use crate::binaries::cache_folder;

const REQUIREMENTS: &str = include_str!("python-requirements.txt");

/// The folder for `PYTHONPATH`; when the packages are not there, the error says which command installs them.
pub fn packages() -> anyhow::Result<PathBuf> {
    let home = cache_folder()?.join("python");
    let found = std::fs::read_to_string(home.join("requirements.txt")).unwrap_or_default();
    ensure!(found == REQUIREMENTS, "Python's packages are not there, or other versions: run `cargo xtask setup`");
    Ok(home.join("packages"))
}
