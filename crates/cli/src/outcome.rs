//! How a command ends: an exit code that scripts can rely on, and an error message with a hint.

use crate::program::Program;

/// The result of a command, as an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Yes,
    No,
    Usage,
    Unreachable,
}

impl Exit {
    pub(crate) const ALL: [Self; 4] = [Self::Yes, Self::No, Self::Usage, Self::Unreachable];

    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Yes => 0,
            Self::No => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
        }
    }

    /// What the code means, for help and reference.
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::Yes => "yes: done, healthy, found, or nothing would change",
            Self::No => "no: failed, unhealthy, not found, or something would change",
            Self::Usage => "usage: the command cannot be run as given, or is not built in",
            Self::Unreachable => "unreachable: the cluster does not respond",
        }
    }
}

/// A command that did not end well.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// An error message: what and why, and a hint.
    Error { exit: Exit, what: String, hint: String },
    /// The reader of our output closed it, as `head` does: that is success.
    BrokenPipe,
}

impl Failure {
    pub(crate) fn new(exit: Exit, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Error { exit, what: what.into(), hint: hint.into() }
    }

    /// A command that this version documents but does not implement.
    pub(crate) fn not_built_in(what: &str, program: Program) -> Self {
        let hint = format!("see what this version has: {} --version", program.command());
        Self::new(Exit::Usage, format!("{what} not part of this version"), hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_distinct_and_stay() {
        assert_eq!(Exit::ALL.map(Exit::code), [0, 1, 2, 3]);
    }
}
