//! Authentication: bearer tokens and client certificates.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, StatusCode, header};
use portolan_certs::Identity;

use super::user::User;
use crate::status::Failure;

/// Identifies the user of a request.
#[derive(Debug, Default)]
pub struct Authenticator {
    tokens: Vec<(String, User)>,
}

impl Authenticator {
    /// Accepts client certificates only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a bearer token.
    #[must_use]
    pub fn with_token(mut self, token: impl Into<String>, user: User) -> Self {
        self.tokens.push((token.into(), user));
        self
    }

    /// The user behind a request: by client certificate, else by token, else anonymous; 401 for a wrong token.
    pub fn authenticate(&self, headers: &HeaderMap, peer: Option<&Identity>) -> Result<User, Failure> {
        let user = match (peer, headers.get(header::AUTHORIZATION)) {
            (Some(peer), _) => User::from(peer).authenticated(),
            (None, Some(value)) => {
                let token = bearer(value.to_str().unwrap_or_default());
                // Another scheme, or an empty token, counts as no header.
                match token {
                    Some(token) => self.user_of(token).ok_or_else(unauthorized)?.authenticated(),
                    None => User::anonymous(),
                }
            }
            (None, None) => User::anonymous(),
        };
        if let Some(name) = headers.keys().find(|name| name.as_str().starts_with("impersonate-")) {
            let why = format!("header {name}: this API server does not impersonate: use credentials of that user");
            return Err(Failure::new(StatusCode::FORBIDDEN, "Forbidden", why));
        }
        Ok(user)
    }

    /// The user of a token; a wrong one takes as long as a right one.
    pub(super) fn user_of(&self, token: &str) -> Option<User> {
        let mut found = None;
        for (known, user) in &self.tokens {
            if equal(known.as_bytes(), token.as_bytes()) {
                found = Some(user.clone());
            }
        }
        found
    }
}

/// A random bearer token.
pub(crate) fn token() -> String {
    let mut bytes = [0; 32];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).expect("the kernel gives random bytes");
    URL_SAFE_NO_PAD.encode(bytes)
}

fn unauthorized() -> Failure {
    Failure::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.trim().split_once(' ')?;
    let token = token.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Compares in time that depends on the lengths only.
fn equal(left: &[u8], right: &[u8]) -> bool {
    let difference = left.iter().zip(right).fold(0, |difference, (left, right)| difference | (left ^ right));
    std::hint::black_box(difference) == 0 && left.len() == right.len()
}

#[cfg(test)]
mod tests {
    use super::super::user::{ANONYMOUS, AUTHENTICATED, MASTERS};
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(http::HeaderName::from_static(name), value.parse().unwrap())])
    }

    #[test]
    fn a_token_names_its_user_and_a_wrong_one_is_401() {
        let auth = Authenticator::new().with_token("secret", User::new("admin", &[MASTERS]));

        let user = auth.authenticate(&headers("authorization", "Bearer secret"), None).unwrap();
        assert_eq!(user.groups, [MASTERS, AUTHENTICATED]);
        for wrong in ["Bearer secre", "Bearer secrets", "bearer x"] {
            let failure = auth.authenticate(&headers("authorization", wrong), None).unwrap_err();
            assert_eq!((failure.code.as_u16(), failure.message.as_str()), (401, "Unauthorized"), "{wrong}");
        }
        assert_eq!(auth.authenticate(&HeaderMap::new(), None).unwrap().name, ANONYMOUS);
        assert_eq!(auth.authenticate(&headers("impersonate-user", "x"), None).unwrap_err().code.as_u16(), 403);
    }
}
