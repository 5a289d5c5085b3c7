//! The certificate authority of one API server: signs its serving certificate and the certificates of its clients.
//!
//! With a data folder it is stored there, so that a kubeconfig survives a restart. Its name contains a part of its key,
//! so that two authorities are never confused.

use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

const DAY: Duration = Duration::from_hours(24);
const AUTHORITY_VALIDITY: Duration = Duration::from_hours(24 * 365 * 10);
/// Validity of what the authority signs.
const VALIDITY: Duration = Duration::from_hours(24 * 365);
/// How far a peer's clock may be behind ours.
const CLOCK_SKEW: Duration = Duration::from_hours(1);
const AUTHORITY_FILE: &str = "ca.pem";

/// Why no certificate could be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("making a certificate failed")]
    Make(#[from] rcgen::Error),
    #[error("{path}: cannot be read or written: check its permissions, or choose another data folder")]
    File {
        path: String,
        #[source]
        cause: std::io::Error,
    },
    #[error("{path}: is no certificate authority of ours: remove the file to have a new one made")]
    Unreadable { path: String },
    #[error("the TLS library refused a certificate")]
    Tls(#[from] rustls::Error),
}

/// An authority with its key.
pub struct Authority {
    name: String,
    certificate: String,
    key: KeyPair,
    made: Timestamp,
}

/// A certificate with its key, in PEM.
#[derive(Clone)]
pub struct Signed {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    /// Makes a new one.
    pub fn make(now: Timestamp) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        // The first byte says "uncompressed point" in every key.
        let id = key.public_key_raw().iter().skip(1).take(8).fold(0, |id: u64, byte| id << 8 | u64::from(*byte));
        let name = format!("portolan-ca-{id:016x}");
        let mut params = authority_params(&name);
        set_validity(&mut params, now, later(now, AUTHORITY_VALIDITY));
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { name, certificate, key, made: now })
    }

    /// The one kept in `folder`, or a new one that is then kept there; a new one, too, when it ends within a year.
    pub fn open(folder: Option<&Path>, now: Timestamp) -> Result<Self, Error> {
        let Some(folder) = folder else { return Self::make(now) };
        let path = folder.join(AUTHORITY_FILE);
        let file = |cause| Error::File { path: path.display().to_string(), cause };
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let kept = Self::read(&text).ok_or_else(|| Error::Unreadable { path: path.display().to_string() })?;
                if later(now, VALIDITY) < later(kept.made, AUTHORITY_VALIDITY) {
                    return Ok(kept);
                }
            }
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {
                std::fs::create_dir_all(folder).map_err(file)?;
            }
            Err(cause) => return Err(file(cause)),
        }
        let authority = Self::make(now)?;
        write_private(&path, &authority.to_text()).map_err(file)?;
        Ok(authority)
    }

    /// The certificate in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Signs a serving certificate for names and addresses.
    pub fn serving(&self, names: &[String], now: Timestamp) -> Result<Signed, Error> {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, "portolan-apiserver");
        self.sign(params, ExtendedKeyUsagePurpose::ServerAuth, now)
    }

    /// Signs a client certificate for a user in one group.
    pub fn client(&self, name: &str, group: &str, now: Timestamp) -> Result<Signed, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, group);
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth, now)
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        usage: ExtendedKeyUsagePurpose,
        now: Timestamp,
    ) -> Result<Signed, Error> {
        let key = KeyPair::generate()?;
        let issuer = Issuer::new(authority_params(&self.name), &self.key);
        let expires = later(now, VALIDITY).min(later(self.made, AUTHORITY_VALIDITY));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now, expires);
        Ok(Signed { certificate: params.signed_by(&key, &issuer)?.pem(), key: key.serialize_pem() })
    }

    /// Name and time in two lines, then certificate and key: nothing needs to be parsed out of the certificate.
    fn to_text(&self) -> String {
        format!("# name: {}\n# made: {}\n{}{}", self.name, self.made, self.certificate, self.key.serialize_pem())
    }

    fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let name = lines.next()?.strip_prefix("# name: ")?.to_owned();
        let made = lines.next()?.strip_prefix("# made: ")?.parse().ok()?;
        let (start, end) = (text.find("-----BEGIN CERTIFICATE-----")?, text.find("-----BEGIN PRIVATE KEY-----")?);
        let certificate = text.get(start..end)?.to_owned();
        CertificateDer::from_pem_slice(certificate.as_bytes()).ok()?;
        Some(Self { name, certificate, key: KeyPair::from_pem(text.get(end..)?).ok()?, made })
    }
}

impl Signed {
    /// The certificate in DER.
    pub fn der(&self) -> Result<CertificateDer<'static>, Error> {
        let unreadable = |_| Error::Unreadable { path: "certificate".to_owned() };
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).map_err(unreadable)
    }

    pub(crate) fn certified(&self) -> Result<Arc<CertifiedKey>, Error> {
        let unreadable = |_| Error::Unreadable { path: "key".to_owned() };
        let key = PrivatePkcs8KeyDer::from_pem_slice(self.key.as_bytes()).map_err(unreadable)?;
        let provider = rustls::crypto::ring::default_provider();
        Ok(Arc::new(CertifiedKey::from_der(vec![self.der()?], PrivateKeyDer::Pkcs8(key), &provider)?))
    }
}

/// Writes a file that only its owner can read, whole or not at all.
pub(crate) fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:08x}.tmp", fastrand::u32(..)));
    let draft = path.with_file_name(name);
    let write = || {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        // The process' mask may have taken bits away; it cannot have added any.
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&draft, path)
    };
    write().inspect_err(|_| drop(std::fs::remove_file(&draft)))
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params
}

fn set_validity(params: &mut CertificateParams, now: Timestamp, expires: Timestamp) {
    let date = |timestamp: Timestamp| {
        let date = timestamp.to_zoned(jiff::tz::TimeZone::UTC);
        // Months and days of a calendar date are small and positive.
        rcgen::date_time_ymd(i32::from(date.year()), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    // Dates without a time: a day earlier, a day later.
    params.not_before = date(now.saturating_sub(CLOCK_SKEW).unwrap_or(now));
    params.not_after = date(later(expires, DAY));
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.saturating_add(by).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_kept_in_its_folder_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let now = Timestamp::now();

        let first = Authority::open(Some(folder.path()), now).unwrap();
        let second = Authority::open(Some(folder.path()), later(now, 300 * DAY)).unwrap();

        assert_eq!(first.certificate(), second.certificate());
        let mode = std::fs::metadata(folder.path().join(AUTHORITY_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let late = Authority::open(Some(folder.path()), later(now, 3500 * DAY)).unwrap();
        assert_ne!(first.certificate(), late.certificate(), "one that ends soon is replaced");
    }

    #[test]
    fn a_broken_file_is_named_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(AUTHORITY_FILE), "nonsense").unwrap();

        let error = Authority::open(Some(folder.path()), Timestamp::now()).err().unwrap();

        assert!(error.to_string().contains("ca.pem: is no certificate authority of ours"), "{error}");
        assert_eq!(std::fs::read_to_string(folder.path().join(AUTHORITY_FILE)).unwrap(), "nonsense");
    }
}
