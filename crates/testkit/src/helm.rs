//! Helm, for the tests of charts: built once from the Go module in `helm/`.

use std::path::PathBuf;
use std::process::Command;

use crate::go_program::GoProgram;

const HELM: GoProgram = GoProgram {
    name: "helm",
    module: "helm",
    go_mod: include_str!("../helm/go.mod"),
    go_sum: include_str!("../helm/go.sum"),
    package: "helm.sh/helm/v3/cmd/helm",
    versioned: "helm.sh/helm/v3",
    linker_flags: |_| "-s -w".to_owned(),
};

/// Helm, to be given arguments; when it is not there, the error says which command makes it.
pub fn command() -> anyhow::Result<Command> {
    Ok(Command::new(program()?))
}

/// Where Helm is.
pub fn program() -> anyhow::Result<PathBuf> {
    HELM.locate()
}

/// Finds Helm or builds it.
pub fn build() -> anyhow::Result<PathBuf> {
    HELM.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_go_mod() {
        assert!(HELM.version().starts_with("v3."), "{}", HELM.version());
    }
}
