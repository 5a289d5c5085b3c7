//! Keys to sign with: where they come from, and when they are renewed.
//!
//! The first source that is set up is used: environment, web identity, profile, metadata service. Keys stay in memory,
//! are renewed five minutes before their end, and if that fails they are used to their end.

mod keys;
mod metadata;
mod profile;
mod web_identity;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::error::AwsError;
use super::http::{Endpoint, Http};
use super::settings::AwsSettings;
pub(super) use keys::Keys;
use metadata::Metadata;
use profile::Profile;
use web_identity::WebIdentity;

/// Where keys come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialsSource {
    /// `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`.
    Environment,
    /// A token of the cluster, exchanged at STS.
    WebIdentity,
    /// A credentials file or a mounted Secret.
    Profile,
    /// The role of the instance.
    Metadata,
}

/// The chain of sources.
pub(super) struct Credentials {
    settings: AwsSettings,
    http: Http,
    sts: Endpoint,
    metadata: Option<Metadata>,
    cached: Mutex<Option<Cached>>,
}

#[derive(Clone)]
struct Cached {
    keys: Arc<Keys>,
    source: CredentialsSource,
    renew_at: Instant,
    ends_at: Option<Instant>,
}

impl Credentials {
    pub(super) fn new(settings: AwsSettings, http: Http, sts: Endpoint, metadata: Option<Metadata>) -> Self {
        Self { settings, http, sts, metadata, cached: Mutex::new(None) }
    }

    /// Keys that are valid.
    pub(super) async fn keys(&self) -> Result<Arc<Keys>, AwsError> {
        Ok(self.current().await?.keys)
    }

    /// Where the keys come from, and until when they are valid.
    pub(super) async fn source(&self) -> Result<(CredentialsSource, Option<Timestamp>), AwsError> {
        let current = self.current().await?;
        Ok((current.source, current.keys.expires))
    }

    /// Fetches keys again, unless others than those refused are there already; true if they are others now.
    pub(super) async fn renew(&self, refused: &Arc<Keys>) -> Result<bool, AwsError> {
        let mut cached = self.cached.lock().await;
        if cached.as_ref().is_none_or(|cached| Arc::ptr_eq(&cached.keys, refused)) {
            *cached = Some(self.fetch().await?);
        }
        Ok(cached.as_ref().is_some_and(|cached| {
            cached.keys.access_key_id != refused.access_key_id || cached.keys.secret != refused.secret
        }))
    }

    /// Renewal is due, whatever the clock says.
    #[cfg(test)]
    pub(super) async fn make_due(&self) {
        if let Some(cached) = &mut *self.cached.lock().await {
            cached.renew_at = Instant::now();
        }
    }

    async fn current(&self) -> Result<Cached, AwsError> {
        // The lock is held while keys are fetched: all others wait for the same keys.
        let mut cached = self.cached.lock().await;
        let now = Instant::now();
        if let Some(cached) = &*cached
            && now < cached.renew_at
        {
            return Ok(cached.clone());
        }
        match (self.fetch().await, &mut *cached) {
            (Ok(fetched), cached) => {
                *cached = Some(fetched.clone());
                Ok(fetched)
            }
            (Err(_), Some(old)) if old.ends_at.is_none_or(|end| now < end) => {
                old.renew_at = now + TRY_AGAIN;
                Ok(old.clone())
            }
            (Err(error), _) => Err(error),
        }
    }

    async fn fetch(&self) -> Result<Cached, AwsError> {
        let (source, keys) = self.find().await?;
        let now = Instant::now();
        let lifetime =
            keys.expires.map(|end| Duration::try_from(end.duration_since(Timestamp::now())).unwrap_or_default());
        let renew_in = match (lifetime, source) {
            (Some(lifetime), _) => use_for(lifetime),
            // Files change when a Secret is rotated.
            (None, CredentialsSource::Profile) => REREAD,
            (None, CredentialsSource::Environment | CredentialsSource::WebIdentity | CredentialsSource::Metadata) => {
                Duration::from_hours(24)
            }
        };
        let ends_at = lifetime.map(|lifetime| now + lifetime);
        Ok(Cached { keys: Arc::new(keys), source, renew_at: now + renew_in, ends_at })
    }

    async fn find(&self) -> Result<(CredentialsSource, Keys), AwsError> {
        let AwsSettings { access_key_id, secret_access_key, session_token, .. } = &self.settings;
        if let (Some(id), Some(secret)) = (access_key_id, secret_access_key) {
            let keys = Keys {
                access_key_id: id.clone(),
                secret: secret.clone(),
                session_token: session_token.clone(),
                expires: None,
            };
            return Ok((CredentialsSource::Environment, keys));
        }
        if let Some(identity) = WebIdentity::of_settings(&self.settings) {
            return Ok((CredentialsSource::WebIdentity, identity.keys(&self.http, &self.sts).await?));
        }
        match Profile::read(&self.settings).await? {
            Some(Profile::Keys(keys)) => return Ok((CredentialsSource::Profile, keys)),
            Some(Profile::WebIdentity(identity)) => {
                return Ok((CredentialsSource::WebIdentity, identity.keys(&self.http, &self.sts).await?));
            }
            None => {}
        }
        let Some(metadata) = &self.metadata else {
            let problem = "AWS_EC2_METADATA_DISABLED is set, and there are no others: set AWS_ACCESS_KEY_ID and \
                           AWS_SECRET_ACCESS_KEY, or AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE, or mount a Secret"
                .to_owned();
            return Err(AwsError::InvalidCredentials { origin: "the metadata service".to_owned(), problem });
        };
        Ok((CredentialsSource::Metadata, metadata.keys(&self.http).await?))
    }
}

/// The region: as set, of the profile, or of the instance.
pub(super) async fn region(
    settings: &AwsSettings,
    http: &Http,
    metadata: Option<&Metadata>,
) -> Result<String, AwsError> {
    if let Some(region) = &settings.region {
        return Ok(region.clone());
    }
    if let Some(region) = profile::region(settings).await? {
        return Ok(region);
    }
    let Some(metadata) = metadata else {
        return Err(AwsError::NoRegion { problem: "AWS_EC2_METADATA_DISABLED is set".to_owned() });
    };
    metadata.region(http).await.map_err(|cause| AwsError::NoRegion { problem: cause.to_string() })
}

pub(super) fn metadata(settings: &AwsSettings) -> Result<Option<Metadata>, AwsError> {
    let url = settings.metadata_endpoint.as_deref().unwrap_or(metadata::ENDPOINT);
    let endpoint = Endpoint::parse("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)?;
    Ok((!settings.metadata_disabled).then_some(Metadata { endpoint }))
}

/// How long keys are used: until five minutes before their end, or for half of their life if that is shorter.
fn use_for(lifetime: Duration) -> Duration {
    lifetime.saturating_sub(Duration::from_mins(5)).max(lifetime / 2)
}

/// When to try again to renew keys that are still valid.
const TRY_AGAIN: Duration = Duration::from_secs(10);
/// How long the keys of a file are used.
const REREAD: Duration = Duration::from_mins(5);

#[test]
fn keys_are_renewed_before_they_end() {
    assert_eq!(use_for(Duration::from_hours(1)), Duration::from_mins(55));
    assert_eq!(use_for(Duration::from_mins(4)), Duration::from_mins(2));
}
