//! One error type for the runtime: named by what failed, with a bounded reason and a class.

use std::time::Duration;

use super::{fence, reachability};

/// Who can end the trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The user must edit an object; retrying changes nothing.
    Invalid,
    /// Time may heal it: retry with backoff.
    Transient,
}

/// What can go wrong between a capability and the API server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused a request, or could not be reached before the request was sent whole.
    #[error("{what} failed: {cause}")]
    Request { what: String, cause: Box<kube::Error> },
    /// The object changed between our read and our write.
    #[error("{what}: the object changed meanwhile")]
    Conflict { what: String },
    /// Another replica leads, so nothing was sent.
    #[error("{what}: not sent, this replica does not lead")]
    NotLeading { what: String },
    /// No answer came in time: whether it was done is not known.
    #[error("{what}: no answer within {after:?}")]
    TimedOut { what: String, after: Duration },
    /// The process is stopping.
    #[error("{what}: given up, the process is stopping")]
    Stopped { what: String },
    /// An object cannot be used as it is.
    #[error("{what}: {problem}")]
    Invalid { what: String, problem: String },
}

impl Error {
    /// Sorts what a request ended with into the variants above.
    pub fn from_request(what: impl Into<String>, cause: kube::Error) -> Self {
        let what = what.into();
        if fence::refused(&cause) {
            return Self::NotLeading { what };
        }
        if matches!(&cause, kube::Error::Api(status) if status.is_conflict()) {
            return Self::Conflict { what };
        }
        Self::Request { what, cause: Box::new(cause) }
    }

    /// A word for conditions, events and metric labels.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Request { .. } => "RequestFailed",
            Self::Conflict { .. } => "Conflict",
            Self::NotLeading { .. } => "NotLeading",
            Self::TimedOut { .. } => "TimedOut",
            Self::Stopped { .. } => "Stopped",
            Self::Invalid { .. } => "Invalid",
        }
    }

    /// Whether retrying can help.
    pub const fn class(&self) -> Class {
        match self {
            Self::Invalid { .. } => Class::Invalid,
            Self::Request { .. }
            | Self::Conflict { .. }
            | Self::NotLeading { .. }
            | Self::TimedOut { .. }
            | Self::Stopped { .. } => Class::Transient,
        }
    }

    /// Whether the API server did not answer.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Request { cause, .. } if reachability::is_unreachable(cause))
    }

    /// Whether the API server does not let us.
    pub fn is_forbidden(&self) -> bool {
        let Self::Request { cause, .. } = self else { return false };
        matches!(cause.as_ref(), kube::Error::Api(status) if status.code == 403)
    }

    /// Whether the object to be made is there already.
    pub fn is_already_exists(&self) -> bool {
        let Self::Request { cause, .. } = self else { return false };
        matches!(cause.as_ref(), kube::Error::Api(status) if status.is_already_exists())
    }

    /// Whether the object of a request is gone.
    pub fn is_gone(&self) -> bool {
        let Self::Request { cause, .. } = self else { return false };
        matches!(cause.as_ref(), kube::Error::Api(status) if status.is_not_found())
    }

    /// How long the API server asked us to stay away (429 and 503 with `Retry-After`).
    pub fn retry_after(&self) -> Option<Duration> {
        let Self::Request { cause, .. } = self else { return None };
        let kube::Error::Api(status) = cause.as_ref() else { return None };
        let seconds = status.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
    }
}

/// True when the request may have been carried out although no answer arrived.
pub fn outcome_unknown(cause: &kube::Error) -> bool {
    if let kube::Error::Api(status) = cause {
        // Servers and proxies that answer so may have committed before they gave up.
        return matches!(status.code, 500 | 502 | 504);
    }
    // A write that the fence gave up while it was under way may have gone through as well.
    !fence::never_sent(cause)
}
