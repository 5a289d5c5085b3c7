//! TLS for the API's own server: its certificate, and the authority that clients' certificates are checked by.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

/// What TLS needs, as files.
#[derive(Debug, Clone)]
pub(super) struct TlsFiles<'a> {
    pub(super) certificate: &'a Path,
    pub(super) key: &'a Path,
    pub(super) client_authority: Option<&'a Path>,
    /// Clients may come with a token instead of a certificate.
    pub(super) or_token: bool,
}

/// Reads the files into a configuration.
pub(super) fn server(files: &TlsFiles<'_>) -> io::Result<Arc<ServerConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let builder = match files.client_authority {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| named(path, error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = if files.or_token { verifier.allow_unauthenticated() } else { verifier };
            builder.with_client_cert_verifier(verifier.build().map_err(|error| named(path, error))?)
        }
    };
    let key = PrivateKeyDer::from_pem_file(files.key).map_err(|error| named(files.key, error))?;
    let mut config = builder
        .with_single_cert(certificates(files.certificate)?, key)
        .map_err(|error| named(files.certificate, error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| named(path, error))?;
    let all = read.collect::<Result<Vec<_>, _>>().map_err(|error| named(path, error))?;
    if all.is_empty() { Err(named(path, "no certificate in it")) } else { Ok(all) }
}

fn named(path: &Path, error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}
