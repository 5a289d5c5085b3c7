//! Whom a webhook's certificate must come from, and Go's words for one that does not.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// A TLS client that trusts the certificates of `bundle`, in PEM, and nothing else.
pub(super) fn client(bundle: &[u8]) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let trusted: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok).map(CertificateDer::into_owned).collect();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted.iter().cloned());
    // A verifier without roots cannot be built; one that trusts nobody can.
    let chains = if roots.is_empty() {
        None
    } else {
        let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        Some(builder.build().map_err(|error| error.to_string())?)
    };
    let verifier = Arc::new(Bundle { chains, trusted, provider: Arc::clone(&provider) });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(config)
}

/// Go's words for a failed handshake with `host`.
pub(super) fn text(host: &str, error: &std::io::Error) -> String {
    let Some(Error::InvalidCertificate(fault)) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else {
        let closed = error.kind() == std::io::ErrorKind::UnexpectedEof;
        return if closed { "EOF".to_owned() } else { format!("tls: {error}") };
    };
    let why = if let CertificateError::NotValidForNameContext { presented, .. } = fault {
        name_fault(host, presented)
    } else if matches!(fault, CertificateError::Expired | CertificateError::ExpiredContext { .. }) {
        "certificate has expired or is not yet valid".to_owned()
    } else {
        "certificate signed by unknown authority".to_owned()
    };
    format!("tls: failed to verify certificate: x509: {why}")
}

/// `presented` are names such as `DnsName("a.example")` and `IpAddress(10.0.0.1)`.
fn name_fault(host: &str, presented: &[String]) -> String {
    let inner = |name: &String| name.split_once('(').map(|(_, name)| name.trim_matches(['"', ')']).to_owned());
    let is_address = host.parse::<std::net::IpAddr>().is_ok();
    let kind = if is_address { "IpAddress" } else { "DnsName" };
    let names: Vec<String> = presented.iter().filter(|name| name.starts_with(kind)).filter_map(inner).collect();
    match (is_address, names.is_empty()) {
        (true, true) => format!("cannot validate certificate for {host} because it doesn't contain any IP SANs"),
        (false, true) => format!("certificate is not valid for any names, but wanted to match {host}"),
        (_, false) => format!("certificate is valid for {}, not {host}", names.join(", ")),
    }
}

/// Trusts chains to a bundle's authorities and, as Go does, a certificate that is itself in the bundle.
#[derive(Debug)]
struct Bundle {
    chains: Option<Arc<WebPkiServerVerifier>>,
    trusted: Vec<CertificateDer<'static>>,
    provider: Arc<rustls::crypto::CryptoProvider>,
}

impl ServerCertVerifier for Bundle {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chains) = &self.chains else {
            return Err(Error::InvalidCertificate(CertificateError::UnknownIssuer));
        };
        let verdict = chains.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verdict {
            // An authority's own certificate used for serving: common for webhooks, and refused by webpki alone.
            Err(Error::InvalidCertificate(CertificateError::Other(_)))
                if self.trusted.iter().any(|trusted| trusted.as_ref() == end_entity.as_ref()) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
