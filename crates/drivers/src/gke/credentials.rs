//! Google credentials, as key files have them.

use std::fmt;

use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use super::error::GkeError;
use super::http::encode;

/// Who asks Google for a token.
pub enum Credentials {
    /// A service account, by its key.
    ServiceAccount(Box<ServiceAccount>),
    /// A user, by a refresh token.
    AuthorizedUser(AuthorizedUser),
    /// Whatever account the metadata server of this machine speaks for.
    Metadata {
        /// The host of the metadata server.
        host: String,
    },
}

/// The key of a service account.
pub struct ServiceAccount {
    email: String,
    key_id: String,
    key: RsaKeyPair,
    pub(super) token_uri: String,
}

/// The refresh token of a user.
pub struct AuthorizedUser {
    client_id: String,
    client_secret: String,
    refresh_token: String,
    pub(super) token_uri: String,
}

// Secrets are in no log.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServiceAccount(account) => write!(f, "ServiceAccount({})", account.email),
            Self::AuthorizedUser(user) => write!(f, "AuthorizedUser({})", user.client_id),
            Self::Metadata { host } => write!(f, "Metadata({host})"),
        }
    }
}

impl Credentials {
    /// Reads a key file.
    pub fn parse(text: &[u8]) -> Result<Self, GkeError> {
        let file: Value = serde_json::from_slice(text).map_err(|cause| invalid(format!("not JSON: {cause}")))?;
        match file["type"].as_str() {
            Some("service_account") => Ok(Self::ServiceAccount(Box::new(ServiceAccount::read(&file)?))),
            Some("authorized_user") => Ok(Self::AuthorizedUser(AuthorizedUser {
                client_id: field(&file, "client_id")?,
                client_secret: field(&file, "client_secret")?,
                refresh_token: field(&file, "refresh_token")?,
                token_uri: token_uri(&file),
            })),
            Some(other) => Err(GkeError::UnsupportedCredentialType { found: super::error::quoted(other) }),
            None => Err(invalid("field `type` is missing".to_owned())),
        }
    }
}

impl ServiceAccount {
    fn read(file: &Value) -> Result<Self, GkeError> {
        let pem = field(file, "private_key")?;
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|cause| invalid(format!("private_key is not a PKCS #8 key in PEM: {cause}")))?;
        let key = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der())
            .map_err(|cause| invalid(format!("private_key is not an RSA key that can be used: {cause}")))?;
        Ok(Self {
            email: field(file, "client_email")?,
            key_id: field(file, "private_key_id")?,
            key,
            token_uri: token_uri(file),
        })
    }

    /// The form that asks for a token, with an assertion signed by the key.
    pub(super) fn request(&self, now: u64) -> Result<String, GkeError> {
        let issued = now.saturating_sub(CLOCKS_DIFFER);
        let header = json!({ "alg": "RS256", "typ": "JWT", "kid": self.key_id });
        let claims = json!({
            "iss": self.email,
            "scope": SCOPES.join(" "),
            "aud": self.token_uri,
            "iat": issued,
            "exp": issued + 3600,
        });
        let signed =
            format!("{}.{}", base64url(header.to_string().as_bytes()), base64url(claims.to_string().as_bytes()));
        let mut signature = vec![0; self.key.public().modulus_len()];
        self.key
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
            .map_err(|_| invalid("private_key cannot sign".to_owned()))?;
        let assertion = format!("{signed}.{}", base64url(&signature));
        Ok(encode(&[("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"), ("assertion", &assertion)]))
    }
}

impl AuthorizedUser {
    /// The form that asks for a token.
    pub(super) fn request(&self) -> String {
        encode(&[
            ("grant_type", "refresh_token"),
            ("client_id", &self.client_id),
            ("client_secret", &self.client_secret),
            ("refresh_token", &self.refresh_token),
        ])
    }
}

fn field(file: &Value, name: &str) -> Result<String, GkeError> {
    let text = file[name].as_str().filter(|text| !text.is_empty());
    text.map(str::to_owned).ok_or_else(|| invalid(format!("field `{name}` is missing")))
}

fn token_uri(file: &Value) -> String {
    file["token_uri"].as_str().unwrap_or(TOKEN_URI).to_owned()
}

fn invalid(problem: String) -> GkeError {
    GkeError::InvalidCredentials { problem }
}

/// As JSON Web Tokens have it: without padding.
fn base64url(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

/// The second makes the cluster's RBAC see the account's e-mail address.
pub(super) const SCOPES: [&str; 2] =
    ["https://www.googleapis.com/auth/cloud-platform", "https://www.googleapis.com/auth/userinfo.email"];
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
/// Seconds by which our clock may be ahead of Google's.
const CLOCKS_DIFFER: u64 = 10;
