//! A token of the cluster becomes keys of a role: STS AssumeRoleWithWebIdentity, which is not signed.

use std::path::PathBuf;
use std::time::Duration;

use http::Method;
use roxmltree::Node;
use zeroize::Zeroizing;

use super::super::error::{AwsError, Failure, Meaning};
use super::super::http::{Endpoint, Http, Request};
use super::super::settings::AwsSettings;
use super::super::xml;
use super::keys::Keys;

/// A role, and the file of the token that it is assumed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WebIdentity {
    pub(super) token_file: PathBuf,
    pub(super) role: String,
    pub(super) session_name: String,
}

impl WebIdentity {
    pub(super) fn of_settings(settings: &AwsSettings) -> Option<Self> {
        let token_file = settings.web_identity_token_file.clone()?;
        let role = settings.role_arn.clone()?;
        Some(Self { token_file, role, session_name: session_name(settings) })
    }

    /// Reads the token, which is rotated, and exchanges it.
    pub(super) async fn keys(&self, http: &Http, sts: &Endpoint) -> Result<Keys, AwsError> {
        let token = tokio::fs::read_to_string(&self.token_file).await.map(Zeroizing::new).map_err(|cause| {
            let origin = format!("the web identity token {}", self.token_file.display());
            let problem = format!("{cause}: mount the service account's token there");
            AwsError::InvalidCredentials { origin, problem }
        })?;
        let form = Zeroizing::new(
            form_urlencoded::Serializer::new(String::new())
                .append_pair("Action", "AssumeRoleWithWebIdentity")
                .append_pair("Version", "2011-06-15")
                .append_pair("RoleArn", &self.role)
                .append_pair("RoleSessionName", &self.session_name)
                .append_pair("WebIdentityToken", token.trim())
                .finish(),
        );
        let request = Request {
            method: Method::POST,
            endpoint: sts,
            path: "/",
            headers: &[("content-type", "application/x-www-form-urlencoded")],
            body: form.as_bytes().to_vec().into(),
            limit: LONGEST,
        };
        let answer = http.send(request).await.map_err(|failure| match failure {
            Failure::NotSent(problem) | Failure::Lost(problem) => unreachable(problem),
            Failure::Credentials(error) => error,
            Failure::Refused { code, message } => refused(&code, &message),
        })?;
        let body = Zeroizing::new(answer.body);
        match xml::refusal(&body) {
            Some(failure) if failure.meaning() != Meaning::Transient && !answer.status.is_server_error() => {
                let Failure::Refused { code, message } = failure else {
                    return Err(unreachable(answer.status.to_string()));
                };
                Err(refused(&code, &message))
            }
            None if answer.status.is_success() => keys(&body),
            Some(_) | None => Err(unreachable(format!("STS answered {}", answer.status))),
        }
    }
}

pub(super) fn session_name(settings: &AwsSettings) -> String {
    settings.role_session_name.clone().unwrap_or_else(|| "portolan".to_owned())
}

fn keys(body: &str) -> Result<Keys, AwsError> {
    let read = |root: Node<'_, '_>| {
        let keys = xml::find(root, &["AssumeRoleWithWebIdentityResult", "Credentials"])?;
        let part = |name: &str| xml::text(keys, &[name]).map(str::to_owned);
        Some(Keys {
            access_key_id: part("AccessKeyId")?,
            secret: Zeroizing::new(part("SecretAccessKey")?),
            session_token: Some(Zeroizing::new(part("SessionToken")?)),
            expires: Some(part("Expiration")?.parse().ok()?),
        })
    };
    let keys = xml::read(body, read).ok().flatten();
    keys.ok_or_else(|| unreachable("the answer of STS has no keys".to_owned()))
}

fn refused(code: &str, message: &str) -> AwsError {
    let message = format!(
        "{code}: {message}: check that the role trusts the cluster's identity provider and this service account"
    );
    AwsError::CredentialsRefused { origin: "STS AssumeRoleWithWebIdentity", message }
}

fn unreachable(problem: String) -> AwsError {
    AwsError::Unreachable { what: "exchanging the web identity token failed", problem }
}

const LONGEST: Duration = Duration::from_secs(10);
