//! Certificates: a small authority of our own and what it signs, as values; time is an argument.
//!
//! Each authority carries its own name, so that a bundle of two is never ambiguous to whoever builds a chain.
//! Nothing is parsed out of a certificate: what we need to know of it (name, times) is kept beside it, and
//! whether the two agree is settled by the strictest judge at hand, the verifier of a TLS client.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;

use super::Error;

/// How far a peer's clock may be behind ours without finding a certificate of ours "not yet valid".
const CLOCK_SKEW: Duration = Duration::from_hours(1);

/// A certificate authority with its key.
#[derive(Clone)]
pub(super) struct Ca {
    /// The common name, made from its key: unique.
    pub(super) name: String,
    pub(super) made: Timestamp,
    pub(super) expires: Timestamp,
    pub(super) certificate: String,
    pub(super) key: String,
}

/// A serving certificate with its key, which never leaves this process.
pub(super) struct Serving {
    /// The name of the authority that signed it.
    pub(super) ca: String,
    pub(super) made: Timestamp,
    pub(super) expires: Timestamp,
    pub(super) key: Arc<CertifiedKey>,
}

impl Ca {
    /// Makes a new authority.
    pub(super) fn new(now: Timestamp, validity: Duration) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        // The first byte says "uncompressed point" in every key.
        let id = key.public_key_raw().iter().skip(1).take(8).fold(0, |id: u64, byte| id << 8 | u64::from(*byte));
        let name = format!("portolan-webhook-ca-{id:016x}");
        let expires = later(now, validity);
        let mut params = ca_params(&name);
        set_validity(&mut params, now, expires);
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { name, made: now, expires, certificate, key: key.serialize_pem() })
    }

    /// Signs a certificate for `names` (DNS names and addresses), and checks it as a client will.
    pub(super) fn sign(&self, names: &[String], now: Timestamp, validity: Duration) -> Result<Serving, Error> {
        let issuer = Issuer::new(ca_params(&self.name), KeyPair::from_pem(&self.key)?);
        let key = KeyPair::generate()?;
        let expires = later(now, validity).min(self.expires);
        for name in names {
            server_name(name)?;
        }
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = common_name("portolan-webhook");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now, expires);
        let certificate = params.signed_by(&key, &issuer)?.der().clone();

        for name in names {
            verify(&certificate, &self.certificate, name, now)?;
        }
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let key = CertifiedKey::from_der(vec![certificate], key, &provider())?;
        Ok(Serving { ca: self.name.clone(), made: now, expires, key: Arc::new(key) })
    }

    /// True when this authority can sign something that a client accepts.
    pub(super) fn works(&self, now: Timestamp) -> bool {
        self.sign(&["check.invalid".to_owned()], now, CLOCK_SKEW).is_ok()
    }

    /// When its successor should be made.
    pub(super) fn renew_at(&self) -> Timestamp {
        two_thirds(self.made, self.expires)
    }
}

impl Serving {
    /// When its successor should be signed.
    pub(super) fn renew_at(&self) -> Timestamp {
        two_thirds(self.made, self.expires)
    }
}

/// The cryptography of every TLS connection here, named so that nothing depends on a process-wide default.
pub(super) fn provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}

/// Reads the authorities of a PEM bundle; one that holds none is an error.
pub(super) fn roots(bundle: &str) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate?)?;
    }
    if roots.is_empty() {
        return Err(Error::EmptyBundle);
    }
    Ok(roots)
}

/// Adds a time span, at most to the end of time.
pub(super) fn later(from: Timestamp, span: Duration) -> Timestamp {
    from.saturating_add(span).unwrap_or(Timestamp::MAX)
}

fn earlier(from: Timestamp, span: Duration) -> Timestamp {
    from.saturating_sub(span).unwrap_or(Timestamp::MIN)
}

fn two_thirds(made: Timestamp, expires: Timestamp) -> Timestamp {
    let life = Duration::try_from(expires.duration_since(made)).unwrap_or_default();
    later(made, life * 2 / 3)
}

