//! `cargo xtask crds`, `manifests` and `docs`: writes the files that are made from the binary and committed.
//!
//! A test in `crates/cli` fails while one of them is stale, and names the chore to run.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::call::{Call, root};
use crate::{Failure, tell, testkit};

const CRDS: &str = "deploy/crds";
const DEPLOY: &str = "deploy";
const REFERENCE: &str = "docs/reference/cli.md";

/// Writes one file per kind, and deletes the files of kinds that are gone.
pub(crate) fn crds() -> Result<(), Failure> {
    let call = portolan("crds --output-dir", CRDS)?;
    tell(&format!("==> {}", call.shown()));
    // the command names each file it wrote, one a line
    let written: BTreeSet<PathBuf> = call.capture()?.lines().map(|line| root().join(line)).collect();
    let folder = root().join(CRDS);
    let gone = sweep(&folder, &written).map_err(|cause| unwritable(&folder, &cause))?;
    for file in &gone {
        tell(&format!("deleted {}", file.strip_prefix(root()).unwrap_or(file).display()));
    }
    tell(&format!("{CRDS}: {} written, {} deleted", written.len(), gone.len()));
    Ok(())
}

/// Writes the roles, webhook configurations and chart values that follow from the capabilities.
pub(crate) fn manifests() -> Result<(), Failure> {
    let call = portolan("manifests --deploy", DEPLOY)?;
    tell(&format!("==> {}", call.shown()));
    call.run()
}

/// Writes the reference of the command line.
pub(crate) fn docs() -> Result<(), Failure> {
    let file = root().join(REFERENCE);
    let folder = file.parent().expect("the reference lies in a folder");
    fs::create_dir_all(folder).map_err(|cause| unwritable(folder, &cause))?;
    let call = portolan("reference --output", REFERENCE)?;
    tell(&format!("==> {}", call.shown()));
    call.run()
}

/// A call of the program as it is in this checkout.
fn portolan(words: &str, output: &str) -> Result<Call, Failure> {
    testkit::build(&["portolan"])?;
    Ok(Call::new([testkit::beside("portolan")?]).and(words.split_whitespace()).and([output]))
}

/// Deletes the YAML files in a folder that are not among those to keep, and says which.
fn sweep(folder: &Path, keep: &BTreeSet<PathBuf>) -> io::Result<BTreeSet<PathBuf>> {
    let mut gone = BTreeSet::new();
    if !folder.exists() {
        return Ok(gone);
    }
    for entry in fs::read_dir(folder)? {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension == "yaml") && !keep.contains(&file) {
            fs::remove_file(&file)?;
            gone.insert(file);
        }
    }
    Ok(gone)
}

fn unwritable(path: &Path, cause: &io::Error) -> Failure {
    let path = path.display();
    Failure::new(format!("`{path}` cannot be written: {cause}"), format!("look at its owner and mode: ls -ld {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_kinds_that_are_gone_are_deleted_and_others_stay() {
        let folder = std::env::temp_dir().join(format!("xtask-crds-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (kept, gone, other) = (folder.join("kept.yaml"), folder.join("gone.yaml"), folder.join("README.md"));
        for file in [&kept, &gone, &other] {
            fs::write(file, "").unwrap();
        }
        let swept = sweep(&folder, &BTreeSet::from([kept.clone()])).unwrap();
        let left = (kept.exists(), gone.exists(), other.exists());
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(swept, BTreeSet::from([gone]));
        assert_eq!(left, (true, false, true));
        assert!(sweep(&folder, &BTreeSet::new()).unwrap().is_empty(), "a folder that is not there holds nothing");
    }
}
