//! The name that the binary was started under.

use std::ffi::OsString;
use std::path::Path;

/// One of the names of this binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Portolan,
    /// `kubectl portolan` runs a binary named `kubectl-portolan`.
    KubectlPlugin,
}

impl Program {
    /// From the first word of the command line.
    pub(crate) fn from_word(first: Option<&OsString>) -> Self {
        let name = first.and_then(|word| Path::new(word).file_stem());
        if name.is_some_and(|name| name == "kubectl-portolan") { Self::KubectlPlugin } else { Self::Portolan }
    }

    /// What the user types.
    pub(crate) const fn command(self) -> &'static str {
        match self {
            Self::Portolan => "portolan",
            Self::KubectlPlugin => "kubectl portolan",
        }
    }

    /// The name of the binary's file.
    pub(crate) const fn file(self) -> &'static str {
        match self {
            Self::Portolan => "portolan",
            Self::KubectlPlugin => "kubectl-portolan",
        }
    }
}
