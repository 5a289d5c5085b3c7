//! The oldest kubectl that the README promises: built once from the Go module in `kubectl/`. The newest is among the
//! [`Binaries`](crate::Binaries).

use std::path::PathBuf;

use crate::binaries::linker_flags;
use crate::go_program::GoProgram;

const KUBECTL: GoProgram = GoProgram {
    name: "kubectl",
    module: "kubectl",
    go_mod: include_str!("../kubectl/go.mod"),
    go_sum: include_str!("../kubectl/go.sum"),
    package: ".",
    versioned: "k8s.io/kubectl",
    linker_flags: |version| linker_flags(&of_kubernetes(version)),
};

/// Where it is; when it is not there, the error says which command makes it.
pub fn program() -> anyhow::Result<PathBuf> {
    KUBECTL.locate()
}

/// Finds it or builds it.
pub fn build() -> anyhow::Result<PathBuf> {
    KUBECTL.build()
}

/// Its minor version, like 1.29, as the README names it.
pub fn minor() -> String {
    let version = of_kubernetes(KUBECTL.version());
    version.trim_start_matches('v').split('.').take(2).collect::<Vec<_>>().join(".")
}

/// The version of a program: modules of Kubernetes have 0 where its programs have 1.
fn of_kubernetes(version: &str) -> String {
    version.replacen("v0.", "v1.", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_oldest_that_the_readme_promises() {
        let readme = include_str!("../../../README.md");
        assert!(readme.contains(&format!("kubectl {} or newer", minor())), "{}", minor());
    }
}
