//! Calls and what goes wrong with them.

use std::time::{Duration, Instant};

/// A call that came in.
#[derive(Debug, Clone)]
pub struct Ec2Call {
    /// The action.
    pub action: String,
    /// All parameters, ordered by name.
    pub parameters: Vec<(String, String)>,
    /// How it ended.
    pub answered: Answered,
    /// When it was answered.
    pub at: Instant,
}

impl Ec2Call {
    /// The value of a parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// True if it changes something.
    pub fn is_write(&self) -> bool {
        !self.action.starts_with("Describe")
    }
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answered {
    /// It was done.
    Ok,
    /// It was refused with this code.
    Refused(String),
    /// The connection was cut.
    Cut,
}

/// What goes wrong with a call.
#[derive(Debug, Clone)]
pub enum Ec2Fault {
    /// Not done, and the connection is cut.
    CutBefore,
    /// Done, and the connection is cut instead of an answer.
    CutAfterCommit,
    /// Done and answered, and then the connection is cut.
    CutAfterAnswer,
    /// Not done; answered with this status and something that is no XML.
    Status(u16),
    /// Not done; answered with this error.
    Error {
        /// The status.
        status: u16,
        /// The code.
        code: &'static str,
        /// The message.
        message: String,
    },
    /// Done; answered later.
    Slow(Duration),
}
