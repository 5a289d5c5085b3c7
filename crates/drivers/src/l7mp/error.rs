//! Why a call was of no avail, and what that means for what comes next.

use http::StatusCode;
use serde_json::Value;

/// A call that was of no avail.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CallError {
    /// Nothing was asked: there is no connection.
    #[error("cannot be reached: {0}")]
    Unreachable(String),
    /// Not asked: another replica leads.
    #[error("is programmed by another replica")]
    NotLeading,
    /// Refused: the proxy has been programmed in a later term, by another leader.
    #[error("is programmed by another operator, in term {0}")]
    LaterTerm(u64),
    /// Asked; whether it had an effect is not known.
    #[error("did not answer in time")]
    TimedOut,
    /// Asked; whether it had an effect is not known.
    #[error("closed the connection: {0}")]
    ConnectionLost(String),
    /// What was answered is not of this API.
    #[error("sent an invalid response: {0}")]
    InvalidResponse(&'static str),
    /// Refused, with the proxy's own text.
    #[error("answered {status}: {content}")]
    Rejected {
        /// HTTP status.
        status: StatusCode,
        /// What the proxy says about it.
        content: String,
    },
}

impl CallError {
    /// Refused with this status, in words taken from the answer's body.
    pub(super) fn refused(status: StatusCode, body: &Value) -> Self {
        let said = [&body["content"], &body["message"]].into_iter().find(|said| !said.is_null());
        let content = match said {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => status.canonical_reason().unwrap_or("no reason given").to_owned(),
        };
        Self::Rejected { status, content }
    }

    /// An add found something of that name: compare it, it may be another thing.
    pub fn is_already_defined(&self) -> bool {
        self.content().is_some_and(|content| content.ends_with(" already defined"))
    }

    /// A delete found nothing: there is nothing left to do.
    pub fn is_not_found(&self) -> bool {
        self.content().is_some_and(|content| {
            content == "Not Found"
                || content == "Unknown API operation"
                || content.starts_with("No such ")
                || content.starts_with("Unknown ")
                || content.contains(": Unknown ")
        })
    }

    /// A recursive delete met a session that never got a route; it works without `recursive`.
    pub fn is_stale_session(&self) -> bool {
        self.content().is_some_and(|content| content.contains("(reading 'origin')"))
    }

    /// Who asks is not let in.
    pub fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Rejected { status: StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, .. })
    }

    /// The configuration changed under a change that was built on an older one.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Rejected { status: StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED, .. })
    }

    fn content(&self) -> Option<&str> {
        match self {
            Self::Rejected { content, .. } => Some(content),
            Self::Unreachable(_)
            | Self::NotLeading
            | Self::LaterTerm(_)
            | Self::TimedOut
            | Self::ConnectionLost(_)
            | Self::InvalidResponse(_) => None,
        }
    }
}
