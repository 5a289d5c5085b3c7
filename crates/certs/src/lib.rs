//! Certificates: a small certificate authority, what it signs, and whom a client certificate names.
//!
//! Everything is a value and time is an argument. An authority's name contains a part of its key, so that two of them
//! in one bundle are never confused. What is signed is verified as its clients will verify it.

mod authority;
mod identity;
mod verify;

pub use authority::{CertificateAuthority, SignedCertificate, later};
pub use identity::{Identity, uri_names};
pub use verify::{provider, roots, server_name, verify};

/// Why a certificate could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A serving name is neither a DNS name nor an address.
    #[error("`{name}` is neither a DNS name nor an IP address: no certificate can be made for it")]
    InvalidName { name: String },
    /// A bundle without a certificate.
    #[error("no certificate found in the PEM text")]
    EmptyBundle,
    /// PEM that cannot be read.
    #[error("the PEM text cannot be read: {0:?}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// A certificate or key could not be made.
    #[error("making a certificate failed: {0}")]
    Make(#[from] rcgen::Error),
    /// A certificate was refused.
    #[error("a certificate was refused: {0}")]
    Tls(#[from] rustls::Error),
}
