//! The Secret with the login -> a client of the gateway.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use portolan_drivers::gateway::{GatewayClient, Login};

use super::settings::Options;

/// Why there is no login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoginProblem {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// A client, made anew whenever the Secret's data changes.
#[derive(Default)]
pub(super) struct Access {
    /// The Secret's data, if there is a Secret.
    data: Option<BTreeMap<String, ByteString>>,
    /// None until it was looked for.
    client: Option<Result<Arc<GatewayClient>, LoginProblem>>,
}

impl Access {
    /// Follows the Secret; true if there is another client now, or another reason for none.
    pub(super) fn follow(&mut self, secret: Option<&Secret>, options: &Options) -> bool {
        let data = secret.map(|secret| secret.data.clone().unwrap_or_default());
        if self.client.is_some() && self.data == data {
            return false;
        }
        self.client = Some(client(data.as_ref(), options).map(Arc::new));
        self.data = data;
        true
    }

    /// The client, or why there is none.
    pub(super) fn client(&self) -> Result<&Arc<GatewayClient>, Option<&LoginProblem>> {
        match &self.client {
            Some(Ok(client)) => Ok(client),
            Some(Err(problem)) => Err(Some(problem)),
            None => Err(None),
        }
    }
}

fn client(data: Option<&BTreeMap<String, ByteString>>, options: &Options) -> Result<GatewayClient, LoginProblem> {
    let Options { secret, operator_namespace, url, .. } = options;
    let missing = |message: String| LoginProblem { reason: "LoginMissing", message };
    let data = data.ok_or_else(|| {
        missing(format!("there is no Secret {secret} in namespace {operator_namespace}, the operator's own: create it"))
    })?;
    let text = |key: &str| data.get(key).map(|value| String::from_utf8_lossy(&value.0).trim().to_owned());
    let login = match (text("token"), text("username"), text("password")) {
        (Some(token), None, None) => Login::Token(token),
        (None, Some(username), Some(password)) => Login::Basic { username, password },
        _ => {
            let what = "needs either `token`, or `username` and `password`";
            return Err(missing(format!("Secret {operator_namespace}/{secret} {what}")));
        }
    };
    let ca = data.get("ca.crt").map(|value| value.0.as_slice());
    GatewayClient::new(url.clone(), &login, ca).map_err(|problem| LoginProblem {
        reason: "LoginInvalid",
        message: format!("Secret {operator_namespace}/{secret}: {problem}"),
    })
}

#[cfg(test)]
mod tests {
    use portolan_drivers::gateway::GroupUrl;

    use super::*;

    #[test]
    fn a_secret_has_a_token_or_a_user_and_a_change_of_it_makes_another_client() {
        let url = GroupUrl::parse("https://gw.example/api/egw/accounts/a/groups/g").unwrap();
        let (options, mut access) = (Options::of(url), Access::default());
        let reason = |access: &Access| access.client().err().flatten().map(|problem| problem.reason);
        assert_eq!(reason(&access), None, "it has not been looked for");
        let secret = |keys: &[(&str, &str)]| {
            let data = keys.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
            Secret { data: Some(data.collect()), ..Secret::default() }
        };
        assert!(access.follow(None, &options));
        assert_eq!(reason(&access), Some("LoginMissing"));
        let basic = secret(&[("username", "u"), ("password", "p\n")]);
        assert!(access.follow(Some(&basic), &options) && access.client().is_ok());
        assert!(!access.follow(Some(&basic), &options));
        assert!(access.follow(Some(&secret(&[("token", "t")])), &options) && access.client().is_ok());
        for bad in [&[("username", "u")][..], &[("token", "t"), ("username", "u"), ("password", "p")], &[]] {
            access.follow(Some(&secret(bad)), &options);
            assert_eq!(reason(&access), Some("LoginMissing"), "{bad:?}");
        }
        access.follow(Some(&secret(&[("token", "t"), ("ca.crt", "none")])), &options);
        assert_eq!(reason(&access), Some("LoginInvalid"));
    }
}
