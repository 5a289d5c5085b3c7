//! How a command ends: an exit code that scripts can rely on, and words for the person who has to act.

/// The answer of a command, as its exit code gives it.
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
            Self::Yes => "yes: it was done, or it is so",
            Self::No => "no: unhealthy, would change, not found, or it failed",
            Self::Usage => "the command cannot be run as given, or is not built in",
            Self::Unreachable => "the cluster cannot be reached",
        }
    }
}

/// A command that did not end well.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// What is said to the user: what and why, and a command to paste.
    Told { exit: Exit, what: String, hint: String },
    /// Whoever read our output has seen enough, as `head` does: that is success.
    ReaderGone,
}

impl Failure {
    pub(crate) fn new(exit: Exit, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Told { exit, what: what.into(), hint: hint.into() }
    }

    /// A command that this version explains but does not hold.
    pub(crate) fn not_built_in(what: &str, program: crate::cli::Program) -> Self {
        let hint = format!("see what this version serves: {} --version", program.spoken());
        Self::new(Exit::Usage, format!("{what} not built into this version yet"), hint)
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
