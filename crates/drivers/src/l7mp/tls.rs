//! TLS to proxies: whom we trust, and who we are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// What TLS to proxies needs, as files in PEM.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// Authorities that sign the certificates of proxies.
    pub ca: PathBuf,
    /// Our certificate, for proxies that ask for one.
    pub client: Option<ClientCertificate>,
}

/// A client certificate, as files in PEM.
#[derive(Debug, Clone)]
pub struct ClientCertificate {
    /// The certificate chain.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", file.display())]
pub struct TlsFileError {
    file: PathBuf,
    problem: Problem,
}

type Problem = Box<dyn std::error::Error + Send + Sync>;

impl TlsFiles {
    /// Reads the files.
    pub fn read(&self) -> Result<Arc<ClientConfig>, TlsFileError> {
        let Self { ca, client } = self;
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca)? {
            roots.add(certificate).map_err(|error| bad(ca, error))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(ca, error))?
            .with_root_certificates(roots);
        let config = match client {
            None => builder.with_no_client_auth(),
            Some(ClientCertificate { certificate, key }) => {
                let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, error))?;
                let chain = certificates(certificate)?;
                builder.with_client_auth_cert(chain, secret).map_err(|error| bad(certificate, error))?
            }
        };
        Ok(Arc::new(config))
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let read = CertificateDer::pem_file_iter(file).map_err(|error| bad(file, error))?;
    let all = read.collect::<Result<Vec<_>, _>>().map_err(|error| bad(file, error))?;
    if all.is_empty() { Err(bad(file, "there is no certificate in it")) } else { Ok(all) }
}

fn bad(file: &Path, problem: impl Into<Problem>) -> TlsFileError {
    TlsFileError { file: file.to_owned(), problem: problem.into() }
}
