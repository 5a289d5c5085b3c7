//! Bundles of authorities, and the verification of a certificate as a TLS client does it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use crate::Error;

/// The cryptography of every TLS connection here, named so that nothing depends on a process-wide default.
pub fn provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}

/// Reads the authorities of a PEM bundle; one without any is an error.
pub fn roots(bundle: &str) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate?)?;
    }
    if roots.is_empty() {
        return Err(Error::EmptyBundle);
    }
    Ok(roots)
}

/// Verifies a serving certificate as a client that trusts `bundle` and connects to `name`.
pub fn verify(certificate: &CertificateDer<'_>, bundle: &str, name: &str, now: Timestamp) -> Result<(), Error> {
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots(bundle)?), Arc::new(provider()))
        .build()
        .map_err(|_| Error::EmptyBundle)?;
    let now = UnixTime::since_unix_epoch(since_epoch(now));
    verifier.verify_server_cert(certificate, &[], &server_name(name)?, &[], now)?;
    Ok(())
}

/// A DNS name or an address.
pub fn server_name(name: &str) -> Result<ServerName<'_>, Error> {
    ServerName::try_from(name).map_err(|_| Error::InvalidName { name: name.to_owned() })
}

pub(crate) fn since_epoch(at: Timestamp) -> Duration {
    Duration::from_secs(u64::try_from(at.as_second()).unwrap_or(0))
}
