//! The certificate authority of one API server: signs its serving certificate and the certificates of its clients.
//!
//! With a data folder it is stored there, so that a kubeconfig survives a restart.

use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use portolan_certs::{CertificateAuthority, SignedCertificate, later};

const AUTHORITY_VALIDITY: Duration = Duration::from_hours(24 * 365 * 10);
/// Validity of what the authority signs.
const VALIDITY: Duration = Duration::from_hours(24 * 365);
const AUTHORITY_FILE: &str = "ca.pem";

/// Why no certificate could be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Certificate(#[from] portolan_certs::Error),
    #[error("{path}: cannot be read or written: check its permissions, or choose another data folder")]
    File {
        path: String,
        #[source]
        cause: std::io::Error,
    },
    #[error("{path}: is not a certificate authority of this server: remove the file to have a new one made")]
    Unreadable { path: String },
}

/// The authority of an API server.
pub struct Authority(CertificateAuthority);

impl Authority {
    /// Makes a new one.
    pub fn make(now: Timestamp) -> Result<Self, Error> {
        Ok(Self(CertificateAuthority::new("portolan-ca", now, AUTHORITY_VALIDITY)?))
    }

    /// The one stored in `folder`, or a new one that is then stored there; a new one, too, when it ends within a year.
    pub fn open(folder: Option<&Path>, now: Timestamp) -> Result<Self, Error> {
        let Some(folder) = folder else { return Self::make(now) };
        let path = folder.join(AUTHORITY_FILE);
        let file = |cause| Error::File { path: path.display().to_string(), cause };
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let kept = Self::read(&text).ok_or_else(|| Error::Unreadable { path: path.display().to_string() })?;
                if later(now, VALIDITY) < kept.0.expires {
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
        &self.0.certificate
    }

    /// Signs a serving certificate for names and addresses.
    pub fn serving(&self, names: &[String], now: Timestamp) -> Result<SignedCertificate, Error> {
        Ok(self.0.sign_server("portolan-apiserver", names, now, VALIDITY)?)
    }

    /// Signs a client certificate for a user in one group.
    pub fn client(&self, name: &str, group: &str, now: Timestamp) -> Result<SignedCertificate, Error> {
        Ok(self.0.sign_client(name, Some(group), now, VALIDITY)?)
    }

    /// Name and time in two lines, then certificate and key: nothing needs to be parsed out of the certificate.
    fn to_text(&self) -> String {
        let CertificateAuthority { name, made, certificate, key, .. } = &self.0;
        format!("# name: {name}\n# made: {made}\n{certificate}{key}")
    }

    fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let name = lines.next()?.strip_prefix("# name: ")?.to_owned();
        let made = lines.next()?.strip_prefix("# made: ")?.parse().ok()?;
        let (start, end) = (text.find("-----BEGIN CERTIFICATE-----")?, text.find("-----BEGIN PRIVATE KEY-----")?);
        let (certificate, key) = (text.get(start..end)?.to_owned(), text.get(end..)?.to_owned());
        let authority = CertificateAuthority { name, made, expires: later(made, AUTHORITY_VALIDITY), certificate, key };
        authority.der().ok()?;
        Some(Self(authority))
    }
}

/// Writes a file atomically, readable by its owner only.
pub(crate) fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:08x}.tmp", fastrand::u32(..)));
    let draft = path.with_file_name(name);
    let write = || {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        // The umask may have removed bits.
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&draft, path)
    };
    write().inspect_err(|_| drop(std::fs::remove_file(&draft)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

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

        assert!(error.to_string().contains("ca.pem: is not a certificate authority of this server"), "{error}");
        assert_eq!(std::fs::read_to_string(folder.path().join(AUTHORITY_FILE)).unwrap(), "nonsense");
    }
}
