//! The authority and the certificates that it signs.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::Error;
use crate::verify::{provider, server_name, since_epoch, verify};

/// How far a peer's clock may be behind ours without finding a certificate "not yet valid".
const CLOCK_SKEW: Duration = Duration::from_hours(1);

/// A certificate authority with its key.
#[derive(Clone)]
pub struct CertificateAuthority {
    /// The common name, made from its key: unique.
    pub name: String,
    pub made: Timestamp,
    pub expires: Timestamp,
    /// PEM.
    pub certificate: String,
    /// PEM.
    pub key: String,
}

/// A signed certificate with its key.
#[derive(Clone)]
pub struct SignedCertificate {
    /// The name of the authority that signed it.
    pub authority: String,
    pub made: Timestamp,
    pub expires: Timestamp,
    /// PEM.
    pub certificate: String,
    /// PEM.
    pub key: String,
}

impl CertificateAuthority {
    /// Makes a new authority, whose name begins with `prefix`.
    pub fn new(prefix: &str, now: Timestamp, validity: Duration) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        // The first byte means "uncompressed point" in every key.
        let id = key.public_key_raw().iter().skip(1).take(8).fold(0, |id: u64, byte| id << 8 | u64::from(*byte));
        let name = format!("{prefix}-{id:016x}");
        let expires = later(now, validity);
        let mut params = authority_params(&name);
        set_validity(&mut params, now, expires);
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { name, made: now, expires, certificate, key: key.serialize_pem() })
    }

    /// Signs a serving certificate for `names` (DNS names and addresses), and verifies it as a client will.
    pub fn sign_server(
        &self,
        common_name: &str,
        names: &[String],
        now: Timestamp,
        validity: Duration,
    ) -> Result<SignedCertificate, Error> {
        for name in names {
            server_name(name)?;
        }
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = subject(common_name);
        let signed = self.sign(params, ExtendedKeyUsagePurpose::ServerAuth, now, validity)?;
        let certificate = signed.der()?;
        for name in names {
            verify(&certificate, &self.certificate, name, now)?;
        }
        Ok(signed)
    }

    /// Signs a client certificate for a user, perhaps in a group.
    pub fn sign_client(
        &self,
        user: &str,
        group: Option<&str>,
        now: Timestamp,
        validity: Duration,
    ) -> Result<SignedCertificate, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth, now, validity)
    }

    /// Signs a client certificate for what a URI names.
    pub fn sign_client_uri(&self, uri: &str, now: Timestamp, validity: Duration) -> Result<SignedCertificate, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.subject_alt_names = vec![SanType::URI(uri.try_into()?)];
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth, now, validity)
    }

    /// Whether this authority can sign something that a client accepts: false when it is damaged or has expired.
    pub fn works(&self, now: Timestamp) -> bool {
        self.sign_server("check", &["check.invalid".to_owned()], now, CLOCK_SKEW).is_ok()
    }

    /// The certificate in DER.
    pub fn der(&self) -> Result<CertificateDer<'static>, Error> {
        Ok(CertificateDer::from_pem_slice(self.certificate.as_bytes())?)
    }

    /// When its successor should be made: after two thirds of its life.
    pub fn renew_at(&self) -> Timestamp {
        two_thirds(self.made, self.expires)
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        usage: ExtendedKeyUsagePurpose,
        now: Timestamp,
        validity: Duration,
    ) -> Result<SignedCertificate, Error> {
        let issuer = Issuer::new(authority_params(&self.name), KeyPair::from_pem(&self.key)?);
        let key = KeyPair::generate()?;
        let expires = later(now, validity).min(self.expires);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now, expires);
        let certificate = params.signed_by(&key, &issuer)?.pem();
        Ok(SignedCertificate {
            authority: self.name.clone(),
            made: now,
            expires,
            certificate,
            key: key.serialize_pem(),
        })
    }
}

impl SignedCertificate {
    /// Reads what was signed before, in PEM; none if it is damaged, or if certificate and key do not belong together.
    pub fn read(certificate: String, key: String) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(certificate.as_bytes()).ok()?;
        let (_, parsed) = X509Certificate::from_der(&der).ok()?;
        let authority = parsed.issuer().iter_common_name().last()?.as_str().ok()?.to_owned();
        let at = |seconds| Timestamp::from_second(seconds).ok();
        let validity = parsed.validity();
        let made = later(at(validity.not_before.timestamp())?, CLOCK_SKEW);
        let expires = at(validity.not_after.timestamp())?;
        let read = Self { authority, made, expires, certificate, key };
        read.certified_key().is_ok().then_some(read)
    }

    /// When its successor should be signed: after two thirds of its life.
    pub fn renew_at(&self) -> Timestamp {
        two_thirds(self.made, self.expires)
    }

    /// The certificate in DER.
    pub fn der(&self) -> Result<CertificateDer<'static>, Error> {
        Ok(CertificateDer::from_pem_slice(self.certificate.as_bytes())?)
    }

    /// Certificate and key as a TLS server uses them.
    pub fn certified_key(&self) -> Result<Arc<CertifiedKey>, Error> {
        let key = PrivatePkcs8KeyDer::from_pem_slice(self.key.as_bytes())?;
        Ok(Arc::new(CertifiedKey::from_der(vec![self.der()?], PrivateKeyDer::Pkcs8(key), &provider())?))
    }
}

