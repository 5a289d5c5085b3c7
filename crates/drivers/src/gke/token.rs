//! Access tokens.

use std::fmt;
use std::time::Duration;

use http::{Method, StatusCode, Uri};
use serde_json::Value;

use super::Gke;
use super::credentials::{Credentials, SCOPES};
use super::error::{GkeError, quoted};
use super::http::{Request, encode, is_loopback};

/// An access token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    secret: String,
    lifetime: Duration,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token(for {:?})", self.lifetime)
    }
}

impl Token {
    /// What goes into the header.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    #[cfg(test)]
    pub(super) fn for_test(lifetime: Duration) -> Self {
        Self { secret: String::new(), lifetime }
    }

    /// Reads the answer of a token endpoint.
    pub fn read(answer: &Value) -> Result<Self, GkeError> {
        let lifetime = answer["expires_in"].as_u64().map(|seconds| Duration::from_secs(seconds).min(LONGEST_LIFE));
        match (answer["access_token"].as_str(), lifetime) {
            (Some(secret), Some(lifetime)) if !secret.is_empty() => Ok(Self { secret: secret.to_owned(), lifetime }),
            _ => Err(GkeError::Transient {
                what: "asking for a token failed",
                problem: "the answer has no access_token with expires_in".to_owned(),
                retry_after: None,
            }),
        }
    }

    /// How long it is valid, from when it was given.
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// How long to use it: until five minutes before its end, or for half of its life if that is shorter.
    pub fn use_for(&self) -> Duration {
        self.lifetime.saturating_sub(Duration::from_mins(5)).max(self.lifetime / 2)
    }
}

impl Gke {
    /// A new token. `now` is the time in seconds since 1970.
    pub async fn token(&self, credentials: &Credentials, now: u64) -> Result<Token, GkeError> {
        match credentials {
            Credentials::ServiceAccount(account) => self.ask(&account.token_uri, account.request(now)?).await,
            Credentials::AuthorizedUser(user) => self.ask(&user.token_uri, user.request()).await,
            Credentials::Metadata { host } => self.ask_metadata(host).await,
        }
    }

    async fn ask(&self, token_uri: &str, form: String) -> Result<Token, GkeError> {
        self.check_token_uri(token_uri)?;
        let request = Request {
            call: "token",
            what: "asking for a token failed",
            method: Method::POST,
            uri: token_uri,
            headers: &[],
            token: None,
            form: Some(form),
        };
        let answer = self.http.send(request).await?;
        if answer.status.is_success() {
            return Token::read(&answer.body);
        }
        let says = |name: &str| answer.body[name].as_str().map(quoted);
        let message = match (says("error"), says("error_description")) {
            (Some(error), Some(description)) => format!("{error}: {description}"),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => answer.status.to_string(),
        };
        Err(GkeError::CredentialsRefused { message })
    }

    async fn ask_metadata(&self, host: &str) -> Result<Token, GkeError> {
        let scopes = encode(&[("scopes", &SCOPES.join(","))]);
        let uri = format!("http://{host}/computeMetadata/v1/instance/service-accounts/default/token?{scopes}");
        let request = Request {
            call: "token",
            what: "asking the metadata server for a token failed",
            method: Method::GET,
            uri: &uri,
            headers: &[("Metadata-Flavor", "Google")],
            token: None,
            form: None,
        };
        let answer = self.http.send(request).await?;
        let is_google = answer.headers.get("Metadata-Flavor").is_some_and(|flavor| flavor == "Google");
        if !is_google {
            let problem = format!("{host} is not a metadata server of Google");
            return Err(GkeError::InvalidCredentials { problem });
        }
        match answer.status {
            StatusCode::OK => Token::read(&answer.body),
            status => Err(GkeError::CredentialsRefused { message: format!("the metadata server answered {status}") }),
        }
    }

    /// A key file must not send us, and a signed assertion, wherever it likes.
    fn check_token_uri(&self, token_uri: &str) -> Result<(), GkeError> {
        let refused = |problem: String| Err(GkeError::InvalidCredentials { problem });
        let Ok(uri) = token_uri.parse::<Uri>() else { return refused("token_uri is not a URL".to_owned()) };
        let host = uri.host().unwrap_or_default();
        if self.options.allow_loopback && is_loopback(&uri) {
            return Ok(());
        }
        if uri.scheme_str() != Some("https") {
            return refused("token_uri must begin with https://".to_owned());
        }
        if !self.options.token_hosts.iter().any(|allowed| allowed == host) {
            return refused(format!("token_uri leads to {}: allow it with --gcp-token-host", quoted(host)));
        }
        Ok(())
    }
}

/// No token is used for longer, whatever is said of it; Google's live for an hour.
const LONGEST_LIFE: Duration = Duration::from_hours(24);
