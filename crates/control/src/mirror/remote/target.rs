//! Where a remote is and how we get in.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use portolan_drivers::gke::{ClusterName, Credentials, EndpointKind, Gke, GkeError};
use portolan_drivers::kubeconfig::{self, Access, Identity};

use crate::mirror::validate::Problem;

/// Where a remote is and how we get in.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::mirror) enum Target {
    /// An API server.
    Server(Access),
    /// An API server, by a file that is read again and again.
    File { path: PathBuf, context: Option<String> },
    /// A GKE cluster.
    Gke { cluster: ClusterName, endpoint: EndpointKind, ca: Option<Vec<u8>>, key: GkeKey },
}

/// Who we are to Google.
#[derive(Clone, PartialEq)]
pub(in crate::mirror) enum GkeKey {
    /// The content of a key file.
    Given(Arc<[u8]>),
    /// Whatever this process has: the file of GOOGLE_APPLICATION_CREDENTIALS, that of gcloud, or the metadata server.
    Ambient,
}

// Keys are in no log.
impl std::fmt::Debug for GkeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Given(_) => "Given",
            Self::Ambient => "Ambient",
        })
    }
}

/// Google's APIs, and who this process is to them.
#[derive(Clone)]
pub(in crate::mirror) struct Google {
    pub(in crate::mirror) api: Gke,
    pub(in crate::mirror) key_file: Option<PathBuf>,
    pub(in crate::mirror) metadata_host: String,
    /// A cluster that cannot be reached is looked up again at most this often.
    pub(in crate::mirror) lookup_interval: Duration,
}

/// An API server, and until when what we know of it can be used.
pub(super) struct Resolved {
    pub(super) access: Access,
    /// Version of the control plane, if somebody else than itself said so.
    pub(super) version: Option<String>,
    /// How long the credentials are valid, and after what time to renew them.
    pub(super) lifetime: Option<(std::time::Duration, std::time::Duration)>,
}

impl Target {
    /// Finds the API server.
    pub(super) async fn resolve(&self, google: &Google, allow_loopback: bool) -> Result<Resolved, Problem> {
        match self {
            Self::Server(access) => Ok(Resolved { access: access.clone(), version: None, lifetime: None }),
            Self::File { path, context } => {
                let text = tokio::fs::read_to_string(path).await.map_err(|cause| {
                    let message = format!("{} cannot be read: {cause}", path.display());
                    Problem::new("SecretMissing", message)
                })?;
                let access = kubeconfig::parse(&text, context.as_deref(), allow_loopback);
                let access = access.map_err(|refused| Problem::new("KubeconfigRefused", refused.to_string()))?;
                Ok(Resolved { access, version: None, lifetime: None })
            }
            Self::Gke { cluster, endpoint, ca, key } => {
                let found = find(google, cluster, *endpoint, ca.as_deref(), key).await;
                found.map_err(|problem| Problem::new(problem.reason(), problem.to_string()))
            }
        }
    }
}

async fn find(
    google: &Google,
    cluster: &ClusterName,
    endpoint: EndpointKind,
    ca: Option<&[u8]>,
    key: &GkeKey,
) -> Result<Resolved, GkeError> {
    let credentials = match key {
        GkeKey::Given(text) => Credentials::parse(text)?,
        GkeKey::Ambient => google.ambient().await?,
    };
    let now = u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default();
    let token = google.api.token(&credentials, now).await?;
    let found = google.api.cluster(cluster, endpoint, &token).await?;
    let access = Access {
        server: found.server,
        ca: found.ca.or_else(|| ca.map(<[u8]>::to_vec)),
        tls_server_name: None,
        identity: Identity::Token(token.secret().to_owned()),
    };
    Ok(Resolved { access, version: Some(found.version), lifetime: Some((token.lifetime(), token.use_for())) })
}

impl Google {
    /// The process's own credentials, found as Google's libraries do.
    async fn ambient(&self) -> Result<Credentials, GkeError> {
        if let Some(path) = &self.key_file {
            let text = tokio::fs::read(path).await.map_err(|cause| GkeError::InvalidCredentials {
                problem: format!("the file of GOOGLE_APPLICATION_CREDENTIALS, {}: {cause}", path.display()),
            })?;
            return Credentials::parse(&text);
        }
        if let Some(home) = std::env::home_dir() {
            let path = home.join(".config/gcloud/application_default_credentials.json");
            if let Ok(text) = tokio::fs::read(&path).await {
                return Credentials::parse(&text);
            }
        }
        Ok(Credentials::Metadata { host: self.metadata_host.clone() })
    }
}