/// Adds a time span, at most to the end of time.
pub fn later(from: Timestamp, span: Duration) -> Timestamp {
    from.saturating_add(span).unwrap_or(Timestamp::MAX)
}

fn two_thirds(made: Timestamp, expires: Timestamp) -> Timestamp {
    let life = Duration::try_from(expires.duration_since(made)).unwrap_or_default();
    later(made, life * 2 / 3)
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn subject(common_name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, common_name);
    names
}

fn set_validity(params: &mut CertificateParams, made: Timestamp, expires: Timestamp) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let from = made.saturating_sub(CLOCK_SKEW).unwrap_or(Timestamp::MIN);
    params.not_before = epoch + since_epoch(from);
    params.not_after = epoch + since_epoch(expires);
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn now() -> Timestamp {
        Timestamp::UNIX_EPOCH + 20_000 * DAY
    }

    #[test]
    fn a_certificate_is_good_for_its_names_and_no_other() {
        let now = now();
        let authority = CertificateAuthority::new("test", now, 365 * DAY).unwrap();
        let names = ["hooks.portolan.svc".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        let serving = authority.sign_server("test", &names, now, 90 * DAY).unwrap();
        let leaf = serving.der().unwrap();
        for name in &names {
            verify(&leaf, &authority.certificate, name, now).unwrap();
        }
        verify(&leaf, &authority.certificate, "other.portolan.svc", now).unwrap_err();
        let other = CertificateAuthority::new("test", now, 365 * DAY).unwrap();
        verify(&leaf, &other.certificate, &names[0], now).unwrap_err();
        let both = format!("{}{}", other.certificate, authority.certificate);
        verify(&leaf, &both, &names[0], now).unwrap();
        serving.certified_key().unwrap();
    }

    #[test]
    fn certificates_hold_from_an_hour_before_to_their_end_and_never_outlive_their_authority() {
        let now = now();
        let authority = CertificateAuthority::new("test", now, 60 * DAY).unwrap();
        let names = ["a.example".to_owned()];
        let serving = authority.sign_server("test", &names, now, 90 * DAY).unwrap();
        assert_eq!(serving.expires, now + 60 * DAY);
        assert_eq!(serving.renew_at(), now + 40 * DAY);
        let leaf = serving.der().unwrap();
        let check = |at| verify(&leaf, &authority.certificate, &names[0], at);
        check(now - CLOCK_SKEW).unwrap();
        check(now + 60 * DAY).unwrap();
        check(now - CLOCK_SKEW - Duration::from_secs(1)).unwrap_err();
        check(now + 60 * DAY + Duration::from_secs(1)).unwrap_err();
    }

    #[test]
    fn an_authority_whose_parts_do_not_belong_together_does_not_work() {
        let now = now();
        let good = CertificateAuthority::new("test", now, 60 * DAY).unwrap();
        assert!(good.works(now));
        let other = CertificateAuthority::new("test", now, 60 * DAY).unwrap();
        assert!(!CertificateAuthority { key: other.key.clone(), ..good.clone() }.works(now), "another's key");
        assert!(!CertificateAuthority { name: other.name, ..good.clone() }.works(now), "another's name");
        assert!(!CertificateAuthority { certificate: "garbage".to_owned(), ..good.clone() }.works(now));
        assert!(!CertificateAuthority { key: "garbage".to_owned(), ..good.clone() }.works(now));
        assert!(!good.works(now + 61 * DAY), "expired");
    }

    #[test]
    fn what_was_signed_is_read_back_unless_it_is_damaged() {
        let authority = CertificateAuthority::new("test", now(), 365 * DAY).unwrap();
        let signed = authority.sign_client_uri("egw://unit/egw-acme/web", now(), 30 * DAY).unwrap();
        let read = |certificate: &str, key: &str| SignedCertificate::read(certificate.to_owned(), key.to_owned());
        let back = read(&signed.certificate, &signed.key).unwrap();
        assert_eq!((back.authority, back.made, back.expires), (signed.authority, signed.made, signed.expires));
        let other = authority.sign_client_uri("egw://unit/egw-acme/web", now(), DAY).unwrap();
        assert!(read(&signed.certificate, &other.key).is_none(), "another's key");
        assert!(read("", &signed.key).is_none() && read(&signed.certificate, "").is_none());
    }

    #[test]
    fn a_name_that_cannot_be_served_is_an_error_that_names_it() {
        let authority = CertificateAuthority::new("test", now(), DAY).unwrap();
        let signed = authority.sign_server("test", &["not a name".to_owned()], now(), DAY);
        assert!(signed.err().unwrap().to_string().contains("not a name"));
    }
}
