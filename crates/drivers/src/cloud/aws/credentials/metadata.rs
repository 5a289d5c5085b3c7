//! The metadata service of an instance, version 2: a token first, by PUT, then the role and its keys.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::Value;
use zeroize::Zeroizing;

use super::super::error::{AwsError, Failure, quoted};
use super::super::http::{Answer, Endpoint, Http, Request};
use super::keys::Keys;

pub(super) const ENDPOINT: &str = "http://169.254.169.254";

/// The metadata service.
pub(in super::super) struct Metadata {
    pub(super) endpoint: Endpoint,
}

impl Metadata {
    pub(super) async fn keys(&self, http: &Http) -> Result<Keys, AwsError> {
        let token = self.token(http).await?;
        let roles = self.get(http, &token, ROLES).await?;
        let Some(role) = roles.lines().map(str::trim).find(|role| is_name(role)) else {
            return Err(refused("the instance has no role: attach an instance profile".to_owned()));
        };
        let text = Zeroizing::new(self.get(http, &token, &format!("{ROLES}{role}")).await?);
        let answer: Value = serde_json::from_str(&text).map_err(|_| unreachable("the keys are not JSON".to_owned()))?;
        let part = |name: &str| answer[name].as_str().map(str::to_owned);
        let keys = || {
            Some(Keys {
                access_key_id: part("AccessKeyId")?,
                secret: Zeroizing::new(part("SecretAccessKey")?),
                session_token: Some(Zeroizing::new(part("Token")?)),
                expires: Some(part("Expiration")?.parse().ok()?),
            })
        };
        match part("Code").as_deref() {
            None | Some("Success") => keys().ok_or_else(|| unreachable("the answer has no keys".to_owned())),
            Some(code) => Err(refused(quoted(code))),
        }
    }

    pub(super) async fn region(&self, http: &Http) -> Result<String, AwsError> {
        let token = self.token(http).await?;
        let region = self.get(http, &token, "/latest/meta-data/placement/region").await?;
        let region = region.trim();
        if is_name(region) { Ok(region.to_owned()) } else { Err(unreachable("the region is not a name".to_owned())) }
    }

    async fn token(&self, http: &Http) -> Result<Zeroizing<String>, AwsError> {
        let headers = [("x-aws-ec2-metadata-token-ttl-seconds", "300")];
        let answer = self.send(http, Method::PUT, "/latest/api/token", &headers).await.map_err(|failure| {
            // The answer to this request is the one that has too few hops to reach a pod.
            unreachable(format!(
                "{}: in a pod, the hop limit of 1 stops the answer: set HttpPutResponseHopLimit of the instance to 2, \
                 or use web identity",
                problem(failure)
            ))
        })?;
        match answer.status {
            StatusCode::OK => Ok(Zeroizing::new(answer.body.trim().to_owned())),
            status => Err(refused(format!("the metadata service gave no token ({status}): enable it on the instance"))),
        }
    }

    async fn get(&self, http: &Http, token: &str, path: &str) -> Result<String, AwsError> {
        let answer = self.send(http, Method::GET, path, &[("x-aws-ec2-metadata-token", token)]).await;
        let answer = answer.map_err(|failure| unreachable(problem(failure)))?;
        match answer.status {
            StatusCode::OK => Ok(answer.body),
            StatusCode::NOT_FOUND if path == ROLES => {
                Err(refused("the instance has no role: attach an instance profile".to_owned()))
            }
            status => Err(unreachable(format!("the metadata service answered {status}"))),
        }
    }

    async fn send(&self, http: &Http, method: Method, path: &str, headers: &[(&str, &str)]) -> Result<Answer, Failure> {
        http.send(Request { method, endpoint: &self.endpoint, path, headers, body: Bytes::new(), limit: LONGEST }).await
    }
}

fn problem(failure: Failure) -> String {
    match failure {
        Failure::NotSent(problem) | Failure::Lost(problem) => problem,
        Failure::Refused { code, .. } => code,
        Failure::Credentials(error) => error.to_string(),
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "+=,.@_-".contains(letter))
}

fn refused(message: String) -> AwsError {
    AwsError::CredentialsRefused { origin: "the metadata service", message }
}

fn unreachable(problem: String) -> AwsError {
    AwsError::Unreachable { what: "asking the metadata service failed", problem }
}

/// The service is on the machine itself.
const LONGEST: Duration = Duration::from_secs(2);
const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
