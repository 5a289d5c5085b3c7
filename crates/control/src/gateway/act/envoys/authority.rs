//! The authority that signs the certificates of Envoys and of the xDS server. Only the replica that leads keeps it.

use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;
use portolan_certs::SignedCertificate;
use portolan_drivers::envoy::XDS_SERVER_NAME;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio::time::Instant;

use crate::runtime::authority::{Authority, Error, Facts, Purpose, Schedule, Store, decide};

/// The Secret with the authority, in the operator's namespace.
const SECRET: &str = "portolan-gateway-authority";
pub(in super::super::super) const PURPOSE: Purpose =
    Purpose { name: "portolan-gateway-ca", secret_type: "portolan.dev/gateway-authority", manager: "portolan-gateway" };

/// Keeps the authority and the server's certificate.
pub(super) struct Keeper {
    store: Store,
    schedule: Schedule,
    known: Option<Authority>,
    serving: Option<SignedCertificate>,
    looked: Option<Instant>,
}

impl Keeper {
    pub(super) fn new(client: Client, namespace: &str, schedule: Schedule) -> Self {
        let store = Store::new(client, namespace, SECRET, PURPOSE);
        Self { store, schedule, known: None, serving: None, looked: None }
    }

    /// Another replica may have changed it since.
    pub(super) fn look_again(&mut self) {
        self.looked = None;
    }

    /// The authority, if it is known.
    pub(super) fn known(&self) -> Option<&Authority> {
        self.known.as_ref()
    }

    /// When it is to be looked at next.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.looked.map(|looked| looked + self.schedule.poll)
    }

    /// True if this certificate, or one like it, must be signed anew.
    pub(super) fn outdates(&self, certificate: &SignedCertificate, now: Timestamp) -> bool {
        self.known.as_ref().is_some_and(|authority| authority.outdates(certificate, now))
    }

    /// Signs a certificate for the Envoy that this URI names; none while there is no authority.
    pub(super) fn sign(&self, uri: &str, now: Timestamp) -> Option<Result<SignedCertificate, portolan_certs::Error>> {
        Some(self.known.as_ref()?.current.sign_client_uri(uri, now, self.schedule.serving))
    }

    /// Reads the authority when it is time, makes or rotates it, and gives what the server is to show, if that has
    /// changed. `is_published` says whether all Envoys are given these authorities.
    pub(super) async fn keep(
        &mut self,
        now: Timestamp,
        is_published: impl Fn(&str) -> bool,
    ) -> Result<Option<Arc<ServerConfig>>, Error> {
        if self.next_look().is_some_and(|next| next > Instant::now()) {
            return Ok(None);
        }
        let found = self.store.read().await?;
        let stored = found.as_ref().and_then(|found| found.authority.as_ref());
        let facts = |authority: &Authority| Facts { published: is_published(&authority.bundle()), rotate: false };
        let works = |authority: &Authority| authority.current.works(now);
        let of_gateway = (PURPOSE, &self.schedule);
        let (authority, has_changed) = decide([stored, self.known.as_ref()], works, facts, of_gateway, now)?;
        if has_changed {
            if !self.store.write(found, &authority).await? {
                // somebody else was faster: what they wrote is read at once
                return Ok(None);
            }
            let (stage, name) = (authority.stage.name(), &authority.current.name);
            tracing::info!(stage, authority = name, "the authority of Envoys entered a stage");
        }
        let is_new = self.known.as_ref().is_none_or(|known| known.bundle() != authority.bundle());
        let serving = self.serving.as_ref().filter(|serving| !authority.outdates(serving, now));
        let tls = if is_new || serving.is_none() {
            let names = [XDS_SERVER_NAME.to_owned()];
            let serving = authority.current.sign_server(XDS_SERVER_NAME, &names, now, self.schedule.serving)?;
            let tls = server(&authority.bundle(), &serving)?;
            self.serving = Some(serving);
            Some(tls)
        } else {
            None
        };
        self.known = Some(authority);
        self.looked = Some(Instant::now());
        Ok(tls)
    }
}

/// Only clients with a certificate that one of the authorities has signed are heard.
fn server(authorities: &str, serving: &SignedCertificate) -> Result<Arc<ServerConfig>, portolan_certs::Error> {
    let provider = Arc::new(portolan_certs::provider());
    let roots = Arc::new(portolan_certs::roots(authorities)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
    let verifier = verifier.map_err(|_| portolan_certs::Error::EmptyBundle)?;
    let key = PrivateKeyDer::from_pem_slice(serving.key.as_bytes())?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![serving.der()?], key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // a session that is taken up again would keep a certificate that is no longer accepted
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
