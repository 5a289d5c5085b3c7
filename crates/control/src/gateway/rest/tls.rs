//! The TLS side: files of a folder, read again when they change.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio_util::sync::CancellationToken;

use super::error::Error;

/// Begins the names of accounts in client certificates.
const ACCOUNT: &str = "egw://account/";

/// What is in the files.
#[derive(PartialEq, Eq)]
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
    /// Signs certificates of clients.
    authority: Option<Vec<u8>>,
}

/// The configuration for the next handshake.
pub(super) struct Tls {
    folder: PathBuf,
    files: Files,
    config: Arc<RwLock<Arc<ServerConfig>>>,
}

impl Tls {
    pub(super) fn read(folder: &Path) -> Result<Self, Error> {
        let files = Files::read(folder)?;
        let config = files.config(folder)?;
        Ok(Self { folder: folder.to_owned(), files, config: Arc::new(RwLock::new(config)) })
    }

    /// What handshakes use, always the newest.
    pub(super) fn config(&self) -> Arc<RwLock<Arc<ServerConfig>>> {
        Arc::clone(&self.config)
    }

    /// Looks at the files again and again. While they cannot be used, the last good ones stay.
    pub(super) async fn keep(mut self, every: Duration, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(every) => {}
            }
            let folder = self.folder.clone();
            let read = tokio::task::spawn_blocking(move || Files::read(&folder)).await;
            match read {
                Ok(Ok(files)) if files == self.files => {}
                Ok(Ok(files)) => {
                    match files.config(&self.folder) {
                        Ok(config) => {
                            *self.config.write() = config;
                            tracing::info!("the REST API has a new certificate");
                        }
                        Err(problem) => tracing::warn!(%problem, "the REST API keeps its certificate"),
                    }
                    self.files = files;
                }
                Ok(Err(problem)) => tracing::debug!(%problem, "the REST API keeps its certificate"),
                Err(cause) => tracing::error!(%cause, "reading the files of TLS panicked"),
            }
        }
    }
}

impl Files {
    fn read(folder: &Path) -> Result<Self, Error> {
        let file = |name: &str| {
            let file = folder.join(name);
            fs::read(&file).map_err(|cause| Error::Read { file, cause })
        };
        let authority = match file("ca.crt") {
            Err(Error::Read { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => None,
            read => Some(read?),
        };
        Ok(Self { certificate: file("tls.crt")?, key: file("tls.key")?, authority })
    }

    fn config(&self, folder: &Path) -> Result<Arc<ServerConfig>, Error> {
        let bad = |problem: String| Error::Files { folder: folder.to_owned(), problem };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<_, _>>()
            .map_err(|cause| bad(format!("tls.crt: {cause}")))?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|cause| bad(format!("tls.key: {cause}")))?;
        let provider = Arc::new(portolan_certs::provider());
        let verifier = match &self.authority {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(authority) => {
                let authority = String::from_utf8_lossy(authority);
                let roots = portolan_certs::roots(&authority).map_err(|cause| bad(format!("ca.crt: {cause}")))?;
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                    .allow_unauthenticated()
                    .build()
                    .map_err(|cause| bad(format!("ca.crt: {cause}")))?
            }
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|cause| bad(cause.to_string()))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|cause| bad(format!("tls.crt, tls.key: {cause}")))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // a session that is taken up again would keep a certificate that is no longer accepted
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }
}

/// The accounts that a client certificate names.
pub(super) fn accounts(certificate: &[u8]) -> Vec<String> {
    let names = portolan_certs::uri_names(certificate);
    names.iter().filter_map(|uri| uri.strip_prefix(ACCOUNT).map(str::to_owned)).collect()
}
