//! Why a call was of no avail, and what that means for what comes next.

use std::time::Duration;

use http::StatusCode;
use serde_json::Value;

/// A call that was of no avail.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GatewayError {
    /// Nothing was asked: there is no connection.
    #[error("the gateway cannot be reached: {0}")]
    Unreachable(String),
    /// Asked; whether it had an effect is not known.
    #[error("the gateway did not answer in time")]
    TimedOut,
    /// Asked; whether it had an effect is not known.
    #[error("the gateway closed the connection: {0}")]
    ConnectionLost(String),
    /// What was answered is not of this API.
    #[error("the gateway sent an invalid response: {0}")]
    InvalidResponse(String),
    /// Refused, with the gateway's own text.
    #[error("the gateway answered {status}: {message}")]
    Rejected {
        /// HTTP status.
        status: u16,
        /// The gateway's word for it; none if the answer is not one of a gateway.
        reason: Option<String>,
        /// What it says about it.
        message: String,
        /// How long to stay away.
        retry_after: Option<Duration>,
    },
}

impl GatewayError {
    /// What an answer says that is no success.
    pub(super) fn refused(status: StatusCode, body: Option<&Value>, retry_after: Option<Duration>) -> Self {
        let text = |key: &str| body.and_then(|body| body[key].as_str()).map(quoted);
        let message = text("error").or_else(|| text("message"));
        // The original has an error without a reason.
        let reason =
            text("reason").filter(|reason| is_word(reason)).or_else(|| message.as_ref().map(|_| String::new()));
        let unspoken =
            || format!("{}, without the error of a gateway", status.canonical_reason().unwrap_or("no reason"));
        Self::Rejected { status: status.as_u16(), reason, message: message.unwrap_or_else(unspoken), retry_after }
    }

    /// The gateway says that there is no such object. Something in front of it that answers 404 does not count.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Rejected { status: 404, reason: Some(_), .. })
    }

    /// There is an object of that name already.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Rejected { status: 409, .. })
    }

    /// Whether the gateway may have done what it was asked for.
    pub fn outcome_unknown(&self) -> bool {
        match self {
            Self::Unreachable(_) => false,
            Self::TimedOut | Self::ConnectionLost(_) | Self::InvalidResponse(_) => true,
            Self::Rejected { status, .. } => *status >= 500 || matches!(status, 404 | 409 | 412),
        }
    }

    /// Whether any other call would fail in the same way now: nobody is there, nobody is let in, or all are asked to
    /// wait. An error of one load balancer is none of these.
    pub fn concerns_all(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::TimedOut | Self::ConnectionLost(_) | Self::InvalidResponse(_) => false,
            Self::Rejected { status, .. } => matches!(status, 401 | 429) || self.is_foreign_account(),
        }
    }

    fn is_foreign_account(&self) -> bool {
        matches!(self, Self::Rejected { status: 403, reason, .. } if reason.as_deref() != Some("QuotaExceeded"))
    }

    /// How long the gateway asked us to stay away.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Rejected { retry_after, .. } => *retry_after,
            Self::Unreachable(_) | Self::TimedOut | Self::ConnectionLost(_) | Self::InvalidResponse(_) => None,
        }
    }

    /// The word for conditions and events.
    pub fn reason(&self) -> &str {
        match self {
            Self::Unreachable(_) | Self::ConnectionLost(_) => "GatewayUnreachable",
            Self::TimedOut => "GatewayTimeout",
            Self::InvalidResponse(_) => "InvalidResponse",
            Self::Rejected { status: 401, .. } => "LoginRefused",
            Self::Rejected { .. } if self.is_foreign_account() => "LoginRefused",
            Self::Rejected { status: 429, .. } => "TooManyRequests",
            Self::Rejected { reason: Some(reason), .. } if !reason.is_empty() => reason,
            Self::Rejected { status, .. } if *status >= 500 => "GatewayUnavailable",
            Self::Rejected { .. } => "GatewayRefused",
        }
    }

    /// The word for metrics, of a bounded set.
    pub fn result(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "Unreachable",
            Self::TimedOut => "TimedOut",
            Self::ConnectionLost(_) => "ConnectionLost",
            Self::InvalidResponse(_) => "InvalidResponse",
            Self::Rejected { status: 401 | 403, .. } => "Forbidden",
            Self::Rejected { status: 429, .. } => "TooManyRequests",
            Self::Rejected { status, .. } if *status >= 500 => "Unavailable",
            Self::Rejected { .. } => "Rejected",
        }
    }
}

/// Reasons of conditions are words.
fn is_word(text: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric();
    text.len() <= 64 && text.starts_with(|letter: char| letter.is_ascii_alphabetic()) && text.chars().all(is_letter)
}

/// Text of another party: no control characters, and not too long.
fn quoted(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(256).collect()
}