/// Judges a certificate as a client that trusts `bundle` and asked for `name`.
pub(super) fn verify(certificate: &CertificateDer<'_>, bundle: &str, name: &str, now: Timestamp) -> Result<(), Error> {
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots(bundle)?), Arc::new(provider()))
        .build()
        .map_err(|_| Error::EmptyBundle)?;
    let now = UnixTime::since_unix_epoch(since_epoch(now));
    verifier.verify_server_cert(certificate, &[], &server_name(name)?, &[], now)?;
    Ok(())
}

pub(super) fn server_name(name: &str) -> Result<ServerName<'_>, Error> {
    ServerName::try_from(name).map_err(|_| Error::InvalidName { name: name.to_owned() })
}

fn ca_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

fn set_validity(params: &mut CertificateParams, made: Timestamp, expires: Timestamp) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since_epoch(earlier(made, CLOCK_SKEW));
    params.not_after = epoch + since_epoch(expires);
}

fn since_epoch(at: Timestamp) -> Duration {
    Duration::from_secs(u64::try_from(at.as_second()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    #[test]
    fn a_certificate_is_good_for_its_names_and_no_other() {
        let now = Timestamp::UNIX_EPOCH + 20_000 * DAY;
        let ca = Ca::new(now, 365 * DAY).unwrap();
        let names = ["hooks.portolan.svc".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        let serving = ca.sign(&names, now, 90 * DAY).unwrap();
        let leaf = serving.key.end_entity_cert().unwrap();
        for name in &names {
            verify(leaf, &ca.certificate, name, now).unwrap();
        }
        verify(leaf, &ca.certificate, "other.portolan.svc", now).unwrap_err();
        let stranger = Ca::new(now, 365 * DAY).unwrap();
        verify(leaf, &stranger.certificate, &names[0], now).unwrap_err();
        let both = format!("{}{}", stranger.certificate, ca.certificate);
        verify(leaf, &both, &names[0], now).unwrap();
    }

    #[test]
    fn certificates_hold_from_an_hour_before_to_their_end_and_never_outlive_their_authority() {
        let now = Timestamp::UNIX_EPOCH + 20_000 * DAY;
        let ca = Ca::new(now, 60 * DAY).unwrap();
        let names = ["a.example".to_owned()];
        let serving = ca.sign(&names, now, 90 * DAY).unwrap();
        assert_eq!(serving.expires, now + 60 * DAY);
        assert_eq!(serving.renew_at(), now + 40 * DAY);
        let leaf = serving.key.end_entity_cert().unwrap();
        let check = |at| verify(leaf, &ca.certificate, &names[0], at);
        check(now - CLOCK_SKEW).unwrap();
        check(now + 60 * DAY).unwrap();
        check(now - CLOCK_SKEW - Duration::from_secs(1)).unwrap_err();
        check(now + 60 * DAY + Duration::from_secs(1)).unwrap_err();
    }

    #[test]
    fn an_authority_whose_parts_do_not_belong_together_does_not_work() {
        let now = Timestamp::UNIX_EPOCH + 20_000 * DAY;
        let good = Ca::new(now, 60 * DAY).unwrap();
        assert!(good.works(now));
        let other = Ca::new(now, 60 * DAY).unwrap();
        assert!(!Ca { key: other.key.clone(), ..good.clone() }.works(now), "another's key");
        assert!(!Ca { name: other.name, ..good.clone() }.works(now), "another's name");
        assert!(!Ca { certificate: "garbage".to_owned(), ..good.clone() }.works(now));
        assert!(!Ca { key: "garbage".to_owned(), ..good.clone() }.works(now));
        assert!(!good.works(now + 61 * DAY), "expired");
    }

    #[test]
    fn a_name_that_cannot_be_served_is_an_error_that_names_it() {
        let ca = Ca::new(Timestamp::UNIX_EPOCH + 20_000 * DAY, DAY).unwrap();
        let Err(error) = ca.sign(&["not a name".to_owned()], ca.made, DAY) else { panic!("signed") };
        assert_eq!(error.reason(), "InvalidName");
        assert!(error.to_string().contains("not a name"));
    }
}
