//! What can go wrong around the webhook.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;

use crate::runtime::authority;

/// Why the webhook cannot start, or what it tries again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The port is taken, or the address is not ours.
    #[error("cannot listen for webhook calls on {listen}: {cause}: choose another address or port")]
    Listen { listen: SocketAddr, cause: io::Error },
    /// The client authority is not PEM, or holds no certificate.
    #[error("the client CA cannot be used: {problem}: give the PEM file that signs the API servers' certificates")]
    InvalidClientCa { problem: String },
    /// No serving name at all.
    #[error("no name to serve under: give the DNS name of the webhook's Service")]
    NoName,
    /// A certificate could not be made or used.
    #[error(transparent)]
    Certificate(#[from] portolan_certs::Error),
    /// The TLS library refused a setting.
    #[error("setting up TLS failed: {0}")]
    Tls(#[from] rustls::Error),
    /// The authority could not be read, written or published.
    #[error(transparent)]
    Authority(#[from] authority::Error),
}

impl Error {
    pub(super) fn request(doing: &'static str, what: impl Display, cause: kube::Error) -> Self {
        Self::Authority(authority::Error::request(doing, what, cause))
    }

    /// A word for events and metric labels.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Listen { .. } => "WebhookListenFailed",
            Self::InvalidClientCa { .. } => "InvalidClientCa",
            Self::NoName | Self::Certificate(portolan_certs::Error::InvalidName { .. }) => "InvalidName",
            Self::Certificate(portolan_certs::Error::EmptyBundle | portolan_certs::Error::Pem(_)) => "InvalidBundle",
            Self::Certificate(portolan_certs::Error::Make(_) | portolan_certs::Error::Tls(_)) | Self::Tls(_) => {
                "CertificateFailed"
            }
            Self::Authority(error) => error.reason(),
        }
    }
}
