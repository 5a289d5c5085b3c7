//! The suite as a program, built once from the Go module in `conformance/kubernetes`.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::super::{go::go, progress::tell};
use crate::binaries::{cache_folder, hash, kubernetes_version};

const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/conformance/kubernetes");
const GO_MOD: &str = include_str!("../../../conformance/kubernetes/go.mod");
const GO_SUM: &str = include_str!("../../../conformance/kubernetes/go.sum");
pub(super) const PACKAGE: &str = "k8s.io/kubernetes/test/e2e";

/// Finds the suite or builds it, which takes some minutes once; two builds never run at a time.
pub(super) fn build() -> anyhow::Result<PathBuf> {
    let version = kubernetes_version();
    let folder =
        cache_folder()?.join("conformance").join(format!("kubernetes-{version}-{:08x}", hash([GO_MOD, GO_SUM])));
    fs::create_dir_all(&folder).with_context(|| format!("making {} failed", folder.display()))?;
    let lock = File::create(folder.join("lock"))?;
    lock.lock().context("waiting for another build failed")?;
    let program = folder.join("e2e.test");
    if !program.is_file() {
        tell(&format!("building {PACKAGE} {version}, which happens once and takes some minutes"));
        // Made aside, then renamed: a build that was interrupted leaves nothing under the final name.
        let aside = program.with_extension("building");
        let output = format!("-o={}", aside.display());
        go(Path::new(MODULE), &["test", "-c", "-trimpath", "-ldflags=-s -w", &output, PACKAGE])
            .with_context(|| format!("building {PACKAGE} {version} failed"))?;
        fs::rename(&aside, &program)?;
    }
    Ok(program)
}

/// What the module is that the suite is built of, as `go.sum` says it.
pub(super) fn checksum() -> &'static str {
    let begin = format!("k8s.io/kubernetes {} ", kubernetes_version());
    GO_SUM.lines().find_map(|line| line.strip_prefix(&begin)).expect("go.sum names the module")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_is_that_of_the_kubernetes_that_the_tests_run() {
        let required = format!("require k8s.io/kubernetes {}", kubernetes_version());
        assert!(GO_MOD.lines().any(|line| line == required), "conformance/kubernetes/go.mod lacks `{required}`");
        assert!(checksum().starts_with("h1:"));
    }
}
