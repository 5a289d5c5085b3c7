//! What can go wrong around an authority.

use std::fmt::Display;

use crate::runtime::reachability;

/// What is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A certificate could not be made or used.
    #[error(transparent)]
    Certificate(#[from] portolan_certs::Error),
    /// The stage of a rotation could not be written down.
    #[error("recording the rotation failed: {cause}")]
    Record { cause: serde_json::Error },
    /// The Secret holds something else.
    #[error("{what} holds something that is not ours: name another Secret, or delete this one")]
    ForeignSecret { what: String },
    /// A request to the API server failed.
    #[error("{doing} {what} failed: {cause}")]
    Request { doing: &'static str, what: String, cause: Box<kube::Error> },
}

impl Error {
    pub(in crate::runtime) fn request(doing: &'static str, what: impl Display, cause: kube::Error) -> Self {
        Self::Request { doing, what: what.to_string(), cause: Box::new(cause) }
    }

    /// Whether the API server did not answer.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Request { cause, .. } if reachability::is_unreachable(cause))
    }

    /// A word for events and metric labels.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Certificate(portolan_certs::Error::InvalidName { .. }) => "InvalidName",
            Self::Certificate(portolan_certs::Error::EmptyBundle | portolan_certs::Error::Pem(_)) => "InvalidBundle",
            Self::Certificate(portolan_certs::Error::Make(_) | portolan_certs::Error::Tls(_)) | Self::Record { .. } => {
                "CertificateFailed"
            }
            Self::ForeignSecret { .. } => "ForeignSecret",
            Self::Request { .. } => "RequestFailed",
        }
    }
}
