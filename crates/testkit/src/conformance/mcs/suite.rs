//! The suite as a program, built once, and what comes with its module.
//!
//! The Go module in `conformance/mcs` names the versions. It is copied to the cache folder and built there with
//! `-mod=mod`: `go.sum` lacks the suite's own lines, and Go adds them from its checksum database.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};

use super::super::{go::go, progress::tell};
use crate::binaries::{cache_folder, hash};

const GO_MOD: &str = include_str!("../../../conformance/mcs/go.mod");
const GO_SUM: &str = include_str!("../../../conformance/mcs/go.sum");
const API: &str = "sigs.k8s.io/mcs-api";
/// Both the module and its only package.
pub(super) const PACKAGE: &str = "sigs.k8s.io/mcs-api/conformance";

/// The suite, ready to run.
#[derive(Debug)]
pub(super) struct Suite {
    pub(super) program: PathBuf,
    /// The definitions of `ServiceExport` and `ServiceImport`, as upstream has them.
    pub(super) definitions: [PathBuf; 2],
    /// What the module was when it was built, as `go.sum` says it.
    pub(super) checksum: String,
}

impl Suite {
    /// Finds the suite or builds it, which takes a minute or two once; two builds never run at a time.
    pub(super) fn build() -> anyhow::Result<Self> {
        let folder =
            cache_folder()?.join("conformance").join(format!("mcs-{}-{:08x}", version(), hash([GO_MOD, GO_SUM])));
        fs::create_dir_all(&folder).with_context(|| format!("making {} failed", folder.display()))?;
        let lock = File::create(folder.join("lock"))?;
        lock.lock().context("waiting for another build failed")?;
        let program = folder.join("mcs.test");
        if !program.is_file() {
            tell(&format!("building {PACKAGE} {}, which happens once", version()));
            fs::write(folder.join("go.mod"), GO_MOD)?;
            fs::write(folder.join("go.sum"), GO_SUM)?;
            // Made aside, then renamed: a build that was interrupted leaves nothing under the final name.
            let aside = program.with_extension("building");
            let output = format!("-o={}", aside.display());
            go(&folder, &["test", "-c", "-mod=mod", "-trimpath", &output, PACKAGE]).with_context(|| {
                format!("building {PACKAGE} {} failed: does the Go module proxy in GOPROXY have it?", version())
            })?;
            fs::rename(&aside, &program)?;
        }
        let api = go(&folder, &["list", "-mod=mod", "-m", "-f={{.Dir}}", API])?;
        let definitions = ["serviceexports", "serviceimports"]
            .map(|kind| Path::new(api.trim()).join("config/crd").join(format!("multicluster.x-k8s.io_{kind}.yaml")));
        for definition in &definitions {
            ensure!(definition.is_file(), "{API} has no {}", definition.display());
        }
        let checksum = checksum(&fs::read_to_string(folder.join("go.sum"))?).context("go.sum names the suite")?;
        Ok(Self { program, definitions, checksum })
    }
}

/// The version of the suite, like `v0.5.0`: its tag is `conformance/` and that.
pub(super) fn version() -> &'static str {
    required(PACKAGE)
}

fn required(module: &str) -> &'static str {
    let mut words = GO_MOD.lines().map(|line| line.split_whitespace());
    let line = words.find_map(|mut words| if words.next() == Some(module) { words.next() } else { None });
    line.expect("go.mod requires both modules")
}

fn checksum(go_sum: &str) -> Option<String> {
    let begin = format!("{PACKAGE} {} ", version());
    go_sum.lines().find_map(|line| line.strip_prefix(&begin)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_checksums_are_read_from_the_module() {
        assert!(version().starts_with('v') && required(API).starts_with('v'));
        let begin = format!("{PACKAGE} {}", version());
        let go_sum = format!("{API} v0 h1:a=\n{begin}/go.mod h1:b=\n{begin} h1:c=\n");
        assert_eq!(checksum(&go_sum).as_deref(), Some("h1:c="));
        assert_eq!(checksum(&format!("{begin}/go.mod h1:b=\n")), None);
    }
}
