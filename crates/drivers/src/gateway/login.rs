//! Who we are, and whom we trust.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// How to be let in.
#[derive(Clone, PartialEq, Eq)]
pub enum Login {
    /// HTTP Basic.
    Basic {
        /// Name of the user.
        username: String,
        /// Its password.
        password: String,
    },
    /// A bearer token.
    Token(String),
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Basic { username, password: _ } => write!(f, "Basic({username}, ***)"),
            Self::Token(_) => f.write_str("Token(***)"),
        }
    }
}

/// A login that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// It has characters that no header can have.
    #[error("the login has control characters: remove line breaks from it")]
    Unprintable,
    /// A user name ends where the first colon is.
    #[error("the user name has a colon, which HTTP Basic does not allow")]
    Colon,
    /// The certificates cannot be used.
    #[error("ca.crt cannot be used: {0}")]
    Authority(String),
}

impl Login {
    /// The value of `Authorization`.
    pub(super) fn header(&self) -> Result<HeaderValue, LoginError> {
        let text = match self {
            Self::Basic { username, .. } if username.contains(':') => return Err(LoginError::Colon),
            Self::Basic { username, password } => {
                format!("Basic {}", STANDARD.encode(format!("{username}:{password}")))
            }
            Self::Token(token) => format!("Bearer {token}"),
        };
        let mut value = HeaderValue::from_str(&text).map_err(|_| LoginError::Unprintable)?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// Trusts these authorities, or the public ones.
pub(super) fn tls(ca: Option<&[u8]>) -> Result<Arc<ClientConfig>, LoginError> {
    let bad = |problem: &dyn fmt::Display| LoginError::Authority(problem.to_string());
    let mut roots = RootCertStore::empty();
    match ca {
        None => roots.roots = webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|problem| bad(&problem))?;
                roots.add(certificate).map_err(|problem| bad(&problem))?;
            }
            if roots.is_empty() {
                return Err(bad(&"there is no certificate in it"));
            }
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|problem| bad(&problem))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
